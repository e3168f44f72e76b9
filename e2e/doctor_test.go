package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

type check struct{ Name, Status, Detail, Hint string }

// doctorReports runs ocibridge doctor in a workspace. It returns the checks by name, by the subject of the report. It
// requires that every failed check has a hint, and that the exit status says whether a check failed.
func (s *scene) doctorReports(args ...string) map[string]map[string]check {
	s.t.Helper()
	got := s.run(append([]string{"doctor", "--output", "json"}, args...)...)
	var doc struct {
		Reports []struct {
			Subject string
			Checks  []check
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil || len(doc.Reports) == 0 {
		s.t.Fatalf("%v: status %d: %s%s", err, got.status, got.stdout, got.stderr)
	}
	out, failed := map[string]map[string]check{}, 0
	for i, r := range doc.Reports {
		checks := map[string]check{}
		for _, c := range r.Checks {
			checks[c.Name] = c
			if c.Status == "failed" {
				failed = 1
				if c.Hint == "" {
					s.t.Errorf("no hint for %+v", c)
				}
			}
		}
		if out[r.Subject] = checks; i == 0 {
			out[""] = checks
		}
	}
	if got.status != failed {
		s.t.Errorf("status %d for %s", got.status, got.stdout)
	}
	return out
}

// doctor returns the checks of the first report, which is about a repository or a gateway.
func (s *scene) doctor(args ...string) map[string]check {
	s.t.Helper()
	return s.doctorReports(args...)[""]
}

func wantChecks(t *testing.T, got map[string]check, want map[string]string) {
	t.Helper()
	for name, status := range want {
		if got[name].Status != status {
			t.Errorf("%s: %+v, want %s", name, got[name], status)
		}
	}
}

func TestDoctorOfRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	got := s.doctor(world.Null, "--template", template(r), "--write")
	// The tests' certificates expire tomorrow.
	wantChecks(t, got, map[string]string{"address": "ok", "connection": "ok", "TLS": "warning", "clock": "ok", "authentication": "ok", "tags": "warning", "push": "ok", "packages": "ok", "evidence": "ok", "versions": "ok", "removal": "ok"})
	s.pushTo(r, world.Null+"@"+nullVersion)
	got = s.doctor(world.Null, "--template", template(r), "--write")
	wantChecks(t, got, map[string]string{"tags": "ok", "pull": "ok", "push": "ok", "removal": "ok"})
	if !strings.Contains(got["pull"].Detail, "linux_amd64") || !strings.Contains(got["tags"].Detail, "1 version and 1 other tag, on 1 page") {
		t.Errorf("%+v", got)
	}
}

// TestDoctorOfEveryTemplate shows that doctor examines each template once if the command line names no
// provider. doctor warns about a template that other templates hide.
func TestDoctorOfEveryTemplate(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	mirror := func(part, include string) string {
		return fmt.Sprintf("oci_mirror {\n  repository_template = \"%s/%s/${hostname}/${namespace}/${type}\"\n  include = [%q]\n}\n", r.Host, part, include)
	}
	s.ws = s.workspace("provider_installation {\n" + mirror("own", world.Host+"/*/*") + mirror("tofu", "registry.opentofu.org/*/*") +
		mirror("all", "*/*/*") + mirror("never", world.Host+"/acme/*") + "}\n")
	got := s.run("doctor")
	for _, want := range []string{
		r.Host + "/own/" + world.Host, r.Host + "/tofu/registry.opentofu.org/hashicorp/null\n", r.Host + "/all/registry.terraform.io/hashicorp/null\n",
		r.Host + "/never/${hostname}/${namespace}/${type}\n  warning  address",
	} {
		if got.status != 0 || strings.Count("\n"+got.stdout, "\n"+want) != 1 {
			t.Errorf("status %d, no %s in %s%s", got.status, want, got.stdout, got.stderr)
		}
	}
}

func TestDoctorOfRefusals(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{Users: map[string]string{"alice": "right"}})
	got := s.doctor(world.Null, "--template", template(r))
	wantChecks(t, got, map[string]string{"credential": "warning", "authentication": "failed"})
	s.login(r, "alice", "wr0ng-passw0rd")
	got = s.doctor(world.Null, "--template", template(r))
	wantChecks(t, got, map[string]string{"credential": "ok", "authentication": "failed"})
	if text := fmt.Sprint(got); strings.Contains(text, "wr0ng-passw0rd") || !strings.Contains(got["credential"].Detail, "config.json") {
		t.Errorf("%s", text)
	}
	s.login(r, "alice", "right")
	wantChecks(t, s.doctor(world.Null, "--template", template(r)), map[string]string{"authentication": "ok"})
}

