package embedded

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

const referrersName = "registry.example.com/acme/widget"

// openForReferrers opens a registry in a new data folder, and closes it when the test
// ends.
func openForReferrers(t *testing.T) *Registry {
	t.Helper()
	r, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// put pushes a manifest and returns its digest. It sends the request itself, because
// oras-go would also push a fallback tag.
func put(t *testing.T, r *Registry, name, ref, mediaType, manifest string) digest.Digest {
	t.Helper()
	d := digest.FromString(manifest)
	if ref == "" {
		ref = d.String()
	}
	empty := ocispec.DescriptorEmptyJSON
	for _, req := range []*http.Request{
		httptest.NewRequest(http.MethodPost, "/v2/"+name+"/blobs/uploads/", nil),
		httptest.NewRequest(http.MethodPut, "/v2/"+name+"/manifests/"+ref, strings.NewReader(manifest)),
	} {
		req.Header.Set("Content-Type", mediaType)
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, req)
		if w.Code == http.StatusAccepted {
			upload := httptest.NewRequest(http.MethodPut, w.Header().Get("Location")+"&digest="+empty.Digest.String(), strings.NewReader(string(empty.Data)))
			w = httptest.NewRecorder()
			r.Handler().ServeHTTP(w, upload)
		}
		if w.Code != http.StatusCreated {
			t.Fatalf("%s %s: %d: %s", req.Method, req.URL, w.Code, w.Body)
		}
	}
	return d
}

// imageManifest returns an image manifest without layers. more is JSON text with
// additional fields.
func imageManifest(more string) string {
	return `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `",` + more + `"config":{"mediaType":"` + ocispec.MediaTypeEmptyJSON +
		`","digest":"` + ocispec.DescriptorEmptyJSON.Digest.String() + `","size":2},"layers":[]}`
}

// about returns the JSON text of the field subject that refers to the manifest with
// digest d.
func about(d digest.Digest) string {
	return fmt.Sprintf(`"subject":{"mediaType":%q,"digest":%q,"size":1},`, ocispec.MediaTypeImageManifest, d)
}

// ask sends a request to the referrers API, through the same handler as clients of the
// gateway. It returns the response and the descriptors in it.
func ask(t *testing.T, r *Registry, name string, subject digest.Digest, query string) (*httptest.ResponseRecorder, []ocispec.Descriptor) {
	t.Helper()
	w := httptest.NewRecorder()
	r.ReadOnly().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/"+name+"/referrers/"+string(subject)+query, nil))
	var index ocispec.Index
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &index); err != nil || index.Manifests == nil || index.MediaType != ocispec.MediaTypeImageIndex ||
			w.Header().Get("Content-Type") != ocispec.MediaTypeImageIndex || index.SchemaVersion != 2 {
			t.Errorf("%v: %v %s", err, w.Header(), w.Body)
		}
	}
	return w, index.Manifests
}

func wantReferrers(t *testing.T, what string, got []ocispec.Descriptor, want ...digest.Digest) {
	t.Helper()
	slices.Sort(want)
	var digests []digest.Digest
	for _, d := range got {
		digests = append(digests, d.Digest)
	}
	if !slices.Equal(digests, want) {
		t.Errorf("%s: %v, want %v", what, digests, want)
	}
}

