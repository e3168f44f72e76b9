package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// withoutDenied hides the tags of denied versions in the embedded registry. Lists omit them, and requests for their
// manifests get 451. Clients can still read the content by its digest.
func (g *gateway) withoutDenied(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		if len(parts) < 3 {
			next.ServeHTTP(w, r)
			return
		}
		name, kind, what := strings.Join(parts[:len(parts)-2], "/"), parts[len(parts)-2], parts[len(parts)-1]
		switch denies := g.deniesIn(name); {
		case denies == nil:
		case kind == "manifests":
			if denied := denies(what); denied != nil {
				access.RegistryError(w, http.StatusUnavailableForLegalReasons, "DENIED", g.sayDenied(r, denied))
				return
			}
		case kind == "tags" && what == "list":
			list := &tagList{ResponseWriter: w, status: http.StatusOK}
			next.ServeHTTP(list, r)
			list.end(func(tag string) bool { return denies(tag) != nil })
			return
		}
		next.ServeHTTP(w, r)
	})
}

// deniesIn returns a function that returns an error if a tag in a repository belongs to a denied version, or to a part
// of a denied version. It returns nil if the repository belongs to neither a provider nor a module.
func (g *gateway) deniesIn(repository string) func(tag string) error {
	if m, err := moduleOfRepository(repository); err == nil {
		return func(tag string) error {
			for v := range ociaddr.ModuleTags([]ociaddr.Tag{ociaddr.Tag(tag)}) {
				return g.Catalog.Denied(m, v)
			}
			return nil
		}
	}
	a, err := addressOfRepository(repository)
	if err != nil {
		return nil
	}
	return func(tag string) error {
		v, ok := ociaddr.Tag(tag).Version()
		if !ok {
			v, ok = ociaddr.Tag(tag).PartOf()
		}
		if !ok {
			return nil
		}
		return g.Catalog.Denied(a, v)
	}
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
