package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// TestCheckLogin shows which registries vouch for a login. The registries lie in ways in which real ones do.
func TestCheckLogin(t *testing.T) {
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
	}
	tokens := func(status int, token string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/token":
				w.WriteHeader(status)
				fmt.Fprintf(w, `{"token": %q}`, token)
			case r.Header.Get("Authorization") == "Bearer "+token:
			default:
				w.Header().Set("Www-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="r"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}
	}
	for name, tt := range map[string]struct {
		registry http.HandlerFunc
		want     string // "" for an accepted login
		help     string
	}{
		"a token":                       {registry: tokens(200, jwt(`{"sub":"u"}`))},
		"a token of another kind":       {registry: tokens(200, "opaque")},
		"a token for nobody, as Harbor": {tokens(200, jwt(`{"sub":""}`)), "refused the user name or the password of u: its token is for clients without a login", "'robot$ci'"},
		"no token":                      {tokens(401, "x"), "refused the user name or the password of u: ", "'robot$ci'"},
		"no token, as GHCR":             {tokens(403, "x"), "refused the user name or the password of u: ", "'robot$ci'"},
		"no challenge":                  {func(http.ResponseWriter, *http.Request) {}, wire.ErrNotAsked.Error(), ""},
		"no registry":                   {http.NotFound, "check the login at ", "is the host name of the registry itself"},
		"a server error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			"check the login at ", "reports a server error"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(tt.registry)
			defer srv.Close()
			host := ociaddr.Registry(srv.Listener.Addr().String())
			err := CheckLogin(t.Context(), Options{Wire: wire.Options{RetryDelay: 1}}, host, "u", login.NewSecret("hunter2"))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || !strings.Contains(hint.Of(err), tt.help) {
				t.Errorf("%v (hint %q), want %q (%q)", err, hint.Of(err), tt.want, tt.help)
			}
			if errors.Is(err, wire.ErrNotAsked) != (name == "no challenge") || strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("%v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CheckLogin(ctx, Options{}, "localhost:1", "u", login.NewSecret("p")); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancellation: %v", err)
	}
}
