package e2e

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"maps"
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

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// problem is a situation in which clients fail. Several problems may have the same heading.
type problem struct {
	heading  string // in docs/howto/troubleshooting.md
	mirror   string // the host of an oci_mirror, which replaces the gateway
	project  string // of the oci_mirror's template; "" means providers
	gateway  string // HOST:PORT of the gateway
	path     string // of the network_mirror's URL; "" means /providers/
	token    string // the client's token for the gateway
	module   string // the module that the client requires in place of the null provider
	version  string // the version that the client requires; "" means nullVersion, or moduleVersion
	direct   bool   // the client may install from the origin, too
	only     string // the installation method; "" means all
	also     string // a message that clients print in place of the quoted one, depending on timing
	newer    string // a quoted message that only Terraform 1.11 and later prints
	upgrades bool   // init -upgrade solves the problem
	spoil    func(*testing.T, *clients.Workspace)
}

// moduleVersion is the version of the module vpc.
const moduleVersion = "1.0.0"

// Installation methods of a [problem].
const (
	byMirror = "network_mirror"
	byHost   = "host block"
	byOCI    = "oci_mirror"
)

// problems starts the gateways of all sections of docs/howto/troubleshooting.md.
func (s *scene) problems() []problem {
	s.push(world.Null + "@" + nullVersion)
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@"+moduleVersion, "--data", s.data)
	two := s.t.TempDir() // the data of an embedded registry with two versions of the provider and of the module
	older := s.offer("3.2.3").Version
	s.mustRun("push", "--data", two, world.Null+"@"+nullVersion, world.Null+"@"+older)
	removed := s.t.TempDir() // the same, without nullVersion
	s.mustRun("push", "--data", removed, world.Null+"@"+older)
	for _, v := range []string{moduleVersion, "1.1.0"} {
		s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@"+v, "--data", two)
	}
	// denyingGateway starts a gateway that denies a version of the provider and of the module. rule formats a rule.
	denyingGateway := func(data, rule string) string {
		config := fmt.Sprintf("gateway {\n  deny = ["+rule+", "+rule+"]\n}\n", world.Null+"@"+nullVersion, vpc+"@"+moduleVersion)
		return authority(s.serve("--data", data, "--config", s.configured(config)))
	}
	reason := "{ match = %q, reason = \"" + denialReason + "\" }"
	oneDenied, allDenied, allDeniedSilently := denyingGateway(two, reason), denyingGateway(s.data, reason), denyingGateway(s.data, "%q")
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
	locked := func(t *testing.T, ws *clients.Workspace) {
		lock := fmt.Sprintf("provider %q {\n  version = %q\n  hashes  = [\"zh:%064d\"]\n}\n", world.Null, nullVersion, 0)
		clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, ".terraform.lock.hcl"), []byte(lock), 0o600))
	}
	loggedIn := func(host, user, password string) func(*testing.T, *clients.Workspace) {
		return func(t *testing.T, ws *clients.Workspace) { dockerLogin(t, ws, host, user, password) }
	}
	ghcr, gitlab, harbor := s.imitated("ghcr"), s.imitated("gitlab"), s.imitated("harbor")
	return []problem{
		{heading: "The template names another repository", mirror: secure.Host, project: "other"},
		{heading: "The registry lacks the version", mirror: secure.Host, version: "9.9.9"},
		{heading: "The registry requires a login", mirror: private.Host},
		{heading: "The registry requires a login", mirror: ghcr},
		{heading: "The registry requires a login", mirror: gitlab, spoil: loggedIn(gitlab, "gitlab-ci-token", "wrong")},
		{heading: "The registry requires a login", mirror: harbor, spoil: loggedIn(harbor, "robot$providers+ci", "wrong")},
		{heading: "The registry denies access to the provider", mirror: ghcr, spoil: loggedIn(ghcr, "acme", "pass-w0rd")},
		{heading: "The registry's certificate is not trusted", mirror: secure.Host, spoil: withoutCA},
		{heading: "The registry speaks plain HTTP", mirror: plain.Host},
		{heading: "The download breaks off", gateway: s.cutting(open), newer: "v3.2.4: providers.example.com: unexpected EOF"},
		{heading: "401: the gateway requires a token", gateway: controlled},
		{heading: "403: the token does not cover the provider", gateway: controlled, token: otherToken},
		{heading: "404: the provider does not exist", gateway: authority(s.serve("--data", s.t.TempDir()))},
		{heading: "The URL of the network mirror is wrong", gateway: open, path: "/", only: byMirror, direct: true},
		{heading: "The URL of the network mirror is wrong", gateway: open, path: "/providers", only: byMirror, direct: true},
		{heading: "The URL of the network mirror is wrong", gateway: open, path: "/mirror/", only: byMirror},
		{heading: "The URL of the network mirror is wrong", gateway: controlled, path: "/providers", only: byMirror},
		{heading: "404: the provider does not exist", gateway: allDeniedSilently},
		{heading: "404: the provider does not exist", gateway: allDenied, only: byMirror},
		{heading: "404: the version does not exist", gateway: open, version: "9.9.9"},
		{heading: "404: the version does not exist", gateway: oneDenied},
		{heading: "404: the locked version does not exist", gateway: oneDenied, version: "~> 3.2", upgrades: true, spoil: locked},
		{heading: "404: the locked version does not exist", gateway: authority(s.serve("--data", removed)), version: "~> 3.2", upgrades: true, spoil: locked},
		{heading: "451: the version is denied", gateway: oneDenied, direct: true, only: byMirror},
		{heading: "451: the version is denied", gateway: allDenied, only: byHost},
		{heading: "The gateway requires a token for the module", module: vpc, gateway: controlled},
		{heading: "The gateway requires a token for the module", module: vpc, gateway: controlled, token: otherToken},
		{heading: "The module does not exist", module: world.Host + "/platform/other/aws", gateway: open},
		{heading: "The module does not exist", module: vpc, gateway: allDeniedSilently},
		{heading: "The version of the module does not exist", module: vpc, version: "9.9.9", gateway: open},
		{heading: "The version of the module does not exist", module: vpc, gateway: oneDenied},
		{heading: "The version of the module is denied", module: vpc, gateway: allDenied},
		{heading: "502: the registry cannot be reached", gateway: authority(s.serve("--template", template(stopped)))},
		{heading: "503: the registry is overloaded", gateway: s.behind(http.StatusServiceUnavailable)},
		{heading: "504: the registry is too slow", gateway: s.behind(http.StatusGatewayTimeout)},
		{heading: "The gateway does not answer in time", gateway: silent, also: "context deadline exceeded", spoil: func(_ *testing.T, ws *clients.Workspace) { ws.Env["TF_REGISTRY_CLIENT_TIMEOUT"] = "1" }},
		{heading: "The connection is refused", gateway: stopped.Host},
		{heading: "The certificate is not trusted", gateway: open, spoil: withoutCA},
		{heading: "The certificate is for another name", gateway: strings.Replace(misnamed.Listener.Addr().String(), "127.0.0.1", "localhost", 1)},
		{heading: "The package does not match the lock file", gateway: open, spoil: locked},
	}
}

