package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tokenserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// null returns the address of the null provider in a namespace.
func null(namespace string) string { return world.Host + "/" + namespace + "/null" }

// offerIn adds a version of the null provider in the given namespace to the origin.
func (s *scene) offerIn(namespace, version string) *release.Release {
	s.t.Helper()
	r, err := s.NullReleaseIn(namespace, version)
	clients.Must(s.t, err)
	s.Origin.Add(r)
	return r
}

// useNulls returns a configuration that uses the given version of the null providers of several namespaces.
func useNulls(version string, namespaces ...string) string {
	var out strings.Builder
	out.WriteString("terraform {\n  required_providers {\n")
	for _, n := range namespaces {
		fmt.Fprintf(&out, "    %s = {\n      source  = %q\n      version = %q\n    }\n", n, null(n), version)
	}
	out.WriteString("  }\n}\n")
	return out.String()
}

// secure adds a certificate from the world's CA to opts.
func (s *scene) secure(opts registry.Options) registry.Options {
	s.t.Helper()
	cert, err := s.CA.Issue("localhost")
	clients.Must(s.t, err)
	opts.CertFile, opts.KeyFile, err = cert.WriteFiles(s.t.TempDir())
	clients.Must(s.t, err)
	return opts
}

// https serves a handler with a certificate from the world's CA, and returns HOST:PORT.
func (s *scene) https(h http.Handler) string {
	s.t.Helper()
	config, err := s.CA.ServerConfig("localhost")
	clients.Must(s.t, err)
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = config
	srv.StartTLS()
	s.t.Cleanup(srv.Close)
	return strings.Replace(srv.Listener.Addr().String(), "127.0.0.1", "localhost", 1)
}

// serveAs starts a gateway in a workspace, with the workspace's configuration.
func (s *scene) serveAs(ws *clients.Workspace, args ...string) *world.Gateway {
	s.t.Helper()
	opts := s.secure(registry.Options{})
	return world.ServeFor(s.t, ws, append([]string{"--log-level", "debug", "--tls-cert", opts.CertFile, "--tls-key", opts.KeyFile}, args...)...)
}

// dockerLogin stores a login as docker login does.
func dockerLogin(t *testing.T, ws *clients.Workspace, host, user, password string) {
	t.Helper()
	writeJSON(t, filepath.Join(ws.Home, ".docker", "config.json"), map[string]any{"auths": map[string]any{
		host: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password))},
	}})
}

func writeJSON(t *testing.T, path string, content any) {
	t.Helper()
	b, err := json.Marshal(content)
	clients.Must(t, err)
	clients.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	clients.Must(t, os.WriteFile(path, b, 0o600))
}

func ociCredentials(prefix, user, password string) string {
	return fmt.Sprintf("oci_credentials %q {\n  username = %q\n  password = %q\n}\n", prefix, user, password)
}

// TestSameCredentialsForClientPushAndServe shows that a client, push and serve use the same logins from one CLI
// configuration. The registry requires a different login for each part of its repositories. It checks logins
// with a token server or with passwords.
func TestSameCredentialsForClientPushAndServe(t *testing.T) {
	t.Parallel()
	const writer, reader, admin = "robot$acme+push", "robot$team+read", "admin"
	passwords := map[string]string{writer: "w:p$w", reader: "r:p${w}", admin: "a"}
	for _, kind := range []string{"token server", "htpasswd"} {
		t.Run(kind, func(t *testing.T) {
			s := newScene(t)
			s.offerIn("team", nullVersion)
			var tokens *tokenserver.Server
			opts := registry.Options{Users: passwords}
			if kind == "token server" {
				users := map[string]tokenserver.User{}
				for user, may := range map[string]map[string][]string{
					writer: {"providers/" + world.Host + "/acme/": {"pull", "push"}},
					reader: {"providers/" + world.Host + "/team/": {"pull"}},
					admin:  {"providers/": {"pull", "push"}},
				} {
					users[user] = tokenserver.User{Password: passwords[user], May: may}
				}
				tokens = tokenserver.For(t, tokenserver.Options{Users: users})
				auth, err := tokens.Auth("https://"+s.https(tokens)+"/token", t.TempDir())
				clients.Must(t, err)
				opts = registry.Options{Tokens: auth}
			}
			r := registry.For(t, s.secure(opts))
			prefix := r.Host + "/providers/" + world.Host

			// Another login has filled the read-only part.
			dockerLogin(t, s.ws, r.Host, admin, passwords[admin])
			s.pushTo(r, null("team")+"@"+nullVersion)

			// The CLI configuration is HCL 1, which takes ${ literally.
			cliConfig := world.OCIMirror(template(r)) + ociCredentials(prefix+"/acme", writer, passwords[writer]) +
				ociCredentials(prefix+"/team", reader, passwords[reader]) + ociCredentials(r.Host, "nobody", "wrong")
			ws := s.user(cliConfig, nullVersion)
			ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion)

			clients.Must(t, ws.WriteConfig(useNulls(nullVersion, "acme", "team")))
			ws.MustRun(t, clients.Tofu(t), "init", "-no-color")

			gateway := s.serveAs(ws)
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				user := s.workspace(world.NetworkMirror(gateway.URL))
				clients.Must(t, user.WriteConfig(useNulls(nullVersion, "acme", "team")))
				user.MustRun(t, client, "init", "-no-color")
			}

			// If a login is not valid, both the client and the program fail, and the program names the login.
			s.offerIn("other", nullVersion)
			out := ws.MustFail(t, s.bridge, "push", null("other")+"@"+nullVersion)
			if !strings.Contains(out, `used the block oci_credentials "`+r.Host+`" at `+ws.CLIConfigPath()) || !strings.Contains(out, ": not accepted; it may have expired") {
				t.Errorf("push with a wrong password: %s", out)
			}
			clients.Must(t, ws.Clean())
			clients.Must(t, ws.WriteConfig(useNulls(nullVersion, "acme", "other")))
			ws.MustFail(t, clients.Tofu(t), "init", "-no-color")
			if tokens != nil {
				s.offerIn("team", "3.3.0")
				out := ws.MustFail(t, s.bridge, "push", null("team")+"@3.3.0")
				if !strings.Contains(out, `used the block oci_credentials "`+prefix+`/team" at `+ws.CLIConfigPath()) || !strings.Contains(out, "it lacks the right to do this") {
					t.Errorf("push to a read-only repository: %s", out)
				}
				checkTokens(t, tokens, map[string]string{writer: "acme", reader: "team"})
			}
		})
	}
}

// checkTokens checks that each token was requested for only one repository, and that this repository is in the
// user's namespace. The parameter namespaces maps users to namespaces.
func checkTokens(t *testing.T, s *tokenserver.Server, namespaces map[string]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, line := range s.Asked() {
		user, scopes, _ := strings.Cut(line, " ")
		namespace, ok := namespaces[user]
		if !ok || scopes == "" { // OpenTofu requests /v2/ with a token without scopes
			continue
		}
		seen[user] = true
		if !strings.HasPrefix(scopes, "repository:providers/"+world.Host+"/"+namespace+"/null:") || strings.Contains(scopes, " ") {
			t.Errorf("a token was requested for: %s", line)
		}
	}
	if len(seen) != len(namespaces) {
		t.Errorf("only %v requested tokens: %q", seen, s.Asked())
	}
}

// TestRobotNamesFromEveryPlace shows that the name of a Harbor robot, with its dollar sign, works in each
// source of logins.
func TestRobotNamesFromEveryPlace(t *testing.T) {
	t.Parallel()
	const user, password = "robot$acme+push", "p$HOME:w$$"
	s := newScene(t)
	r := registry.For(t, s.secure(registry.Options{Users: map[string]string{user: password}}))
	for name, arrange := range map[string]func(ws *clients.Workspace){
		"login-file": func(ws *clients.Workspace) { dockerLogin(t, ws, r.Host, user, password) },
		"variables": func(ws *clients.Workspace) {
			ws.Env["OCIBRIDGE_REGISTRY"], ws.Env["OCIBRIDGE_REGISTRY_USERNAME"], ws.Env["OCIBRIDGE_REGISTRY_PASSWORD"] = r.Host, user, password
		},
		"cli-configuration": func(ws *clients.Workspace) {
			clients.Must(t, ws.WriteCLIConfig(s.HostBlock()+ociCredentials(r.Host, user, password)))
		},
		"configuration": func(ws *clients.Workspace) {
			ws.Env["OCIBRIDGE_CONFIG"] = filepath.Join(ws.Home, "ocibridge.hcl")
			clients.Must(t, os.WriteFile(ws.Env["OCIBRIDGE_CONFIG"], []byte(ociCredentials(r.Host, user, password)), 0o600))
		},
		"helper": func(ws *clients.Workspace) {
			ws.Env["PATH"] = helperProgram(t, user, password) + string(os.PathListSeparator) + os.Getenv("PATH")
			writeJSON(t, filepath.Join(ws.Home, ".docker", "config.json"), map[string]any{"credHelpers": map[string]string{r.Host: "e2e"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := s.workspace("")
			arrange(ws)
			ws.MustRun(t, s.bridge, "push", "--template", r.Host+"/"+name+"/${hostname}/${namespace}/${type}",
				"--platform", s.null.Packages[0].OS+"_"+s.null.Packages[0].Arch, world.Null+"@"+nullVersion)
		})
	}
}

// helperProgram creates the credential helper docker-credential-e2e, which prints the given login. It returns
// the folder of the credential helper.
func helperProgram(t *testing.T, user, secret string) string {
	t.Helper()
	dir := t.TempDir()
	answer, err := json.Marshal(map[string]string{"Username": user, "Secret": secret})
	clients.Must(t, err)
	script := "#!/bin/sh\ncat > /dev/null\ncat <<'END'\n" + string(answer) + "\nEND\n"
	clients.Must(t, os.WriteFile(filepath.Join(dir, "docker-credential-e2e"), []byte(script), 0o700))
	return dir
}

// talkative is a registry whose errors repeat the credentials and the body of the request. It requires
// passwords for repositories below basic/, and tokens for other repositories.
func talkative(realm func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		said := fmt.Sprintf("no %s for %s with %s or %s", r.Header.Get("Authorization"), user, password, body)
		status := http.StatusUnauthorized
		switch given := r.Header.Get("Authorization") != ""; {
		case r.URL.Path == "/token":
		case strings.HasPrefix(r.URL.Path, "/v2/basic/") && given:
			status = http.StatusForbidden
		case strings.HasPrefix(r.URL.Path, "/v2/basic/"):
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		default:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token"`, realm()))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]any{{"code": "DENIED", "message": said, "detail": said}}})
	}
}

// output collects the output of all runs of the program.
type output struct {
	mu   sync.Mutex
	text map[string]string // the output by run
}

func (o *output) add(run, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text[run] += text
}

// marked is a scene in which every source of secrets contains a secret with a mark.
type marked struct {
	*scene
	ws      *clients.Workspace
	r       *registry.Registry
	echoes  []string // templates of registries that repeat requests
	written *output
}

func newMarked(t *testing.T) *marked {
	t.Helper()
	s := newScene(t)
	for _, namespace := range []string{"team", "other"} {
		s.offerIn(namespace, nullVersion)
	}
	mark := func(place string) string { return "MARK-" + place + `-$"\x` }
	users := map[string]string{}
	for _, place := range []string{"block", "variable", "helper"} {
		users["user-"+place] = mark(place)
	}
	r := registry.For(t, s.secure(registry.Options{Users: users}))
	prefix := r.Host + "/providers/" + world.Host
	var echo string
	echo = s.https(talkative(func() string { return "https://" + echo }))
	s.Origin.RequireToken("MARK-host")

	ws := s.workspace(ociCredentials(prefix+"/acme", "user-block", mark("block")) +
		fmt.Sprintf("oci_credentials %q {\n  access_token = \"MARK-access\"\n  refresh_token = \"MARK-refresh\"\n}\n", echo+"/bearer") +
		ociCredentials("elsewhere.example", "x", mark("elsewhere")) +
		fmt.Sprintf("credentials %q {\n  token = \"MARK-host\"\n}\ncredentials \"other.example\" {\n  token = \"MARK-host2\"\n}\n", world.Host))
	ws.Env["OCIBRIDGE_REGISTRY"], ws.Env["OCIBRIDGE_REGISTRY_USERNAME"], ws.Env["OCIBRIDGE_REGISTRY_PASSWORD"] = prefix+"/team", "user-variable", mark("variable")
	ws.Env["TF_TOKEN_another_example"] = "MARK-hostvariable"
	ws.Env["PATH"] = helperProgram(t, "user-helper", mark("helper")) + string(os.PathListSeparator) + os.Getenv("PATH")
	writeJSON(t, filepath.Join(ws.Home, ".docker", "config.json"), map[string]any{
		"auths":       map[string]any{echo: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte("user-file:" + mark("file")))}},
		"credHelpers": map[string]string{r.Host: "e2e"},
	})
	netrc := fmt.Sprintf("machine %s\n  login user-netrc\n  password MARK-netrc\n", strings.TrimPrefix(s.OriginURL, "https://"))
	clients.Must(t, os.WriteFile(filepath.Join(ws.Home, ".netrc"), []byte(netrc), 0o600))
	return &marked{s, ws, r,
		[]string{echo + "/basic/${hostname}/${namespace}/${type}", echo + "/bearer/${hostname}/${namespace}/${type}", echo + "/other/${hostname}/${namespace}/${type}"},
		&output{text: map[string]string{}},
	}
}

// bridgeRuns runs the program and collects its output. ok says whether the program should succeed.
func (m *marked) bridgeRuns(ok bool, args ...string) {
	m.t.Helper()
	out, err := m.ws.Run(m.bridge, args...)
	m.written.add(strings.Join(args, " "), out)
	if (err == nil) != ok {
		m.t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// searchAll searches all output and all files for marks.
func (m *marked) searchAll() {
	m.t.Helper()
	for run, text := range m.written.text {
		search(m.t, run, text)
	}
	searchFiles(m.t, m.r.Dir)
	searchFiles(m.t, m.ws.Home, m.ws.CLIConfigPath(), filepath.Join(m.ws.Home, "ocibridge.hcl"),
		filepath.Join(m.ws.Home, ".docker", "config.json"), filepath.Join(m.ws.Home, ".netrc"))
	searchFiles(m.t, m.ws.Dir)
}

// TestNoSecretIsWritten shows that pushes to talkative registries, and gateways in front of them, write no
// secret to their output or to files.
func TestNoSecretIsWritten(t *testing.T) {
	t.Parallel()
	m := newMarked(t)
	for _, namespace := range []string{"acme", "team", "other"} {
		for _, format := range []string{"text", "json"} {
			m.bridgeRuns(true, "push", "--log-level", "debug", "--template", template(m.r), "--output", format, null(namespace)+"@"+nullVersion)
		}
	}
	for _, template := range m.echoes {
		for _, format := range []string{"text", "json"} {
			m.bridgeRuns(false, "push", "--log-level", "debug", "--template", template, "--output", format, world.Null+"@"+nullVersion)
		}
	}
	for _, template := range append(m.echoes, template(m.r)) {
		gateway := m.serveAs(m.ws, "--template", template)
		for _, path := range []string{world.Null + "/index.json", null("team") + "/" + nullVersion + ".json", null("other") + "/index.json"} {
			resp, err := m.CA.HTTPClient().Get(gateway.URL + path)
			clients.Must(t, err)
			body, err := io.ReadAll(resp.Body)
			clients.Must(t, err)
			resp.Body.Close()
			m.written.add("answers of serve "+template, fmt.Sprintf("%s %v\n%s\n", resp.Status, resp.Header, body))
		}
		clients.Must(t, gateway.Stop())
		m.written.add("log of serve "+template, gateway.Log())
	}

	// The program has used the secrets.
	if m.Origin.Count(recorder.PathContains("/files/"), recorder.PathSuffix(".zip"), recorder.Authorized()) == 0 {
		t.Error("no download carried the login of .netrc")
	}
	all := ""
	for _, text := range m.written.text {
		all += text
	}
	if n := strings.Count(all, "[redacted]"); n < 2*len(m.echoes) {
		t.Errorf("only %d times was anything taken out of what the registry repeats", n)
	}
	if !strings.Contains(all, "level=DEBUG") {
		t.Error("nothing was logged at the level debug")
	}
	m.searchAll()
}

// TestNoSecretIsWrittenByOthers shows that all other commands write no secret either, even if an address
// contains a login.
func TestNoSecretIsWrittenByOthers(t *testing.T) {
	t.Parallel()
	m := newMarked(t)
	for _, namespace := range []string{"acme", "team", "other"} {
		m.bridgeRuns(true, "push", "--template", template(m.r), null(namespace)+"@"+nullVersion)
	}
	gateway := m.serveAs(m.ws, "--template", template(m.r))
	host := strings.TrimSuffix(strings.TrimPrefix(gateway.URL, "https://"), "/providers/")
	config, err := os.ReadFile(m.ws.CLIConfigPath())
	clients.Must(t, err)
	clients.Must(t, m.ws.WriteCLIConfig(string(config)+fmt.Sprintf("credentials %q {\n  token = \"MARK-gateway\"\n}\n", host)+world.NetworkMirror(gateway.URL)))
	clients.Must(t, m.ws.WriteConfig(useNulls(nullVersion, "acme", "team")))
	m.ws.MustRun(t, clients.Tofu(t), "init", "-no-color") // for the lock file
	m.ws.Env["OCIBRIDGE_CONFIG"] = filepath.Join(m.ws.Home, "ocibridge.hcl")
	clients.Must(t, os.WriteFile(m.ws.Env["OCIBRIDGE_CONFIG"], []byte(ociCredentials("ours.example", "x", "MARK-ours")+
		"provider \""+null("team")+"\" {\n  versions = \""+nullVersion+"\"\n}\n"), 0o600))
	m.ws.Env["OCIBRIDGE_LOG_LEVEL"] = "debug"

	commands := [][]string{
		{"doctor"}, {"doctor", null("team"), "--write"}, {"list", null("acme")}, {"inspect", null("other") + "@" + nullVersion},
		{"verify", "--packages", null("team")}, {"lock", m.ws.Dir}, {"sync"}, {"sync", "--dry-run"},
		{"copy", null("team") + "@" + nullVersion, "--to", "oci:" + filepath.Join(t.TempDir(), "bundle")},
	}
	for _, format := range []string{"text", "json"} {
		for _, args := range commands {
			m.ws.Env["OCIBRIDGE_TEMPLATE"] = template(m.r)
			m.bridgeRuns(true, append(args, "--output", format)...)
			for _, echo := range m.echoes {
				m.ws.Env["OCIBRIDGE_TEMPLATE"] = echo
				m.bridgeRuns(false, append(args, "--output", format)...)
			}
			m.ws.Env["OCIBRIDGE_TEMPLATE"] = "https://x:MARK-template@" + m.r.Host + "/${hostname}/${namespace}/${type}"
			m.bridgeRuns(false, append(args, "--output", format)...)
		}
		for _, args := range [][]string{{"show"}, {"client", "--url", gateway.URL}} { // the template still contains a login
			m.bridgeRuns(true, append([]string{"config", args[0], "--output", format}, args[1:]...)...)
		}
		delete(m.ws.Env, "OCIBRIDGE_TEMPLATE")
		m.bridgeRuns(false, "copy", null("team"), "--from", "https://x:MARK-from@"+m.r.Host+"/x/${type}", "--to", "x:MARK-to@"+m.r.Host+"/y/${type}", "--output", format)
		m.bridgeRuns(true, "config", "check", "--output", format)
		m.bridgeRuns(true, "doctor", "--url", gateway.URL, null("acme"), "--output", format)
		m.bridgeRuns(false, "doctor", "--url", strings.Replace(gateway.URL, "https://", "https://x:MARK-url@", 1), "--output", format)
		m.bridgeRuns(false, "config", "client", "--url", strings.Replace(gateway.URL, "https://", "https://x:MARK-url@", 1), "--output", format)
	}
	clients.Must(t, gateway.Stop())
	m.written.add("log of serve", gateway.Log())
	if all := fmt.Sprint(m.written.text); !strings.Contains(all, "level=DEBUG") || !strings.Contains(all, "[redacted]") {
		t.Error("nothing was logged at the level debug, or nothing taken out of what the registry repeats")
	}
	m.searchAll()
}

// search fails the test if text contains a marked secret. It finds secrets in plain text, and in base64 after a
// user name.
func search(t *testing.T, where, text string) {
	t.Helper()
	forms := []string{"MARK-"}
	for skip := range 3 { // the mark can begin at any of three positions in a base64 group
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + "MARK-"))
		forms = append(forms, encoded[(skip*8+5)/6:len(encoded)-1])
	}
	for _, form := range forms {
		if i := strings.Index(text, form); i >= 0 {
			t.Errorf("%s holds a secret: ...%s...", where, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

// searchFiles searches all files below dir for marks. It skips the files that but lists.
func searchFiles(t *testing.T, dir string, but ...string) {
	t.Helper()
	clients.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(strings.Join(but, "\n")+"\n", path+"\n") {
			return err
		}
		content, err := os.ReadFile(path)
		// Packages need no search, because they are compressed and come from the publisher.
		if err == nil && len(content) < 1<<20 {
			search(t, path, string(content))
		}
		return err
	}))
}
