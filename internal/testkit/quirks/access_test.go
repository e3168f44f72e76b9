package quirks_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/quirks"
)

// robot asks a registry of the Harbor profile, with the project providers and another.
type robot struct {
	t *testing.T
	q *quirks.Registry
	p quirks.Profile
}

func newRobot(t *testing.T, lacks ...string) *robot {
	p := profile(t, "harbor")
	p.Lacks = lacks
	r := &robot{t, quirks.For(t, p.Settings), p}
	r.q.Create("providers")
	r.q.Create("other")
	return r
}

// token returns a token for scopes.
func (r *robot) token(scopes ...string) string {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, "https://registry.test/token?"+url.Values{"scope": scopes}.Encode(), nil)
	req.SetBasicAuth(r.p.User, r.p.Password)
	w := httptest.NewRecorder()
	r.q.ServeHTTP(w, req)
	var answer struct{ Token string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || answer.Token == "" {
		r.t.Fatalf("token: %d %s", w.Code, w.Body)
	}
	return answer.Token
}

// ask sends a request with a token, or with the password where token is "".
func (r *robot) ask(method, target, token string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "https://registry.test"+target, nil)
	if token == "" {
		req.SetBasicAuth(r.p.User, r.p.Password)
	} else {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	r.q.ServeHTTP(w, req)
	return w
}

// refused fails unless the answer is Harbor's refusal in these words.
func (r *robot) refused(w *httptest.ResponseRecorder, words string) {
	r.t.Helper()
	if w.Code != 401 || !strings.Contains(w.Body.String(), words) || w.Header().Get("Www-Authenticate") != `Basic realm="harbor"` {
		r.t.Errorf("%d %v %s; want %q", w.Code, w.Header(), w.Body, words)
	}
}

const uploads = "/v2/providers/x/blobs/uploads/"

// TestHarborRights: a robot that lacks a right gets a token, and is refused with it.
func TestHarborRights(t *testing.T) {
	r := newRobot(t, "push", "delete")
	if w := ask(r.q, http.MethodPost, uploads, ""); w.Code != 401 || !strings.HasPrefix(w.Header().Get("Www-Authenticate"), "Bearer ") {
		t.Errorf("without a credential: %d %v", w.Code, w.Header())
	}
	for _, token := range []string{r.token("repository:providers/x:pull,push,delete"), ""} {
		r.refused(r.ask(http.MethodPost, uploads, token), "unauthorized to access repository: providers/x, action: push")
		r.refused(r.ask(http.MethodDelete, "/v2/providers/x/manifests/1", token), "unauthorized to access repository: providers/x, action: delete")
		if w := r.ask(http.MethodGet, "/v2/providers/x/tags/list", token); w.Code != 404 {
			t.Errorf("read: %d %s", w.Code, w.Body)
		}
		r.refused(r.ask(http.MethodGet, "/v2/_catalog", token), "unauthorized to list catalog")
	}
	r = newRobot(t)
	for _, token := range []string{r.token("repository:providers/x:pull,push"), ""} {
		if w := r.ask(http.MethodPost, uploads, token); w.Code != 202 {
			t.Errorf("with all rights: %d %s", w.Code, w.Body)
		}
	}
}

// TestHarborTwoScopes: the project of the first scope decides.
func TestHarborTwoScopes(t *testing.T) {
	r := newRobot(t)
	mine, other, absent := "repository:providers/x:pull,push", "repository:other/x:pull", "repository:absent/x:pull"
	if w := r.ask(http.MethodPost, uploads, r.token(mine, other)); w.Code != 202 {
		t.Errorf("first: %d %s", w.Code, w.Body)
	}
	if w := r.ask(http.MethodPost, uploads, r.token(absent, mine)); w.Code != 202 {
		t.Errorf("after an absent project: %d %s", w.Code, w.Body)
	}
	for _, token := range []string{r.token(other, mine), r.token(other + " " + mine)} {
		r.refused(r.ask(http.MethodPost, uploads, token), "action: push")
	}
	r.refused(r.ask(http.MethodGet, "/v2/other/x/tags/list", r.token(mine, other)), "unauthorized to access repository: other/x, action: pull")
}

// TestHarborMounts: a robot of a project mounts nothing from another project.
func TestHarborMounts(t *testing.T) {
	r := newRobot(t)
	mount := uploads + "?mount=sha256:" + strings.Repeat("0", 64) + "&from="
	for _, token := range []string{r.token("repository:providers/x:pull,push", "repository:other/y:pull"), ""} {
		r.refused(r.ask(http.MethodPost, mount+"other/y", token), "unauthorized to access repository: other/y, action: pull")
		if w := r.ask(http.MethodPost, mount+"providers/y", token); w.Code != 202 {
			t.Errorf("from its own project: %d %s", w.Code, w.Body)
		}
	}
}

func TestHarborAbsentProject(t *testing.T) {
	r := newRobot(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, token := range []string{r.token("repository:absent/x:pull,push"), ""} {
			w := r.ask(method, "/v2/absent/x/blobs/uploads/", token)
			if w.Code != 401 || !strings.Contains(w.Body.String(), "project absent not found: project absent not found") || w.Header().Get("Www-Authenticate") != "" {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
		}
	}
}

// TestHarborQuota: the blob is refused at the end of its upload.
func TestHarborQuota(t *testing.T) {
	r := newRobot(t)
	r.q.Set(func(s *quirks.Settings) { s.Full = http.StatusForbidden })
	w := r.ask(http.MethodPost, uploads, "")
	_, at, _ := strings.Cut(w.Header().Get("Location"), "registry.test")
	if w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	w = r.ask(http.MethodPut, at+"&digest=sha256:"+strings.Repeat("0", 64), "")
	if w.Code != 403 || !strings.Contains(w.Body.String(), "will exceed the configured upper limit of 12.0 MiB") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
