package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// withoutDenied hides the tags of versions in the embedded registry that are denied or not approved. Lists omit them, and
// requests for their manifests get 451. Clients can still read the content by its digest.
func (g *gateway) withoutDenied(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		if len(parts) < 3 {
			next.ServeHTTP(w, r)
			return
		}
		name, kind, what := strings.Join(parts[:len(parts)-2], "/"), parts[len(parts)-2], parts[len(parts)-1]
		a, err := subjectOfRepository(name)
		var allowed *http.Request
		switch {
		case err != nil:
			next.ServeHTTP(w, r)
			return
		case kind == "manifests":
			allowed, err = g.allowManifest(r, a, what)
		case kind == "tags" && what == "list":
			var hidden func(tag string) bool
			if hidden, err = g.hiddenTags(r, a); err == nil {
				list := &tagList{ResponseWriter: w, status: http.StatusOK}
				next.ServeHTTP(list, r)
				list.end(hidden)
				return
			}
		default:
			next.ServeHTTP(w, r)
			return
		}
		switch {
		case err == nil:
			next.ServeHTTP(w, allowed)
		case errors.Is(err, catalog.ErrDenied):
			access.RegistryError(w, http.StatusUnavailableForLegalReasons, "DENIED", g.sayDenied(r, err))
		case errors.Is(err, errAbsent): // the registry is not asked again, because the version may have been pushed just now
			access.RegistryError(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "the registry does not have this version")
		default:
			status := StatusOf(err)
			g.Log.ErrorContext(r.Context(), "cannot answer", "path", r.URL.Path, "status", status, "err", hint.Brief(err), "hint", hint.Of(err))
			w.Header().Set("Retry-After", strconv.Itoa(RetryAfterOf(err)))
			access.RegistryError(w, status, "UNAVAILABLE", saidOf(err)+"; the gateway's log says why")
		}
	})
}

// noted records for the log which version a client of the embedded registry uses: it requests the manifest that the
// version's tag names. Such a client then requests content by its digest, which belongs to any number of versions.
func noted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repository, tag, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
		if of, err := subjectOfRepository(repository); ok && err == nil {
			for v := range ociaddr.TagsOf(of, []ociaddr.Tag{ociaddr.Tag(tag)}) {
				uses(r, of, v)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// versionIn returns the version of a provider or a module that a tag belongs to. isPart is true if the tag belongs to a part of
// the version.
func versionIn(a subject.Address, tag string) (v provider.Version, isPart, ok bool) {
	for v := range ociaddr.TagsOf(a, []ociaddr.Tag{ociaddr.Tag(tag)}) {
		return v, false, true
	}
	if a.Kind() == subject.Provider {
		v, isPart = ociaddr.Tag(tag).PartOf()
	}
	return v, isPart, isPart
}

// allowManifest returns the request for a manifest that the registry may answer. If the version's manifest decides whether the
// version is served, the returned request names the manifest by its digest, because the tag may move meanwhile. The error wraps
// [catalog.ErrDenied] if the version is not served, and [catalog.ErrAbsent] if the registry has just said that it lacks the version.
func (g *gateway) allowManifest(r *http.Request, a subject.Address, tag string) (*http.Request, error) {
	v, isPart, ok := versionIn(a, tag)
	if !ok {
		return r, nil
	}
	if err := g.Catalog.Denied(a, v); err != nil || !g.Catalog.DecidesByManifest(a) {
		return r, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.Catalog.Registry().Version(ctx, a, v)
	if errors.Is(err, errAbsent) {
		item, err = g.Catalog.VersionNow(ctx, a, v) // it may have been pushed since
	}
	switch {
	case errors.Is(err, errAbsent) && isPart:
		return r, nil
	case err != nil || isPart:
		return r, err
	}
	out := r.Clone(r.Context())
	out.URL.Path, out.URL.RawPath = strings.TrimSuffix(r.URL.Path, tag)+string(item.Found.Index.Digest), ""
	return out, nil
}

// hiddenTags returns a function that reports whether a list of tags omits a tag.
func (g *gateway) hiddenTags(r *http.Request, a subject.Address) (func(tag string) bool, error) {
	if !g.Catalog.DecidesByManifest(a) {
		return func(tag string) bool {
			v, _, ok := versionIn(a, tag)
			return ok && g.Catalog.Denied(a, v) != nil
		}, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.Catalog.Registry().Versions(ctx, a)
	if err != nil && !errors.Is(err, errAbsent) {
		return nil, err
	}
	return func(tag string) bool {
		v, _, ok := versionIn(a, tag)
		return ok && !slices.Contains(item.Versions, v)
	}, nil
}

// tagList is an [http.ResponseWriter] that buffers a page of tags.
type tagList struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (l *tagList) WriteHeader(status int) { l.status = status }

func (l *tagList) Write(p []byte) (int, error) { return l.body.Write(p) }

// end sends the buffered page without the denied tags.
func (l *tagList) end(denied func(tag string) bool) {
	var page struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	data := l.body.Bytes()
	if l.status == http.StatusOK && json.Unmarshal(data, &page) == nil && slices.ContainsFunc(page.Tags, denied) {
		page.Tags = slices.DeleteFunc(page.Tags, denied)
		data, _ = json.Marshal(page) // cannot fail: only strings
		l.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	l.ResponseWriter.WriteHeader(l.status)
	l.ResponseWriter.Write(data)
}

// boundBlobs limits the time that a client may take to read each piece of a blob. Without a limit, a client that
// stops reading would block a shutdown forever. All other answers of a registry are documents, which package respond
// sends.
func boundBlobs(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(path.Dir(r.URL.Path)) == "blobs" {
			w = &boundWriter{w, http.NewResponseController(w), limit}
		}
		next.ServeHTTP(w, r)
	})
}

type boundWriter struct {
	http.ResponseWriter
	client *http.ResponseController
	limit  time.Duration
}

func (b *boundWriter) Write(p []byte) (int, error) {
	// SetWriteDeadline does not fail for the writers of net/http's server. The deadline stays after the last write,
	// because the server sends the last bytes when the handler has returned.
	_ = b.client.SetWriteDeadline(time.Now().Add(b.limit))
	return b.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// addressOfRepository returns the provider of a repository. The repository's name consists of the parts of the
// provider's address.
func addressOfRepository(name string) (provider.Address, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return provider.Address{}, errors.New("no repository of a provider")
	}
	return provider.AddressFromPath(parts[0], parts[1], parts[2])
}

// moduleOfRepository returns the module of a repository. The repository's name consists of modules/ and the parts of
// the module's address. Parts that are not valid components of a name are encoded.
func moduleOfRepository(name string) (module.Address, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 5 || parts[0] != "modules" {
		return module.Address{}, errors.New("no repository of a module")
	}
	for _, part := range []*string{&parts[2], &parts[3]} {
		if text, ok := ociaddr.DecodeComponent(*part); ok {
			*part = text
		}
	}
	return module.AddressFromPath(parts[1], parts[2], parts[3], parts[4])
}

// subjectOfRepository returns the provider or the module of a repository.
func subjectOfRepository(name string) (subject.Address, error) {
	if a, err := moduleOfRepository(name); err == nil {
		return a, nil
	}
	return addressOfRepository(name)
}
