package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// wholeTags returns a handler that removes tags without a manifest from lists of tags.
// Distribution creates a tag in two steps: first the folder of the tag, then the link to the
// manifest. A list of tags shows every folder. Between the two steps, or after a crash
// between them, the tag has no manifest.
func (r *Registry) wholeTags(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, ok := strings.CutPrefix(req.URL.Path, "/v2/")
		if ok {
			name, ok = strings.CutSuffix(name, "/tags/list")
		}
		if !ok || req.Method != http.MethodGet {
			next.ServeHTTP(w, req)
			return
		}
		answer := &buffered{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(answer, req)
		body := answer.body.Bytes()
		var list struct {
			Name string   `json:"name"`
			Tags []string `json:"tags"`
		}
		if answer.status == http.StatusOK && json.Unmarshal(body, &list) == nil {
			if whole := slices.DeleteFunc(slices.Clone(list.Tags), func(tag string) bool { return r.namesNothing(name, tag) }); len(whole) < len(list.Tags) {
				list.Tags = whole
				// Encoding strings as JSON cannot fail.
				body, _ = json.Marshal(list)
			}
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(answer.status)
		// An error means that the client has gone.
		_, _ = w.Write(body)
	})
}

// namesNothing reports whether a tag has no link to a manifest. If the check fails with
// another error, it returns false.
func (r *Registry) namesNothing(repository, tag string) bool {
	_, err := os.Lstat(filepath.Join(storage(r.dir), "repositories", filepath.FromSlash(repository), "_manifests", "tags", tag, "current", "link"))
	return errors.Is(err, fs.ErrNotExist)
}

// buffered is an [http.ResponseWriter] that stores the status and the body of a response.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }
