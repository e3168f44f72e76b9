package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
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

// serveIndex serves index.json, or 404 if the provider has no versions, so that clients look elsewhere.
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

// serveVersion serves VERSION.json. For an absent version, it serves an empty list of archives, because clients choose a
// version, and then request its document from every mirror. A 404 from one of them would end the whole installation.
func (g *gateway) serveVersion(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	v, err := versionOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.version(ctx, g.View(r), a, v)
	if err != nil && !errors.Is(err, errAbsent) && !errors.Is(err, ErrNotServed) {
		return fmt.Errorf("read %w", catalog.Named(a, v, err))
	}
	if err == nil {
		uses(r, a, v)
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
			// A missing package is listed, too, so that clients do not look elsewhere.
			for _, m := range item.Found.Missing {
				url := fileURL(v.String()+"/", missingFile(a, v, m))
				out.Archives[m.Platform.String()] = archiveJSON{URL: g.Access.Link(r, a, url, m.Manifest)}
			}
		}
		return out
	})
}

// version is [catalog.View.Version] for a client's request. If the version is only at its origin, and needs approvals, version makes
// the origin store it, so that somebody can approve it.
func (g *gateway) version(ctx context.Context, view catalog.View, a provider.Address, v provider.Version) (*catalog.Item, error) {
	item, err := view.Version(ctx, a, v)
	if errors.Is(err, catalog.ErrNotStored) {
		view.Store(ctx, a, v)
	}
	return item, err
}

// hashes returns the hashes of a package that clients may record. Clients trust all of them equally.
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

// serveArchive serves a package.
func (g *gateway) serveArchive(w http.ResponseWriter, r *http.Request, address provider.Address) error {
	p, blob, err := g.archive(r, address)
	if err != nil {
		return err
	}
	if !access.Covers(r.Context(), p.Digest) {
		g.Access.ForbidCapability(w)
		return nil
	}
	lineOf(r).archive = true
	a := archives.Archive{Package: *p, Blob: blob}
	if p.Size == artifact.UnknownSize {
		// The request may have to wait for a free slot, because concurrent fetches are limited.
		ctx, cancel := context.WithTimeout(r.Context(), 2*g.limits.Start)
		a.Package.Size, err = g.sizeOf(ctx, blob, *p, r.Method != http.MethodHead)
		cancel()
		if err != nil {
			return err
		}
		a.Source = address.Path()
	}
	err = g.archives.Serve(w, r, a)
	if v, verr := versionOf(r); g.Used != nil && r.Method == http.MethodGet && err == nil && verr == nil {
		g.Used(address, v)
	}
	return err
}

// sizeOf finds out the size of a package whose version does not state it. begin is true if the caller is about to open
// the package.
func (g *gateway) sizeOf(ctx context.Context, blob catalog.Blob, p artifact.Package, begin bool) (int64, error) {
	if size, cached := g.Cache.SizeOf(p.Digest); cached {
		if begin {
			blob.Requested()
		}
		return size, nil
	}
	size, err := blob.Size(ctx, begin)
	if err == nil && size <= 0 {
		err = errors.New("its origin does not say how large it is")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Filename, err)
	}
	return size, nil
}

// archive returns the requested package and its blob. It fails with errAbsent if the version has no such package.
func (g *gateway) archive(r *http.Request, a provider.Address) (*artifact.Package, catalog.Blob, error) {
	vars := mux.Vars(r)
	v, err := versionOf(r)
	if err != nil {
		return nil, nil, err
	}
	platform, err := provider.ParsePlatform(vars["platform"])
	if err != nil || !provider.ValidFilename(vars["filename"]) {
		return nil, nil, errAbsent
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.Start)
	defer cancel()
	view := g.View(r)
	item, err := g.version(ctx, view, a, v)
	if err != nil {
		return nil, nil, fmt.Errorf("read %w", catalog.Named(a, v, err))
	}
	uses(r, a, v)
	found := item.Found
	if m, ok := found.MissingFor(platform); ok {
		return nil, nil, fmt.Errorf("read %w", catalog.Named(a, v, m.Err()))
	}
	for i := range found.Packages {
		if p := &found.Packages[i]; p.Platform == platform && p.Filename == vars["filename"] {
			return p, view.Package(ctx, a, v, *p), nil
		}
	}
	return nil, nil, errAbsent
}
