package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gorilla/mux"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/provider"
)

// serveArchive answers with a package.
func (g *gateway) serveArchive(w http.ResponseWriter, r *http.Request) {
	p, store, err := g.archive(r)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	if !access.Covers(r.Context(), p.Digest) {
		access.Forbid(w)
		return
	}
	a := archives.Archive{Package: *p, Store: store}
	if address, err := addressOf(r); err == nil && g.redirect != nil {
		a.Redirect = func(ctx context.Context, d ocispec.Descriptor) (string, error) { return g.redirect(ctx, address, d) }
	}
	if err := g.archives.Serve(w, r, a); err != nil {
		g.fail(w, r, err)
	}
}

// archive finds the package that a request is for.
func (g *gateway) archive(r *http.Request) (*artifact.Package, Store, error) {
	vars := mux.Vars(r)
	a, err := addressOf(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %v", errAbsent, err)
	}
	v, err := provider.ParseVersion(vars["version"])
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %v", errAbsent, err)
	}
	platform, err := provider.ParsePlatform(vars["platform"])
	if err != nil || !provider.ValidFilename(vars["filename"]) {
		return nil, nil, errAbsent
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.start)
	defer cancel()
	found, store, err := g.version(ctx, a, v)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s %s: %w", a, v, err)
	}
	for i := range found.Packages {
		if p := &found.Packages[i]; p.Platform == platform && p.Filename == vars["filename"] {
			return p, store, nil
		}
	}
	return nil, nil, errAbsent
}
