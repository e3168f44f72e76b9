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

const emptyIndex = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","artifactType":"application/vnd.acme","manifests":[]}`

// ask sends a request, and returns the response. header consists of pairs of a name and a value.
func ask(q http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://registry.test"+target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	q.ServeHTTP(w, r)
	return w
}

// put pushes an empty index under a tag.
func put(q http.Handler, tag string) *httptest.ResponseRecorder {
	return ask(q, http.MethodPut, "/v2/acme/x/manifests/"+tag, emptyIndex, "Content-Type", "application/vnd.oci.image.index.v1+json")
}

// TestSettings shows how each setting changes the response to one request. The requests are for a
// repository with the tags 1, 2 and 3.
func TestSettings(t *testing.T) {
	content := "content"
	d := digest.FromString(content).String()
	upload := func(q http.Handler, method, body string) *httptest.ResponseRecorder {
		at := ask(q, http.MethodPost, "/v2/acme/x/blobs/uploads/", "").Header().Get("Location")
		_, rest, _ := strings.Cut(at, "registry.test")
		if method == http.MethodPut {
			rest += "&digest=" + digest.FromString(body).String()
		}
		return ask(q, method, rest, body, "Content-Type", "application/octet-stream")
	}
	list := func(query string) func(http.Handler) *httptest.ResponseRecorder {
		return func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodGet, "/v2/acme/x/tags/list"+query, "")
		}
	}
	for name, tc := range map[string]struct {
		set    func(*quirks.Settings)
		ask    func(http.Handler) *httptest.ResponseRecorder
		status int
		want   string // in the body or the headers
		plain  int    // the status without the setting
	}{
		"page size":         {func(s *quirks.Settings) { s.PageSize = 2 }, list(""), 200, `</v2/acme/x/tags/list?last=2&n=2>; rel="next"`, 200},
		"next page":         {func(s *quirks.Settings) { s.PageSize = 2 }, list("?last=2"), 200, `"tags":["3"]`, 200},
		"absolute link":     {func(s *quirks.Settings) { s.PageSize, s.Link = 2, quirks.LinkAbsolute }, list(""), 200, `<https://registry.test/v2/acme/x/tags/list?`, 200},
		"link to elsewhere": {func(s *quirks.Settings) { s.PageSize, s.Link = 2, quirks.LinkOtherHost }, list(""), 200, `<https://internal.example:8081/v2/`, 200},
		"opaque pages":      {func(s *quirks.Settings) { s.PageSize, s.Opaque = 2, true }, list("?last=2"), 200, `"tags":["1","2"]`, 200},
		"n too large":       {func(s *quirks.Settings) { s.MaxN = 1000 }, list("?n=1001"), 400, "more than 1000", 200},
		"n capped":          {func(s *quirks.Settings) { s.MaxN, s.Capped = 2, true }, list("?n=1001"), 200, `"tags":["1","2"]`, 200},
		"newest first":      {func(s *quirks.Settings) { s.Unordered = true }, list(""), 200, `"tags":["3","2","1"]`, 200},
		"plain text":        {func(s *quirks.Settings) { s.PlainText = true }, list(""), 200, "text/plain", 200},
		"unknown is empty": {func(s *quirks.Settings) { s.UnknownIsEmpty = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodGet, "/v2/acme/y/tags/list", "")
		}, 200, `"tags":null`, 404},
		"ping denied": {func(s *quirks.Settings) { s.PingDenied = true }, func(q http.Handler) *httptest.ResponseRecorder { return ask(q, http.MethodGet, "/v2/", "") }, 403, "DENIED", 200},
		"no catalog":  {func(s *quirks.Settings) { s.NoCatalog = true }, func(q http.Handler) *httptest.ResponseRecorder { return ask(q, http.MethodGet, "/v2/_catalog", "") }, 403, "DENIED", 200},
		"types not allowed": {func(s *quirks.Settings) { s.Allowed = []string{"application/vnd.other"} }, func(q http.Handler) *httptest.ResponseRecorder {
			return put(q, "4")
		}, 400, "unknown media type: application/vnd.acme", 201},
		"media type required": {func(s *quirks.Settings) { s.MediaTypeRequired = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodPut, "/v2/acme/x/manifests/4", `{"schemaVersion":2,"manifests":[]}`, "Content-Type", "application/vnd.oci.image.index.v1+json")
		}, 405, "UNSUPPORTED", 201},
		"immutable": {func(s *quirks.Settings) { s.Immutable, s.ImmutableCode = 412, "PRECONDITION" }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodPut, "/v2/acme/x/manifests/3", emptyIndex+"\n", "Content-Type", "application/vnd.oci.image.index.v1+json")
		}, 412, "immutable", 201},
		"immutable, and the same": {func(s *quirks.Settings) { s.Immutable = 412 }, func(q http.Handler) *httptest.ResponseRecorder { return put(q, "3") }, 201, "", 201},
		"no delete": {func(s *quirks.Settings) { s.NoDelete = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodDelete, "/v2/acme/x/manifests/3", "")
		}, 405, "UNSUPPORTED", 202},
		"no delete while tagged": {func(s *quirks.Settings) {
			s.NoDeleteTagged = &quirks.Refusal{Status: 400, Code: "TAGGED", Message: "still referenced by tag"}
		}, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodDelete, "/v2/acme/x/manifests/"+digest.FromString(emptyIndex).String(), "")
		}, 400, "still referenced by tag: 1", 202},
		"blobs elsewhere": {func(s *quirks.Settings) { s.RedirectBlobs = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodGet, "/v2/acme/x/blobs/"+d, "")
		}, 307, "https://storage.registry.test/storage/acme/x/" + d, 200},
		"storage wants no credential": {func(s *quirks.Settings) { s.RedirectBlobs = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodGet, "/storage/acme/x/"+d+"?X-Signature=secret", "", "Authorization", "Basic eDp5")
		}, 400, "Only one auth mechanism", 400},
		"storage": {func(s *quirks.Settings) { s.RedirectBlobs = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodGet, "/storage/acme/x/"+d+"?X-Signature=secret", "")
		}, 200, content, 200},
		"chunks refused":              {func(s *quirks.Settings) { s.Monolithic = true }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPatch, "abc") }, 405, "UNSUPPORTED", 202},
		"one request":                 {func(s *quirks.Settings) { s.Monolithic = true }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPut, "abc") }, 201, "", 201},
		"chunk too large":             {func(s *quirks.Settings) { s.MaxChunk = 2 }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPatch, "abc") }, 413, "SIZE_INVALID", 202},
		"upload too large":            {func(s *quirks.Settings) { s.MaxBody = 2 }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPut, "abc") }, 413, "SIZE_INVALID", 201},
		"no chunk, whatever its size": {func(s *quirks.Settings) { s.MaxChunk = 2 }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPut, "abc") }, 201, "", 201},
		"chunk small enough":          {func(s *quirks.Settings) { s.MaxBody = 3 }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPatch, "abc") }, 202, "", 202},
		"quota reached":               {func(s *quirks.Settings) { s.Full = 403 }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPut, "abc") }, 403, "will exceed the configured upper limit", 201},
		"project not made": {func(s *quirks.Settings) { s.MustExist, s.Projects = true, true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodPost, "/v2/acme/x/blobs/uploads/", "")
		}, 401, "project acme not found", 202},
		"empty blob": {func(s *quirks.Settings) { s.NoEmpty = true }, func(q http.Handler) *httptest.ResponseRecorder { return upload(q, http.MethodPut, "") }, 400, "empty", 201},
		"no mount": {func(s *quirks.Settings) { s.NoMount = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodPost, "/v2/acme/y/blobs/uploads/?mount="+d+"&from=acme/x", "")
		}, 202, "", 201},
		"names of two parts": {func(s *quirks.Settings) { s.NameParts = 2 }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodPost, "/v2/acme/a/x/blobs/uploads/", "")
		}, 400, "NAME_INVALID", 202},
		"too many": {func(s *quirks.Settings) { s.EveryNth, s.RetryAfter = 1, 7 }, list(""), 429, "Retry-After:[7]", 200},
		"no referrers": {func(s *quirks.Settings) { s.NoReferrers = true }, func(q http.Handler) *httptest.ResponseRecorder {
			return ask(q, http.MethodGet, "/v2/acme/x/referrers/"+d, "")
		}, 404, "404 page not found", 200},
		"login": {func(s *quirks.Settings) { s.User, s.Password = "u", "p" }, list(""), 401, `Basic realm="registry"`, 200},
		"token": {func(s *quirks.Settings) { s.User, s.Password, s.Tokens = "u", "p", true }, list(""), 401, `scope="repository:acme/x:pull"`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			for _, setting := range []bool{false, true} {
				q := quirks.For(t, quirks.Settings{})
				if w := upload(q, http.MethodPut, content); w.Code != 201 {
					t.Fatalf("upload: %d %s", w.Code, w.Body)
				}
				for _, tag := range []string{"1", "2", "3"} {
					if w := put(q, tag); w.Code != 201 {
						t.Fatalf("tag: %d %s", w.Code, w.Body)
					}
				}
				status := tc.plain
				if setting {
					q.Set(tc.set)
					status = tc.status
				}
				w := tc.ask(q)
				if w.Code != status || setting && !strings.Contains(fmt.Sprint(w.Header())+w.Body.String(), tc.want) {
					t.Errorf("setting %t: %d %v %s; want %d, %s", setting, w.Code, w.Header(), w.Body, status, tc.want)
				}
			}
		})
	}
}

