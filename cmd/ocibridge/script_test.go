package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/provider"
)

// The scripts in testdata/script are the contract of the command line. They check standard
// output, standard error and the exit status.

func TestMain(m *testing.M) {
	programs := howto.Commands()
	if os.Getenv(clients.BuiltVariable) == "" {
		programs["ocibridge"] = main
	} else {
		built, err := clients.Bridge()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Setenv("PATH", filepath.Dir(built.Path)+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	testscript.Main(leaks.M{M: m}, programs)
}

func TestScripts(t *testing.T) {
	testkit.WithoutRace(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Condition:           condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"refused":  refused,
			"release":  writeRelease,
			"mirror":   writeMirror,
			"origin":   startOrigin,
			"modules":  startModules,
			"registry": startRegistry,
			"refuse":   refuse,
			"writes":   countWrites,
			"cert":     writeCert,
			"lockfile": writeLock,
			"forge":    forge,
			"serving":  serving,
			"unlisted": noCatalog,
			"broken":   breakPath,
			"damaged":  damagePackages,
			"allowed":  allowEvidence,
			"uncached": uncached,
		},
	})
}

// condition is whether a condition of scripts holds. "all" means that no test is left to "make test-all", and "make" that none
// is left to make.
func condition(name string) (bool, error) {
	switch name {
	case "all":
		return testkit.RunsAll(), nil
	case "make":
		return testkit.RunsUnderMake(), nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// setup creates a home folder for a script. The script inherits only PATH from the environment
// of the machine.
func setup(env *testscript.Env) error {
	for name, dir := range map[string]string{
		"HOME": "home", "XDG_DATA_HOME": "home/data", "XDG_CONFIG_HOME": "home/config", "XDG_RUNTIME_DIR": "home/run",
	} {
		path := filepath.Join(env.WorkDir, filepath.FromSlash(dir))
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		env.Setenv(name, path)
	}
	// Hundreds of programs live for a tenth of a second each: less of it goes into collecting their garbage.
	env.Setenv("GOGC", "400")
	s := &scene{vars: env.Vars}
	var err error
	if s.signer, err = pgp.NewSigner("Acme"); err != nil {
		return err
	}
	env.Values["scene"] = s
	env.Setenv("FINGERPRINT", s.signer.Fingerprint())
	env.Setenv("FINGERPRINT", s.signer.Fingerprint())
	return os.WriteFile(filepath.Join(env.WorkDir, "key.asc"), []byte(s.signer.ArmoredPublicKey()), 0o644)
}

// scene is the state that the commands of one script share.
type scene struct {
	vars     []string // the initial environment
	signer   *pgp.Signer
	registry *recorder.Recorder
	handler  http.Handler // receives the requests that the recorder forwards
}

func sceneOf(ts *testscript.TestScript) *scene { return ts.Value("scene").(*scene) }

const widgetHost = "registry.acme.example"

// exits runs a program and checks its exit status:
//
//	exits STATUS PROGRAM ARG...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	status := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if status != want {
		ts.Fatalf("%s ended with %d, want %d", args[1], status, want)
	}
}

var errorAlone = regexp.MustCompile(`\A\{\n  "error": \{\n    "message": ".+",\n    "hint": ".+"\n  \}\n\}\n\z`)

var twoLines = regexp.MustCompile(`\Aerror: [^\n]+\nhint: [^\n]+\n\z`)

// refused is like [exits], but for a program that should fail. It also checks that standard output is
// empty or, with --output json, contains only the error. Standard error must consist of a line with the
// error and a line with a hint.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	exits(ts, neg, args)
	out := ts.ReadFile("stdout")
	if slices.Contains(args, "json") {
		out = errorAlone.ReplaceAllString(out, "")
	}
	if out != "" {
		ts.Fatalf("standard output has %q", out)
	}
	if got := ts.ReadFile("stderr"); !twoLines.MatchString(got) {
		ts.Fatalf("standard error is not a line error: and a line hint:, but %q", got)
	}
}

// widgetRelease creates a release whose packages contain the given text.
func widgetRelease(ts *testscript.TestScript, version, content string, signer *pgp.Signer) *release.Release {
	spec := release.Spec{Host: widgetHost, Namespace: "acme", Type: "widget", Version: version, Signer: signer}
	for _, p := range []string{"linux_amd64", "darwin_arm64"} {
		goos, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: goos, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(content + p)}})
	}
	r, err := release.Build(spec)
	ts.Check(err)
	return r
}

