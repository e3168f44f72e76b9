package refusals

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote/errcode"
)

// refusal returns the error for a registry's response with one message.
func refusal(status int, code, message string) error {
	return &errcode.ErrorResponse{Method: http.MethodPut, StatusCode: status, Errors: errcode.Errors{{Code: code, Message: message}}}
}

// TestHarborsWords shows that each of these responses of Harbor 2.15 is recognised by the
// right function, and by no other function.
func TestHarborsWords(t *testing.T) {
	known := map[string]func(error) bool{
		"full": Full, "no project": NoProject, "name": NameWithoutProject, "proxy": ProxyCache, "read-only": ReadOnly, "policy": Policy, "immutable": Immutable,
		"pull":   func(err error) bool { return MissingRight(err) == "pull" },
		"push":   func(err error) bool { return MissingRight(err) == "push" },
		"delete": func(err error) bool { return MissingRight(err) == "delete" },
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{refusal(401, "UNAUTHORIZED", "project absent not found: project absent not found"), "no project"},
		{refusal(401, "UNAUTHORIZED", "unauthorized to access repository: a/b/c, action: pull: unauthorized to access repository: a/b/c, action: pull"), "pull"},
		{refusal(401, "UNAUTHORIZED", "unauthorized to access repository: a/b/c, action: push: unauthorized to access repository: a/b/c, action: push"), "push"},
		{refusal(401, "UNAUTHORIZED", "unauthorized to access repository: a/b/c, action: delete: unauthorized to access repository: a/b/c, action: delete"), "delete"},
		{refusal(403, "DENIED", "adding 5.7 MiB of storage resource, which when updated to current usage of 7.0 MiB will exceed the configured upper limit of 12.0 MiB."), "full"},
		{refusal(412, "PRECONDITION", "Failed to process request due to 'acme/widget:1.0.0' configured as immutable."), "immutable"},
		{refusal(412, "PRECONDITION", "the tag 1.0.0 configured as immutable, cannot be deleted"), "immutable"},
		{refusal(412, "PROJECTPOLICYVIOLATION", "The image is not signed by cosign."), "policy"},
		{refusal(412, "PROJECTPOLICYVIOLATION", "current image without vulnerability scanning cannot be pulled due to configured policy"), "policy"},
		{refusal(403, "DENIED", "denied: can not push artifact to a proxy project: adv-proxy"), "proxy"},
		{refusal(403, "DENIED", "The system is in read only mode. Any modification is prohibited."), "read-only"},
		{refusal(400, "BAD_REQUEST", "bad request: invalid repository name: widget"), "name"},
		{refusal(412, "VIOLATE_FOREIGN_KEY_CONSTRAINT", "the deleting artifact is referenced by others"), ""},
		{refusal(400, "NAME_INVALID", "invalid repository name: a/B"), ""},
		{refusal(401, "UNAUTHORIZED", "authentication required"), ""},
		{&errcode.ErrorResponse{StatusCode: 412}, ""},
		{&errcode.ErrorResponse{Method: http.MethodHead, StatusCode: 412}, "policy"},
		{io.EOF, ""},
	} {
		for name, knows := range known {
			if got := knows(tc.err); got != (name == tc.want) {
				t.Errorf("%v: %s: %t", tc.err, name, got)
			}
		}
	}
}

// TestRead shows that Read returns the registry's own message, or no message if the body
// is too long or not JSON.
func TestRead(t *testing.T) {
	for body, want := range map[string]string{
		`{"errors":[{"code":"DENIED","message":"no"}]}`: "no",
		`<html>no</html>`: "",
		``:                "",
		`{"errors":[{"code":"DENIED","message":"` + strings.Repeat("x", maxBody) + `"}]}`:       "",
		`{"errors":[{"code":"DENIED","message":"no"}]}` + strings.Repeat(" ", maxBody) + `more`: "no",
	} {
		w := httptest.NewRecorder()
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, body)
		resp := w.Result()
		resp.Request = httptest.NewRequest(http.MethodGet, "https://registry.example.com/v2/a/tags/list", nil)
		got := Read(resp)
		message := ""
		if len(got.Errors) > 0 {
			message = got.Errors[0].Message
		}
		if message != want || got.StatusCode != http.StatusForbidden || got.Method != http.MethodGet || got.URL.Host != "registry.example.com" {
			t.Errorf("%.60s: %+v", body, got)
		}
	}
}

func TestMaybeAbsent(t *testing.T) {
	for _, tc := range []struct {
		method, url string
		status      int
		want        bool
	}{
		{"GET", "https://ghcr.io/v2/a/tags/list", 403, true},
		{"HEAD", "https://ghcr.io/v2/a/manifests/1.0.0", 403, true},
		{"GET", "https://ghcr.io/token?scope=repository%3Apush%2Fa%3Apull&service=ghcr.io", 403, true},
		{"GET", "https://ghcr.io/token?scope=repository%3Aa%3Apull%2Cpush&service=ghcr.io", 403, false},
		{"GET", "https://ghcr.io/v2/a/blobs/sha256:00", 403, false},
		{"PUT", "https://ghcr.io/v2/a/manifests/1.0.0", 403, false},
		{"GET", "https://ghcr.io/v2/a/tags/list", 401, false},
		{"GET", "https://ghcr.io/v2/a/tags/list", 404, false},
	} {
		at, err := url.Parse(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := MaybeAbsent(&errcode.ErrorResponse{Method: tc.method, URL: at, StatusCode: tc.status}); got != tc.want {
			t.Errorf("%s %s, status %d: %t", tc.method, tc.url, tc.status, got)
		}
	}
	if MaybeAbsent(io.EOF) {
		t.Error("an error without a response")
	}
}
