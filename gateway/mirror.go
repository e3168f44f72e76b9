package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
)

// indexJSON is the response of "List Available Versions".
type indexJSON struct {
	Versions map[string]struct{} `json:"versions"`
}

// versionJSON is the response of "List Available Installation Packages".
type versionJSON struct {
	Archives map[string]archiveJSON `json:"archives"`
}

type archiveJSON struct {
	URL    string          `json:"url"`
	Hashes []provider.Hash `json:"hashes,omitempty"`
}

// serveIndex serves index.json. If the provider has no versions, serveIndex answers with 404, so that
// clients look elsewhere.
func (g *gateway) serveIndex(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.View(r).Versions(ctx, a)
	if err != nil {
		return fmt.Errorf("list versions of %s: %w", a, err)
	}
	return g.answer(w, r, item, catalog.MirrorDocument, true, func() any {
		out := indexJSON{Versions: map[string]struct{}{}}
		for _, v := range item.Versions {
			out.Versions[v.String()] = struct{}{}
		}
		return out
	})
}

// serveVersion serves VERSION.json. For an absent version, it serves an empty list of archives instead of
// 404. The reason is that clients choose a version, and then request its document from every mirror. A 404
// from one mirror would end the whole installation.
func (g *gateway) serveVersion(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	v, err := versionOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.View(r).Version(ctx, a, v)
	if err != nil && !errors.Is(err, errAbsent) && !errors.Is(err, ErrNotServed) {
		return fmt.Errorf("read %w", catalog.Named(a, v, err))
	}
	// With access control, the document is not cached, because its links depend on the client. It is also
	// not cached while an h1: hash may still become known.
	keep := g.Access == nil && (err != nil || g.hashesAreKnown(item.Found))
	return g.answer(w, r, item, catalog.MirrorDocument, keep, func() any {
		out := versionJSON{Archives: map[string]archiveJSON{}}
		if err == nil {
			for _, p := range item.Found.Packages {
				url := fileURL(v.String()+"/", packageFile(p)) // relative to the document
				out.Archives[p.Platform.String()] = archiveJSON{g.Access.Link(r, a, url, p.Digest), g.hashes(p)}
			}
			// A missing package is listed, too. If its platform were not listed, clients would look
			// elsewhere.
			for _, m := range item.Found.Missing {
				url := fileURL(v.String()+"/", missingFile(a, v, m))
				out.Archives[m.Platform.String()] = archiveJSON{URL: g.Access.Link(r, a, url, m.Manifest)}
			}
		}
		return out
	})
}

// hashes returns the hashes that clients may record for a package. Clients trust each of these hashes
// equally.
func (g *gateway) hashes(p artifact.Package) []provider.Hash {
	out := []provider.Hash{p.ZipHash()}
	if h1 := g.H1Of(p); !h1.IsZero() {
		out = append(out, h1)
	}
	return out
}

// hashesAreKnown reports whether the document of a version has all hashes that the gateway will ever know.
func (g *gateway) hashesAreKnown(v *artifact.Version) bool {
	return g.H1 == nil || !slices.ContainsFunc(v.Packages, func(p artifact.Package) bool { return g.H1Of(p).IsZero() })
}

// writeJSON answers with the given document, and does not cache it.
func writeJSON(w http.ResponseWriter, r *http.Request, document any) error {
	a, err := newAnswer(document)
	if err == nil {
		a.write(w, r)
	}
	return err
}
