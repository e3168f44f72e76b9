package quirks_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
)

// The functions below are rows of [TestHarborMeasured].

// harborQuota shows that if a blob or manifest is pushed several times, it counts only once towards the quota
// of a project.
func harborQuota(t *testing.T) {
	r := newHarbor(t)
	r.q.Set(func(s *quirks.Settings) { s.Quota = 3000 })
	full := "storage resource, which when updated to current usage of 2.9 KiB will exceed the configured upper limit of 2.9 KiB."
	for i, status := range []int{201, 201, 201, 403} {
		w, _ := r.upload("providers/x", strings.Repeat(fmt.Sprint(i), 1000))
		r.answered(w, status, "")
		if status == 403 {
			r.answered(w, 403, `{"code":"DENIED","message":"adding 1000 B of `+full)
		}
	}
	w, _ := r.upload("providers/y", strings.Repeat("0", 1000))
	r.answered(w, 201, "")
	r.wants(http.MethodPut, "/v2/providers/x/manifests/1", emptyIndex, 403, fmt.Sprintf("adding %d B of %s", len(emptyIndex), full))
	w, d := r.as(systemRobot).upload("other/x", strings.Repeat("m", 1000))
	r.answered(w, 201, "")
	r.as(systemRobot).wants(http.MethodPost, uploads+"?mount="+d.String()+"&from=other/x", "", 403, "adding 1000 B of "+full)

	// A manifest also counts only once.
	r.q.Set(func(s *quirks.Settings) { s.Quota = 3000 + int64(len(emptyIndex)) })
	for _, tag := range []string{"1", "2"} {
		r.wants(http.MethodPut, "/v2/providers/x/manifests/"+tag, emptyIndex, 201, "")
	}
	r.wants(http.MethodPut, "/v2/providers/x/manifests/3", emptyIndex+"\n", 403, "")
	r.q.Set(func(s *quirks.Settings) { s.Quota = 3000 })

	// A chunked upload counts when it is completed.
	at := r.wants(http.MethodPost, uploads, "", 202, "").Header().Get("Location")
	_, at, _ = strings.Cut(at, "registry.test")
	at = r.wants(http.MethodPatch, at, strings.Repeat("p", 500), 202, "").Header().Get("Location")
	_, at, _ = strings.Cut(at, "registry.test")
	r.wants(http.MethodPut, at+"&digest="+digest.FromString(strings.Repeat("p", 500)).String(), "", 403, "adding 500 B of storage resource")
}

