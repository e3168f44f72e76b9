package origin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/document"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// NetworkMirror is a client of one mirror, by the provider network mirror protocol. A
// mirror provides hashes of packages, but no signature.
type NetworkMirror struct {
	registry *Registry
	base     *url.URL
}

// NetworkMirror returns a client of the mirror at base, an https: URL that ends in a
// slash. Tokens for its host are sent only with requests for JSON.
func (r *Registry) NetworkMirror(base *url.URL) *NetworkMirror {
	r.guard.recordAsked(base.Hostname())
	return &NetworkMirror{r, base}
}

// Versions implements [Source].
func (m *NetworkMirror) Versions(ctx context.Context, a provider.Address) (*Listing, error) {
	var index mirrorIndex
	l := &Listing{}
	var ignored names
	err := m.get(ctx, a, "index.json", indexLimits, &index, ErrProviderNotFound, func(by answered) error {
		l.Warnings = m.refusedByClients("index.json", by)
		for s := range index.Versions.value {
			v, err := provider.ParseVersion(s)
			if err != nil {
				ignored = append(ignored, quote(s))
				continue
			}
			l.Versions = append(l.Versions, v)
		}
		return index.check()
	})
	if err != nil {
		return nil, fmt.Errorf("list versions of %s: %w", a, err)
	}
	provider.SortVersions(l.Versions)
	if len(ignored) > 0 {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s lists entries that are not versions and are ignored: %s", m.base.Host, ignored))
	}
	return l, nil
}

// Platforms implements [Source].
func (m *NetworkMirror) Platforms(ctx context.Context, a provider.Address, _ *Listing, v provider.Version) ([]provider.Platform, error) {
	contents, _, err := m.version(ctx, a, v)
	if err != nil {
		return nil, err
	}
	platforms, _ := contents.knownPlatforms()
	return platforms, nil
}

// Release implements [Source].
func (m *NetworkMirror) Release(ctx context.Context, a provider.Address, _ *Listing, v provider.Version, want []provider.Platform) (*Release, error) {
	contents, by, err := m.version(ctx, a, v)
	if err != nil {
		return nil, err
	}
	release, err := m.release(a, v, contents, by.url, want)
	if err != nil {
		return nil, hint.Wrap(err, helpMirror)
	}
	release.Warnings = append(release.Warnings, m.refusedByClients(v.String()+".json", by)...)
	return release, nil
}

// refusedByClients returns a warning if clients refuse an answer because of its media
// type.
func (m *NetworkMirror) refusedByClients(name string, by answered) []string {
	if by.mediaType() == "application/json" {
		return nil
	}
	return []string{fmt.Sprintf("%s sends %s with the Content-Type %.80q: clients refuse it, and want application/json", m.base.Host, name, by.contentType)}
}

// unchecked is the end of a warning about a package without a hash.
const unchecked = "nothing shows that it is what its publisher released"

const helpMirror = "the mirror does not keep to the provider network mirror protocol; nothing was stored"

func (m *NetworkMirror) release(a provider.Address, v provider.Version, contents *mirrorVersion, at *url.URL, want []provider.Platform) (*Release, error) {
	have, ignored := contents.knownPlatforms()
	if len(have) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w: the mirror %s has no package of it", a, v, ErrVersionNotFound, redactedURL(m.base)), "is it pushed there?")
	}
	platforms, _, err := selectPlatforms(a, v, have, want)
	if err != nil {
		return nil, err
	}
	// It is unknown whether the mirror has all platforms of the release.
	r := &Release{Origin: m.base.Hostname(), Partial: true, Claims: trust.Claims{Provider: a, Version: v, Hashes: map[string][]provider.Hash{}}}
	if len(ignored) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s lists names that are no platforms; clients ignore them: %s", m.base.Host, ignored))
	}
	for _, p := range platforms {
		archive := contents.Archives[p.String()]
		u, err := reference(at, archive.URL)
		if err != nil {
			return nil, fmt.Errorf("%s: the URL of the package for %s is %w", redactedURL(at), p, err)
		}
		// The protocol has no file names, and a mirror may choose any URL.
		name := provider.PackageFilename(a, v, p)
		if err := archive.checkSchemes(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", redactedURL(at), p, err)
		}
		if r.Claims.Hashes[name], err = archive.knownHashes(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", redactedURL(at), p, err)
		}
		if len(r.Claims.Hashes[name]) == 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s gives no hash of the package for %s: %s", m.base.Host, p, unchecked))
		}
		r.Packages = append(r.Packages, m.registry.newPackage(p, name, u, nil))
	}
	return r, nil
}

// version requests the document about a version.
func (m *NetworkMirror) version(ctx context.Context, a provider.Address, v provider.Version) (*mirrorVersion, answered, error) {
	contents := &mirrorVersion{}
	var by answered
	err := m.get(ctx, a, v.String()+".json", versionLimits, contents, ErrVersionNotFound, func(answer answered) error {
		by = answer
		return hint.Wrap(contents.check(), helpMirror)
	})
	if err != nil {
		return nil, by, fmt.Errorf("read %s %s: %w", a, v, err)
	}
	return contents, by, nil
}

// get decodes one of a provider's documents like [Registry.getJSON], with the credentials
// for the mirror's host. notFound is the meaning of a 404.
func (m *NetworkMirror) get(ctx context.Context, a provider.Address, name string, limits document.Limits, out any, notFound error, use func(answered) error) error {
	host, err := svchost.ForComparison(m.base.Host)
	if err != nil {
		return fmt.Errorf("mirror %s: %w", redactedURL(m.base), err)
	}
	creds, err := m.registry.services.CredentialsForHost(ctx, host)
	if err != nil {
		return fmt.Errorf("credentials for %s: %w", host, err)
	}
	err = m.registry.getJSON(ctx, resolve(m.base, path.Join(a.Path(), name)), func(req *http.Request) {
		if creds != nil {
			creds.PrepareRequest(req)
		}
	}, limits, out, use)
	var status *statusError
	switch {
	case !errors.As(err, &status):
		return err
	case status.status == http.StatusNotFound:
		return hint.Wrap(fmt.Errorf("%w: %w", notFound, err), "the mirror %s does not have it", redactedURL(m.base))
	case status.status == http.StatusUnauthorized, status.status == http.StatusForbidden:
		return hint.Wrap(fmt.Errorf("%w: %w", ErrUnauthorized, err), "write a credentials block for %s into the CLI configuration, or set TF_TOKEN_%s",
			m.base.Host, tokenVariable(m.base.Host))
	}
	return hint.Wrap(err, "the mirror %s reports a server error: run it again later", redactedURL(m.base))
}