// imitated starts a registry that behaves as the profile of the given name, and returns its HOST:PORT.
func (s *scene) imitated(name string) string {
	s.t.Helper()
	profiles := quirks.Profiles()
	i := slices.IndexFunc(profiles, func(p quirks.Profile) bool { return p.Name == name })
	return s.https(quirks.For(s.t, profiles[i].Settings))
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

// configs returns the CLI configurations of the problem's installation methods.
func (p problem) configs(s *scene) map[string]string {
	if p.mirror != "" {
		return map[string]string{byOCI: s.HostBlock() + world.OCIMirror(p.mirror+"/"+cmp.Or(p.project, "providers")+"/${hostname}/${namespace}/${type}")}
	}
	token := func(host string) string {
		if p.token == "" {
			return ""
		}
		return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", host, p.token)
	}
	if p.module != "" {
		return map[string]string{byHost: strings.Replace(hostBlock(world.Host, "https://"+p.gateway+"/hosts/"+world.Host+"/v1/modules/"), "providers.v1", "modules.v1", 1) + token(world.Host)}
	}
	mirror := world.NetworkMirror("https://" + p.gateway + cmp.Or(p.path, "/providers/"))
	if p.direct {
		mirror = strings.TrimSuffix(mirror, "}\n") + "  direct {}\n}\n"
	}
	configs := map[string]string{
		byMirror: s.HostBlock() + mirror + token(p.gateway),
		byHost:   hostBlock(world.Host, "https://"+p.gateway+"/hosts/"+world.Host+"/v1/providers/") + token(world.Host),
	}
	maps.DeleteFunc(configs, func(method, _ string) bool { return p.only != "" && method != p.only })
	return configs
}

// quoted returns the messages in each section of docs/howto/troubleshooting.md: the indented lines below its heading. In
// them, "..." matches any text.
func quoted(t *testing.T) map[string][]*regexp.Regexp {
	t.Helper()
	page, err := os.ReadFile("../docs/howto/troubleshooting.md")
	clients.Must(t, err)
	out := map[string][]*regexp.Regexp{}
	for _, m := range regexp.MustCompile("(?ms)^### ([^\n]+)\n\n((?:    [^\n]+\n)+)").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(m[2]) {
			message := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), `\.\.\.`, ".*")
			out[m[1]] = append(out[m[1]], regexp.MustCompile(message))
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
	problems := map[string][]problem{}
	for _, p := range s.problems() {
		problems[p.heading] = append(problems[p.heading], p)
	}
	for heading := range page {
		if len(problems[heading]) == 0 {
			t.Errorf("nothing shows the messages of %q", heading)
		}
	}
	for heading, problems := range problems {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			if len(page[heading]) == 0 {
				t.Errorf("docs/howto/troubleshooting.md has no such heading")
			}
			sub := *s
			sub.t = t
			missing := slices.Clone(page[heading])
			for _, p := range problems {
				if p.newer != "" && !clients.Terraform(t).Since(t, "1.11.0") {
					missing = slices.DeleteFunc(missing, func(m *regexp.Regexp) bool { return m.MatchString(p.newer) })
				}
				for by, out := range sub.outputs(p) {
					if !slices.ContainsFunc(page[heading], func(m *regexp.Regexp) bool { return m.MatchString(out) }) && (p.also == "" || !strings.Contains(out, p.also)) {
						t.Errorf("%s: no quoted message in: %s", by, out)
					}
					missing = slices.DeleteFunc(missing, func(m *regexp.Regexp) bool { return m.MatchString(out) })
				}
			}
			if len(missing) != 0 {
				t.Errorf("no client prints %q", missing)
			}
		})
	}
}

// outputs returns the output of each client by each installation method of a problem. Line breaks and frames are removed.
// The gateway is shown as providers.example.com, and the registry as registry.example.com.
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
			if p.module != "" {
				clients.Must(s.t, ws.WriteConfig(fmt.Sprintf("module \"vpc\" {\n  source  = %q\n  version = %q\n  name    = \"blue\"\n}\n", p.module, cmp.Or(p.version, moduleVersion))))
			}
			if p.spoil != nil {
				p.spoil(s.t, ws)
			}
			text := ws.MustFail(s.t, client, "init", "-no-color")
			text = strings.NewReplacer("│", "", "╷", "", "╵", "", host, shown).Replace(text)
			if p.upgrades {
				ws.MustRun(s.t, client, "init", "-no-color", "-upgrade")
			}
			out[client.Name+", "+method] = strings.Join(strings.Fields(text), " ")
		}
	}
	return out
}
