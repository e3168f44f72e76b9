package origin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// metadataRequests is the maximum number of concurrent requests for the package metadata
// of one release.
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
	// Source and PublishedAt are not part of the protocol, so a value of a wrong type is
	// not an error.
	Source      json.RawMessage `json:"source"`
	PublishedAt json.RawMessage `json:"published_at"`

	reported                     map[provider.Platform]trust.Report
	sum                          [sha256.Size]byte
	download, shasums, signature *url.URL // absolute; signature is nil if there is none
}

// ofRelease matches the paths of release files on GitHub, Gitea and Forgejo.
var ofRelease = regexp.MustCompile(`^(/[^/]+/[^/]+)/releases/download/[^/]+/[^/]+$`)

// about returns the source and the publication time in a document. If there is no source,
// and the package is a file of a repository's release, that repository is the source.
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
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
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
	g, ctx := errgroup.WithContext(ctx)
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
// the JSON. Relative URLs in the document are resolved against the document's own URL.
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
