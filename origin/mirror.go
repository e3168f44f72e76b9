package origin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// mirror implements [Source] with the documents of the provider network mirror protocol. A
// mirror gives hashes of its packages, but no signature.
type mirror struct {
	files  mirrorFiles
	origin string // the value of [Release.Origin]
	strict bool   // invalid names are errors; if false, they are ignored with a warning, because clients ignore them
	help   string // the hint for invalid documents
	empty  string // the hint for a version without packages
}

// mirrorFiles reads the files of a mirror on a server or in a folder.
type mirrorFiles interface {
	// get decodes the named document of a provider into out. If the document does not
	// exist, the error wraps notFound.
	get(ctx context.Context, a provider.Address, name string, limits document.Limits, out any, notFound error) (mirrorDocument, error)
	// locate returns the package that an entry of a version's document describes.
	locate(from mirrorDocument, a provider.Address, v provider.Version, p provider.Platform, entry mirrorArchive) (Package, error)
}

// mirrorDocument describes a document of a mirror, without its content.
type mirrorDocument struct {
	at       string   // its location, for messages
	url      *url.URL // nil in a folder
	warnings []string
}

// Versions implements [Source].
func (m *mirror) Versions(ctx context.Context, a provider.Address) (*Listing, error) {
	var index mirrorIndex
	from, err := m.files.get(ctx, a, "index.json", indexLimits, &index, ErrProviderNotFound)
	if err == nil {
		err = m.invalid(from, index.check())
	}
	if err != nil {
		return nil, err
	}
	l := &Listing{Warnings: from.warnings}
	var ignored names
	for s := range index.Versions.value {
		v, err := provider.ParseVersion(s)
		switch {
		case err == nil:
			l.Versions = append(l.Versions, v)
		case m.strict:
			return nil, m.invalid(from, err)
		default:
			ignored = append(ignored, quote(s))
		}
	}
	provider.SortVersions(l.Versions)
	if len(ignored) > 0 {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s lists entries that are not versions and are ignored: %s", from.at, ignored))
	}
	return l, nil
}

// Platforms implements [Source].
func (m *mirror) Platforms(ctx context.Context, a provider.Address, _ *Listing, v provider.Version) ([]provider.Platform, error) {
	contents, _, err := m.version(ctx, a, v)
	if err != nil {
		return nil, err
	}
	platforms, _ := contents.knownPlatforms()
	return platforms, nil
}

// Release implements [Source].
func (m *mirror) Release(ctx context.Context, a provider.Address, _ *Listing, v provider.Version, want []provider.Platform) (*Release, error) {
	contents, from, err := m.version(ctx, a, v)
	if err != nil {
		return nil, err
	}
	release, err := m.release(a, v, contents, from, want)
	return release, m.invalid(from, err)
}

// version reads the document about a version.
func (m *mirror) version(ctx context.Context, a provider.Address, v provider.Version) (*mirrorVersion, mirrorDocument, error) {
	contents := &mirrorVersion{}
	from, err := m.files.get(ctx, a, v.String()+".json", versionLimits, contents, ErrVersionNotFound)
	if err == nil {
		err = m.invalid(from, contents.check())
	}
	return contents, from, err
}

// invalid adds the location of a document and a hint to an error about its content.
func (m *mirror) invalid(from mirrorDocument, err error) error {
	if err == nil {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w", from.at, err), "%s", m.help)
}

// unchecked is the end of a warning about a package without a hash.
const unchecked = "nothing shows that it is what its publisher released"

// release builds the release of a version from its document. It is always partial, because the
// mirror might lack some platforms.
func (m *mirror) release(a provider.Address, v provider.Version, contents *mirrorVersion, from mirrorDocument, want []provider.Platform) (*Release, error) {
	have, ignored := contents.knownPlatforms()
	r := &Release{Origin: m.origin, Partial: true, Warnings: from.warnings, Claims: trust.Claims{Provider: a, Version: v, Hashes: map[string][]provider.Hash{}}}
	switch {
	case len(ignored) > 0 && m.strict:
		return nil, fmt.Errorf("invalid platform %s", ignored)
	case len(ignored) > 0:
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s lists names that are no platforms; clients ignore them: %s", from.at, ignored))
	}
	if len(have) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w: the mirror lists no package of it", a, v, ErrVersionNotFound), "%s", m.empty)
	}
	platforms, _, err := selectPlatforms(a, v, have, want)
	if err != nil {
		return nil, err
	}
	for _, p := range platforms {
		entry := contents.Archives[p.String()]
		pkg, err := m.files.locate(from, a, v, p, entry)
		if err == nil {
			r.Claims.Hashes[pkg.Filename], err = entry.knownHashes()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if len(r.Claims.Hashes[pkg.Filename]) == 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s gives no hash of the package for %s: %s", from.at, p, unchecked))
		}
		r.Packages = append(r.Packages, pkg)
	}
	return r, nil
}

// mirrorIndex is the content of index.json.
type mirrorIndex struct {
	Versions member[map[string]json.RawMessage] `json:"versions"`
}

func (i *mirrorIndex) check() error {
	if !i.Versions.given {
		return errNoVersionList
	}
	return checkCount("versions", len(i.Versions.value), maxVersions)
}

// mirrorVersion is the content of VERSION.json.
type mirrorVersion struct {
	Archives map[string]mirrorArchive `json:"archives"`
}