// TestReferrers shows that the referrers API lists the manifests that name a subject, and
// the manifests in the subject's fallback tag.
func TestReferrers(t *testing.T) {
	r := openForReferrers(t)
	const name = referrersName
	// The status is not 404, because the specification reserves 404 for registries
	// without the referrers API.
	if w, got := ask(t, r, name, digest.FromString("x"), ""); w.Code != http.StatusOK || len(got) != 0 || !strings.Contains(w.Body.String(), `"manifests":[]`) {
		t.Errorf("no repository: %d: %s", w.Code, w.Body)
	}
	if known := r.app.(*referrers).subjects.Len(); known != 0 {
		t.Errorf("%d manifests that do not exist are cached", known)
	}
	subject := put(t, r, name, "1.0.0", ocispec.MediaTypeImageManifest, imageManifest(""))
	_, got := ask(t, r, name, subject, "")
	wantReferrers(t, "none", got)

	signature := put(t, r, name, "", ocispec.MediaTypeImageManifest, imageManifest(`"artifactType":"application/vnd.example.signature","annotations":{"by":"acme"},`+about(subject)))
	byConfig := put(t, r, name, "", ocispec.MediaTypeImageManifest, imageManifest(`"annotations":{"n":"2"},`+about(subject)))
	ofSignature := put(t, r, name, "", ocispec.MediaTypeImageManifest, imageManifest(about(signature)))
	index := put(t, r, name, "", ocispec.MediaTypeImageIndex, `{"schemaVersion":2,"mediaType":"`+ocispec.MediaTypeImageIndex+`",`+about(subject)+`"manifests":[]}`)
	w, got := ask(t, r, name, subject, "")
	wantReferrers(t, "all", got, signature, byConfig, index)
	for _, d := range got {
		switch d.Digest {
		case signature:
			if d.ArtifactType != "application/vnd.example.signature" || d.MediaType != ocispec.MediaTypeImageManifest || !maps.Equal(d.Annotations, map[string]string{"by": "acme"}) || d.Size == 0 {
				t.Errorf("signature: %+v", d)
			}
		case byConfig:
			if d.ArtifactType != ocispec.MediaTypeEmptyJSON {
				t.Errorf("without an artifactType: %+v", d)
			}
		case index:
			if d.ArtifactType != "" || d.MediaType != ocispec.MediaTypeImageIndex {
				t.Errorf("index: %+v", d)
			}
		}
	}
	if w.Header().Get("OCI-Filters-Applied") != "" {
		t.Error("filters applied")
	}
	if again, _ := ask(t, r, name, subject, ""); again.Body.String() != w.Body.String() {
		t.Error("another answer")
	}
	w, got = ask(t, r, name, subject, "?artifactType=application/vnd.example.signature")
	wantReferrers(t, "filtered", got, signature)
	if w.Header().Get("OCI-Filters-Applied") != "artifactType" {
		t.Errorf("%v", w.Header())
	}
	_, got = ask(t, r, name, subject, "?artifactType=other")
	wantReferrers(t, "filtered, none", got)
	_, got = ask(t, r, name, signature, "")
	wantReferrers(t, "of a referrer", got, ofSignature)
	_, got = ask(t, r, name, digest.FromString("unknown"), "")
	wantReferrers(t, "of an unknown digest", got)

	// The manifests in a fallback tag are listed, except manifests in other repositories
	// and manifests with another subject.
	noSubject := put(t, r, name, "", ocispec.MediaTypeImageManifest, imageManifest(`"annotations":{"n":"3"},`))
	list, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": []map[string]any{
		{"mediaType": ocispec.MediaTypeImageManifest, "digest": noSubject, "size": 1},
		{"mediaType": ocispec.MediaTypeImageManifest, "digest": ofSignature, "size": 1},
		{"mediaType": ocispec.MediaTypeImageManifest, "digest": signature, "size": 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, r, name, "sha256-"+subject.Encoded(), ocispec.MediaTypeImageIndex, string(list))
	_, got = ask(t, r, name, subject, "")
	wantReferrers(t, "with a fallback tag", got, signature, byConfig, index, noSubject)

	// A deleted manifest is no longer listed.
	del := httptest.NewRecorder()
	r.Handler().ServeHTTP(del, httptest.NewRequest(http.MethodDelete, "/v2/"+name+"/manifests/"+byConfig.String(), nil))
	if del.Code != http.StatusAccepted {
		t.Fatalf("%d: %s", del.Code, del.Body)
	}
	_, got = ask(t, r, name, subject, "")
	wantReferrers(t, "after a deletion", got, signature, index, noSubject)

	if w, _ := ask(t, r, name, "sha256:00", ""); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"code":"DIGEST_INVALID"`) {
		t.Errorf("no digest: %d: %s", w.Code, w.Body)
	}
}

// TestReferrersStayInTheirRepository shows that a request for one repository never lists
// referrers in another repository. Names with ".." are refused.
func TestReferrersStayInTheirRepository(t *testing.T) {
	r := openForReferrers(t)
	subject := put(t, r, "a/secret", "1.0.0", ocispec.MediaTypeImageManifest, imageManifest(""))
	signature := put(t, r, "a/secret", "", ocispec.MediaTypeImageManifest, imageManifest(about(subject)))
	put(t, r, "a/open", "1.0.0", ocispec.MediaTypeImageManifest, imageManifest(""))
	_, got := ask(t, r, "a/secret", subject, "")
	wantReferrers(t, "its own", got, signature)
	_, got = ask(t, r, "a/open", subject, "")
	wantReferrers(t, "another's", got)
	// The fallback tag of a/open lists a manifest that was deleted in a/open but still
	// exists in a/secret.
	put(t, r, "a/open", "", ocispec.MediaTypeImageManifest, imageManifest(about(subject)))
	put(t, r, "a/open", "sha256-"+subject.Encoded(), ocispec.MediaTypeImageIndex, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":1}]}`,
		ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest, signature))
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/v2/a/open/manifests/"+signature.String(), nil))
	_, got = ask(t, r, "a/open", subject, "")
	wantReferrers(t, "another's that a fallback tag lists", got)
	for _, name := range []string{"a/open/../secret", "./a/secret", "a//secret", "a/open/_manifests/../../secret", "../repositories/a/secret"} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, "/v2/", nil)
		req.URL.Path = "/v2/" + name + "/referrers/" + subject.String()
		r.ReadOnly().ServeHTTP(w, req)
		if w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), signature.String()) {
			t.Errorf("%s: %d: %s", name, w.Code, w.Body)
		}
	}
}

