package e2e

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// problem is a situation in which clients fail.
type problem struct {
	heading string // in docs/howto/troubleshooting.md
	mirror  string // the host of an oci_mirror, which replaces the gateway
	project string // of the oci_mirror's template; "" means providers
	gateway string // HOST:PORT of the gateway
	token   string // the client's token for the gateway
	version string // the version that the client requires; "" means nullVersion
	direct  bool   // the client may install from the origin, too
	also    string // a message that clients print in place of the quoted one, depending on timing
	spoil   func(*testing.T, *clients.Workspace)
}

// problems starts the gateways of all sections of docs/howto/troubleshooting.md.
func (s *scene) problems() []problem {
	s.push(world.Null + "@" + nullVersion)
	open, controlled := authority(s.serve("--data", s.data)), authority(s.controlled(""))
	stopped := registry.For(s.t, registry.Options{})
	stopped.Stop()
	held := make(chan struct{})
	silent := s.https(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
	s.t.Cleanup(func() { close(held) })                       // runs before the server waits for its requests
	misnamed := httptest.NewTLSServer(http.NotFoundHandler()) // its certificate is for example.com
	s.t.Cleanup(misnamed.Close)
	withoutCA := func(_ *testing.T, ws *clients.Workspace) { delete(ws.Env, "SSL_CERT_FILE") }
	secure, private, plain := s.tlsRegistry(), registry.For(s.t, s.secure(registry.Options{Users: map[string]string{"me": "right"}})), registry.For(s.t, registry.Options{})
	s.pushTo(secure, world.Null+"@"+nullVersion)
	return []problem{
		{heading: "The template names another repository", mirror: secure.Host, project: "other"},
		{heading: "The registry lacks the version", mirror: secure.Host, version: "9.9.9"},
		{heading: "The registry requires a login", mirror: private.Host},
		{heading: "The registry's certificate is not trusted", mirror: secure.Host, spoil: withoutCA},
		{heading: "The registry speaks plain HTTP", mirror: plain.Host},
		{heading: "The download breaks off", gateway: s.cutting(open)},
		{heading: "401: the gateway requires a token", gateway: controlled},
		{heading: "403: the token does not cover the provider", gateway: controlled, token: otherToken},
		{heading: "404: the provider does not exist", gateway: authority(s.serve("--data", s.t.TempDir()))},
		{heading: "404: the version does not exist", gateway: open, version: "9.9.9"},
		{heading: "451: the version is denied", gateway: authority(s.serve("--data", s.data, "--config", s.configured(denying(world.Null)))), direct: true},
		{heading: "502: the registry cannot be reached", gateway: authority(s.serve("--template", template(stopped)))},
		{heading: "503: the registry is overloaded", gateway: s.behind(http.StatusServiceUnavailable)},
		{heading: "504: the registry is too slow", gateway: s.behind(http.StatusGatewayTimeout)},
		{heading: "The gateway does not answer in time", gateway: silent, also: "context deadline exceeded", spoil: func(_ *testing.T, ws *clients.Workspace) { ws.Env["TF_REGISTRY_CLIENT_TIMEOUT"] = "1" }},
		{heading: "The connection is refused", gateway: stopped.Host},
		{heading: "The certificate is not trusted", gateway: open, spoil: withoutCA},
		{heading: "The certificate is for another name", gateway: strings.Replace(misnamed.Listener.Addr().String(), "127.0.0.1", "localhost", 1)},
		{heading: "The package does not match the lock file", gateway: open, spoil: func(t *testing.T, ws *clients.Workspace) {
			lock := fmt.Sprintf("provider %q {\n  version = %q\n  hashes  = [\"zh:%064d\"]\n}\n", world.Null, nullVersion, 0)
			clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, ".terraform.lock.hcl"), []byte(lock), 0o600))
		}},
	}
}

// behind starts a gateway whose registry answers every request with the given status, and returns the gateway's
// HOST:PORT.
func (s *scene) behind(status int) string {
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	s.t.Cleanup(registry.Close)
	return authority(s.serve("--template", strings.TrimPrefix(registry.URL, "http://")+"/${hostname}/${namespace}/${type}"))
}

