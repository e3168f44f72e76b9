package access_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// FuzzCapability sends requests without a token. It replaces CAP in their paths with a valid capability. It
// checks that a request passes only if its path is the capability's own path, in any encoding. It also
// checks that the handler behind the control never receives a capability.
func FuzzCapability(f *testing.F) {
	d := newDoor(nil, access.Options{Tokens: []access.Token{token("ci", "ci-token", "registry.acme.example/acme/*")}, Keys: mustKeys(firstKey)})
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/registry.acme.example/acme/widget/doc", nil)
	r.Header.Set("Authorization", "Bearer ci-token")
	d.handler().ServeHTTP(w, r)
	_, rest, ok := strings.Cut(w.Body.String(), "/cap1.")
	if !ok {
		f.Fatal(w.Body)
	}
	capability := "cap1." + rest[:strings.IndexByte(rest, '/')]
	const right = "/registry.acme.example/acme/widget/1.0.0/linux_amd64/CAP/widget.zip"
	for _, s := range []string{
		right, strings.Replace(right, "CAP/", "", 1), strings.TrimSuffix(right, "/widget.zip"), strings.Replace(right, "CAP", "cap1.", 1), strings.Replace(right, "CAP", "%63CAP", 1),
		strings.Replace(right, "CAP", "CAPA", 1), strings.Replace(right, "CAP", "CAP/x/..", 1), right + "/CAP/x", strings.Replace(right, "acme/widget", "acme/gadget", 1),
		strings.Replace(right, "1.0.0/", "1.0.0%2f", 1), strings.Replace(right, "widget.zip", "%77idget.zip", 1), "/CAP", "CAP", "//cap1./", "/v2/a/CAP/x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		path = strings.ReplaceAll(path, "CAP", capability)
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		d.through, d.seen = 0, nil
		w := httptest.NewRecorder()
		d.handler().ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: u, RequestURI: path, Header: http.Header{}, Host: "gateway.example", Body: http.NoBody})
		if d.through > 0 && u.Path != strings.Replace(right, "CAP", capability, 1) {
			t.Errorf("%q is let through", path)
		}
		if d.through > 0 != (w.Code == http.StatusOK) {
			t.Errorf("%q is answered %d", path, w.Code)
		}
		if strings.HasPrefix(u.Path, "/v2/") {
			return // segments of the registry's paths are not capabilities
		}
		for _, seen := range d.seen {
			path, _, _ := strings.Cut(seen, "?")
			if strings.Contains(path, "/"+capability) {
				t.Errorf("%q: the capability is seen in %q", path, seen)
			}
		}
	})
}

func mustKeys(file string) func() *access.Keys {
	k, err := access.ParseKeys([]byte(file))
	if err != nil {
		panic(err)
	}
	return func() *access.Keys { return k }
}

// FuzzAuthorization checks that a request passes only if its Authorization header has the right token. The
// header's case and spaces may vary. Requests with all other headers get 401 or 503.
func FuzzAuthorization(f *testing.F) {
	const right = "ci-token"
	d := newDoor(nil, access.Options{
		Tokens:  []access.Token{token("ci", right)},
		Issuers: []access.Issuer{{Name: "ci", URL: issuerURL, Audience: "gateway", Rules: []access.Rule{rule("*/*/*", "a", "b")}}},
		Client:  &http.Client{Transport: unreachable{}},
		Keys:    mustKeys(firstKey),
	})
	for _, s := range []string{
		"Bearer " + right, "bearer  " + right + " ", "Basic eDpjaS10b2tlbg==", right, "Bearer", "Bearer " + right + "\x00", "Bearer\t" + right,
		"Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlL2NpIn0.AAAA", "Bearer eyJhbGciOiJub25lIn0.e30.", "Bearer {}", "Bearer a.b.c.d.e",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := httptest.NewRequest(http.MethodGet, "/registry.acme.example/acme/widget/doc", nil)
		r.Header["Authorization"] = []string{header}
		w := httptest.NewRecorder()
		d.handler().ServeHTTP(w, r)
		scheme, rest, _ := strings.Cut(header, " ")
		switch known := strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(rest) == right; {
		case known != (w.Code == http.StatusOK):
			t.Errorf("%q is answered %d", header, w.Code)
		case !known && w.Code != http.StatusUnauthorized && w.Code != http.StatusServiceUnavailable:
			t.Errorf("%q is answered %d", header, w.Code)
		}
	})
}

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("connection refused")
}

func FuzzParseKeys(f *testing.F) {
	for _, s := range []string{firstKey, "# made in May\n\n" + firstKey + "\r\n" + secondKey, firstKey[:62], "marked", "\ufeff" + firstKey, strings.Repeat(firstKey+"\n", 17)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		k, err := access.ParseKeys(file)
		if err != nil {
			if strings.Contains(err.Error()+hint.Of(err), "marked") || hint.Of(err) == "" {
				t.Errorf("%v (hint %q)", err, hint.Of(err))
			}
			return
		}
		// The control accepts capabilities that these keys have signed.
		d := newDoor(t, access.Options{Tokens: []access.Token{token("ci", "ci-token")}, Keys: func() *access.Keys { return k }})
		if w := d.get(d.link("ci-token")); w.Code != http.StatusOK {
			t.Errorf("%d", w.Code)
		}
	})
}
