package origin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// RegistryOptions configures a [Registry]. With the zero value, it contacts the origins
// themselves, without credentials.
type RegistryOptions struct {
	Transport http.RoundTripper // sends every request; nil means [outgoing.Transport]
	// Services finds the services of a host, with the credentials and overrides of the CLI
	// configuration; nil means plain service discovery.
	Services *disco.Disco
	// Rediscover returns a new value for Services. A [disco.Disco] caches the services of
	// every host for as long as it exists, so a long-running program needs a new one from
	// time to time. nil means that Services is never replaced.
	Rediscover func() *disco.Disco
	UserAgent  string // sent with every request
	Via        string // the Via header, if requests are on behalf of another client; "" means none
	Guard      *Guard // the guard of Transport and Services; nil means none
	Netrc      *Netrc // the logins for downloads of packages; nil means none
}

// Registry is a client of the provider registry protocol. It contacts the host in each
// provider's address.
type Registry struct {
	*client
	guard      *Guard
	netrc      *Netrc
	rediscover func() *disco.Disco

	mu       sync.Mutex
	services *disco.Disco
	since    time.Time                 // when services was created
	hosts    map[svchost.Hostname]bool // the hosts that services was used for
}

// NewRegistry returns a client.
func NewRegistry(o RegistryOptions) *Registry {
	if o.Transport == nil {
		o.Transport = outgoing.Transport()
	}
	gate := newHostGate(o.Transport, maxPerHost)
	r := &Registry{
		client: &client{
			http: newHTTPClient(gate), downloads: newHTTPClient(gate.over(watchHosts(forDownloads(o.Transport)))),
			userAgent: o.UserAgent, via: o.Via,
		},
		guard: o.Guard, netrc: o.Netrc, rediscover: o.Rediscover,
		services: o.Services, since: time.Now(), hosts: map[svchost.Hostname]bool{},
	}
	if r.services == nil {
		r.services = NewDiscovery(gate)
	}
	return r
}

// Listing lists the versions of a provider at an origin.
type Listing struct {
	Versions []provider.Version // oldest first
	// Warnings lists the origin's messages to its users, and warnings about the ignored
	// parts of its document.
	Warnings []string
	// OriginWarnings is the part of Warnings that the origin wrote, such as the deprecation
	// of a provider.
	OriginWarnings []string

	// Platforms and Protocols map versions to their platforms and plugin protocols. A version
	// is missing from a map if the origin does not list its platforms or protocols.
	Platforms map[provider.Version][]provider.Platform
	Protocols map[provider.Version][]string
}

