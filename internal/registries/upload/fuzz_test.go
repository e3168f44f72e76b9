package upload

import (
	"net/http"
	"net/url"
	"testing"
)

// FuzzLocation shows that no Location of a registry makes an upload continue on another
// host or with another scheme. The upload continues on the registry's own host or
// fails. This matters because the package and the credential are sent to that URL.
func FuzzLocation(f *testing.F) {
	for _, s := range []string{
		"/v2/a/blobs/uploads/1?state=x", "1", "https://registry.example:443/v2/x", "https://registry.example/v2/x", "http://registry.example/v2/x", "//other.example/x", "https://registry.example@other.example/",
		"https://registry.example.other.example/", "", "?", "https:/x", "file:///etc/passwd", "\\\\other.example\\x", "https://user:p@registry.example/v2/x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, location string) {
		began := &url.URL{Scheme: "https", Host: "registry.example", Path: "/v2/a/blobs/uploads/"}
		s := &Session{began: began, location: began}
		if err := s.moved(&http.Response{Header: http.Header{"Location": {location}}}); err != nil {
			if s.location != began {
				t.Errorf("%q is refused, and leads to %s", location, s.location)
			}
			return
		}
		req, err := http.NewRequest(http.MethodPut, s.location.String(), nil)
		if err != nil {
			return // no request is sent
		}
		if req.URL.Scheme != began.Scheme || req.URL.Host != began.Host || req.Host != began.Host {
			t.Errorf("%q leads to %s", location, req.URL)
		}
	})
}