// TestReferrersAreBounded shows what happens at the limits. It uses manifests with too
// many values, manifests with long annotations, and more manifests than the cache can
// hold.
func TestReferrersAreBounded(t *testing.T) {
	testkit.WithoutRace(t)
	r := openForReferrers(t)
	api := r.app.(*referrers)
	subject := put(t, r, "a/b", "1.0.0", ocispec.MediaTypeImageManifest, imageManifest(""))
	put(t, r, "a/b", "", ocispec.MediaTypeImageManifest, imageManifest(`"x":[`+strings.Repeat("0,", manifestLimits.Elements)+`0],`+about(subject)))
	_, got := ask(t, r, "a/b", subject, "")
	wantReferrers(t, "too many values", got)

	put(t, r, "c/d", "1.0.0", ocispec.MediaTypeImageManifest, imageManifest(""))
	signature := put(t, r, "c/d", "", ocispec.MediaTypeImageManifest, imageManifest(about(subject)))
	put(t, r, "c/d", "", ocispec.MediaTypeImageManifest, imageManifest(about(signature)))
	api = newReferrers(r.dir, api.next, 3)
	r.app = api
	for range 2 { // the cache holds one manifest less than there are
		_, got = ask(t, r, "c/d", subject, "")
		wantReferrers(t, "beside others", got, signature)
		_, got = ask(t, r, "a/b", subject, "")
		wantReferrers(t, "beside others", got)
		if n := api.subjects.Len(); n != 3 {
			t.Errorf("%d manifests are cached", n)
		}
	}
	api.max = 2
	if w, _ := ask(t, r, "c/d", subject, ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "more than 2 manifests") {
		t.Errorf("too many manifests: %d: %s", w.Code, w.Body)
	}

	api.max = maxSubjects
	for i := range 2 {
		put(t, r, "e/f", "", ocispec.MediaTypeImageManifest, imageManifest(fmt.Sprintf(`"annotations":{"n%d":%q},`, i, strings.Repeat("x", maxReferrersBytes/2))+about(subject)))
	}
	if w, _ := ask(t, r, "e/f", subject, ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "too many referrers: their types and annotations have more") {
		t.Errorf("long annotations: %d with %d bytes", w.Code, w.Body.Len())
	}
}

// TestReferrersReadManifestsOnce shows that a manifest is not read again for a second
// request. After the first request, one manifest becomes unreadable, and the second
// request still succeeds.
func TestReferrersReadManifestsOnce(t *testing.T) {
	r := openForReferrers(t)
	api := r.app.(*referrers)
	subject := put(t, r, "a/b", "1.0.0", ocispec.MediaTypeImageManifest, imageManifest(""))
	ask(t, r, "a/b", subject, "")
	data := filepath.Join(api.root, "blobs", "sha256", subject.Encoded()[:2], subject.Encoded(), "data")
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("data", data); err != nil { // reading the file fails
		t.Fatal(err)
	}
	signature := put(t, r, "a/b", "", ocispec.MediaTypeImageManifest, imageManifest(about(subject)))
	w, got := ask(t, r, "a/b", subject, "")
	wantReferrers(t, fmt.Sprint("status ", w.Code), got, signature)

	// A damaged manifest is not listed as a referrer.
	file := filepath.Join(api.root, "blobs", "sha256", signature.Encoded()[:2], signature.Encoded(), "data")
	if err := os.WriteFile(file, []byte(imageManifest(`"annotations":{"forged":"1"},`+about(subject))), 0o600); err != nil {
		t.Fatal(err)
	}
	_, got = ask(t, r, "a/b", subject, "")
	wantReferrers(t, "damaged", got)
}

// TestReferrersOfARepairedManifest shows that a manifest is listed after it was repaired,
// even if a request has read the damaged manifest before.
func TestReferrersOfARepairedManifest(t *testing.T) {
	r := openForReferrers(t)
	api := r.app.(*referrers)
	subject := put(t, r, "a/b", "1.0.0", ocispec.MediaTypeImageManifest, imageManifest(""))
	whole := imageManifest(about(subject))
	signature := put(t, r, "a/b", "", ocispec.MediaTypeImageManifest, whole)
	file := filepath.Join(api.root, "blobs", "sha256", signature.Encoded()[:2], signature.Encoded(), "data")
	for _, damaged := range []string{"", whole[:10], imageManifest("")} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		_, got := ask(t, r, "a/b", subject, "")
		wantReferrers(t, "damaged", got)
	}
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	_, got := ask(t, r, "a/b", subject, "")
	wantReferrers(t, "repaired", got, signature)
}

// TestAnswersOfReferrersAtOnce shows that a request for referrers waits while maxAnswers
// other requests are creating their lists.
func TestAnswersOfReferrersAtOnce(t *testing.T) {
	api := openForReferrers(t).app.(*referrers)
	if err := os.MkdirAll(api.inRepository("a/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range maxAnswers {
		if !api.answers.TryAcquire(1) {
			t.Fatal("fewer slots than maxAnswers")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ended := false
		go func() {
			if _, err := api.index(t.Context(), "a/b", digest.FromString("subject"), ""); err != nil {
				t.Error(err)
			}
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("the request did not wait")
		}
		api.answers.Release(1)
		synctest.Wait()
		if !ended {
			t.Error("the request waits forever")
		}
	})
	if !api.answers.TryAcquire(1) {
		t.Error("the slot was not released")
	}
}
