package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tokenserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// runWith runs the program with a text on standard input.
func (s *scene) runWith(stdin string, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), clients.DefaultTimeout)
	defer cancel()
	cmd := s.ws.Command(ctx, s.bridge, args...)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		s.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// TestRegistryLogin shows that login stores only a password that the registry accepts, that push and other tools
// then find it, and that logout removes it. The registry checks passwords itself, or with a token server. Its
// certificate, and the certificate of the origin, are from a CA that only --ca-file names.
func TestRegistryLogin(t *testing.T) {
	t.Parallel()
	const user, password = "robot$acme+push", "w:p$w"
	for _, kind := range []string{"token server", "htpasswd"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			opts := registry.Options{Users: map[string]string{user: password}}
			if kind == "token server" {
				tokens := tokenserver.For(t, tokenserver.Options{Users: map[string]tokenserver.User{
					user: {Password: password, May: map[string][]string{"providers/": {"pull", "push"}}},
				}})
				auth, err := tokens.Auth("https://"+s.https(tokens)+"/token", t.TempDir())
				clients.Must(t, err)
				opts = registry.Options{Tokens: auth}
			}
			r := registry.For(t, s.secure(opts))
			ca, err := s.CA.WriteFile(t.TempDir())
			clients.Must(t, err)
			s.ws.Env["SSL_CERT_FILE"] = ""
			file := filepath.Join(s.ws.Home, ".docker", "config.json")
			push := []string{"push", world.Null + "@" + nullVersion, "--template", template(r)}

			if got := s.run(push...); got.status != 1 || !strings.Contains(got.stderr, "--ca-file") {
				t.Errorf("push without the CA: %+v", got)
			}
			s.ws.Env["OCIBRIDGE_CA_FILE"] = ca
			if got := s.run(push...); got.status != 1 || !strings.Contains(got.stderr, "run: ocibridge login "+r.Host+", or docker login "+r.Host+"\n") {
				t.Errorf("push without a login: %+v", got)
			}

			got := s.runWith("wrong\n", "login", r.Host, "--username", user, "--password-stdin")
			if got.status != 1 || got.stdout != "" || !strings.Contains(got.stderr, "error: "+r.Host+" refused the user name or the password of "+user+": ") || strings.Contains(got.stderr, "wrong") {
				t.Errorf("login with a wrong password: %+v", got)
			}
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("a wrong password is stored: %v", err)
			}

			got = s.runWith(password+"\n", "login", r.Host, "--username", user, "--password-stdin")
			if got.status != 0 || got.stdout != "The login of "+user+" for "+r.Host+" is stored in "+file+".\n" ||
				strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, "without encryption") {
				t.Fatalf("login: %+v", got)
			}
			if got := s.run(push...); got.status != 0 || strings.Contains(got.stderr, "warning: ") {
				t.Fatalf("push: %+v", got)
			}
			s.ws.MustRun(t, clients.ORAS(t), "manifest", "fetch", "--plain-http=false", "--ca-file", ca, r.Host+"/providers/"+world.Null+":"+nullVersion)
			if got := s.run("list", "--template", template(r), world.Null); got.status != 0 || !strings.Contains(got.stdout, nullVersion) {
				t.Errorf("list: %+v", got)
			}

			if got := s.run("logout", r.Host); got.status != 0 || got.stderr != "" {
				t.Errorf("logout: %+v", got)
			}
			if got := s.run(push...); got.status != 1 || !strings.Contains(got.stderr, "no login for "+r.Host+" was found") {
				t.Errorf("push after logout: %+v", got)
			}
		})
	}
}
