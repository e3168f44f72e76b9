package quirks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
)

// policies refuses requests that Harbor refuses before it checks the credential.
func (q *Registry) policies(w http.ResponseWriter, r request) bool {
	switch {
	case r.name != "" && r.s.Projects && !strings.Contains(r.name, "/"):
		refuse(w, http.StatusBadRequest, "BAD_REQUEST", "bad request: invalid repository name: "+r.name)
	case r.s.ReadOnlyMode && !r.reads() && strings.HasPrefix(r.URL.Path, "/v2/"):
		refuse(w, http.StatusForbidden, "DENIED", "The system is in read only mode. Any modification is prohibited.")
	default:
		return false
	}
	return true
}

// hides refuses reads of absent manifests with Harbor's error. With a cosign policy, it refuses reads of all
// manifests without a signature of their own.
func (q *Registry) hides(w http.ResponseWriter, r request) bool {
	switch {
	case r.kind != "manifests" || !r.reads() || !r.s.CosignPolicy && !r.s.Projects:
		return false
	case q.digestOf(r, r.ref) == "":
		colon := ":"
		if strings.Contains(r.ref, ":") {
			colon = "@"
		}
		refuse(w, http.StatusNotFound, "NOT_FOUND", fmt.Sprintf("artifact %s%s%s not found", r.name, colon, r.ref))
	case r.s.CosignPolicy && !q.isSigned(r):
		refuse(w, http.StatusPreconditionFailed, "PROJECTPOLICYVIOLATION", "The image is not signed by cosign.")
	default:
		return false
	}
	return true
}

// isSigned reports whether a manifest has a Sigstore bundle, or is one.
func (q *Registry) isSigned(r request) bool {
	const bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"
	var manifest struct{ ArtifactType string }
	answer := q.ask(r, http.MethodGet, "/v2/"+r.name+"/manifests/"+r.ref)
	if json.Unmarshal(answer.Body.Bytes(), &manifest) == nil && manifest.ArtifactType == bundle {
		return true
	}
	var list struct {
		Manifests []struct{ ArtifactType string }
	}
	answer = q.ask(r, http.MethodGet, "/v2/"+r.name+"/referrers/"+q.digestOf(r, r.ref))
	return json.Unmarshal(answer.Body.Bytes(), &list) == nil && len(list.Manifests) > 0 && list.Manifests[0].ArtifactType == bundle
}

// proxied handles requests to proxy-cache projects.
func (q *Registry) proxied(w http.ResponseWriter, r request) bool {
	project := projectOf(r.name)
	if !slices.Contains(r.s.Proxies, project) {
		return false
	}
	switch {
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		refuse(w, http.StatusForbidden, "DENIED", "denied: can not push artifact to a proxy project: "+project)
	case r.kind == "blobs" && r.Method == http.MethodHead && !q.isCached(r):
		w.WriteHeader(http.StatusNotFound)
	case r.kind == "manifests" && r.Method == http.MethodDelete && !q.isCached(r):
		refuse(w, http.StatusNotFound, "NOT_FOUND", fmt.Sprintf("artifact %s@%s not found", r.name, r.ref))
	case r.Method == http.MethodGet && (r.kind == "blobs" || r.kind == "manifests") && !q.isCached(r):
		return q.fetch(w, r)
	default:
		return false
	}
	return true
}

// isCached reports whether a proxy-cache project has fetched a blob or manifest.
func (q *Registry) isCached(r request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cached[r.name+"@"+r.ref]
}

// fetch answers a request as a proxy-cache project does when it first fetches the content from the upstream.
// The response lacks the size of a blob, and the digest of a manifest that was requested by its tag.
func (q *Registry) fetch(w http.ResponseWriter, r request) bool {
	answer := q.ask(r, http.MethodGet, r.URL.Path)
	if answer.Code != http.StatusOK {
		return false
	}
	d := answer.Header().Get("Docker-Content-Digest")
	q.mu.Lock()
	q.cached[r.name+"@"+d], q.cached[r.name+"@"+r.ref] = true, true
	q.mu.Unlock()
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	if r.kind == "blobs" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // otherwise the server adds the size
	} else {
		if d != r.ref {
			d = ""
		}
		w.Header().Set("Docker-Content-Digest", d)
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
	}
	w.Write(answer.Body.Bytes())
	return true
}