// writeRelease writes a release folder of registry.acme.example/acme/widget, for
// linux_amd64 and darwin_arm64, signed with the key in key.asc:
//
//	release DIR VERSION [unsigned|other-key|ed25519|no-zip]
//
// The content of the packages depends only on DIR and VERSION. With ed25519, the key is an
// Ed25519 key, which is written to DIR.asc. With no-zip, the package for
// linux_amd64 is an HTML page.
func writeRelease(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: release DIR VERSION [unsigned|other-key|ed25519|no-zip]")
	}
	signer := sceneOf(ts).signer
	kind := strings.Join(args[2:], "")
	switch kind {
	case "", "no-zip":
	case "unsigned":
		signer = nil
	case "other-key":
		var err error
		signer, err = pgp.NewSigner("Mallory")
		ts.Check(err)
	case "ed25519":
		var err error
		signer, err = pgp.NewSigner("Acme", pgp.Ed25519())
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+".asc"), []byte(signer.ArmoredPublicKey()), 0o644))
	default:
		ts.Fatalf("unknown kind of release %q", args[2])
	}
	r := widgetRelease(ts, args[1], args[0], signer)
	if kind == "no-zip" {
		ts.Check(r.Repack("linux", "amd64", []byte("<!DOCTYPE html><title>Log in</title>"), signer))
	}
	ts.Check(r.WriteDir(ts.MkAbs(args[0])))
}