func (c *mirrorVersion) check() error {
	if err := checkCount("packages of one version", len(c.Archives), maxPlatforms); err != nil {
		return err
	}
	for _, a := range c.Archives {
		if err := checkCount("hashes of one package", len(a.Hashes), maxHashes); err != nil {
			return err
		}
	}
	return nil
}

// knownPlatforms returns the sorted platforms of the packages, and the keys that are not
// platforms. Clients ignore such keys, too, because each client looks up its own platform.
func (c *mirrorVersion) knownPlatforms() (out []provider.Platform, ignored names) {
	for _, s := range slices.Sorted(maps.Keys(c.Archives)) {
		p, err := provider.ParsePlatform(s)
		if err != nil {
			ignored = append(ignored, quote(s))
			continue
		}
		out = append(out, p)
	}
	provider.SortPlatforms(out)
	return out, ignored
}

type mirrorArchive struct {
	URL    string   `json:"url"`
	Hashes []string `json:"hashes"`
}

// knownHashes returns the hashes of known schemes. If all hashes are of other schemes, it returns
// an error, because clients refuse such a package. If there is no hash at all, it returns no
// hashes and no error, because clients install such a package unchecked.
func (a mirrorArchive) knownHashes() ([]provider.Hash, error) {
	out, err := parseHashes(a.Hashes)
	if err == nil && len(out) == 0 && len(a.Hashes) > 0 {
		var unknown names
		for _, s := range a.Hashes {
			unknown = append(unknown, quote(s))
		}
		return nil, hint.New(fmt.Sprintf("the JSON gives no hash to check the package with, only unknown schemes: %s", unknown),
			"clients refuse the package, too: write the mirror anew with a current client's providers mirror")
	}
	return out, err
}

// parseHashes parses the hashes of known schemes, and ignores all other hashes.
func parseHashes(hashes []string) ([]provider.Hash, error) {
	var out []provider.Hash
	for _, s := range hashes {
		scheme, _, _ := strings.Cut(s, ":")
		if scheme != "h1" && scheme != "zh" {
			continue
		}
		h, err := provider.ParseHash(s)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// checkSchemes returns an error if any hash has no scheme. Clients of network mirrors refuse a
// package with such a hash.
func (a mirrorArchive) checkSchemes() error {
	for _, s := range a.Hashes {
		if scheme, _, found := strings.Cut(s, ":"); !found || scheme == "" {
			return fmt.Errorf("the hash %.80q has no scheme: clients refuse the package", s)
		}
	}
	return nil
}

// NetworkMirror is a client of one mirror on a server.
type NetworkMirror struct {
	mirror
	registry *Registry
	base     *url.URL
}

const helpMirror = "the mirror does not keep to the provider network mirror protocol, or a proxy has changed its answer; nothing was stored"

// NetworkMirror returns a client of the mirror at base, an https: URL that ends in a
// slash. The token for the mirror's host is sent only with requests for JSON.
func (r *Registry) NetworkMirror(base *url.URL) *NetworkMirror {
	r.guard.recordAsked(base.Hostname())
	m := &NetworkMirror{registry: r, base: base}
	m.mirror = mirror{files: m, origin: base.Hostname(), help: helpMirror, empty: "has the version been pushed to the mirror?"}
	return m
}

// get implements [mirrorFiles].
func (m *NetworkMirror) get(ctx context.Context, a provider.Address, name string, limits document.Limits, out any, notFound error) (from mirrorDocument, err error) {
	host, err := svchost.ForComparison(m.base.Host)
	if err != nil {
		return from, fmt.Errorf("mirror %s: %w", redactedURL(m.base), err)
	}
	creds, err := m.registry.servicesFor(host).CredentialsForHost(ctx, host)
	if err != nil {
		return from, fmt.Errorf("credentials for %s: %w", host, err)
	}
	err = m.registry.getJSON(ctx, resolve(m.base, path.Join(a.Path(), name)), func(req *http.Request) {
		if creds != nil {
			creds.PrepareRequest(req)
		}
	}, limits, out, func(by answered) error {
		from = mirrorDocument{at: redactedURL(by.url), url: by.url}
		if by.mediaType != "application/json" {
			from.warnings = []string{fmt.Sprintf("%s sends %s with the Content-Type %.80q: clients refuse it, and want application/json", m.base.Host, name, by.contentType)}
		}
		return nil
	})
	if err != nil {
		server := "the mirror " + redactedURL(m.base)
		return from, fmt.Errorf("read %s of %s: %w", name, a, explainStatus(err, server, notFound, server+" does not have it",
			fmt.Sprintf("write a credentials block for %s into the CLI configuration, or set TF_TOKEN_%s", m.base.Host, tokenVariable(m.base.Host))))
	}
	return from, nil
}

// locate implements [mirrorFiles]. The protocol has no file names and allows any URL, so locate
// uses the conventional file name.
func (m *NetworkMirror) locate(from mirrorDocument, a provider.Address, v provider.Version, p provider.Platform, entry mirrorArchive) (Package, error) {
	u, err := reference(from.url, entry.URL)
	if err != nil {
		return Package{}, fmt.Errorf("the URL of the package is %w", err)
	}
	if err := entry.checkSchemes(); err != nil {
		return Package{}, err
	}
	return m.registry.newPackage(p, provider.PackageFilename(a, v, p), u, nil), nil
}