// TestDoctorOfClock shows that doctor detects a registry with a wrong clock.
func TestDoctorOfClock(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for skew, status := range map[time.Duration]string{0: "ok", 2 * time.Minute: "warning", time.Hour: "failed"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(-skew).UTC().Format(http.TimeFormat))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name":"x","tags":[]}`)
		}))
		got := s.doctor(world.Null, "--template", strings.TrimPrefix(server.URL, "http://")+"/${hostname}/${namespace}/${type}")
		server.Close()
		wantChecks(t, got, map[string]string{"clock": status})
	}
}

func TestDoctorOfGateway(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	gateway := s.serve("--data", s.data)
	got := s.doctor(world.Null, "--url", gateway.URL)
	wantChecks(t, got, map[string]string{"URL": "ok", "TLS": "warning", "clock": "ok", "index.json": "warning"})
	s.push(world.Null + "@" + nullVersion)
	got = s.doctor(world.Null, "--url", gateway.URL)
	wantChecks(t, got, map[string]string{"index.json": "ok", nullVersion + ".json": "ok", "archive": "ok"})
	s.pushModules("--data", s.data)
	got = s.doctor(vpc, "--url", strings.TrimSuffix(gateway.URL, "providers/"))
	wantChecks(t, got, map[string]string{"discovery": "skipped", "versions": "ok", "download": "ok", "archive": "ok"})
	for url, want := range map[string]string{
		strings.TrimSuffix(gateway.URL, "/"):                "slash",
		strings.Replace(gateway.URL, "https:", "http:", 1):  "scheme",
		strings.Replace(gateway.URL, "/providers/", "/", 1): "",
		"https://localhost:1/providers/":                    "refused",
	} {
		got := s.doctor(world.Null, "--url", url)
		if want == "" {
			wantChecks(t, got, map[string]string{"index.json": "failed"})
		} else if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("%s: %+v", url, got)
		}
	}
}

// originSubject is the subject of the report about the origin of the null provider.
const originSubject = "origin " + world.Host + " of " + world.Null

// settings writes a configuration file, and returns the flag that names it.
func (s *scene) settings(text string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "ocibridge.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return "--config=" + file
}

// nullBlocks configures the null provider, and a template for a registry.
func nullBlocks(r *registry.Registry) string {
	return fmt.Sprintf("oci_mirror {\n  repository_template = %q\n}\nprovider %q {\n  versions = \"~> 3.0\"\n}\n",
		template(r), world.Null)
}

// TestDoctorOfOrigin shows that doctor examines everything that a configuration with a provider block names, on a
// real registry. A dead origin is a failure that says "origin".
func TestDoctorOfOrigin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	config := s.settings(nullBlocks(r))
	got := s.doctorReports(config)
	wantChecks(t, got[r.Host+"/providers/"+world.Null], map[string]string{"authentication": "ok", "tags": "warning"})
	wantChecks(t, got[originSubject], map[string]string{"origin": "ok", "keys": "ok", "package": "ok"})
	if c := got[originSubject]["keys"]; !strings.Contains(c.Detail, s.Signer.Fingerprint()) {
		t.Errorf("%+v", c)
	}
	if c := got["this machine"]["cache"]; !strings.Contains(c.Detail, "are free in "+s.ws.Home) {
		t.Errorf("%+v", c)
	}
	if err := s.World.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{config}, {world.Null, "--template", template(r)}} {
		dead := s.doctorReports(args...)
		wantChecks(t, dead[originSubject], map[string]string{"origin": "failed"})
		wantChecks(t, dead[r.Host+"/providers/"+world.Null], map[string]string{"authentication": "ok"})
	}
	said := s.run("doctor", config)
	if said.status != 1 || !strings.Contains(said.stderr, "error: "+originSubject+" failed a check\n") || !strings.Contains(said.stdout, "\n  FAILED   origin ") {
		t.Errorf("status %d: %s%s", said.status, said.stdout, said.stderr)
	}
}

