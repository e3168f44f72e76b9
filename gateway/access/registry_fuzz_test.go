package access

import (
	"crypto"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	v2 "github.com/distribution/distribution/v3/registry/api/v2"
	"github.com/gorilla/mux"
)

// FuzzRepositoryOf checks that repositoryOf and the embedded registry's own router find the same repository in
// a path.
func FuzzRepositoryOf(f *testing.F) {
	for _, s := range []string{
		"/v2/registry.acme.example/acme/widget/tags/list", "/v2/registry.acme.example/acme/widget/manifests/1.0.0", "/v2/a/b/c/blobs/sha256:00", "/v2/a/manifests/b/manifests/c",
		"/v2/a/tags/list/tags/list", "/v2/a/blobs/uploads/", "/v2/_catalog", "/v2/a/../b/tags/list", "/v2//a/tags/list", "/v2/a/referrers/sha256:00", "/v2/tags/list",
	} {
		f.Add(s)
	}
	router := v2.RouterWithPrefix("")
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.RawPath != "" || !strings.HasPrefix(u.Path, registryPath) {
			return // the gateway refuses these paths earlier
		}
		name, ok := repositoryOf(u.Path)
		if !ok {
			return
		}
		var match mux.RouteMatch
		if !router.Match(&http.Request{Method: http.MethodGet, URL: u}, &match) || match.Route == nil || match.Route.GetName() == "" {
			return // not a path of the registry
		}
		if got := match.Vars["name"]; got != name {
			t.Errorf("%q: the access control finds %q, and the registry %q", path, name, got)
		}
	})
}

// FuzzParseKeySet checks that a parsed key set has only public keys, and at most the maximum number of keys. It
// also checks that the marshalled key set can be parsed again.
func FuzzParseKeySet(f *testing.F) {
	for _, s := range []string{
		`{"keys":[{"kty":"EC","crv":"P-256","kid":"a","use":"sig","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`,
		`{"keys":[{"kty":"RSA","n":"` + strings.Repeat("w", 342) + `","e":"AQAB"},{"kty":"oct","k":"AAAA"},{"kty":"new"}]}`,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		`{"keys":null}`, `{}`, `[]`, `{"keys":[` + strings.Repeat("{},", 200) + `{}]}`,
	} {
		f.Add([]byte(s), "a")
	}
	f.Fuzz(func(t *testing.T, body []byte, keyID string) {
		set, err := parseKeySet(body)
		if err != nil {
			return
		}
		if len(set.Keys) == 0 || len(set.Keys) > maxIssuerKeys {
			t.Errorf("%d keys", len(set.Keys))
		}
		for _, k := range public(set, keyID) {
			if _, ok := k.(interface{ Equal(crypto.PublicKey) bool }); !ok {
				t.Errorf("%T is no public key", k)
			}
		}
		data, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseKeySet(data); err != nil || len(again.Keys) != len(set.Keys) {
			t.Errorf("%s reads as %d keys, then as %s, %v", body, len(set.Keys), data, err)
		}
	})
}