// quota refuses blobs and manifests that would exceed a project's quota.
func (q *Registry) quota(w http.ResponseWriter, r request) bool {
	if r.s.Quota == 0 || r.Method != http.MethodPut && !r.URL.Query().Has("mount") {
		return false
	}
	sizes := map[digest.Digest]int64{}
	switch {
	case r.kind == "manifests":
		data, err := io.ReadAll(io.LimitReader(r.Body, maxManifest))
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		sizes[digest.FromBytes(data)] = int64(len(data))
	case r.Method == http.MethodPost:
		d := digest.Digest(r.URL.Query().Get("mount"))
		answer := q.ask(r, http.MethodHead, "/v2/"+r.URL.Query().Get("from")+"/blobs/"+d.String())
		sizes[d], _ = strconv.ParseInt(answer.Header().Get("Content-Length"), 10, 64)
	default:
		sizes[digest.Digest(r.URL.Query().Get("digest"))] = q.uploaded(r)
	}
	return q.add(w, r, sizes)
}

// uploaded returns the size in bytes of the blob whose upload the request completes.
func (q *Registry) uploaded(r request) int64 {
	if r.ContentLength > 0 {
		return r.ContentLength
	}
	answer := q.ask(r, http.MethodGet, r.URL.RequestURI())
	_, last, _ := strings.Cut(answer.Header().Get("Range"), "-")
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n == 0 {
		return 0
	}
	return n + 1
}

// add counts blobs or manifests towards the quota of their project. It refuses the request if they would
// exceed the quota.
func (q *Registry) add(w http.ResponseWriter, r request, sizes map[digest.Digest]int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	project := projectOf(r.name)
	var used, more int64
	for key, n := range q.used {
		if strings.HasPrefix(key, project+"@") {
			used += n
		}
	}
	for d, n := range sizes {
		if _, counted := q.used[project+"@"+d.String()]; !counted {
			more += n
		}
	}
	if used+more > r.s.Quota {
		refuse(w, http.StatusForbidden, "DENIED", fmt.Sprintf("adding %s of storage resource, which when updated to current usage of %s will exceed the configured upper limit of %s.",
			bytesText(more), bytesText(used), bytesText(r.s.Quota)))
		return true
	}
	for d, n := range sizes {
		q.used[project+"@"+d.String()] = n
	}
	return false
}

// bytesText formats a number of bytes as Harbor does.
func bytesText(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// Retention is a rule of a Harbor retention policy. The rule selects the artifacts that have a matching tag.
// It keeps the newest of these artifacts, and Keep is their number.
type Retention struct {
	Tags func(tag string) bool // nil matches every tag
	Keep int                   // 0 keeps all matching artifacts
}

// Retain runs a retention policy on a repository. It deletes every artifact that no rule keeps, including
// artifacts without a tag. It does not delete artifacts with immutable tags. Deleting an index also deletes
// the children of the index.
func (q *Registry) Retain(repository string, rules ...Retention) error {
	c, err := q.Contents(repository)
	if err != nil {
		return err
	}
	q.mu.Lock()
	s, pushed := q.s, map[digest.Digest]int{}
	for tag, d := range c.Tags {
		pushed[d] = max(pushed[d], q.pushed[repository+":"+tag])
	}
	q.mu.Unlock()
	keep := map[digest.Digest]bool{}
	for _, rule := range rules {
		var matching []digest.Digest
		for d := range pushed {
			if rule.Tags == nil || slices.ContainsFunc(c.TagsOf(d), rule.Tags) {
				matching = append(matching, d)
			}
		}
		slices.SortFunc(matching, func(a, b digest.Digest) int { return cmp.Compare(pushed[b], pushed[a]) })
		for i, d := range matching {
			keep[d] = keep[d] || rule.Keep == 0 || i < rule.Keep
		}
	}
	return q.deleteUnless(repository, s, keep)
}

// deleteUnless deletes all artifacts of a repository except those in keep.
func (q *Registry) deleteUnless(repository string, s Settings, keep map[digest.Digest]bool) error {
	c, err := q.Contents(repository)
	if err != nil {
		return err
	}
	manifests := slices.Sorted(maps.Keys(c.Manifests))
	// Indexes come first, because the registry refuses to delete a manifest that an index names.
	slices.SortStableFunc(manifests, func(a, b digest.Digest) int { return cmp.Compare(len(c.Manifests[b]), len(c.Manifests[a])) })
	for _, d := range manifests {
		if keep[d] {
			continue
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodDelete, "/v2/"+repository+"/manifests/"+d.String(), nil)
		if !q.delete(w, parse(r, s)) {
			q.real.ServeHTTP(w, r)
		}
		if w.Code >= http.StatusInternalServerError {
			return fmt.Errorf("delete %s: %d %s", d, w.Code, w.Body)
		}
	}
	return nil
}
