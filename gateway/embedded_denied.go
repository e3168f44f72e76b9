package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// withoutDenied hides the tags of denied versions in the embedded registry. Lists omit these tags, and
// requests for their manifests get 451. Clients can still read the content by its digest.
func (g *gateway) withoutDenied(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		if len(parts) < 3 {
			next.ServeHTTP(w, r)
			return
		}
		name, kind, what := strings.Join(parts[:len(parts)-2], "/"), parts[len(parts)-2], parts[len(parts)-1]
		denies := g.deniesIn(name)
		if denies != nil && kind == "manifests" {
			if denied := denies(what); denied != nil {
				access.RegistryError(w, http.StatusUnavailableForLegalReasons, "DENIED", g.sayDenied(r, denied))
				return
			}
		}
		switch {
		case denies == nil:
			next.ServeHTTP(w, r)
		case kind == "tags" && what == "list":
			list := &tagList{ResponseWriter: w, status: http.StatusOK}
			next.ServeHTTP(list, r)
			list.end(func(tag string) bool { return denies(tag) != nil })
		default:
			next.ServeHTTP(w, r)
		}
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

// WriteHeader implements [http.ResponseWriter].
func (l *tagList) WriteHeader(status int) { l.status = status }

// Write implements [io.Writer].
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
