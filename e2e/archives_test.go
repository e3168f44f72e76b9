package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// observed starts a stand-alone registry behind a recorder, and returns the recorder and the host of the
// registry.
func (s *scene) observed(opts registry.Options) (*recorder.Recorder, string) {
	s.t.Helper()
	h, err := registry.For(s.t, opts).Handler()
	clients.Must(s.t, err)
	rec := recorder.New(h)
	return rec, s.https(rec)
}

// config writes a configuration file, and returns the --config flag for this file.
func (s *scene) config(text string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "ocibridge.hcl")
	clients.Must(s.t, os.WriteFile(file, []byte(text), 0o600))
	return "--config=" + file
}

func mirror(host string) string {
	return fmt.Sprintf("oci_mirror {\n  repository_template = \"%s/providers/${hostname}/${namespace}/${type}\"\n}\n", host)
}

// fetched returns the number of GET requests for blobs or for parts of blobs.
func fetched(rec *recorder.Recorder) int {
	return rec.Count(recorder.Method(http.MethodGet), recorder.PathContains("/blobs/"))
}

// packageURL is the gateway's URL of a package for this platform.
func packageURL(gateway *world.Gateway, p *release.Package) string {
	return fmt.Sprintf("%s%s/%s/%s_%s/%s", gateway.URL, world.Null, nullVersion, runtime.GOOS, runtime.GOARCH, p.Filename)
}

// TestInstallFromTheArchiveCache shows that both clients can install a package that the registry has lost,
// because the gateway has cached the package. This works before and after a restart of the gateway.
func TestInstallFromTheArchiveCache(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rec, host := s.observed(registry.Options{})
	config := s.config(mirror(host) + fmt.Sprintf("gateway {\n  cache {\n    directory = %q\n  }\n}\n", filepath.Join(t.TempDir(), "cache")))
	s.ws.MustRun(t, s.bridge, "push", config, world.Null+"@"+nullVersion)
	both := []clients.Client{clients.Tofu(t), clients.Terraform(t)}
	install := func(gateway *world.Gateway) {
		t.Helper()
		for _, client := range both {
			ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
			ws.MustRun(t, client, "init", "-no-color")
			wantLocked(t, ws, nullVersion, 1, map[string][]string{"tofu": {zipHash(t, s.null)}}[client.Name]...)
		}
	}
	rec.Reset()
	gateway := s.serve(config)
	install(gateway)
	if n := fetched(rec); n != 1 {
		t.Errorf("%d fetches for two clients", n)
	}
	rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			w.WriteHeader(http.StatusNotFound)
		}
		return strings.Contains(r.URL.Path, "/blobs/")
	})
	rec.Reset()
	install(gateway)
	// Newer versions of Terraform send HEAD before they download a package. Older versions do not.
	p := hostPackage(t, s.null)
	head, err := s.CA.HTTPClient().Head(packageURL(gateway, p))
	clients.Must(t, err)
	head.Body.Close()
	if head.StatusCode != http.StatusOK || head.ContentLength != int64(len(p.Data)) {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
	clients.Must(t, gateway.Stop())
	install(s.serve(config))
	if n := rec.Count(recorder.PathContains("/blobs/")); n != 0 {
		t.Errorf("the registry got %d requests for blobs", n)
	}
}

// TestInstallByRedirect shows that both clients get their packages from object storage. No byte of a package
// passes through the gateway, and no credential leaves the gateway. The registry requires a login, and
// redirects requests for packages to the object storage.
func TestInstallByRedirect(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rec, host := s.observed(registry.Options{Users: map[string]string{"robot": "s3cr3t-login"}})
	objects := map[string][]byte{}
	for _, p := range s.null.Packages {
		objects["/"+p.SHA256] = p.Data
	}
	storage := recorder.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := objects[r.URL.Path]
		if !ok || r.URL.RawQuery != "signature=opens-it" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Write(data)
	}))
	storageHost := s.https(storage)
	config := s.config(mirror(host) + fmt.Sprintf(`
oci_credentials %q {
  username = "robot"
  password = "s3cr3t-login"
}
registry %[1]q {
  mirrors_blobs_by_redirect = true
}
gateway {
  redirect = true
}
`, host))
	s.ws.MustRun(t, s.bridge, "push", config, world.Null+"@"+nullVersion)
	rec.Reset()
	gateway := s.serve(config)
	redirected := func(w http.ResponseWriter, r *http.Request) bool {
		_, hex, ok := strings.Cut(r.URL.Path, "/blobs/sha256:")
		if !ok || r.Method != http.MethodGet || r.Header.Get("Authorization") == "" {
			return false
		}
		http.Redirect(w, r, "https://"+storageHost+"/"+hex+"?signature=opens-it", http.StatusTemporaryRedirect)
		return true
	}
	rec.Intercept(redirected)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		storage.Reset()
		ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.MustRun(t, client, "init", "-no-color")
		if n := storage.Count(recorder.Method(http.MethodGet), recorder.Status(http.StatusOK)); n != 1 {
			t.Errorf("%s got %d packages from storage: %v", client.Name, n, storage.Requests())
		}
		if storage.Count(recorder.Authorized()) > 0 {
			t.Errorf("%s showed storage a credential", client.Name)
		}
	}
	if log := gateway.Log(); strings.Contains(log, "opens-it") || strings.Contains(log, "s3cr3t-login") {
		t.Errorf("secrets in the log:\n%s", log)
	}

	p := hostPackage(t, s.null)
	path := packageURL(gateway, p)
	web := s.CA.HTTPClient()
	web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ask := func(method string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, path, nil)
		clients.Must(t, err)
		resp, err := web.Do(req)
		clients.Must(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	got := ask(http.MethodGet)
	if to := "https://" + storageHost + "/" + p.SHA256 + "?signature=opens-it"; got.StatusCode != http.StatusTemporaryRedirect || got.Header.Get("Location") != to || got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("GET: %d %v", got.StatusCode, got.Header)
	}
	if head := ask(http.MethodHead); head.StatusCode != http.StatusOK || head.ContentLength != int64(len(p.Data)) {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}

	// The gateway does not pass on a redirect that contains the login, but serves the package itself.
	rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("Range") == "" && r.Method == http.MethodGet {
			http.Redirect(w, r, "https://robot:s3cr3t-login@"+storageHost+"/"+p.SHA256+"?signature=opens-it", http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	if resp := ask(http.MethodGet); resp.StatusCode != http.StatusOK || resp.Header.Get("Location") != "" {
		t.Errorf("GET: %d %v", resp.StatusCode, resp.Header)
	}
	// The gateway also serves the package itself if the registry does not redirect.
	rec.Intercept(nil)
	resp := ask(http.MethodGet)
	if data, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(data, p.Data) {
		t.Errorf("GET: %d with %d bytes, %v", resp.StatusCode, len(data), err)
	}
}
