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

// wholeTags leaves out of lists of tags those that name nothing. Distribution writes
// a tag in two steps, of which the first has it listed and the second says what it
// names: a tag that is just being written, or whose process was killed between them,
// is not there yet.
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
				// Texts alone cannot fail.
				body, _ = json.Marshal(list)
			}
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(answer.status)
		// Only the client's end can go wrong.
		_, _ = w.Write(body)
	})
}

// namesNothing reports whether there is no file that says what a tag names. One
// that cannot be looked at may.
func (r *Registry) namesNothing(repository, tag string) bool {
	_, err := os.Lstat(filepath.Join(r.dir, "registry", "docker", "registry", "v2", "repositories", filepath.FromSlash(repository), "_manifests", "tags", tag, "current", "link"))
	return errors.Is(err, fs.ErrNotExist)
}

// buffered is an answer whose body and status are not sent yet.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }
