package serve

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/origins/originclient"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// reloading is a gateway whose settings a test can reload.
type reloading struct {
	*reloader
	t    *testing.T
	file string
	log  *collected.Text
}

// testTokenSum is the SHA-256 of testToken.
const (
	testToken    = "test"
	testTokenSum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

func withToken(more string) string {
	return fmt.Sprintf("gateway {\n  http = true\n  token \"ci\" {\n    sha256 = %q\n  }\n%s}\n", testTokenSum, more)
}

// newReloading starts a gateway with a configuration file. Each override changes the settings as a flag does, at the
// start and at each reload.
func newReloading(t *testing.T, text string, overrides ...func(*Settings)) *reloading {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".terraformrc"), nil)
	r := &reloading{t: t, file: filepath.Join(dir, "ocibridge.hcl"), log: &collected.Text{}}
	write(t, r.file, []byte(text))
	load := func(seen *files.Snapshot) (Settings, error) { return loadSettings(dir, r.file, seen, overrides) }
	seen := &files.Snapshot{}
	s, err := load(seen)
	if err != nil {
		t.Fatal(err)
	}
	s.files = seen
	p := testProcess(t, slog.New(slog.NewTextHandler(r.log, nil)))
	site, err := p.newSite(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{process: p}
	l.replace(site)
	t.Cleanup(func() { l.Close() })
	r.reloader = &reloader{process: p, live: l, load: load, level: &slog.LevelVar{}, seen: seen}
	return r
}

// loadSettings reads the settings of a user with the given home folder.
func loadSettings(home, file string, seen *files.Snapshot, overrides []func(*Settings)) (Settings, error) {
	none := func(string) string { return "" }
	c, err := config.Load(config.Environment{
		LookupEnv: func(string) (string, bool) { return "", false }, ReadFile: seen.ReadFile, Home: home, GOOS: runtime.GOOS,
	}, file)
	if err != nil {
		return Settings{}, hint.Wrap(err, "check it")
	}
	cli, err := cliconfig.Load(cliconfig.Environment{
		Getenv: none, Environ: func() []string { return nil }, ReadFile: seen.ReadFile, ReadDir: seen.ReadDir, Home: home, GOOS: runtime.GOOS,
	})
	if err != nil {
		return Settings{}, err
	}
	out := Settings{
		Config: c, Origins: originclient.User{CLI: cli}, Effective: c.Effective(config.Surroundings{}),
		Repositories: registry.Options{
			Templates: c.Templates(), DataFolder: filepath.Join(home, "data"),
			Auth: auth.Options{Login: login.Options{Defaults: c.Defaults, Environment: login.Environment{Getenv: none, ReadFile: seen.ReadFile, Home: home, GOOS: runtime.GOOS}}},
		},
	}
	c.Gateway.Listen = cmp.Or(c.Gateway.Listen, "localhost:8443")
	for _, override := range overrides {
		override(&out)
	}
	return out, nil
}

// as replaces the text of the configuration file, and reloads the gateway. It reports whether the gateway applied the
// new settings.
func (r *reloading) as(config string) bool {
	r.t.Helper()
	before := r.live.current.Load()
	write(r.t, r.file, []byte(config))
	r.reload("test")
	return r.live.current.Load() != before
}

// listen returns the address to listen on in the current settings.
func (r *reloading) listen() string { return r.live.current.Load().settings.Config.Gateway.Listen }

// failed reports whether the last reload failed.
func (r *reloading) failed() bool {
	err := r.ops.reloaded.Load()
	return err != nil && *err != nil
}

func (r *reloading) status(path, token string) int {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	r.live.ServeHTTP(w, req)
	return w.Code
}

const absentPath = "/providers/registry.acme.example/acme/absent/index.json"