// Versions implements [Source].
func (r *Registry) Versions(ctx context.Context, a provider.Address) (*Listing, error) {
	base, prepare, err := r.endpoint(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	var body versionsJSON
	var l *Listing
	err = r.getJSON(ctx, resolve(base, a.Namespace(), a.Type(), "versions"), prepare, listLimits, &body, func(answered) (err error) {
		l, err = body.listing(a.Hostname())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list versions of %s: %w", a, r.explain(err, a, ErrProviderNotFound))
	}
	return l, nil
}

// versionsJSON is the protocol's document about a provider.
type versionsJSON struct {
	Versions member[[]versionJSON] `json:"versions"`
	Warnings []string              `json:"warnings"`
}

type versionJSON struct {
	Version   string   `json:"version"`
	Protocols []string `json:"protocols"`
	Platforms []struct {
		OS   string `json:"os"`
		Arch string `json:"arch"`
	} `json:"platforms"`
}

// check returns an error if the document has no list of versions, or too many elements.
func (b *versionsJSON) check() error {
	err := errors.Join(checkCount("versions", len(b.Versions.value), maxVersions), checkCount("warnings", len(b.Warnings), maxWarnings))
	for _, v := range b.Versions.value {
		if err == nil {
			err = errors.Join(checkCount("platforms of one version", len(v.Platforms), maxPlatforms),
				checkCount("protocols of one version", len(v.Protocols), maxProtocols))
		}
	}
	if err == nil && !b.Versions.given {
		err = hint.Wrap(errNoVersionList, "the registry does not keep to the provider registry protocol, or a proxy has changed its answer")
	}
	return err
}

// listing converts the document to a [Listing]. It ignores invalid entries with a warning,
// because they must not hide the valid entries.
func (b *versionsJSON) listing(host string) (*Listing, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	l := &Listing{Platforms: map[provider.Version][]provider.Platform{}, Protocols: map[provider.Version][]string{}}
	for _, w := range b.Warnings {
		if w = oneLine(w); w != "" {
			l.Warnings = append(l.Warnings, w)
		}
	}
	l.OriginWarnings = slices.Clip(l.Warnings)
	var noVersions, twice, noPlatforms names
	for _, listed := range b.Versions.value {
		v, err := provider.ParseVersion(listed.Version)
		if err != nil {
			noVersions = append(noVersions, quote(listed.Version))
			continue
		}
		platforms, known := l.Platforms[v]
		if known {
			twice = append(twice, v.String())
		} else {
			l.Versions = append(l.Versions, v)
		}
		for _, p := range listed.Platforms {
			platform, err := provider.NewPlatform(p.OS, p.Arch)
			if err != nil {
				noPlatforms = append(noPlatforms, v.String()+" for "+quote(p.OS+"_"+p.Arch))
			} else if !slices.Contains(platforms, platform) {
				platforms = append(platforms, platform)
			}
		}
		l.Platforms[v] = platforms
		l.Protocols[v] = knownProtocols(l.Protocols[v], listed.Protocols)
	}
	provider.SortVersions(l.Versions)
	for _, w := range []struct {
		what  string
		about names
	}{
		{"entries that are not versions and are ignored", noVersions},
		{"versions more than once, which count once", twice},
		{"entries that are not platforms and are ignored", noPlatforms},
	} {
		if len(w.about) > 0 {
			l.Warnings = append(l.Warnings, fmt.Sprintf("%s lists %s: %s", host, w.what, w.about))
		}
	}
	return l, nil
}

// Platforms implements [Source].
func (r *Registry) Platforms(_ context.Context, _ provider.Address, l *Listing, v provider.Version) ([]provider.Platform, error) {
	return l.Platforms[v], nil
}

// Package returns a version's package for a platform, and the SHA-256 that the origin announces
// for it. It fetches no signature, so it is only for callers that know the signed SHA-256.
func (r *Registry) Package(ctx context.Context, a provider.Address, v provider.Version, p provider.Platform) (Package, [sha256.Size]byte, error) {
	metas, err := r.metadata(ctx, a, v, []provider.Platform{p})
	if err != nil {
		return Package{}, [sha256.Size]byte{}, err
	}
	return r.newPackage(p, metas[0].Filename, metas[0].download, r.netrc), metas[0].sum, nil
}

// Release implements [Source].
func (r *Registry) Release(ctx context.Context, a provider.Address, l *Listing, v provider.Version, want []provider.Platform) (*Release, error) {
	have, listed := l.Platforms[v]
	if !listed {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w", a, v, ErrVersionNotFound), "%s offers %s", a.Hostname(), list(newest(l.Versions)))
	}
	unknown := len(have) == 0 // the protocol allows an origin to omit the platforms
	if unknown && len(want) == 0 {
		return nil, hint.New(fmt.Sprintf("%s %s: %s does not say for which platforms it is", a, v, a.Hostname()), "name them with --platform")
	}
	if unknown {
		have = want
	}
	platforms, partial, err := selectPlatforms(a, v, have, want)
	if err != nil {
		return nil, err
	}
	metas, err := r.metadata(ctx, a, v, platforms)
	if err != nil {
		return nil, err
	}
	protocols, warning := protocolsOf(a.Hostname(), platforms, metas, l.Protocols[v])
	out := &Release{Origin: a.Hostname(), Partial: partial || unknown, Protocols: protocols, About: metas[0].about()}
	if warning != "" {
		out.Warnings = append(out.Warnings, warning)
	}
	keys, unclean := trust.CleanKeys(metas[0].SigningKeys)
	if unclean != nil {
		metas[0].SigningKeys = keys
		out.Warnings = append(out.Warnings, fmt.Sprintf("%v: it cannot install this version from %s; the key is stored in clean armour, which it can read", unclean, a.Hostname()))
	}
	if out.Claims, err = r.claims(ctx, a, v, metas[0]); err != nil {
		return nil, fmt.Errorf("%s %s: %w", a, v, err)
	}
	if out.Claims.Reported, err = joinReports(a, v, platforms, metas); err != nil {
		return nil, err
	}
	out.Claims.Announced = map[string][sha256.Size]byte{}
	for i, m := range metas {
		if sum, ok := out.Claims.Announced[m.Filename]; ok && sum != m.sum {
			return nil, hint.New(fmt.Sprintf("%s %s: %s announces two SHA-256 sums for %s", a, v, a.Hostname(), m.Filename), "the origin contradicts itself; nothing was stored")
		}
		out.Claims.Announced[m.Filename] = m.sum
		out.Packages = append(out.Packages, r.newPackage(platforms[i], m.Filename, m.download, r.netrc))
	}
	return out, nil
}

// NoMatch returns the error for a constraint that no listed version meets.
func (l *Listing) NoMatch(a provider.Address, s provider.VersionSet) error {
	return noMatch(a, s, a.Hostname(), l.Versions)
}

// newest returns the versions newest first.
func newest(vs []provider.Version) []provider.Version {
	out := slices.Clone(vs)
	slices.Reverse(out)
	return out
}

// claims fetches the checksum document and its signature, which all platforms of a version share.
// The two requests run concurrently, so that the request for a package's size and its download can
// reuse two connections.
func (r *Registry) claims(ctx context.Context, a provider.Address, v provider.Version, m *packageMeta) (trust.Claims, error) {
	c := trust.Claims{Provider: a, Version: v, FromRegistry: true}
	var err error
	if c.Keys, err = trust.ParseSigningKeys(m.SigningKeys); err != nil {
		return c, err
	}
	if string(m.SigningKeys) != "null" {
		c.SigningKeys = m.SigningKeys
	}
	g, ctx := panics.WithContext(ctx)
	g.Go(func() (err error) {
		if c.SHA256SUMS, err = r.getDocument(ctx, m.shasums); err != nil {
			return hint.Wrap(fmt.Errorf("SHA256SUMS: %w", err), "without its checksum document no package can be checked; nothing was stored")
		}
		return nil
	})
	g.Go(func() error {
		signature, err := r.signature(ctx, m)
		switch {
		case err == nil:
			c.Signature = signature
		case len(c.Keys) > 0: // otherwise nobody can verify the signature
			return hint.Wrap(fmt.Errorf("signature of SHA256SUMS: %w", err), "it announces signing keys, so a package without a signature is refused; nothing was stored")
		}
		return nil
	})
	err = g.Wait()
	return c, err
}

// signature fetches the signature of the checksum document. Its error wraps
// [trust.ErrUnsigned] if there is no signature.
func (r *Registry) signature(ctx context.Context, m *packageMeta) ([]byte, error) {
	if m.signature == nil {
		return nil, fmt.Errorf("%w: the answer gives no shasums_signature_url", trust.ErrUnsigned)
	}
	data, err := r.getDocument(ctx, m.signature)
	if status, ok := errors.AsType[*statusError](err); ok && status.status == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", trust.ErrUnsigned, err)
	}
	return data, err
}

// newPackage returns the package at a URL in an origin's document. Like clients, it requests the
// package without credentials, except for a login from the .netrc file. Callers may keep packages
// for a long time, so a package keeps neither the document nor the registry in memory.
func (c *client) newPackage(p provider.Platform, name string, from *url.URL, netrc *Netrc) Package {
	return Package{
		Platform: p, Filename: name, Host: canonical(from.Hostname()),
		Open: func(ctx context.Context) (io.ReadCloser, int64, error) {
			u, err := netrc.authorize(from)
			if err != nil {
				return nil, 0, fmt.Errorf("download %s: %w", name, err)
			}
			body, size, err := c.download(ctx, u)
			if err != nil {
				return nil, 0, hint.Wrap(fmt.Errorf("download %s: %w", name, err), "nothing was stored; run it again")
			}
			return body, size, nil
		},
		Size: func(ctx context.Context) int64 {
			u, err := netrc.authorize(from)
			if err != nil {
				return -1
			}
			return c.size(ctx, u)
		},
	}
}

// resolve returns the URL of an endpoint, relative to the base URL, as clients do. If the base URL
// does not end in a slash, the result lacks the last part of the base URL.
func resolve(base *url.URL, parts ...string) *url.URL {
	return base.ResolveReference(&url.URL{Path: path.Join(parts...)})
}
