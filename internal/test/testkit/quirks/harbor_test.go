package quirks_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
)

// index is the media type of all manifests in these tests.
const index = "application/vnd.oci.image.index.v1+json"

const uploads = "/v2/providers/x/blobs/uploads/"

// TestHarborMeasured shows that the harbor profile answers like a real Harbor (2.15.2). Each row is a
// situation in which the real Harbor was measured.
func TestHarborMeasured(t *testing.T) {
	for _, row := range []struct {
		situation string
		test      func(*testing.T)
	}{
		{"an absent project", harborAbsentProject},
		{"a right that the robot lacks", harborRights},
		{"a wrong password", harborWrongPassword},
		{"a token for two repositories, asked by a project robot", harborTwoScopes},
		{"mounts", harborMounts},
		{"quota", harborQuota},
		{"DELETE of a tag", harborDeletesTag},
		{"DELETE of a manifest by digest", harborDeletes},
		{"a tag that moves", harborTagMoves},
		{"immutability", harborImmutable},
		{"retention by count", harborRetention},
		{"a policy that wants cosign signatures", harborCosign},
		{"proxy-cache projects", harborProxy},
		{"read-only mode", harborReadOnlyMode},
		{"a name without a project", harborNoProject},
		{"pages of tags", harborPages},
		{"_catalog", harborCatalog},
		{"reading a public project", harborPublic},
		{"what is not there", harborAbsent},
	} {
		t.Run(row.situation, row.test)
	}
}

func harborAbsentProject(t *testing.T) {
	r := newHarbor(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, token := range []string{r.token("repository:absent/x:pull,push"), ""} {
			w := r.ask(method, "/v2/absent/x/blobs/uploads/", token, "")
			r.answered(w, 401, "project absent not found: project absent not found")
			if got := w.Header().Get("Www-Authenticate"); got != "" {
				t.Errorf("challenge %q", got)
			}
		}
	}
}

// harborRights shows that if a robot requests a right that it lacks, it still gets a token. Harbor refuses
// only a request that needs the right.
func harborRights(t *testing.T) {
	all := newHarbor(t)
	w := ask(all.q, http.MethodPost, uploads, "")
	if all.answered(w, 401, "action: push"); !strings.HasPrefix(w.Header().Get("Www-Authenticate"), "Bearer ") {
		t.Errorf("without a credential: %v", w.Header())
	}
	r := all.as(readOnly)
	for _, token := range []string{r.token("repository:providers/x:pull,push,delete"), ""} {
		r.refused(r.ask(http.MethodPost, uploads, token, ""), "unauthorized to access repository: providers/x, action: push")
		r.refused(r.ask(http.MethodDelete, "/v2/providers/x/manifests/1", token, ""), "unauthorized to access repository: providers/x, action: delete")
		r.answered(r.ask(http.MethodGet, "/v2/providers/x/tags/list", token, ""), 404, "")
	}
	r = all.as(otherRobot)
	for _, token := range []string{r.token("repository:providers/x:pull"), ""} {
		r.refused(r.ask(http.MethodGet, "/v2/providers/x/tags/list", token, ""), "unauthorized to access repository: providers/x, action: pull")
	}
	for _, r := range []robot{all, all.as(systemRobot)} {
		for _, token := range []string{r.token("repository:providers/x:pull,push"), ""} {
			r.answered(r.ask(http.MethodPost, uploads, token, ""), 202, "")
		}
		// A token is valid for the whole project.
		r.answered(r.ask(http.MethodPost, uploads, r.token("repository:providers/y:pull,push"), ""), 202, "")
		r.wants(http.MethodGet, "/v2/", "", 200, "")
	}
	// A setting removes rights from the profile's login.
	all.q.Set(func(s *quirks.Settings) { s.Lacks = []string{"push"} })
	all.refused(all.ask(http.MethodPost, uploads, "", ""), "unauthorized to access repository: providers/x, action: push")
}

// harborWrongPassword shows that a request for a scope with a wrong password still gets a token, but the token
// has no rights.
func harborWrongPassword(t *testing.T) {
	r := newHarbor(t)
	r.password = "wrong"
	for _, token := range []string{r.token("repository:providers/x:pull,push"), ""} {
		r.refused(r.ask(http.MethodPost, uploads, token, ""), "unauthorized to access repository: providers/x, action: push")
	}
	r.wants(http.MethodGet, "/token", "", 401, "")
	r.refused(r.ask(http.MethodGet, "/v2/", "", ""), "unauthorized")
}