// TestDoctorOfProxy shows that doctor names the proxy, the variable and the host, on a real registry behind a real
// proxy.
func TestDoctorOfProxy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	proxy := httptest.NewServer(forward{login: "me:s3cr3t", to: r.Addr})
	defer proxy.Close()
	at := strings.TrimPrefix(proxy.URL, "http://")
	const far = "registry.far.example:5000"
	args := []string{world.Null, "--plain-http", "--template", far + "/providers/${hostname}/${namespace}/${type}"}
	for login, want := range map[string]string{"": "wants a login", "me:wr0ng@": "does not accept the user and password", "me:s3cr3t@": ""} {
		s.ws.Env["HTTP_PROXY"] = "http://" + login + at
		got := s.doctor(args...)
		c := got["proxy"]
		if text := fmt.Sprint(got); strings.Contains(text, "s3cr3t") || strings.Contains(text, "wr0ng") {
			t.Errorf("the login shows: %s", text)
		}
		if !strings.Contains(c.Detail, "HTTP_PROXY names "+at+" for "+far) || !strings.Contains(c.Hint, want) {
			t.Errorf("%+v, want %q", c, want)
		}
		if want == "" {
			wantChecks(t, got, map[string]string{"proxy": "ok", "authentication": "ok", "tags": "warning"})
		} else if c.Status != "failed" || !strings.Contains(c.Detail, "407 Proxy Authentication Required") {
			t.Errorf("%+v", c)
		}
	}
	delete(s.ws.Env, "HTTP_PROXY")

	// The proxy refuses to connect to the origin.
	s.ws = s.workspace(hostBlock("registry.far.example", "https://origin.far.example/v1/"))
	s.ws.Env["HTTPS_PROXY"] = proxy.URL
	got := s.doctorReports("registry.far.example/acme/null", "--template", template(r))["origin registry.far.example of registry.far.example/acme/null"]
	if c := got["proxy"]; c.Status != "failed" || !strings.Contains(c.Detail, "HTTPS_PROXY names "+at+" for origin.far.example: proxy "+at+" answered 407") {
		t.Errorf("%+v", got)
	}
}

// forward is a proxy that wants a login, and forwards every request to one address.
type forward struct{ login, to string }

func (f forward) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(f.login)) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = "http", f.to }}).ServeHTTP(w, r)
}

// TestDoctorOfRobot shows that doctor names the reason if a shell has removed a part of a robot's name.
func TestDoctorOfRobot(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{Users: map[string]string{"robot$ci": "right"}})
	s.login(r, "robot", "right")
	got := s.doctor(world.Null, "--template", template(r))
	wantChecks(t, got, map[string]string{"authentication": "failed", "user name": "warning"})
	s.login(r, "robot$ci", "right")
	got = s.doctor(world.Null, "--template", template(r))
	wantChecks(t, got, map[string]string{"authentication": "ok", "user name": ""})
}

// TestDoctorOfPublicURL shows that doctor finds out whether the configured gateway answers at its public_url.
func TestDoctorOfPublicURL(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var behind atomic.Pointer[url.URL] // the gateway
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/other")
		proxy := httputil.NewSingleHostReverseProxy(behind.Load())
		proxy.Transport = s.CA.HTTPClient().Transport
		proxy.ServeHTTP(w, r)
	}))
	var err error
	if front.TLS, err = s.CA.ServerConfig("localhost"); err != nil {
		t.Fatal(err)
	}
	front.StartTLS()
	defer front.Close()
	public := "https://localhost" + front.URL[strings.LastIndex(front.URL, ":"):] + "/"
	configured := func(public string) string {
		return s.settings(fmt.Sprintf("gateway {\n  public_url = %q\n}\n", public))
	}
	config := configured(public)
	gateway := s.serve("--data", s.data, config)
	behind.Store(&url.URL{Scheme: "https", Host: gateway.Address})
	got := s.doctorReports("--data", s.data, config)["gateway "+public]
	wantChecks(t, got, map[string]string{"name": "ok", "TLS": "warning", "clock": "ok", "gateway": "ok"}) // the certificate expires tomorrow
	other := public + "other/"
	got = s.doctorReports("--data", s.data, configured(other))["gateway "+other]
	if c := got["gateway"]; c.Status != "failed" || !strings.Contains(c.Detail, "another gateway answers") {
		t.Errorf("%+v", got)
	}
	if err := gateway.Stop(); err != nil {
		t.Fatal(err)
	}
	got = s.doctorReports("--data", s.data, config)["gateway "+public]
	if c := got["gateway"]; c.Status != "failed" || !strings.Contains(c.Detail, "502 Bad Gateway") {
		t.Errorf("%+v", got)
	}
}
