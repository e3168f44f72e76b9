package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

type check struct{ Name, Status, Detail, Hint string }

// doctor runs ocibridge doctor and returns its checks by name. It requires that every failed check has a hint,
// and that the exit status says whether a check failed.
func (s *scene) doctor(args ...string) map[string]check {
	s.t.Helper()
	got := s.run(append([]string{"doctor", "--output", "json"}, args...)...)
	var doc struct {
		Reports []struct{ Checks []check }
	}
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil || len(doc.Reports) != 1 {
		s.t.Fatalf("%v: status %d: %s%s", err, got.status, got.stdout, got.stderr)
	}
	out, failed := map[string]check{}, 0
	for _, c := range doc.Reports[0].Checks {
		out[c.Name] = c
		if c.Status == "failed" {
			failed = 1
			if c.Hint == "" {
				s.t.Errorf("no hint for %+v", c)
			}
		}
	}
	if got.status != failed {
		s.t.Errorf("status %d for %s", got.status, got.stdout)
	}
	return out
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
	for url, want := range map[string]string{
		strings.TrimSuffix(gateway.URL, "/"):                "slash",
		strings.Replace(gateway.URL, "https:", "http:", 1):  "scheme",
		strings.Replace(gateway.URL, "/providers/", "/", 1): "",
		"https://localhost:1/providers/":                    "refused",
	} {
		got := s.doctor(world.Null, "--url", url)
		if want == "" {
			wantChecks(t, got, map[string]string{"index.json": "warning"})
		} else if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("%s: %+v", url, got)
		}
	}
}