// harborTwoScopes shows that if a project robot requests a token for two projects, the first existing project
// decides which rights the token has.
func harborTwoScopes(t *testing.T) {
	r := newHarbor(t)
	mine, other, absent, public := "repository:providers/x:pull,push", "repository:other/x:pull", "repository:absent/x:pull", "repository:public/x:pull"
	const read = "/v2/other/x/tags/list"
	for _, scopes := range [][]string{{mine, other}, {mine, public}, {absent, mine}} {
		r.answered(r.ask(http.MethodPost, uploads, r.token(scopes...), ""), 202, "")
	}
	for _, scopes := range [][]string{{other, mine}, {other + " " + mine}, {public, mine}} {
		r.refused(r.ask(http.MethodPost, uploads, r.token(scopes...), ""), "unauthorized to access repository: providers/x, action: push")
	}
	r.refused(r.ask(http.MethodGet, read, r.token(mine, other), ""), "unauthorized to access repository: other/x, action: pull")
	r.answered(r.ask(http.MethodGet, "/v2/public/x/tags/list", r.token(public, mine), ""), 404, "")
	r = r.as(systemRobot)
	for _, scopes := range [][]string{{mine, other}, {other, mine}, {public, other, mine}} {
		r.answered(r.ask(http.MethodPost, uploads, r.token(scopes...), ""), 202, "")
		r.answered(r.ask(http.MethodGet, read, r.token(scopes...), ""), 404, "")
	}
}

// harborMounts shows that a robot can mount blobs only from projects that it may read.
func harborMounts(t *testing.T) {
	r := newHarbor(t)
	if w, _ := r.as(systemRobot).upload("other/y", "blob"); w.Code != 201 {
		t.Fatalf("upload to another project: %d %s", w.Code, w.Body)
	}
	w, d := r.upload("providers/y", "blob")
	r.answered(w, 201, "")
	mount := uploads + "?mount=" + d.String() + "&from="
	for _, token := range []string{r.token("repository:providers/x:pull,push", "repository:other/y:pull"), ""} {
		r.refused(r.ask(http.MethodPost, mount+"other/y", token, ""), "unauthorized to access repository: other/y, action: pull")
		r.answered(r.ask(http.MethodPost, mount+"providers/y", token, ""), 201, "")
	}
	r = r.as(systemRobot)
	r.answered(r.ask(http.MethodPost, mount+"other/y", r.token("repository:providers/x:pull,push", "repository:other/y:pull"), ""), 201, "")
	r.refused(r.ask(http.MethodPost, mount+"other/y", r.token("repository:providers/x:pull,push"), ""), "unauthorized to access repository: other/y, action: pull")
}

// harborReadOnlyMode shows that Harbor in read-only mode refuses all writes before it checks the login and the
// project.
func harborReadOnlyMode(t *testing.T) {
	r := newHarbor(t)
	r.q.Set(func(s *quirks.Settings) { s.ReadOnlyMode = true })
	refusal := `{"code":"DENIED","message":"The system is in read only mode. Any modification is prohibited."}`
	for _, path := range []string{uploads, "/v2/absent/x/blobs/uploads/"} {
		r.wants(http.MethodPost, path, "", 403, refusal)
		r.as(readOnly).wants(http.MethodPost, path, "", 403, refusal)
		r.answered(ask(r.q, http.MethodPost, path, ""), 403, refusal)
	}
	r.wants(http.MethodPut, "/v2/providers/x/manifests/1", emptyIndex, 403, refusal)
	r.wants(http.MethodDelete, "/v2/providers/x/manifests/1", "", 403, refusal)
	r.wants(http.MethodPost, "/v2/x/blobs/uploads/", "", 400, "")
	r.wants(http.MethodGet, "/v2/providers/x/tags/list", "", 404, "")
}

func harborNoProject(t *testing.T) {
	r := newHarbor(t)
	words := `{"code":"BAD_REQUEST","message":"bad request: invalid repository name: x"}`
	r.wants(http.MethodGet, "/v2/x/tags/list", "", 400, words)
	r.wants(http.MethodGet, "/v2/x/manifests/1", "", 400, words)
	r.wants(http.MethodPost, "/v2/x/blobs/uploads/", "", 400, words)
	r.answered(ask(r.q, http.MethodGet, "/v2/x/tags/list", ""), 400, words)
}

