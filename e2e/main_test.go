// Package e2e runs the built program with real clients and real registries.
package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// scene is a world with one release of the null provider. bridge is the program that the test runs.
type scene struct {
	*world.World
	t      *testing.T
	bridge clients.Client
	null   *release.Release
	data   string // folder of the embedded registry
	ws     *clients.Workspace
}

const nullVersion = "3.2.4"

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{World: world.For(t), t: t, data: t.TempDir()}
	var err error
	s.bridge, err = clients.Bridge()
	clients.Must(t, err)
	s.null = s.offer(nullVersion)
	s.ws = s.workspace("")
	return s
}

// offer adds a version of the null provider to the origin.
func (s *scene) offer(version string) *release.Release {
	s.t.Helper()
	r, err := s.NullRelease(version)
	clients.Must(s.t, err)
	s.Origin.Add(r)
	return r
}

func (s *scene) workspace(cliConfig string) *clients.Workspace {
	s.t.Helper()
	ws, err := s.Workspace(cliConfig)
	if err != nil {
		s.t.Fatal(err)
	}
	return ws
}

// user creates a workspace whose configuration uses the null provider.
func (s *scene) user(cliConfig, version string) *clients.Workspace {
	s.t.Helper()
	ws := s.workspace(cliConfig)
	if err := ws.WriteConfig(world.UseNull(version)); err != nil {
		s.t.Fatal(err)
	}
	return ws
}

// push runs ocibridge push into the embedded registry.
func (s *scene) push(args ...string) string {
	s.t.Helper()
	return s.ws.MustRun(s.t, s.bridge, append([]string{"push", "--data", s.data}, args...)...)
}

// pushTo runs ocibridge push into a stand-alone registry.
func (s *scene) pushTo(r *registry.Registry, args ...string) string {
	s.t.Helper()
	return s.ws.MustRun(s.t, s.bridge, append([]string{"push", "--template", template(r)}, args...)...)
}

// forEachProgram runs a test with each registry program.
func forEachProgram(t *testing.T, f func(t *testing.T, program registry.Program)) {
	t.Parallel()
	for _, program := range registry.Programs {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			f(t, program)
		})
	}
}

// tlsRegistry starts distribution v3 with a certificate from the world's CA.
func (s *scene) tlsRegistry() *registry.Registry {
	s.t.Helper()
	return s.tlsRegistryOf(registry.Distribution3)
}

// tlsRegistryOf is like [scene.tlsRegistry], but for any registry program.
func (s *scene) tlsRegistryOf(program registry.Program) *registry.Registry {
	s.t.Helper()
	cert, err := s.CA.Issue("localhost")
	if err != nil {
		s.t.Fatal(err)
	}
	certFile, keyFile, err := cert.WriteFiles(s.t.TempDir())
	if err != nil {
		s.t.Fatal(err)
	}
	return registry.For(s.t, registry.Options{Program: program, CertFile: certFile, KeyFile: keyFile})
}

// serve starts a gateway with a certificate from the world's CA. If args name no configuration file,
// pull-through is off by default.
func (s *scene) serve(args ...string) *world.Gateway {
	s.t.Helper()
	cert, err := s.CA.Issue("localhost")
	if err != nil {
		s.t.Fatal(err)
	}
	certFile, keyFile, err := cert.WriteFiles(s.t.TempDir())
	if err != nil {
		s.t.Fatal(err)
	}
	return world.ServeFor(s.t, s.ws, append([]string{"--log-level", "debug", "--tls-cert", certFile, "--tls-key", keyFile}, withoutPull(args)...)...)
}

// withoutPull adds --no-pull-through to the arguments of serve if the arguments name no configuration file.
func withoutPull(args []string) []string {
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--config") }) {
		return args
	}
	return append([]string{"--no-pull-through"}, args...)
}

// template returns the template of a stand-alone registry's repositories.
func template(r *registry.Registry) string {
	return r.Host + "/providers/${hostname}/${namespace}/${type}"
}

// result is the result of a run of the program.
type result struct {
	stdout, stderr string
	status         int
}

// run runs the program until it exits.
func (s *scene) run(args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), clients.DefaultTimeout)
	defer cancel()
	cmd := s.ws.Command(ctx, s.bridge, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// hashesOf returns the null provider's hashes in a workspace's lock file. It returns only the hashes of the
// given scheme, sorted.
func hashesOf(t *testing.T, ws *clients.Workspace, scheme string) []string {
	t.Helper()
	locked, ok := ws.MustLock(t)[world.Null]
	if !ok {
		t.Fatalf("the lock file has no %s", world.Null)
	}
	var out []string
	for _, h := range locked.Hashes {
		if strings.HasPrefix(h, scheme) {
			out = append(out, h)
		}
	}
	slices.Sort(out)
	return out
}

// zipHash returns the zh: hash of a release's package for this machine.
func zipHash(t *testing.T, r *release.Release) string {
	t.Helper()
	return "zh:" + hostPackage(t, r).SHA256
}

func wantLocked(t *testing.T, ws *clients.Workspace, version string, h1s int, zhs ...string) {
	t.Helper()
	if got := ws.MustLock(t)[world.Null].Version; got != version {
		t.Errorf("locked version %q, want %q", got, version)
	}
	if got := hashesOf(t, ws, "h1:"); len(got) != h1s {
		t.Errorf("locked %v, want %d h1", got, h1s)
	}
	slices.Sort(zhs)
	if got := hashesOf(t, ws, "zh:"); !slices.Equal(got, zhs) {
		t.Errorf("locked %v, want %v", got, zhs)
	}
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }
