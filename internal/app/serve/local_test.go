package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/provider"
)

// localConfig configures a template for all providers of one host except those of one namespace, and for modules. Its gateway block has
// settings that a Local must ignore. No test reaches the registry.
const localConfig = `
oci_mirror {
  repository_template = "localhost:1/${hostname}/${namespace}/${type}"
  include             = ["registry.acme.example/*/*"]
  exclude             = ["registry.acme.example/other/*"]
}
module_mirror {
  repository_template = "localhost:1/modules/${hostname}/${namespace}/${name}/${system}"
  include             = ["registry.acme.example/acme/*/*"]
}
module_mirror {
  repository_template = "localhost:1/modules/${hostname}/${namespace}/${name}/${system}"
  include             = ["registry.acme.example/public/*/*", "none.example/*/*/*", "registry.unknown.example/*/*/*"]
  fall_through        = true
}
pull_through {}
gateway {
  deny       = ["registry.acme.example/acme/denied"]
  public_url = "https://providers.example.com/"
  redirect   = true
  token "ci" {
    sha256 = "` + testTokenSum + `"
  }
}
`

// localGatewayTest is a Local with the requests that its gateway gets.
type localGatewayTest struct {
	*Local
	t      *testing.T
	log    *collected.Text
	listed []string // provider and versions
	lacks  []string // provider, version and platform
	served []*http.Request
	real   http.Handler // the gateway's own handler
}

// startLocal starts a Local whose gateway answers every request with the given status.
func startLocal(t *testing.T, status int) *localGatewayTest {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "ocibridge.hcl")
	write(t, file, []byte(localConfig))
	write(t, filepath.Join(dir, ".terraformrc"), nil)
	s, err := loadSettings(dir, file, &files.Snapshot{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Repositories.Templates = append(s.Repositories.Templates, s.Config.Templates().Of(subject.Module)...)
	out := &localGatewayTest{t: t, log: &collected.Text{}}
	out.Local, err = StartLocal(t.Context(), LocalOptions{
		Settings: s, Log: slog.New(slog.NewTextHandler(out.log, nil)),
		Listed: func(a provider.Address, versions, denied []provider.Version) {
			out.listed = append(out.listed, fmt.Sprint(a, versions, denied))
		},
		Lacks: func(a provider.Address, v provider.Version, p provider.Platform) {
			out.lacks = append(out.lacks, fmt.Sprint(a, v, p))
		},
		Origin: func(host svchost.Hostname) *url.URL {
			if host == "registry.acme.example" {
				return &url.URL{Scheme: "https", Host: "registry.acme.example", Path: "/v1/providers/"}
			}
			return nil
		},
		ModuleOrigin: func(host svchost.Hostname) (*url.URL, error) {
			switch host {
			case "registry.acme.example":
				return url.Parse("https://registry.acme.example/v1/modules/")
			case "none.example":
				return nil, nil
			}
			return nil, errors.New("unknown")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	out.real = out.site.handler
	out.site.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out.served = append(out.served, r)
		w.WriteHeader(status)
	})
	return out
}

// ask requests a URL with a token, and returns the response. It follows no redirects.
func (l *localGatewayTest) ask(at string) *http.Response {
	l.t.Helper()
	req, err := http.NewRequest(http.MethodGet, at, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer origin-token")
	req.Header.Set("Cookie", "session=origin-token")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		l.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// TestLocalCapability shows that only requests with the capability reach the gateway, and only requests for providers.
func TestLocalCapability(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	base := l.RegistryURL("registry.acme.example")
	right := base + "acme/widget/versions"
	if resp := l.ask(right); resp.StatusCode != http.StatusOK || len(l.served) != 1 {
		t.Fatalf("status %d, %d requests", resp.StatusCode, len(l.served))
	}
	if n := len(l.capability); n < 26 {
		t.Errorf("the capability has %d characters of 5 bits", n)
	}
	other := startLocal(t, http.StatusOK)
	root, _, _ := strings.Cut(base, l.capability)
	for name, at := range map[string]string{
		"none":              strings.Replace(right, l.capability+"/", "", 1),
		"empty":             strings.Replace(right, l.capability, "", 1),
		"part of it":        strings.Replace(right, l.capability, l.capability[1:], 1),
		"longer":            strings.Replace(right, l.capability, l.capability+"A", 1),
		"of another":        strings.Replace(right, l.capability, other.capability, 1),
		"in lower case":     strings.Replace(right, l.capability, strings.ToLower(l.capability), 1),
		"in another place":  strings.Replace(right, l.capability, "A/"+l.capability, 1),
		"in the query":      strings.Replace(right, l.capability, "", 1) + "?" + l.capability,
		"excluded provider": root + "A/hosts/registry.acme.example/v1/providers/other/widget/versions",
		"the page":          root + l.capability + "/",
		"metrics":           root + l.capability + "/metrics",
		"the mirror":        root + l.capability + "/providers/registry.acme.example/acme/widget/index.json",
		"dots":              root + l.capability + "/hosts/registry.acme.example/v1/providers/acme/widget/../../../../../metrics",
		"no provider":       base + "acme/versions",
		"no address":        base + "acme/-/versions",
	} {
		if resp := l.ask(at); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}
	}
	if len(l.served) != 1 {
		t.Errorf("%d requests have reached the gateway", len(l.served))
	}
}

// TestLocalDropsCredentials shows that the gateway sees neither the capability nor a credential.
func TestLocalDropsCredentials(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	l.ask(l.RegistryURL("registry.acme.example") + "acme/widget/1.0.0/download/linux/amd64?a=b")
	r := l.served[0]
	if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
		t.Errorf("headers %v", r.Header)
	}
	if want := "/hosts/registry.acme.example/v1/providers/acme/widget/1.0.0/download/linux/amd64"; r.URL.Path != want || r.RequestURI != want+"?a=b" {
		t.Errorf("path %s, URI %s", r.URL.Path, r.RequestURI)
	}
}

// TestLocalRedirects shows that a request for a provider without a template is redirected to the provider's origin.
func TestLocalRedirects(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	for ask, want := range map[string]string{
		"registry.acme.example/v1/providers/other/widget/versions":                   "https://registry.acme.example/v1/providers/other/widget/versions",
		"registry.acme.example/v1/providers/other/widget/1.0.0/download/linux/amd64": "https://registry.acme.example/v1/providers/other/widget/1.0.0/download/linux/amd64",
		"registry.unknown.example/v1/providers/acme/widget/versions":                 "",
	} {
		host, rest, _ := strings.Cut(ask, "/v1/providers/")
		exit := l.ask(l.RegistryURL(svchost.Hostname(host)) + rest)
		at, err := exit.Location()
		if err != nil || exit.StatusCode != http.StatusTemporaryRedirect || strings.Contains(at.Path, l.capability) {
			t.Fatalf("%s: status %d, to %s, %v", ask, exit.StatusCode, at, err)
		}
		resp := l.ask(at.String())
		status := http.StatusTemporaryRedirect
		if want == "" {
			status = http.StatusBadGateway
		}
		if got := resp.Header.Get("Location"); resp.StatusCode != status || got != want {
			t.Errorf("%s: status %d, to %s", ask, resp.StatusCode, got)
		}
	}
	if len(l.served) != 0 || l.log.Count("is registry.unknown.example reachable?") != 1 {
		t.Errorf("%d requests have reached the gateway; log %q", len(l.served), l.log.String())
	}
}

// TestLocalExit shows that an origin, which learns the URL that redirected a client to it, learns nothing that opens
// the gateway.
func TestLocalExit(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	var referer string
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { referer = r.Referer() }))
	defer origin.Close()
	at, err := url.Parse(origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	l.o.Origin = func(svchost.Hostname) *url.URL { return at }
	resp, err := http.Get(l.RegistryURL("registry.acme.example") + "other/widget/versions")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !strings.Contains(referer, "/other/widget/versions") || strings.Contains(referer, l.capability) {
		t.Errorf("the origin sees the referer %q", referer)
	}
	served := strings.Replace(referer, "/other/", "/acme/", 1)
	if resp := l.ask(served); resp.StatusCode != http.StatusNotFound || len(l.served) != 0 {
		t.Errorf("%s: status %d", served, resp.StatusCode)
	}
}

// TestLocalWaitsForRequests shows that no request uses the gateway after Close.
func TestLocalWaitsForRequests(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	began, ended := make(chan struct{}), make(chan struct{})
	l.site.handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		for range 1000 {
			runtime.Gosched()
		}
		close(ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.RegistryURL("registry.acme.example")+"acme/widget/versions", nil)
	if err != nil {
		t.Fatal(err)
	}
	go http.DefaultClient.Do(req)
	<-began
	leave()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("a request goes on after Close")
	}
}

// TestLocalReports shows what the gateway reports: the lists of versions that clients get, and the packages that it lacks.
func TestLocalReports(t *testing.T) {
	const a = "registry.acme.example/acme/widget"
	long := `{"versions": [{"version": "1.0.0"}], "x": "` + strings.Repeat("x", maxRecorded) + `"}`
	for name, tc := range map[string]struct {
		path, body    string
		status        int
		listed, lacks string
	}{
		"versions":           {"versions", `{"versions": [{"version": "1.0.0"}, {"version": "1.1.0-beta1"}]}`, 200, "[" + a + " [1.0.0 1.1.0-beta1] []]", "[]"},
		"no versions":        {"versions", `{"versions": []}`, 200, "[" + a + " [] []]", "[]"},
		"no provider":        {"versions", `{}`, 404, "[" + a + " [] []]", "[]"},
		"an outage":          {"versions", `{}`, 502, "[]", "[]"},
		"a long list":        {"versions", long, 200, "[]", "[]"},
		"no list":            {"versions", `<html>`, 200, "[]", "[]"},
		"a package":          {"1.0.0/download/linux/amd64", `{}`, 200, "[]", "[]"},
		"a denied package":   {"1.0.0/download/linux/amd64", `denied`, 451, "[]", "[" + a + " 1.0.0 linux_amd64]"},
		"no package":         {"1.0.0/download/linux/amd64", `{}`, 404, "[]", "[" + a + " 1.0.0 linux_amd64]"},
		"an invalid version": {"x/download/linux/amd64", `{}`, 404, "[]", "[]"},
		"an invalid path":    {"1.0.0/download/linux", `{}`, 404, "[]", "[]"},
		"another path":       {"1.0.0/checksums/linux/amd64", `{}`, 404, "[]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLocal(t, http.StatusOK)
			l.site.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			resp, err := http.Get(l.RegistryURL("registry.acme.example") + "acme/widget/" + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if string(got) != tc.body || err != nil || resp.StatusCode != tc.status {
				t.Errorf("status %d, %d bytes, %v", resp.StatusCode, len(got), err)
			}
			if fmt.Sprint(l.listed) != tc.listed || fmt.Sprint(l.lacks) != tc.lacks {
				t.Errorf("listed %v, want %s; lacks %v, want %s", l.listed, tc.listed, l.lacks, tc.lacks)
			}
		})
	}
}

// TestLocalReasons shows how a missing version is explained.
func TestLocalReasons(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	a, denied := mustAddress(t, "registry.acme.example/acme/widget"), mustAddress(t, "registry.acme.example/acme/denied")
	v := provider.MustParseVersion("1.0.0")
	if !l.Pulls(a) || l.Denied(a, v) != nil || l.Denied(denied, v) == nil {
		t.Errorf("pulls %t, denies %v, %v", l.Pulls(a), l.Denied(a, v), l.Denied(denied, v))
	}
}

// TestLocalSettings shows that a Local has no access control but its capability. It allows pull-through from any host,
// because only its command can send requests.
func TestLocalSettings(t *testing.T) {
	l := startLocal(t, http.StatusOK)
	if l.site.control != nil || l.site.puller == nil || l.site.certificates != nil || l.site.settings.gateway().Redirect {
		t.Errorf("control %v, puller %v, redirects %v", l.site.control, l.site.puller, l.site.settings.gateway().Redirect)
	}
	if at := l.RegistryURL("registry.acme.example"); !strings.HasPrefix(at, "http://127.0.0.1:") || !strings.HasSuffix(at, "/hosts/registry.acme.example/v1/providers/") {
		t.Errorf("it is at %s", at)
	}
	if l.log.Count(l.capability) > 0 {
		t.Error("the log contains the capability")
	}
}

func mustAddress(t *testing.T, s string) provider.Address {
	t.Helper()
	a, err := provider.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
