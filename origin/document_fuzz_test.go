package origin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/provider"
)

// said is a transport that always returns the same response.
type said struct {
	body   []byte
	header http.Header
	asked  int
}

func (s *said) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.asked++; s.asked > maxRedirects+1 {
		return nil, errors.New("asked too often")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: s.header, Body: io.NopCloser(strings.NewReader(string(s.body))), ContentLength: int64(len(s.body)), Request: r}, nil
}

// FuzzDiscovery shows that every base URL in an accepted discovery document is safe to
// request.
func FuzzDiscovery(f *testing.F) {
	for _, s := range []string{`{"providers.v1":"/v1/providers/"}`, `{"providers.v1":"https://api.example.com/p"}`, `{"providers.v1":"http://api.example.com/"}`, `{"providers.v1":"file:///etc/"}`,
		`{"providers.v1":"https://u:p@h/"}`, `{"providers.v1":"//h"}`, `{"providers.v1":{"a":1}}`, `{"providers.v2":"/"}`, `{"providers.v1":"https:///x"}`, `[]`} {
		f.Add([]byte(s))
	}
	a := provider.MustParseAddress("registry.example.com/acme/widget")
	f.Fuzz(func(t *testing.T, body []byte) {
		r := NewRegistry(RegistryOptions{Transport: &said{body: body, header: http.Header{"Content-Type": {"application/json"}}}})
		base, _, err := r.endpoint(t.Context(), a)
		if err != nil {
			return
		}
		if u := resolve(base, a.Namespace(), a.Type(), "versions"); u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || !strings.HasSuffix(u.Path, "acme/widget/versions") {
			t.Errorf("%s leads to %q", body, u)
		}
	})
}

// FuzzNetworkMirror shows that the accepted documents of a mirror are safe to use. Their
// URLs are requested, and their names become names in a registry.
func FuzzNetworkMirror(f *testing.F) {
	for _, s := range []string{
		`{"versions":{"1.0.0":{},"v1":{},"1.0.0+b":{}}}`, `{"versions":{"../1.0.0":null}}`,
		`{"archives":{"linux_amd64":{"url":"x.zip","hashes":["h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}}}`,
		`{"archives":{"linux_amd64":{"url":"file:///etc/passwd","hashes":["h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}}}`,
		`{"archives":{"linux_amd64":{"url":"//other/x","hashes":["zh:0000000000000000000000000000000000000000000000000000000000000000","h2:x"]},"a_b":{"url":"","hashes":[]}}}`,
	} {
		f.Add([]byte(s))
	}
	a, v := provider.MustParseAddress("registry.example.com/acme/widget"), provider.MustParseVersion("1.0.0")
	at := &url.URL{Scheme: "https", Host: "mirror.example.com", Path: "/providers/registry.example.com/acme/widget/1.0.0.json"}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := NewRegistry(RegistryOptions{Transport: &said{body: body}}).NetworkMirror(&url.URL{Scheme: "https", Host: "mirror.example.com", Path: "/providers/"})
		if l, err := m.Versions(t.Context(), a); err == nil {
			for _, v := range l.Versions {
				if again, err := provider.ParseVersion(v.String()); err != nil || again != v {
					t.Errorf("version %q: %v", v, err)
				}
			}
		}
		var contents mirrorVersion
		if json.Unmarshal(body, &contents) != nil {
			return
		}
		r, err := m.release(a, v, &contents, mirrorDocument{url: at}, nil)
		if err != nil {
			return
		}
		known, _ := contents.knownPlatforms()
		if len(r.Packages) == 0 || len(r.Packages) != len(known) || r.Claims.SHA256SUMS != nil {
			t.Errorf("%d packages of %d, %+v", len(r.Packages), len(known), r.Claims)
		}
		for _, p := range r.Packages {
			u, err := url.Parse(contents.Archives[p.Platform.String()].URL)
			if err != nil {
				t.Fatal(err)
			}
			if u = at.ResolveReference(u); u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
				t.Errorf("%s is fetched from %q", p.Filename, u)
			}
			unchecked := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "no hash of the package for "+p.Platform.String()) })
			if p.Filename != provider.PackageFilename(a, v, p.Platform) || len(r.Claims.Hashes[p.Filename]) == 0 != unchecked {
				t.Errorf("%s has the hashes %v, warnings %q", p.Filename, r.Claims.Hashes, r.Warnings)
			}
		}
	})
}

// FuzzRetryAfter shows that no origin can cause a negative or an endless wait.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"0", "5", "-1", "99999999999999999999", "Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "soon", " 1 "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h := http.Header{"Retry-After": {s}}
		if after := outgoing.RetryAfter(h, time.Now()); after < 0 {
			t.Errorf("%q is %s", s, after)
		}
		resp := &http.Response{StatusCode: http.StatusTooManyRequests, Header: h}
		if wait, err := (retryPolicy{}).Retry(0, resp, nil); err == nil && wait > max(maxRetryAfter, time.Minute) {
			t.Errorf("%q is waited for %s", s, wait)
		}
	})
}
