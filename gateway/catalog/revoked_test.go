package catalog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// ghcr is a registry whose token server denies requests for absent repositories. The token server also denies all
// requests with a revoked login. Tokens last for five minutes.
type ghcr struct {
	*httptest.Server
	revoked atomic.Bool
	absent  atomic.Bool // gadget is absent
	public  atomic.Bool // widget is public and needs no login
	polite  atomic.Bool // absent repositories get tokens, too, but these tokens give no access
}

func newGHCR(t *testing.T) *ghcr {
	g := &ghcr{}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *ghcr) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/token" {
		scope := r.URL.Query().Get("scope")
		absent := g.absent.Load() && strings.Contains(scope, "gadget")
		if absent && g.polite.Load() {
			scope, absent = "nothing", false
		}
		if _, password, _ := r.BasicAuth(); g.revoked.Load() || password != "p" || absent {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"errors":[{"code":"DENIED"}]}`)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"token": "T" + scope, "expires_in": 300})
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v2/"), "/tags/list")
	scope := "repository:" + name + ":pull"
	if r.Header.Get("Authorization") == "Bearer Tnothing" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"errors":[{"code":"DENIED"}]}`)
		return
	}
	if r.Header.Get("Authorization") != "Bearer T"+scope && !(g.public.Load() && strings.Contains(name, "widget")) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q,service=x,scope=%q", g.URL+"/token", scope))
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`)
		return
	}
	fmt.Fprint(w, `{"tags":["1.0.0"]}`)
}

// catalog makes a catalog that reads the registry with a login of package auth.
func (g *ghcr) catalog(t *testing.T, ttl time.Duration) opened {
	host := strings.TrimPrefix(g.URL, "http://")
	file := fmt.Sprintf(`{"auths":{%q:{"auth":"dTpw"}}}`, host)
	client := auth.New(auth.Options{Login: login.Options{Environment: login.Environment{
		Getenv: func(name string) string { return map[string]string{"DOCKER_CONFIG": "/docker"}[name] },
		ReadFile: func(name string) ([]byte, error) {
			if name == "/docker/config.json" {
				return []byte(file), nil
			}
			return nil, fs.ErrNotExist
		},
		Home: "/home", GOOS: "linux",
	}}})
	repository := func(a subject.Address) ociaddr.Repository {
		return ociaddr.Repository{Registry: ociaddr.Registry(host), Name: a.Path()}
	}
	return open(t, catalog.Options{
		Repository: func(ctx context.Context, a subject.Address) (catalog.Store, error) {
			return client.Repository(ctx, repository(a))
		},
		Account: func(a subject.Address) catalog.Account {
			return catalog.Account{Name: client.Account(repository(a)), DeniedMeansAbsent: true}
		},
		FreshToken: wire.WithFreshToken, TagTTL: ttl,
	})
}

// TestRevokedLogin shows that, if the registry denies requests because the login was revoked, no repository is reported
// as absent. This holds even if another repository can still be read with an earlier token.
func TestRevokedLogin(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(g *ghcr)
		absent bool
	}{
		"it is absent":                         {func(g *ghcr) { g.absent.Store(true) }, true},
		"revoked":                              {func(g *ghcr) { g.revoked.Store(true) }, false},
		"revoked, and the other one is public": {func(g *ghcr) { g.revoked.Store(true); g.public.Store(true) }, false},
		"absent, and the other one is public":  {func(g *ghcr) { g.absent.Store(true); g.public.Store(true) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGHCR(t)
			c := g.catalog(t, 0)
			if _, err := c.Versions(t.Context(), widget); err != nil {
				t.Fatal(err)
			}
			tc.change(g)
			if _, err := c.Versions(t.Context(), gadget); err == nil || errors.Is(err, catalog.ErrAbsent) != tc.absent {
				t.Errorf("versions: %v", err)
			}
			if _, err := c.Version(t.Context(), gadget, v100); err == nil || errors.Is(err, catalog.ErrAbsent) != tc.absent {
				t.Errorf("version: %v", err)
			}
		})
	}
}

// TestTokenFromBeforeThePush shows that, if the catalog has a token from before a repository was pushed, it still finds
// the pushed repository.
func TestTokenFromBeforeThePush(t *testing.T) {
	g := newGHCR(t)
	c := g.catalog(t, -1)
	g.polite.Store(true)
	g.absent.Store(true)
	if _, err := c.Versions(t.Context(), widget); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Versions(t.Context(), gadget); !errors.Is(err, catalog.ErrAbsent) {
		t.Fatalf("before the push: %v", err)
	}
	g.absent.Store(false)
	if item, err := c.Versions(t.Context(), gadget); err != nil || len(item.Versions) != 1 {
		t.Errorf("after the push: %v", err)
	}
}