// writeMirror writes a mirror folder as OpenTofu's providers mirror does:
//
//	mirror DIR VERSION...
func writeMirror(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: mirror DIR VERSION...")
	}
	dir := filepath.Join(ts.MkAbs(args[0]), widgetHost, "acme", "widget")
	ts.Check(os.MkdirAll(dir, 0o755))
	var versions []string
	for _, version := range args[1:] {
		versions = append(versions, fmt.Sprintf("%q: {}", version))
		var archives []string
		for _, p := range widgetRelease(ts, version, args[0], nil).Packages {
			ts.Check(os.WriteFile(filepath.Join(dir, p.Filename), p.Data, 0o644))
			h1, err := provider.H1(context.Background(), bytes.NewReader(p.Data), p.Size)
			ts.Check(err)
			archives = append(archives, fmt.Sprintf(`"%s_%s": {"hashes": [%q, "zh:%s"], "url": %q}`, p.OS, p.Arch, h1, p.SHA256, p.Filename))
		}
		ts.Check(os.WriteFile(filepath.Join(dir, version+".json"), []byte(`{"archives": {`+strings.Join(archives, ", ")+"}}"), 0o644))
	}
	ts.Check(os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"versions": {`+strings.Join(versions, ", ")+"}}"), 0o644))
}

// startOrigin starts an origin registry with signed releases of
// registry.acme.example/acme/widget, and writes a host block that points to it:
//
//	origin [token=TOKEN|zips=NAME] VERSION...
//
// With zips, the packages are named NAME_OS_ARCH.zip.
func startOrigin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: origin [token=TOKEN|zips=NAME] VERSION...")
	}
	var options testorigin.Options
	if token, ok := strings.CutPrefix(args[0], "token="); ok {
		options.Token = token
		args = args[1:]
	}
	name, renamed := strings.CutPrefix(args[0], "zips=")
	if renamed {
		args = args[1:]
	}
	origin := testorigin.New(options)
	for _, version := range args {
		r := widgetRelease(ts, version, "", sceneOf(ts).signer)
		for i := range r.Packages {
			if p := &r.Packages[i]; renamed {
				p.Filename = name + "_" + p.OS + "_" + p.Arch + ".zip"
			}
		}
		ts.Check(r.Seal(sceneOf(ts).signer))
		origin.Add(r)
	}
	ca, err := tlsca.New()
	ts.Check(err)
	config, err := ca.ServerConfig()
	ts.Check(err)
	caFile, err := ca.WriteFile(ts.MkAbs("home"))
	ts.Check(err)
	server := httptest.NewUnstartedServer(origin)
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes of clients that do not trust the certificate fail
	server.StartTLS()
	ts.Defer(server.Close)
	file := ts.MkAbs("home/origin.tfrc")
	ts.Check(os.WriteFile(file, []byte(fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", widgetHost, server.URL+testorigin.ServicePath)), 0o600))
	ts.Setenv("TF_CLI_CONFIG_FILE", file)
	ts.Setenv("SSL_CERT_FILE", caFile)
}

// startModules starts a module registry with archives of modules.acme.example/platform/vpc/aws, and adds a host block that
// points to it to the CLI configuration of the command origin:
//
//	modules TEXT VERSION...
//
// TEXT is the content of the only file.
func startModules(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: modules TEXT VERSION...")
	}
	ca, err := tlsca.New()
	ts.Check(err)
	config, err := ca.ServerConfig()
	ts.Check(err)
	server := httptest.NewUnstartedServer(moduleRegistry{
		path: "/v1/modules/", modules: [][]string{append([]string{"platform/vpc/aws"}, args[1:]...)}, off: ts.MkAbs("home/off"), text: args[0],
		location: func(_ *http.Request, _, version string) string { return "/files/" + version + "/module.tar.gz" },
	})
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that end early break their connections
	server.StartTLS()
	ts.Defer(server.Close)
	block := fmt.Sprintf("host \"modules.acme.example\" {\n  services = {\n    \"modules.v1\" = %q\n  }\n}\n", server.URL+"/v1/modules/")
	known := []byte{}
	if file := ts.Getenv("TF_CLI_CONFIG_FILE"); file != "" {
		known, err = os.ReadFile(file)
		ts.Check(err)
	}
	if at := strings.Index(string(known), "host \"modules."); at >= 0 {
		known = known[:at]
	}
	file := ts.MkAbs("home/modules.tfrc")
	ts.Check(os.WriteFile(file, append(known, block...), 0o600))
	ts.Setenv("TF_CLI_CONFIG_FILE", file)
	authorities := ca.CertPEM()
	if name := ts.Getenv("SSL_CERT_FILE"); name != "" {
		others, err := os.ReadFile(name)
		ts.Check(err)
		authorities = append(authorities, others...)
	}
	ts.Check(os.WriteFile(ts.MkAbs("home/modules.pem"), authorities, 0o600))
	ts.Setenv("SSL_CERT_FILE", ts.MkAbs("home/modules.pem"))
}

// startRegistry starts an OCI registry, and sets $REGISTRY to its HOST:PORT.
func startRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: registry")
	}
	r, err := embedded.Open(ts.MkAbs("registry-data"), nil)
	ts.Check(err)
	s := sceneOf(ts)
	s.handler = r.Handler()
	s.registry = recorder.New(s.handler)
	server := httptest.NewServer(s.registry)
	ts.Defer(func() { server.Close(); r.Close() })
	ts.Setenv("REGISTRY", server.Listener.Addr().String())
}

// countWrites checks that no request has tried to change the registry since the last check.
// With !, it checks that at least one request has tried to.
func countWrites(ts *testscript.TestScript, neg bool, args []string) {
	rec := sceneOf(ts).registry
	if n := rec.Count(recorder.Writes()); (n == 0) != neg && len(args) == 0 {
		rec.Reset()
		return
	}
	ts.Fatalf("usage: [!] writes; requests: %+v", rec.Requests())
}

// refuse makes the registry refuse requests whose method is METHOD and whose path ends in
// SUFFIX. With !, the registry handles all requests again:
//
//	refuse METHOD SUFFIX STATUS CODE MESSAGE
//	! refuse
func refuse(ts *testscript.TestScript, neg bool, args []string) {
	if neg && len(args) == 0 {
		sceneOf(ts).registry.Intercept(nil)
		return
	}
	if neg || len(args) != 5 {
		ts.Fatalf("usage: refuse METHOD SUFFIX STATUS CODE MESSAGE")
	}
	status, err := strconv.Atoi(args[2])
	ts.Check(err)
	sceneOf(ts).registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != args[0] || !strings.HasSuffix(r.URL.Path, args[1]) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, args[3], args[4])
		return true
	})
}

// noCatalog makes the registry refuse to list its repositories.
func noCatalog(ts *testscript.TestScript, neg bool, args []string) {
	sceneOf(ts).registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/_catalog" {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"errors":[{"code":"DENIED","message":"no catalog for you"}]}`)
		return true
	})
}

// breakPath makes the registry return invalid content for paths that end in PATH:
//
//	broken PATH
func breakPath(ts *testscript.TestScript, neg bool, args []string) {
	sceneOf(ts).registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, args[0]) {
			return false
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		fmt.Fprint(w, "{}")
		return true
	})
}

// uncached makes the registry return 404 for HEAD requests for blobs. A proxy cache does the
// same before the first GET. With "gone", the registry also returns 404 for GET requests for
// blobs:
//
//	uncached [gone]
func uncached(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 || len(args) == 1 && args[0] != "gone" {
		ts.Fatalf("usage: uncached [gone]")
	}
	sceneOf(ts).registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodHead && len(args) == 0 {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
}

// allowEvidence makes the registry refuse manifests of evidence, or accept them again:
//
//	allowed nothing-but-packages|everything
func allowEvidence(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: allowed nothing-but-packages|everything")
	}
	if args[0] == "everything" {
		sceneOf(ts).registry.Intercept(nil)
		return
	}
	sceneOf(ts).registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte(`"artifactType":"`+artifact.TypeEvidence+`","config"`)) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_INVALID","message":"unknown media type"}]}`)
		return true
	})
}

