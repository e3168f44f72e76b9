package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// downloadJSON is the response of "Find a Provider Package".
type downloadJSON struct {
	Protocols           []string               `json:"protocols"`
	OS                  string                 `json:"os"`
	Arch                string                 `json:"arch"`
	Filename            string                 `json:"filename"`
	DownloadURL         string                 `json:"download_url"`
	SHASum              string                 `json:"shasum"`
	SHASumsURL          string                 `json:"shasums_url"`
	SHASumsSignatureURL string                 `json:"shasums_signature_url"`
	SigningKeys         json.RawMessage        `json:"signing_keys"`
	Packages            map[string]packageJSON `json:"packages"`
	provider.About                             // for other gateways and pushes whose origin is this gateway
}

// packageJSON has the hashes and the size of one platform's package. Only OpenTofu reads this object.
type packageJSON struct {
	Hashes []provider.Hash `json:"hashes"`
	Size   int64           `json:"package_size,omitempty"` // 0: unknown
}

// serveDownload describes the package for one platform, with the publisher's documents.
func (g *gateway) serveDownload(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	vars := mux.Vars(r)
	platform, err := provider.NewPlatform(vars["os"], vars["arch"])
	if err != nil {
		return errAbsent
	}
	absolute, err := g.references(w, r)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	s, err := g.readVersion(r, a)
	if err != nil {
		return err
	}
	g.askSize(within, r, s, platform)
	out, err := s.download(platform, func(base string, f file) string {
		return absolute(g.Access.Link(r, a, fileURL(base, f), f.digest))
	}, g.hashes)
	if err != nil {
		return fmt.Errorf("%s %s for %s: %w", a, s.version, platform, err)
	}
	return writeJSON(w, r, out)
}

// download describes the package for a platform, and lists the hashes of all signed packages of the version. It
// fails with errAbsent if the version has no such platform, and with [artifact.ErrMissing] if the registry
// lacks the package's manifest.
func (s *registryVersion) download(platform provider.Platform, link func(base string, f file) string, hashes func(artifact.Package) []provider.Hash) (*downloadJSON, error) {
	if m, ok := s.found.MissingFor(platform); ok {
		return nil, m.Err()
	}
	vouched := s.vouched()
	isFor := func(p artifact.Package) bool { return p.Platform == platform }
	i := slices.IndexFunc(vouched, isFor)
	switch {
	case !slices.ContainsFunc(s.found.Packages, isFor):
		return nil, errAbsent
	case i < 0:
		return nil, fmt.Errorf("%w with the package's digest", trust.ErrNotListed)
	}
	p := vouched[i]
	// The document is at VERSION/download/OS/ARCH.
	const base = "../../"
	out := &downloadJSON{
		Protocols: protocols(s.found.Protocols), OS: platform.OS, Arch: platform.Arch,
		Filename: p.Filename, SHASum: p.Digest.Encoded(),
		DownloadURL:         link(base, packageFile(p)),
		SHASumsURL:          link(base, documentFile(sumsName(s.address, s.version), s.evidence.SHA256SUMS)),
		SHASumsSignatureURL: link(base, documentFile(sumsName(s.address, s.version)+".sig", s.evidence.Signature)),
		SigningKeys:         s.evidence.SigningKeys,
		Packages:            map[string]packageJSON{}, About: s.evidence.Record.About,
	}
	if !s.evidence.Signed() {
		out.SigningKeys = noKeys
	}
	if s.found.Protocols == nil {
		out.Protocols = protocols(s.evidence.Record.Protocols)
	}
	if p.Size == artifact.UnknownSize {
		return out, nil // OpenTofu refuses hashes without the package's size
	}
	for _, p := range vouched {
		out.Packages[p.Platform.String()] = packageJSON{hashes(p), max(p.Size, 0)}
	}
	return out, nil
}

// askSize sets the size of the package for the given platform if the version does not state that size. This is
// the case until the registry has the package. If askSize cannot find out the size, it logs the reason.
func (g *gateway) askSize(ctx context.Context, r *http.Request, s *registryVersion, platform provider.Platform) {
	i := slices.IndexFunc(s.found.Packages, func(p artifact.Package) bool { return p.Platform == platform && p.Size == artifact.UnknownSize })
	if i < 0 {
		return
	}
	size, err := g.sizeOf(ctx, g.View(r).Package(ctx, s.address, s.version, s.found.Packages[i]), s.found.Packages[i], false)
	if err != nil {
		g.Log.Debug("the size of a package is left out", "path", r.URL.Path, "err", hint.Brief(err))
		return
	}
	found := *s.found
	found.Packages = slices.Clone(found.Packages)
	found.Packages[i].Size = size
	s.found = &found
}
