package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/gorilla/mux"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// indexJSON is the answer of "List Available Versions".
type indexJSON struct {
	Versions map[string]struct{} `json:"versions"`
}

// versionJSON is the answer of "List Available Installation Packages".
type versionJSON struct {
	Archives map[string]archiveJSON `json:"archives"`
}

type archiveJSON struct {
	URL    string          `json:"url"`
	Hashes []provider.Hash `json:"hashes"`
}

// serveIndex answers index.json: 404 if the registry has no version of the
// provider, so that clients look elsewhere.
func (g *gateway) serveIndex(w http.ResponseWriter, r *http.Request) {
	a, err := addressOf(r)
	if err != nil {
		notFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	versions, err := g.versions(ctx, a)
	if err != nil {
		g.fail(w, r, fmt.Errorf("list versions of %s: %w", a, err))
		return
	}
	out := indexJSON{Versions: map[string]struct{}{}}
	for _, v := range versions {
		out.Versions[v.String()] = struct{}{}
	}
	g.writeJSON(w, r, out)
}

// serveVersion answers VERSION.json. A version that is not here has no archives,
// rather than a 404: clients ask every mirror for the version that they chose,
// and a 404 would end the whole installation.
func (g *gateway) serveVersion(w http.ResponseWriter, r *http.Request) {
	a, err := addressOf(r)
	if err != nil {
		notFound(w, r)
		return
	}
	v, err := provider.ParseVersion(mux.Vars(r)["version"])
	if err != nil {
		notFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	found, _, err := g.version(ctx, a, v)
	out := versionJSON{Archives: map[string]archiveJSON{}}
	switch {
	case errors.Is(err, errAbsent), errors.Is(err, ErrNotServed):
	case err != nil:
		g.fail(w, r, fmt.Errorf("read %s %s: %w", a, v, err))
		return
	default:
		for _, p := range found.Packages {
			archive := g.archiveOf(v, p)
			archive.URL = g.access.Link(r, a, archive.URL, p.Digest)
			out.Archives[p.Platform.String()] = archive
		}
	}
	g.writeJSON(w, r, out)
}

// archiveOf describes a package. Its URL is relative to that of the document.
func (g *gateway) archiveOf(v provider.Version, p artifact.Package) archiveJSON {
	return archiveJSON{fileURL(v.String()+"/", packageFile(p)), g.hashes(p)}
}

// hashes returns what clients may record of a package: they take each of these for
// as good as the others. An h1: that the index claims is gone where evidence is
// required; see package verify.
func (g *gateway) hashes(p artifact.Package) []provider.Hash {
	out := []provider.Hash{p.ZipHash()}
	h1 := p.H1
	if h1.IsZero() && g.h1 != nil {
		h1, _ = g.h1(p.Digest)
	}
	if !h1.IsZero() {
		out = append(out, h1)
	}
	return out
}

// versions lists the versions in a provider's repository; errAbsent if there is
// none.
func (g *gateway) versions(ctx context.Context, a provider.Address) ([]provider.Version, error) {
	store, err := g.repository(ctx, a)
	if err != nil {
		return nil, err
	}
	return listVersions(ctx, store)
}

func listVersions(ctx context.Context, store Store) ([]provider.Version, error) {
	var out []provider.Version
	tags, err := artifact.ListTags(ctx, store)
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			out = append(out, v)
		}
	}
	switch {
	case errors.Is(err, artifact.ErrTagsBrokeOff):
		return nil, err // a later page that is missing is trouble, and no absence
	case noRepository(err), err == nil && len(out) == 0:
		return nil, errAbsent
	case err != nil:
		return nil, err
	}
	return out, nil
}

// version reads a version and returns it with the repository it is in; errAbsent
// if it is in none.
func (g *gateway) version(ctx context.Context, a provider.Address, v provider.Version) (*artifact.Version, Store, error) {
	store, err := g.repository(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	found, err := artifact.Read(ctx, store, a, v)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil, confirmAbsent(ctx, store, v, err)
	}
	if err == nil && g.check != nil {
		found, err = g.check(ctx, store, a, v, found)
	}
	return found, store, err
}

// confirmAbsent returns errAbsent if the list of tags, too, says that a version
// is not there. oras-go drops the body of a 404 to a manifest, which alone tells
// a registry's from that of a proxy before it; and a version that index.json
// lists must not pass for absent.
func confirmAbsent(ctx context.Context, store Store, v provider.Version, missing error) error {
	listed, err := listVersions(ctx, store)
	switch {
	case err != nil:
		return err
	case slices.Contains(listed, v):
		return fmt.Errorf("%w: %v", errLost, missing)
	}
	return fmt.Errorf("%w: %v", errAbsent, missing)
}

func (g *gateway) writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Write(data)
}
