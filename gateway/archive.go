package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
)

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
	a := archives.Archive{Package: *p, Blob: blob}
	if p.Size == artifact.UnknownSize {
		// The request may have to wait for a free slot, because the number of concurrent
		// fetches is limited.
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

// sizeOf finds out the size of a package whose version does not state it. begin is true if
// the caller is about to open the package.
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

// archive returns the requested package and its blob. It fails with errAbsent if the version
// has no such package.
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
	item, err := view.Version(ctx, a, v)
	if err != nil {
		return nil, nil, fmt.Errorf("read %w", catalog.Named(a, v, err))
	}
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
