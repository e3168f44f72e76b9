package tokenserver_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tokenserver"
)

// start starts a token server, and a registry that accepts its tokens.
func start(t *testing.T, opts tokenserver.Options) (*registry.Registry, *tokenserver.Server) {
	t.Helper()
	s := tokenserver.For(t, opts)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	auth, err := s.Auth(srv.URL+"/token", t.TempDir())
	clients.Must(t, err)
	return registry.For(t, registry.Options{Tokens: auth}), s
}

// push pushes a file as an artifact with the ORAS CLI, and returns the output.
func push(t *testing.T, w *clients.Workspace, reference string, flags ...string) (string, error) {
	t.Helper()
	clients.Must(t, os.WriteFile(filepath.Join(w.Dir, "file"), []byte("content"), 0o644))
	args := append([]string{"push", "--plain-http", "--artifact-type", "application/vnd.test"}, flags...)
	return w.Run(clients.ORAS(t), append(args, reference, "file:application/octet-stream")...)
}

func TestRegistryBelievesItsTokens(t *testing.T) {
	r, s := start(t, tokenserver.Options{Users: map[string]tokenserver.User{
		"writer": {Password: "w", May: map[string][]string{"a/": {"pull", "push"}}},
		"reader": {Password: "r", May: map[string][]string{"a/b": {"pull"}}},
	}})
	w := clients.For(t)
	// The token server and the registry must have the same host name, because otherwise ORAS
	// sends no credentials.
	host := r.Addr
	writer, reader := []string{"-u", "writer", "-p", "w"}, []string{"-u", "reader", "-p", "r"}
	if out, err := push(t, w, host+"/a/b:1.0.0", writer...); err != nil {
		t.Fatal(out)
	}
	for name, refused := range map[string]struct {
		repository string
		flags      []string
	}{
		"the reader":            {"a/b", reader},
		"another repository":    {"b/b", writer},
		"a wrong password":      {"a/b", []string{"-u", "writer", "-p", "x"}},
		"nobody":                {"a/b", nil},
		"a user who is unknown": {"a/b", []string{"-u", "x", "-p", "x"}},
	} {
		if out, err := push(t, w, host+"/"+refused.repository+":2.0.0", refused.flags...); err == nil {
			t.Errorf("%s pushed: %s", name, out)
		}
	}
	fetch := append([]string{"manifest", "fetch", "--plain-http", host + "/a/b:1.0.0"}, reader...)
	w.MustRun(t, clients.ORAS(t), fetch...)
	w.MustFail(t, clients.ORAS(t), "manifest", "fetch", "--plain-http", host+"/a/b:1.0.0")
	if asked := s.Asked(); !slices.Contains(asked, "reader repository:a/b:pull") || !slices.Contains(asked, "writer repository:a/b:pull,push") {
		t.Errorf("asked: %q", asked)
	}
	// ORAS can also fetch with a refresh token from a login file.
	config := filepath.Join(t.TempDir(), "config.json")
	clients.Must(t, os.WriteFile(config, []byte(`{"auths": {"`+host+`": {"identitytoken": "`+s.RefreshToken("reader")+`"}}}`), 0o600))
	w.MustRun(t, clients.ORAS(t), "manifest", "fetch", "--plain-http", "--registry-config", config, host+"/a/b:1.0.0")
}

func TestTokensEnd(t *testing.T) {
	r, s := start(t, tokenserver.Options{
		Life: -5 * time.Minute, Terse: true, // the tokens have expired by more than registries tolerate
		Users: map[string]tokenserver.User{"writer": {Password: "w", May: map[string][]string{"a/": {"pull", "push"}}}},
	})
	if out, err := push(t, clients.For(t), r.Addr+"/a/b:1.0.0", "-u", "writer", "-p", "w"); err == nil {
		t.Errorf("the registry accepts an expired token: %s", out)
	}
	if _, err := s.Token("writer", "nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an invalid scope: %v", err)
	}
}
