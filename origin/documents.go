package origin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Limits of an origin's documents about a provider. A decoded document within these limits
// takes less than 64 MiB of memory.
const (
	maxVersions  = 10_000  // of a provider; the longest list of a public provider has fewer than 2,000
	maxPlatforms = 128     // of one version; Go supports fewer than 50
	maxProtocols = 16      // of one version; real ones have one or two, and package artifact stores at most this many
	maxWarnings  = 64      // in one list
	maxURL       = 8 << 10 // bytes; real URLs, with the signatures of object storage, have fewer than 2,000
	maxHashes    = 64      // of one package; real ones have one for each of two schemes
)

var (
	// listLimits are the limits of documents about all versions of a provider. The longest
	// document of a public provider is about 2 MiB long, and has 160,000 values.
	listLimits = document.Limits{Bytes: 8 << 20, Values: 400_000, Elements: maxVersions}
	// indexLimits are the limits of the list of versions of a network mirror or a mirror
	// folder, a JSON object. Repeated members count, although encoding/json merges them.
	indexLimits = document.Limits{Bytes: 8 << 20, Values: 2*maxVersions + 1_000, Elements: maxVersions}
	// versionLimits are the limits of documents about one version or one package. Most of
	// their bytes are signing keys.
	versionLimits = document.Limits{Bytes: 4 << 20, Values: 20_000, Elements: 1_000}
)

// checkCount returns an error that wraps [document.ErrTooLarge] if n exceeds most. The
// parameter what names the counted things in the error.
func checkCount(what string, n, most int) error {
	if n <= most {
		return nil
	}
	return fmt.Errorf("%w: %d %s, more than %d", document.ErrTooLarge, n, what, most)
}

// member is a member of a JSON object. It distinguishes a missing member from null.
type member[T any] struct {
	value T
	given bool
}

// UnmarshalJSON implements [json.Unmarshaler]. It is not called for a missing member.
func (m *member[T]) UnmarshalJSON(data []byte) error {
	m.given = true
	return json.Unmarshal(data, &m.value)
}

// errNoVersionList means that a document has no list of versions. It must not count as an empty
// list, because clients of a mirror without versions fall back to another origin.
var errNoVersionList = errors.New(`the document has no list of versions: "versions" is missing`)

