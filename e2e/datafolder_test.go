//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// withoutUmask returns a script that runs the program with a umask of 0.
func (s *scene) withoutUmask() clients.Client {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "ocibridge")
	clients.Must(s.t, os.WriteFile(path, []byte("#!/bin/sh\numask 0\nexec '"+s.bridge.Path+"' \"$@\"\n"), 0o755))
	return clients.Client{Name: s.bridge.Name, Path: path}
}

// fillDataFolder makes the program create every folder that it uses in the data folder, and returns its log.
// The program pushes, syncs, pulls through, and serves with both kinds of certificates. The caches of the
// program are also in the data folder.
func (s *scene) fillDataFolder(pulled string) string {
	s.t.Helper()
	config := func(text string) string {
		name := filepath.Join(s.t.TempDir(), "ocibridge.hcl")
		text = fmt.Sprintf("data = %q\npull_through {\n  include = [\"%s/acme/*\"]\n  platforms = [%q]\n}\n", s.data, world.Host, hostPlatform) + text
		clients.Must(s.t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	s.ws.Env["XDG_CACHE_HOME"] = filepath.Join(s.data, "cache")
	log := s.push(world.Null + "@" + nullVersion)
	log += s.ws.MustRun(s.t, s.bridge, "sync", "--config", config(fmt.Sprintf("provider %q {\n  versions = %q\n}\n", world.Null, nullVersion)))

	g, err := world.ServeBy(s.bridge, s.ws, "--config", config(""))
	clients.Must(s.t, err)
	resp, err := trusting(s.t, g.CAFile).Get(g.URL + world.Null + "/" + archive(s.offer(pulled), runtime.GOOS, runtime.GOARCH))
	clients.Must(s.t, err)
	clients.Must(s.t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		s.t.Errorf("pull-through: status %d\n%s", resp.StatusCode, g.Log())
	}
	clients.Must(s.t, g.Stop())
	log += g.Log()

	// The gateway gets no certificate, because there is no authority. It creates the folder before it requests
	// a certificate.
	g, err = world.ServeBy(s.bridge, s.ws, "--config", config(fmt.Sprintf(`gateway {
  cache {
    directory = %q
  }
  tls {
    acme {
      accept_terms  = true
      domains       = ["gateway.acme.test"]
      directory_url = "https://127.0.0.1:1/"
    }
  }
}
`, filepath.Join(s.data, "packages"))))
	clients.Must(s.t, err)
	clients.Must(s.t, g.Stop())
	return log + g.Log()
}

// folders returns the folders directly below the data folder, and fails the test for each folder that other
// users can access.
func (s *scene) folders() (names []string) {
	s.t.Helper()
	entries, err := os.ReadDir(s.data)
	clients.Must(s.t, err)
	for _, e := range entries {
		info, err := e.Info()
		clients.Must(s.t, err)
		if !info.IsDir() {
			continue
		}
		names = append(names, e.Name())
		if mode := info.Mode().Perm(); mode != 0o700 {
			s.t.Errorf("%s has mode %04o", e.Name(), mode)
		}
	}
	return names
}

// TestFoldersOfDataAreTheirOwnersAlone shows that other users cannot access any folder in the data folder. The
// test lists the folders, so it also covers folders that the program will create in the future.
func TestFoldersOfDataAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.bridge = s.withoutUmask()
	s.data = filepath.Join(t.TempDir(), "data")
	log := s.fillDataFolder("3.3.0")
	names := s.folders()
	for _, name := range []string{"acme", "ca", "cache", "origins", "packages", "pull", "registry"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s among %q", name, names)
		}
	}
	if strings.Contains(log, "private folder") {
		t.Errorf("of folders that are new, the log says\n%s", log)
	}

	for _, name := range names {
		clients.Must(t, os.Chmod(filepath.Join(s.data, name), 0o777))
	}
	log = s.fillDataFolder("3.3.1")
	s.folders()
	for _, name := range names {
		told := fmt.Sprintf(`level=WARN msg="other users of this machine could use a private folder or file: only its owner can use it now" folder=%s mode=0777`, filepath.Join(s.data, name))
		if n := strings.Count(log, told); n != 1 {
			t.Errorf("the log says %d times that %s is narrowed\n%s", n, name, log)
		}
	}
}