func harborPages(t *testing.T) {
	r := newHarbor(t)
	var all []string
	for i := range 120 {
		all = append(all, fmt.Sprintf(`"%d"`, i))
		r.wants(http.MethodPut, fmt.Sprintf("/v2/providers/x/manifests/%d", i), emptyIndex, 201, "")
	}
	slices.Sort(all)
	const list = "/v2/providers/x/tags/list"
	if w := r.wants(http.MethodGet, list, "", 200, `"tags":[`+strings.Join(all, ",")+"]"); w.Header().Get("Link") != "" {
		t.Errorf("without n: %v", w.Header())
	}
	w := r.wants(http.MethodGet, list+"?n=2", "", 200, `"tags":["0","1"]`)
	if got := w.Header().Get("Link"); got != `</v2/providers/x/tags/list?last=1&n=2>; rel="next"` {
		t.Errorf("with n: %s", got)
	}
	if w := r.wants(http.MethodGet, list+"?n=100000&last=98", "", 200, `"tags":["99"]`); w.Header().Get("Link") != "" {
		t.Errorf("the last page: %v", w.Header())
	}
}

// harborCatalog shows that the catalog accepts the password of a system robot, but no token.
func harborCatalog(t *testing.T) {
	r := newHarbor(t)
	r.wants(http.MethodPut, "/v2/providers/x/manifests/1", emptyIndex, 201, "")
	r.as(systemRobot).wants(http.MethodGet, "/v2/_catalog", "", 200, `"providers/x"`)
	r.refused(r.ask(http.MethodGet, "/v2/_catalog", "", ""), "unauthorized to list catalog")
	r.refused(ask(r.q, http.MethodGet, "/v2/_catalog", ""), "unauthorized to list catalog")
	r = r.as(systemRobot)
	r.refused(r.ask(http.MethodGet, "/v2/_catalog", r.token("registry:catalog:*"), ""), "unauthorized to list catalog")
}

// harborPublic shows that a client without a login gets a token that can only read public projects.
func harborPublic(t *testing.T) {
	r := newHarbor(t)
	admin := quirks.Robot{User: "admin", Password: "admin", Rights: map[string][]string{"*": {"pull", "push"}}}
	r.q.Set(func(s *quirks.Settings) { s.Robots = append(s.Robots, admin) })
	r.as(admin).wants(http.MethodPut, "/v2/public/x/manifests/1", emptyIndex, 201, "")
	r.wants(http.MethodGet, "/v2/public/x/tags/list", "", 200, "")

	nobody := r.as(quirks.Robot{})
	token := nobody.token("repository:public/x:pull,push", "repository:providers/x:pull")
	nobody.answered(nobody.ask(http.MethodGet, "/v2/public/x/tags/list", token, ""), 200, "")
	nobody.refused(nobody.ask(http.MethodGet, "/v2/providers/x/tags/list", token, ""), "unauthorized to access repository: providers/x, action: pull")
	nobody.refused(nobody.ask(http.MethodPost, "/v2/public/x/blobs/uploads/", token, ""), "unauthorized to access repository: public/x, action: push")
	for path, scope := range map[string]string{"/v2/public/x/tags/list": `,scope="repository:public/x:pull"`, "/v2/": ""} {
		w := ask(r.q, http.MethodGet, path, "")
		if got, want := w.Header().Get("Www-Authenticate"), `Bearer realm="https://registry.test/token",service="registry.test"`+scope; w.Code != 401 || got != want {
			t.Errorf("without a token: %d %s, want %s", w.Code, got, want)
		}
	}
}

func harborAbsent(t *testing.T) {
	r := newHarbor(t)
	r.wants(http.MethodGet, "/v2/providers/x/tags/list", "", 404, `{"code":"NOT_FOUND","message":"repository providers/x not found"}`)
	d := digest.FromString("absent").String()
	r.wants(http.MethodGet, "/v2/providers/x/manifests/1", "", 404, `{"code":"NOT_FOUND","message":"artifact providers/x:1 not found"}`)
	r.wants(http.MethodGet, "/v2/providers/x/manifests/"+d, "", 404, `{"code":"NOT_FOUND","message":"artifact providers/x@`+d+` not found"}`)
	r.wants(http.MethodHead, "/v2/providers/x/blobs/"+d, "", 404, "")
}