// damagePackages makes the registry change one byte of each zip that it serves.
func damagePackages(ts *testscript.TestScript, neg bool, args []string) {
	s := sceneOf(ts)
	s.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		truth := httptest.NewRecorder()
		s.handler.ServeHTTP(truth, r)
		data := truth.Body.Bytes()
		if bytes.HasPrefix(data, []byte("PK")) {
			data[len(data)/2] ^= 1
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data)
		return true
	})
}

// writeCert writes a certificate for localhost and its key:
//
//	cert CERT KEY
func writeCert(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cert CERT KEY")
	}
	ca, err := tlsca.New()
	ts.Check(err)
	cert, err := ca.Issue()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), append(cert.CertPEM, ca.CertPEM()...), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), cert.KeyPEM, 0o600))
}

// serving starts ocibridge serve, requests a path, and stops it:
//
//	serving FILE PATH [token=TOKEN] ARG...
//
// PATH is relative to the mirror's URL. FILE contains the last certificate of the server's
// chain, or is "none" for plain HTTP. Afterwards, the file "out" contains the standard output,
// "log" the log, and "body" the response.
func serving(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: serving FILE PATH [token=TOKEN] ARG...")
	}
	file, path, args := args[0], args[1], args[2:]
	token := ""
	if len(args) > 0 && strings.HasPrefix(args[0], "token=") {
		token, args = strings.TrimPrefix(args[0], "token="), args[1:]
	}
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ocibridge", append([]string{"serve"}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(append([]string{}, sceneOf(ts).vars...), "HOME="+ts.Getenv("HOME"), "XDG_DATA_HOME="+ts.Getenv("XDG_DATA_HOME"), "TF_CLI_CONFIG_FILE="+ts.Getenv("TF_CLI_CONFIG_FILE"))
	var logged bytes.Buffer
	out := &announcement{found: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = out, &logged
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case mirror := <-out.found:
		if file == "none" {
			mirror = strings.Replace(mirror, "https:", "http:", 1) // public_url can say https
		}
		var body []byte
		body, err = fetch(ctx, mirror, path, ts.MkAbs(file), token)
		ts.Check(os.WriteFile(ts.MkAbs("body"), body, 0o644))
		err = errors.Join(err, cmd.Process.Signal(os.Interrupt), <-ended)
	case err = <-ended:
		err = fmt.Errorf("serve exited: %v", err)
	}
	if err != nil {
		ts.Fatalf("serve: %v\n%s%s", err, out.text(), logged.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(out.text()), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("log"), logged.Bytes(), 0o644))
}

// announcement collects the output of serve. When serve has printed its address, announcement
// sends the mirror's URL to found.
type announcement struct {
	found chan string

	mu   sync.Mutex
	buf  bytes.Buffer
	told bool
}

// listening matches the address that serve listens on. serve prints this address only if it
// differs from the public URL.
var listening = regexp.MustCompile(`(?m)(?:^Listening on |"address":")([^\s"]+)`)

var mirrorURL = regexp.MustCompile(`https?://[^\s"]+/providers/`)

func (a *announcement) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.buf.Write(p)
	if url := mirrorURL.FindString(a.buf.String()); url != "" && !a.told {
		a.told = true
		if m := listening.FindStringSubmatch(a.buf.String()); m != nil {
			scheme, _, _ := strings.Cut(url, ":")
			url = scheme + "://" + m[1] + "/providers/" // the public URL leads nowhere
		}
		a.found <- url
	}
	return len(p), nil
}

func (a *announcement) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buf.String()
}

// fetch requests a path relative to a URL, and returns the status line and the body of the
// response. It trusts the last certificate in caFile.
func fetch(ctx context.Context, base, path, caFile, token string) ([]byte, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if u.Scheme == "https" {
		if transport.TLSClientConfig, err = trusting(caFile); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return append([]byte(resp.Status+"\n"), body...), err
}

// trusting returns a TLS configuration that trusts the last certificate in a file.
func trusting(caFile string) (*tls.Config, error) {
	rest, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	var last *pem.Block
	for block := last; ; last = block {
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
	}
	cert, err := x509.ParseCertificate(last.Bytes)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{RootCAs: pool}, nil
}