// harborRetention shows that a retention policy counts helper tags as it counts versions, and deletes every
// artifact that no rule keeps.
func harborRetention(t *testing.T) {
	version := func(tag string) bool { return !strings.HasPrefix(tag, "ocibridge-") }
	for name, tc := range map[string]struct {
		rules []quirks.Retention
		want  string
	}{
		"keep 2":             {[]quirks.Retention{{Keep: 2}}, "child helper:ocibridge-x one:1"},
		"keep all helpers":   {[]quirks.Retention{{Tags: func(tag string) bool { return !version(tag) }}}, "helper:ocibridge-x"},
		"versions, helpers":  {[]quirks.Retention{{Tags: version}, {Tags: func(tag string) bool { return !version(tag) }}}, "child helper:ocibridge-x one:1 three:3 two:2"},
		"keep 1, one pinned": {[]quirks.Retention{{Keep: 1}, {Tags: func(tag string) bool { return tag == "3" }}}, "child one:1 three:3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t, "harbor")
			child, left := s.push("", "child"), s.push("", "left")
			s.push("1", "replaced", left)
			s.push("2", "two")
			s.push("3", "three")
			s.push("ocibridge-x", "helper")
			s.push("1", "one", child) // its tag is now the newest
			if err := s.q.Retain("acme/x", tc.rules...); err != nil {
				t.Fatal(err)
			}
			s.has(tc.want)
		})
	}
	s := newShelf(t, "harbor")
	a, b, c := s.push("a", "a"), s.push("b", "b"), s.push("c", "c")
	s.push("1", "one", a, b, c)
	s.push("2", "two")
	if err := s.q.Retain("acme/x", quirks.Retention{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	s.has("two:2") // the deleted index's children are gone

	s = newShelf(t, "harbor")
	s.push("1", "one")
	s.push("2", "two")
	s.q.Set(func(set *quirks.Settings) {
		set.Immutable, set.Mutable = 412, func(tag string) bool { return tag != "1" }
	})
	if err := s.q.Retain("acme/x", quirks.Retention{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	s.has("one:1 two:2")
}

// harborCosign shows that a project with a cosign policy accepts, lists and deletes unsigned manifests, but
// refuses to serve them. It serves signed manifests and their signatures.
func harborCosign(t *testing.T) {
	r := newHarbor(t)
	r.q.Set(func(s *quirks.Settings) { s.CosignPolicy = true })
	const manifests = "/v2/providers/x/manifests/"
	for range 2 {
		r.wants(http.MethodPut, manifests+"1", emptyIndex, 201, "")
	}
	for _, ref := range []string{"1", digest.FromString(emptyIndex).String()} {
		r.wants(http.MethodGet, manifests+ref, "", 412, `{"code":"PROJECTPOLICYVIOLATION","message":"The image is not signed by cosign."}`)
		r.wants(http.MethodHead, manifests+ref, "", 412, "")
	}
	r.wants(http.MethodGet, manifests+"2", "", 404, "artifact providers/x:2 not found")
	r.wants(http.MethodGet, "/v2/providers/x/tags/list", "", 200, `"tags":["1"]`)
	// A signature of the manifest makes both readable.
	signature := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":"application/vnd.dev.sigstore.bundle.v0.3+json","manifests":[],"subject":{"mediaType":%q,"digest":%q,"size":%d}}`,
		index, index, digest.FromString(emptyIndex), len(emptyIndex))
	r.wants(http.MethodPut, manifests+digest.FromString(signature).String(), signature, 201, "")
	for _, ref := range []string{"1", digest.FromString(emptyIndex).String(), digest.FromString(signature).String()} {
		r.wants(http.MethodGet, manifests+ref, "", 200, "")
		r.wants(http.MethodHead, manifests+ref, "", 200, "")
	}
	r.wants(http.MethodDelete, manifests+digest.FromString(emptyIndex).String(), "", 202, "")
}

// harborProxy shows that a proxy-cache project refuses pushes, and that HEAD finds a blob only after a GET
// request has fetched the blob.
func harborProxy(t *testing.T) {
	r := newHarbor(t)
	w, d := r.upload("providers/x", "blob")
	r.answered(w, 201, "")
	const manifests = "/v2/providers/x/manifests/"
	r.wants(http.MethodPut, manifests+"1", emptyIndex, 201, "")
	r.q.Set(func(s *quirks.Settings) { s.Proxies = []string{"providers"} })
	server := httptest.NewServer(r.q)
	t.Cleanup(server.Close)
	get := func(path string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(r.user, r.password)
		req.Header.Set("Accept", index)
		req.Header.Set("Range", "bytes=0-0")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}

	r.wants(http.MethodGet, "/v2/providers/x/tags/list", "", 200, `"tags":["1"]`)
	r.wants(http.MethodHead, manifests+"1", "", 200, "")
	r.wants(http.MethodDelete, manifests+digest.FromString(emptyIndex).String(), "", 404, "NOT_FOUND")
	for i, want := range []string{"", digest.FromString(emptyIndex).String()} {
		if resp := get(manifests + "1"); resp.StatusCode != 200 || resp.Header.Get("Docker-Content-Digest") != want {
			t.Errorf("manifest, %d. time: %s, %v; want the digest %q", i+1, resp.Status, resp.Header, want)
		}
	}
	blob := "/v2/providers/x/blobs/" + d.String()
	r.wants(http.MethodHead, blob, "", 404, "")
	for i, want := range []struct {
		status int
		length int64
	}{{200, -1}, {206, 1}} {
		if resp := get(blob); resp.StatusCode != want.status || resp.ContentLength != want.length {
			t.Errorf("blob, %d. time: %s, %d bytes; want %+v", i+1, resp.Status, resp.ContentLength, want)
		}
		r.wants(http.MethodHead, blob, "", 200, "")
	}
	r.wants(http.MethodGet, "/v2/providers/x/blobs/"+digest.FromString("absent").String(), "", 404, "")
	denied := `{"code":"DENIED","message":"denied: can not push artifact to a proxy project: providers"}`
	r.wants(http.MethodPost, uploads, "", 403, denied)
	r.wants(http.MethodPut, manifests+"2", emptyIndex, 403, denied)
	r.as(readOnly).refused(r.as(readOnly).ask(http.MethodPost, uploads, "", ""), "unauthorized to access repository: providers/x, action: push")
}