// cutting starts a server in front of a gateway that breaks off each package before its end, and returns HOST:PORT.
func (s *scene) cutting(gateway string) string {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: gateway})
	proxy.Transport = s.CA.HTTPClient().Transport
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(resp *http.Response) error {
		if strings.HasSuffix(resp.Request.URL.Path, ".zip") {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(resp.Body, resp.ContentLength/2), iotest.ErrReader(io.ErrUnexpectedEOF)), resp.Body}
		}
		return nil
	}
	return s.https(proxy)
}

// configs returns the CLI configurations of a network mirror and of a host block, or of an oci_mirror.
func (p problem) configs(s *scene) map[string]string {
	if p.mirror != "" {
		return map[string]string{"oci_mirror": s.HostBlock() + world.OCIMirror(p.mirror+"/"+cmp.Or(p.project, "providers")+"/${hostname}/${namespace}/${type}")}
	}
	token := func(host string) string {
		if p.token == "" {
			return ""
		}
		return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", host, p.token)
	}
	mirror := world.NetworkMirror("https://" + p.gateway + "/providers/")
	if p.direct {
		mirror = strings.TrimSuffix(mirror, "}\n") + "  direct {}\n}\n"
	}
	return map[string]string{
		"network_mirror": s.HostBlock() + mirror + token(p.gateway),
		"host block":     hostBlock(world.Host, "https://"+p.gateway+"/hosts/"+world.Host+"/v1/providers/") + token(world.Host),
	}
}

// quoted returns the messages in each section of docs/howto/troubleshooting.md: the indented lines below its heading.
func quoted(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/howto/troubleshooting.md")
	clients.Must(t, err)
	out := map[string][]string{}
	for _, m := range regexp.MustCompile("(?ms)^### ([^\n]+)\n\n((?:    [^\n]+\n)+)").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(m[2]) {
			out[m[1]] = append(out[m[1]], strings.TrimSpace(line))
		}
	}
	return out
}

// TestMessagesOfClients compares docs/howto/troubleshooting.md with the clients: each quoted message is part of some
// client's output, and each client's output contains one of the quoted messages.
func TestMessagesOfClients(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	page := quoted(t)
	problems := s.problems()
	for heading := range page {
		if !slices.ContainsFunc(problems, func(p problem) bool { return p.heading == heading }) {
			t.Errorf("nothing shows the messages of %q", heading)
		}
	}
	for _, p := range problems {
		t.Run(p.heading, func(t *testing.T) {
			t.Parallel()
			if len(page[p.heading]) == 0 {
				t.Errorf("docs/howto/troubleshooting.md has no such heading")
			}
			sub := *s
			sub.t = t
			missing := slices.Clone(page[p.heading])
			for by, out := range sub.outputs(p) {
				if !slices.ContainsFunc(page[p.heading], func(m string) bool { return strings.Contains(out, m) }) && (p.also == "" || !strings.Contains(out, p.also)) {
					t.Errorf("%s: no quoted message in: %s", by, out)
				}
				missing = slices.DeleteFunc(missing, func(m string) bool { return strings.Contains(out, m) })
			}
			if len(missing) != 0 {
				t.Errorf("no client prints %q", missing)
			}
		})
	}
}

// outputs returns the output of both clients by both installation methods. Line breaks and frames are removed,
// and the gateway's name is providers.example.com, and the registry's
// registry.example.com.
func (s *scene) outputs(p problem) map[string]string {
	s.t.Helper()
	host, shown, programs := p.gateway, "providers.example.com", installs(s.t)
	if p.mirror != "" {
		host, shown, programs = p.mirror, "registry.example.com", []clients.Client{clients.Tofu(s.t)}
	}
	out := map[string]string{}
	for method, config := range p.configs(s) {
		for _, client := range programs {
			ws := s.user("", cmp.Or(p.version, nullVersion))
			clients.Must(s.t, ws.WriteCLIConfig(config))
			if p.spoil != nil {
				p.spoil(s.t, ws)
			}
			text := ws.MustFail(s.t, client, "init", "-no-color")
			text = strings.NewReplacer("│", "", "╷", "", "╵", "", host, shown).Replace(text)
			out[client.Name+", "+method] = strings.Join(strings.Fields(text), " ")
		}
	}
	return out
}