func TestRepositoriesThatMustExist(t *testing.T) {
	q := quirks.For(t, quirks.Settings{Content: quirks.Content{MustExist: true}})
	post := func() int { return ask(q, http.MethodPost, "/v2/acme/x/blobs/uploads/", "").Code }
	if got := post(); got != 404 {
		t.Errorf("before: %d", got)
	}
	q.Create("acme")
	if got := post(); got != 202 {
		t.Errorf("after: %d", got)
	}
}

func TestTokens(t *testing.T) {
	q := quirks.For(t, quirks.Settings{})
	put(q, "1")
	q.Set(func(s *quirks.Settings) { s.User, s.Password, s.Tokens, s.DeniedForAbsent = "u", "p", true, true })
	token := func(scope string) (int, string) {
		w := ask(q, http.MethodGet, "/token?scope="+scope, "", "Authorization", "Basic dTpw")
		_, rest, _ := strings.Cut(w.Body.String(), `"token":"`)
		value, _, _ := strings.Cut(rest, `"`)
		return w.Code, value
	}
	get := func(path, token string) int {
		return ask(q, http.MethodGet, path, "", "Authorization", "Bearer "+token).Code
	}
	status, mine := token("repository:acme/x:pull")
	if status != 200 || get("/v2/acme/x/tags/list", mine) != 200 {
		t.Errorf("token for an existing repository: %d, list with it: %d", status, get("/v2/acme/x/tags/list", mine))
	}
	if got := get("/v2/acme/y/tags/list", mine); got != 401 {
		t.Errorf("token for another repository: %d", got)
	}
	if w := ask(q, http.MethodPost, "/v2/acme/x/blobs/uploads/", "", "Authorization", "Bearer "+mine); w.Code != 401 {
		t.Errorf("write with a token to read: %d", w.Code)
	}
	if status, _ := token("repository:acme/absent:pull"); status != 403 {
		t.Errorf("token for an absent repository: %d", status)
	}
	if status, _ := token("repository:acme/absent:pull,push"); status != 200 {
		t.Errorf("token to push to an absent repository: %d", status)
	}
	if w := ask(q, http.MethodGet, "/token?scope=repository:acme/x:pull", "", "Authorization", "Basic dTpx"); w.Code != 401 {
		t.Errorf("wrong password: %d", w.Code)
	}
	q.Set(func(s *quirks.Settings) { s.RefreshOnly, s.Password = true, "refresh" })
	form := func(body string) int {
		return ask(q, http.MethodPost, "/token", body, "Content-Type", "application/x-www-form-urlencoded").Code
	}
	if a, b := form("grant_type=refresh_token&refresh_token=refresh"), form("grant_type=refresh_token&refresh_token=other"); a != 200 || b != 401 {
		t.Errorf("refresh tokens: %d, %d", a, b)
	}
}