// TestReload shows that a reload applies the access rules of the changed file. If the file is invalid, empty or
// missing, the earlier access rules stay in force.
func TestReload(t *testing.T) {
	r := newReloading(t, withToken(""))
	if got := r.status(absentPath, ""); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	if !r.as(withToken("    # and more\n  token \"new\" {\n    sha256 = \"" + strings.Repeat("ab", 32) + "\"\n  }\n")) {
		t.Fatalf("%s", r.log.String())
	}
	if r.log.Count(`changed="gateway.token[\"new\"].operator, gateway.token[\"new\"].sha256"`) != 1 {
		t.Errorf("the log does not say what has changed: %s", r.log.String())
	}
	r.reload("test")
	if r.log.Count("changed=nothing\n") != 1 {
		t.Errorf("the log does not say that nothing has changed: %s", r.log.String())
	}
	if !r.as(strings.Replace(withToken(""), testTokenSum, strings.Repeat("cd", 32), 1)) {
		t.Fatal("not in force")
	}
	if got := r.status(absentPath, testToken); got != http.StatusUnauthorized {
		t.Errorf("with a removed token: %d", got)
	}
	if !r.as(withToken("")) || r.status(absentPath, testToken) != http.StatusNotFound {
		t.Errorf("with a restored token: %d", r.status(absentPath, testToken))
	}
	for name, tt := range map[string]struct{ config, says string }{
		"wrong":         {withToken("  verfy = \"off\"\n"), "ocibridge.hcl:6: "},
		"no key":        {withToken("  capability_key_file = \"absent\"\n"), "capability_key_file: "},
		"no cache":      {withToken("  cache {\n    directory = \"ocibridge.hcl\"\n  }\n"), "the cache in "},
		"no login file": {"gateway {\n  http = true\n}\noci_mirror {\n  repository_template = \"localhost/${hostname}/${namespace}/${type}\"\n}\noci_default_credentials {\n  docker_style_config_files = [\"absent.json\"]\n}\n", "login file "},
		"empty":         {" \n", "is empty"},
		"TLS":           {strings.Replace(withToken(""), "http = true", "", 1), "http cannot change"},
	} {
		t.Run(name, func(t *testing.T) {
			if r.as(tt.config) || !r.failed() {
				t.Error("the settings took effect, or the failure is not reported")
			}
			if r.log.Count(tt.says) == 0 || r.log.Count("level=ERROR") != r.log.Count("settings cannot be used") || r.log.Count("hint=\"\"") != 0 {
				t.Errorf("the log lacks %q, or a hint: %s", tt.says, r.log.String())
			}
			if got := r.status(absentPath, testToken); got != http.StatusNotFound {
				t.Errorf("then with the token: %d", got)
			}
			if got := r.status(absentPath, ""); got != http.StatusUnauthorized {
				t.Errorf("then without a token: %d", got)
			}
		})
	}
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	r.reload("test")
	if got := r.status(absentPath, ""); got != http.StatusUnauthorized || !r.failed() {
		t.Errorf("without the configuration file: %d", got)
	}
}

// TestReloadKeeps shows that a reload changes the log's level, but neither the address nor the values of flags.
func TestReloadKeeps(t *testing.T) {
	level := slog.LevelInfo
	r := newReloading(t, withToken(""), func(s *Settings) { s.Config.Gateway.Listen, s.LogLevel = "localhost:1234", level })
	links := r.live.current.Load().control
	level = slog.LevelWarn
	if !r.as(withToken("  listen = \"localhost:9999\"\n")) {
		t.Fatal(r.log.String())
	}
	if r.listen() != "localhost:1234" || r.log.Count("with a restart") != 0 {
		t.Errorf("the file takes precedence over the override: %s", r.listen())
	}
	if r.level.Level() != slog.LevelWarn {
		t.Errorf("the log's level is %s", r.level.Level())
	}
	if r.live.current.Load().control == links {
		t.Error("the reload kept the access control")
	}

	r = newReloading(t, withToken("  listen = \"localhost:1234\"\n"))
	if !r.as(withToken("  listen = \"localhost:9999\"\n  metrics_listen = \"localhost:9998\"\n  deny = [\"registry.acme.example/acme/absent\"]\n")) {
		t.Fatal(r.log.String())
	}
	if r.log.Count("changed=gateway.deny\n") != 1 {
		t.Errorf("the log says that the new addresses are in force: %s", r.log.String())
	}
	if r.listen() != "localhost:1234" || r.log.Count("level=WARN msg=\"the address to listen on changes only at a restart") != 1 {
		t.Errorf("%s: %s", r.listen(), r.log.String())
	}
	if got := r.status("/providers/registry.acme.example/acme/absent/1.0.0.json", testToken); got != http.StatusUnavailableForLegalReasons {
		t.Errorf("what the same file denies: %d", got)
	}
}

