package quirks_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
)

// robot sends requests with the login of one robot to a registry with the Harbor profile.
type robot struct {
	t              *testing.T
	q              *quirks.Registry
	user, password string
}

// newHarbor adds these robots to the robot of the profile.
var (
	otherRobot  = quirks.Robot{User: "robot$other+ci", Password: "other", Rights: map[string][]string{"other": {"pull", "push"}}}
	systemRobot = quirks.Robot{User: "robot$system", Password: "system", Catalog: true, Rights: map[string][]string{"providers": {"pull", "push"}, "other": {"pull", "push"}}}
	readOnly    = quirks.Robot{User: "robot$providers+ro", Password: "ro", Rights: map[string][]string{"providers": {"pull"}}}
)

// newHarbor creates a Harbor with the projects providers, other and public. It returns the robot of the
// profile, which has all rights in the project providers.
func newHarbor(t *testing.T) robot {
	p := profile(t, "harbor")
	p.Robots, p.Public = []quirks.Robot{otherRobot, systemRobot, readOnly}, []string{"public"}
	r := robot{t, quirks.For(t, p.Settings), p.User, p.Password}
	for _, project := range []string{"providers", "other", "public"} {
		r.q.Create(project)
	}
	return r
}

// as returns a copy of r that logs in as other.
func (r robot) as(other quirks.Robot) robot {
	r.user, r.password = other.User, other.Password
	return r
}

// token requests a token for the given scopes from the token server, and returns the token.
func (r robot) token(scopes ...string) string {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, "https://registry.test/token?"+url.Values{"scope": scopes}.Encode(), nil)
	if r.user != "" {
		req.SetBasicAuth(r.user, r.password)
	}
	w := httptest.NewRecorder()
	r.q.ServeHTTP(w, req)
	var answer struct{ Token string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || answer.Token == "" {
		r.t.Fatalf("token: %d %s", w.Code, w.Body)
	}
	return answer.Token
}

// ask sends a request with a token, or with the password if token is "".
func (r robot) ask(method, target, token, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "https://registry.test"+target, strings.NewReader(body))
	if token == "" {
		req.SetBasicAuth(r.user, r.password)
	} else {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if strings.Contains(target, "/manifests/") {
		req.Header.Set("Content-Type", index)
		req.Header.Set("Accept", index)
	}
	w := httptest.NewRecorder()
	r.q.ServeHTTP(w, req)
	return w
}

// wants sends a request with the robot's password. It fails the test unless the response has the given status
// and contains the given words.
func (r robot) wants(method, target, body string, status int, words string) *httptest.ResponseRecorder {
	r.t.Helper()
	w := r.ask(method, target, "", body)
	r.answered(w, status, words)
	return w
}

// answered fails the test unless the response has the given status and contains the given words.
func (r robot) answered(w *httptest.ResponseRecorder, status int, words string) {
	r.t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), words) {
		r.t.Errorf("%d %v %s; want %d %q", w.Code, w.Header(), w.Body, status, words)
	}
}

// refused fails the test unless the response has status 401, Harbor's challenge, and Harbor's error with the
// given words.
func (r robot) refused(w *httptest.ResponseRecorder, words string) {
	r.t.Helper()
	r.answered(w, 401, words+": "+words)
	if got := w.Header().Get("Www-Authenticate"); got != `Basic realm="harbor"` {
		r.t.Errorf("challenge %q", got)
	}
}

// upload uploads a blob to a repository. It returns the response to the PUT request, and the digest of the
// blob.
func (r robot) upload(repository, content string) (*httptest.ResponseRecorder, digest.Digest) {
	r.t.Helper()
	d := digest.FromString(content)
	w := r.wants(http.MethodPost, "/v2/"+repository+"/blobs/uploads/", "", 202, "")
	_, at, _ := strings.Cut(w.Header().Get("Location"), "registry.test")
	return r.ask(http.MethodPut, at+"&digest="+d.String(), "", content), d
}