// reference resolves a URL in a document against the document's own URL. Errors begin
// with the quoted raw URL, except for the errors of checkLocalReference.
func reference(at *url.URL, raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("%.200q, which has more than %d bytes", raw, maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil || raw == "" {
		return nil, fmt.Errorf("%.200q", raw)
	}
	if u = at.ResolveReference(u); len(u.String()) > maxURL {
		return nil, fmt.Errorf("%.200q, which is relative to a URL of %d bytes", raw, len(at.String()))
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%.200q, which is not of the scheme https or http", raw)
	}
	return u, checkLocalReference(at, u)
}

// metadataRequests is the maximum number of concurrent requests for the packages of one release.
const metadataRequests = 4

// packageMeta is the protocol's document about one package.
type packageMeta struct {
	Protocols           []string        `json:"protocols"`
	OS                  string          `json:"os"`
	Arch                string          `json:"arch"`
	Filename            string          `json:"filename"`
	DownloadURL         string          `json:"download_url"`
	SHASum              string          `json:"shasum"`
	SHASumsURL          string          `json:"shasums_url"`
	SHASumsSignatureURL string          `json:"shasums_signature_url"`
	SigningKeys         json.RawMessage `json:"signing_keys"`
	Packages            packagesJSON    `json:"packages"`
	// These two fields are not part of the protocol, so a value of a wrong type is not an error.
	Source      json.RawMessage `json:"source"`
	PublishedAt json.RawMessage `json:"published_at"`

	reported                     map[provider.Platform]trust.Report
	sum                          [sha256.Size]byte
	download, shasums, signature *url.URL // absolute; signature is nil if there is none
}

// ofRelease matches the paths of release files on GitHub, Gitea and Forgejo.
var ofRelease = regexp.MustCompile(`^(/[^/]+/[^/]+)/releases/download/[^/]+/[^/]+$`)

// about returns the source and the publication time in a document. If the document states no source,
// the source is the repository whose release has the package.
func (m *packageMeta) about() provider.About {
	out := provider.About{Source: textOf(m.Source), PublishedAt: textOf(m.PublishedAt)}.Normal()
	if path := ofRelease.FindStringSubmatch(m.download.EscapedPath()); out.Source == "" && path != nil {
		out.Source = provider.About{Source: m.download.Scheme + "://" + m.download.Host + path[1]}.Normal().Source
	}
	return out
}

// textOf returns the string in a JSON value, or "" for a value of another type.
func textOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// metadata returns the documents about a version's packages for the given platforms, in
// the same order.
func (r *Registry) metadata(ctx context.Context, a provider.Address, v provider.Version, platforms []provider.Platform) ([]*packageMeta, error) {
	base, prepare, err := r.endpoint(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	metas := make([]*packageMeta, len(platforms))
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(metadataRequests)
	for i, p := range platforms {
		g.Go(func() error {
			m := &packageMeta{}
			u := resolve(base, a.Namespace(), a.Type(), v.String(), "download", p.OS, p.Arch)
			err := r.getJSON(ctx, u, prepare, versionLimits, m, func(by answered) error {
				return hint.Wrap(m.check(p, by.url), "the registry does not keep to the provider registry protocol; nothing was stored")
			})
			if err != nil {
				return fmt.Errorf("package of %s %s for %s: %w", a, v, p, r.explain(err, a, ErrPlatformNotFound))
			}
			if i > 0 {
				m.SigningKeys = nil // only the keys of the first document are used
			}
			metas[i] = m
			return nil
		})
	}
	return metas, g.Wait()
}

// check validates a document about the package for p, and sets the fields that are not in
// the JSON. Relative URLs are resolved against the document's own URL.
func (m *packageMeta) check(p provider.Platform, at *url.URL) error {
	if m.OS != p.OS || m.Arch != p.Arch {
		return fmt.Errorf("the answer is about %.80q", m.OS+"_"+m.Arch)
	}
	if !provider.ValidFilename(m.Filename) {
		return fmt.Errorf("the answer gives the file name %.80q", m.Filename)
	}
	sum, err := hex.DecodeString(m.SHASum)
	if err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("the answer gives the SHA-256 %.80q", m.SHASum)
	}
	m.sum = [sha256.Size]byte(sum)
	if err := checkCount("protocols", len(m.Protocols), maxProtocols); err != nil {
		return err
	}
	if m.reported, err = m.Packages.reports(p); err != nil {
		return err
	}
	m.Packages = nil // m.reported contains the same information
	for _, ref := range []struct {
		name, raw string
		into      **url.URL
	}{
		{"download_url", m.DownloadURL, &m.download},
		{"shasums_url", m.SHASumsURL, &m.shasums},
		{"shasums_signature_url", m.SHASumsSignatureURL, &m.signature},
	} {
		if ref.raw == "" && ref.into == &m.signature {
			continue // not signed; package trust decides whether that is acceptable
		}
		if *ref.into, err = reference(at, ref.raw); err != nil {
			return fmt.Errorf("the answer gives the %s %w", ref.name, err)
		}
	}
	return nil
}

var protocol = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,4}){0,2}$`)

// knownProtocols returns the valid protocol versions of the first list that contains any. An
// origin may omit the protocols from the list of versions, or from the document about a package.
func knownProtocols(lists ...[]string) []string {
	for _, list := range lists {
		var out []string
		for _, p := range list {
			if protocol.MatchString(p) && !slices.Contains(out, p) && len(out) < maxProtocols {
				out = append(out, p)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// protocolsOf returns the protocols that are stored with a version: those of the first platform,
// or else those in the list of versions. It also returns a warning if the platforms have different
// protocols or none, because clients decide from that single list whether they can run the provider.
func protocolsOf(host string, platforms []provider.Platform, metas []*packageMeta, listed []string) (first []string, warning string) {
	first = knownProtocols(metas[0].Protocols, listed)
	var others names
	for i, m := range metas {
		if own := knownProtocols(m.Protocols, listed); !sameProtocols(own, first) {
			others = append(others, fmt.Sprintf("%s has %s", platforms[i], joinProtocols(own)))
		}
	}
	switch {
	case len(others) > 0:
		warning = fmt.Sprintf("%s gives platforms different protocols: %s has %s, which count for all; %s",
			host, platforms[0], joinProtocols(first), others)
	case len(first) == 0:
		warning = fmt.Sprintf("%s gives no protocols: clients that cannot run this version install it all the same", host)
	}
	return first, warning
}

func sameProtocols(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func joinProtocols(ps []string) string { return cmp.Or(strings.Join(ps, ", "), "none") }

// packagesJSON is the report about all packages of a version, by platform. Newer origins add it to
// the document about each package.
type packagesJSON map[string]struct {
	Hashes []string `json:"hashes"`
	Size   int64    `json:"package_size"`
}

// reports parses the reports about packages. Like clients, it returns an error if a size is not
// positive, or if the requested platform is missing. Unlike clients, it ignores unknown platforms
// and schemes.
func (ps packagesJSON) reports(asked provider.Platform) (map[provider.Platform]trust.Report, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	if err := checkCount("packages of one version", len(ps), maxPlatforms); err != nil {
		return nil, err
	}
	if _, ok := ps[asked.String()]; !ok {
		return nil, fmt.Errorf("its packages lack %s", asked)
	}
	out := map[provider.Platform]trust.Report{}
	for name, p := range ps {
		platform, err := provider.ParsePlatform(name)
		if err != nil {
			continue
		}
		r := trust.Report{Size: p.Size}
		if p.Size <= 0 {
			return nil, fmt.Errorf("the answer gives the package_size %d for %s", p.Size, platform)
		}
		if err := checkCount("hashes of one package", len(p.Hashes), maxHashes); err != nil {
			return nil, err
		}
		if r.Hashes, err = parseHashes(p.Hashes); err != nil {
			return nil, fmt.Errorf("the answer gives a hash for %s: %w", platform, err)
		}
		slices.SortFunc(r.Hashes, func(a, b provider.Hash) int { return strings.Compare(a.String(), b.String()) })
		r.Hashes = slices.Compact(r.Hashes)
		out[platform] = r
	}
	return out, nil
}

// joinReports merges the reports in the documents about all platforms into one map by file name.
// It returns an error if two documents contradict each other.
func joinReports(a provider.Address, v provider.Version, platforms []provider.Platform, metas []*packageMeta) (map[string]trust.Report, error) {
	names := map[provider.Platform]string{}
	for i, m := range metas {
		names[platforms[i]] = m.Filename
	}
	out := map[string]trust.Report{}
	for i, m := range metas {
		for p, r := range m.reported {
			name, asked := names[p]
			if !asked {
				name = provider.PackageFilename(a, v, p)
			}
			before, known := out[name]
			if known && (before.Size != r.Size || !slices.Equal(before.Hashes, r.Hashes)) {
				return nil, hint.New(fmt.Sprintf("%s %s: the answer about %s gives for %s %d bytes and %v, another one gives %d bytes and %v",
					a, v, platforms[i], p, r.Size, r.Hashes, before.Size, before.Hashes), "the origin contradicts itself; nothing was stored")
			}
			out[name] = r
		}
	}
	return out, nil
}