// TestReloadSharesCache shows that the site after a reload shares the cache of the site before. If the capacity
// changes, the new site gets a new cache.
func TestReloadSharesCache(t *testing.T) {
	cache := func(size string) string {
		return withToken("  cache {\n    directory = \"cache\"\n    max_size = \"" + size + "\"\n  }\n")
	}
	r := newReloading(t, cache("1GB"))
	first := r.live.current.Load().cache
	if !r.as(cache("1GB") + "# more\n") {
		t.Fatal(r.log.String())
	}
	if second := r.live.current.Load().cache; second != first {
		t.Error("the same folder has two caches")
	}
	if !r.as(cache("2GB")) || r.live.current.Load().cache == first {
		t.Error("a changed capacity has no effect")
	}
	if !r.as(withToken("")) || r.live.current.Load().cache != nil {
		t.Error("the cache is still used")
	}
	before := runtime.NumGoroutine()
	for i := range 20 {
		if !r.as(cache("1GB") + strings.Repeat("#", i)) {
			t.Fatal(r.log.String())
		}
	}
	r.as(withToken(""))
	deadline := time.Now().Add(10 * time.Second)
	for {
		r.shared.mu.Lock()
		open := len(r.shared.open)
		r.shared.mu.Unlock()
		now := runtime.NumGoroutine()
		if now <= before && open == 1 { // the embedded registry
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, and %d before; %d are open, and not the embedded registry alone", now, before, open)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestFilesAreNoticed shows that the reloader notices changes to the configuration file and to the CLI configuration.
// It notices a rewritten file, a replaced link, and a replaced link to a folder.
func TestFilesAreNoticed(t *testing.T) {
	r := newReloading(t, withToken(""))
	dir := filepath.Dir(r.file)
	noticed := func(what string) {
		t.Helper()
		if _, settled := r.changed(); settled {
			t.Errorf("%s: the change is used immediately, although the file may be half written", what)
		}
		if names, settled := r.changed(); !settled {
			t.Errorf("%s: not noticed: %v", what, names)
		}
		r.reload(what)
		if names, _ := r.changed(); len(names) != 0 {
			t.Errorf("%s: noticed again: %v", what, names)
		}
	}
	if names, _ := r.changed(); len(names) != 0 {
		t.Errorf("nothing has changed, and %v has", names)
	}
	write(t, r.file, []byte("gate")) // half of the file
	noticed("half a file")
	if !r.failed() {
		t.Error("half a file is used")
	}
	write(t, r.file, []byte(withToken("# whole\n")))
	noticed("the whole file")
	if r.failed() {
		t.Error("the whole file is not used")
	}
	write(t, filepath.Join(dir, ".terraformrc"), []byte("oci_default_credentials {\n  docker_style_config_files = []\n}\n"))
	noticed("the CLI configuration")

	// Kubernetes replaces files in this way. The path of the file leads through a link to a folder, and Kubernetes
	// replaces that link.
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "ocibridge.hcl"), []byte(withToken("# "+version+"\n")))
	}
	for _, link := range [][2]string{{"1", "..data"}, {"..data/ocibridge.hcl", "link"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "link"), r.file); err != nil {
		t.Fatal(err)
	}
	noticed("a link")
	if err := os.Symlink("2", filepath.Join(dir, "..tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	noticed("a folder that a link leads through")
}

// TestReloadAwaitsKey shows that the gateway applies new settings only once the key of a new certificate has arrived.
func TestReloadAwaitsKey(t *testing.T) {
	ca := tlsca.For(t)
	issue := func() *tlsca.Cert {
		cert, err := ca.Issue("localhost")
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.pem"), filepath.Join(dir, "tls.key")
	first, second := issue(), issue()
	write(t, certFile, first.CertPEM)
	write(t, keyFile, first.KeyPEM)
	config := strings.Replace(withToken(""), "http = true", "", 1)
	r := newReloading(t, config, func(s *Settings) {
		s.Config.Gateway.TLS.CertFile, s.Config.Gateway.TLS.KeyFile = certFile, keyFile
	})
	write(t, certFile, second.CertPEM)
	if r.as(strings.Replace(config, testTokenSum, strings.Repeat("cd", 32), 1)) || !r.failed() {
		t.Fatal("the settings took effect although the certificate and the key do not match")
	}
	if names, _ := r.changed(); len(names) != 0 {
		t.Errorf("nothing has changed since, and %v has", names)
	}
	write(t, keyFile, second.KeyPEM)
	r.changed()
	names, settled := r.changed()
	if !settled {
		t.Fatal("the key is not noticed")
	}
	r.reload(strings.Join(names, ", "))
	if got := r.status(absentPath, testToken); r.failed() || got != http.StatusUnauthorized {
		t.Errorf("with a removed token: %d: %s", got, r.log.String())
	}
	write(t, keyFile, first.KeyPEM)
	if names, _ := r.changed(); len(names) != 0 {
		t.Errorf("a file that the site watches by itself causes a reload: %v", names)
	}
}

// TestFilesAreFollowed shows that a site notices changed files even if no client sends a request.
func TestFilesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "links.key")
		write(t, file, []byte(strings.Repeat("ab", 32)+"\n"))
		log := &collected.Text{}
		keys, err := watchKeys(file, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := tlsca.For(t).Issue("localhost")
		if err != nil {
			t.Fatal(err)
		}
		var names config.TLS
		if names.CertFile, names.KeyFile, err = cert.WriteFiles(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		certs, err := newCertificates(certificates{settings: names, log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{keys: keys, certificates: certs}
		write(t, file, []byte(strings.Repeat("cd", 32)+"\n"))
		write(t, names.CertFile, append(cert.CertPEM, '\n'))
		time.Sleep(files.Interval)
		s.look()
		if n := log.Count("files have changed and are in force"); n != 2 {
			t.Errorf("%d of 2 are in force", n)
		}
	})
}
