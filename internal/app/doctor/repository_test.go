package doctor

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/trust"
)

// bench is a registry with TLS, and the client configuration with which it is diagnosed.
type bench struct {
	t        *testing.T
	registry *quirks.Registry
	rec      *recorder.Recorder
	host     ociaddr.Registry
	opts     auth.Options
}

func newBench(t *testing.T, s quirks.Settings) *bench {
	b := &bench{t: t, registry: quirks.For(t, s)}
	b.rec = recorder.New(b.registry)
	srv := httptest.NewTLSServer(b.rec)
	t.Cleanup(srv.Close)
	b.host = ociaddr.Registry(strings.TrimPrefix(srv.URL, "https://"))
	b.opts.Wire.Registries = map[ociaddr.Registry]wire.Settings{b.host: {
		CAs: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	}}
	return b
}

// files sets the contents of the user's login files. The keys are their paths.
func (b *bench) files(files map[string]string) {
	b.opts.Login.Environment = login.Environment{
		Home: "/home/u", GOOS: "linux",
		ReadFile: func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		},
	}
}

const dockerConfig = "/home/u/.docker/config.json"

func (b *bench) login(user, password string) {
	b.opts.Login.Explicit = []login.Login{{Prefix: string(b.host), Username: login.NewSecret(user), Password: login.NewSecret(password), InCLIConfig: true}}
}

// TestLoginThatOpenTofuMisses shows that a login is reported if ocibridge finds it and OpenTofu's oci_mirror
// does not.
func TestLoginThatOpenTofuMisses(t *testing.T) {
	b := newBench(t, quirks.Settings{Access: quirks.Access{User: "u", Password: "MARK-p", Tokens: true}})
	b.login("u", "MARK-p")
	b.opts.Login.Explicit[0].InCLIConfig = false
	got := b.examine(false)
	want(t, got, "credential", OK, "the block oci_credentials")
	want(t, got, "oci_mirror", Warn, "OpenTofu's oci_mirror will not find this login: OpenTofu does not read ocibridge.hcl")
}

// repository returns the Repository that the doctor command would examine.
func (b *bench) repository() Repository {
	b.t.Helper()
	b.opts.Wire.RetryDelay = time.Millisecond
	c := auth.New(b.opts)
	addr := ociaddr.Repository{Registry: b.host, Name: "acme/null"}
	repo, err := c.Repository(b.t.Context(), addr)
	return Repository{
		Subject: null, Address: addr, Template: "a test's", Store: repo, Err: err, Candidates: c.Logins.Considered(b.t.Context(), addr),
		Explain: func(err error) error { return c.Explain(err, addr) },
	}
}

func (b *bench) examine(write bool) map[string]Check {
	b.t.Helper()
	x := b.repository()
	x.Write = write
	r := x.Examine(b.t.Context())
	if s := fmt.Sprint(r); strings.Contains(s, "MARK-") {
		b.t.Errorf("a secret is in %s", s)
	}
	return checks(b.t, r)
}

// store pushes the doctor's test version once for each given version, under that version's tag.
func (b *bench) store(versions ...string) []*trial {
	b.t.Helper()
	var out []*trial
	for _, v := range versions {
		t := &trial{Repository: b.repository(), tag: v}
		r := &Report{}
		if t.layout().run(b.t.Context(), t, r); r.Failed() {
			b.t.Fatalf("%+v", r)
		}
		out = append(out, t)
	}
	return out
}

func TestHealthyRegistry(t *testing.T) {
	b := newBench(t, quirks.Settings{Paging: quirks.Paging{PageSize: 2}, Access: quirks.Access{User: "u", Password: "MARK-p", Tokens: true}})
	b.login("u", "MARK-p")
	got := b.examine(true)
	for name, detail := range map[string]string{
		"address": "acme/null", "credential": "the block oci_credentials", "connection": "answers", "TLS": "a chain of", "clock": "agree", "authentication": "accepted",
		"oci_mirror": "OpenTofu finds the block oci_credentials", "push": "blobs", "packages": artifact.TypeTarget, "evidence": artifact.TypeEvidence, "versions": artifact.TypeProvider, "removal": "gone",
	} {
		want(t, got, name, OK, detail)
	}
	// The run pushed each part of a version, and deleted everything again.
	if n := b.rec.Count(recorder.Method(http.MethodPut), recorder.PathContains("/manifests/")); n != 3 {
		t.Errorf("%d manifests were pushed", n)
	}
	want(t, b.examine(false), "tags", OK, "0 versions and 0 other tags, on 1 page")

	b.store("0.0.1", "0.0.2", "0.0.10", "latest")
	b.rec.Reset()
	got = b.examine(false)
	want(t, got, "tags", OK, "3 versions and 1 other tag, on 2 pages")
	want(t, got, "push", Skipped, "not tried")
	if n := b.rec.Count(recorder.Writes()); n > 0 {
		t.Errorf("%d requests try to write", n)
	}
}

// TestNoLogin shows that the certificate is checked even if there is no login.
func TestNoLogin(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		b := newBench(t, quirks.Settings{Access: quirks.Access{User: "u", Password: "p", Tokens: tokens}})
		got := b.examine(false)
		want(t, got, "credential", Warn, "none was found")
		want(t, got, "connection", OK, "answers")
		want(t, got, "TLS", OK, "a chain of")
		want(t, got, "authentication", Fail, "")
		if !strings.Contains(got["authentication"].Hint, "docker login") {
			t.Errorf("%+v", got["authentication"])
		}
	}
}

// TestHarborsWords shows that the report on a refusal by Harbor contains Harbor's own message and a hint for it.
func TestHarborsWords(t *testing.T) {
	const robot = "robot$acme+ci"
	for name, tc := range map[string]struct {
		change              func(*quirks.Settings)
		password            string
		check, detail, hint string
	}{
		"absent project":  {func(s *quirks.Settings) { s.User = "robot$ci" }, "MARK-p", "project", "401: unauthorized: project acme not found", `create the project "acme"`},
		"no right":        {func(s *quirks.Settings) { s.Lacks = []string{"pull"} }, "MARK-p", "authentication", "401: unauthorized: unauthorized to access repository: acme/null, action: pull", "a robot needs the permission Repository: Pull"},
		"no right, write": {func(s *quirks.Settings) { s.Lacks = []string{"push"} }, "MARK-p", "push", "action: push", "a robot needs the permission Repository: Push"},
		"wrong password":  {nil, "MARK-wrong", "authentication", "action: pull", ": not accepted; it may have expired"},
		"proxy-cache":     {func(s *quirks.Settings) { s.Proxies = []string{"acme"} }, "MARK-p", "push", "can not push artifact to a proxy project: acme", "is a proxy cache"},
		"read-only mode":  {func(s *quirks.Settings) { s.ReadOnlyMode = true }, "MARK-p", "push", "The system is in read only mode", "is in read-only mode"},
		"cosign policy":   {func(s *quirks.Settings) { s.CosignPolicy = true }, "MARK-p", "pull", "The image is not signed by cosign.", "Deployment security"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, quirks.Settings{
				Access:  quirks.Access{User: robot, Password: "MARK-p", Tokens: true, Harbor: true},
				Content: quirks.Content{MustExist: true, Projects: true},
			})
			user := robot
			if name != "absent project" {
				b.registry.Create("acme")
				b.login(robot, "MARK-p")
				b.store("1.0.0")
			} else {
				user = "robot$ci"
			}
			if tc.change != nil {
				b.registry.Set(tc.change)
			}
			b.login(user, tc.password)
			got := b.examine(true)
			want(t, got, tc.check, Fail, tc.detail)
			if h := got[tc.check].Hint; !strings.Contains(h, tc.hint) || strings.Contains(h, "force") {
				t.Errorf("hint %q, want %q", h, tc.hint)
			}
		})
	}

	b := newBench(t, quirks.Settings{Content: quirks.Content{Projects: true}})
	x := b.repository()
	x.Store.Reference.Repository = "null"
	got := checks(t, x.Examine(t.Context()))
	want(t, got, "authentication", Fail, "invalid repository name: null")
	if h := got["authentication"].Hint; !strings.Contains(h, "a repository name begins with its project") {
		t.Errorf("hint %q", h)
	}
}

// TestFullProject shows that a full project is reported as its quota.
func TestFullProject(t *testing.T) {
	b := newBench(t, quirks.Settings{Content: quirks.Content{Projects: true}, Uploads: quirks.Uploads{Quota: 40}})
	got := b.examine(true)
	want(t, got, "quota", Fail, "will exceed the configured upper limit")
	if h := got["quota"].Hint; !strings.Contains(h, "have the quota raised (in Harbor, that of the project)") {
		t.Errorf("hint %q", h)
	}
}

// TestLostDollar shows that doctor names the reason if a shell has changed the user name of a robot.
func TestLostDollar(t *testing.T) {
	for user, lost := range map[string]bool{"robot": true, "robot+ci": true, "robot$other": false, "robots": false, "u": false} {
		b := newBench(t, quirks.Settings{Access: quirks.Access{User: "robot$acme+ci", Password: "MARK-p", Tokens: true}})
		b.login(user, "MARK-p")
		got := b.examine(false)
		want(t, got, "authentication", Fail, "")
		if _, warned := got["user name"]; warned != lost {
			t.Errorf("%s: %+v", user, got)
		}
		if lost {
			want(t, got, "user name", Warn, `begins with "robot", but not with "robot$"`)
			if h := got["user name"].Hint; !strings.Contains(h, "docker login -u 'robot$NAME' "+string(b.host)) {
				t.Errorf("hint %q", h)
			}
		}
	}
	b := newBench(t, quirks.Settings{Access: quirks.Access{User: "robot", Password: "MARK-p", Tokens: true}})
	b.login("robot", "MARK-p")
	got := b.examine(false)
	want(t, got, "authentication", OK, "")
	if c, warned := got["user name"]; warned {
		t.Errorf("the name was accepted: %+v", c)
	}
}

func TestUntrustedCertificate(t *testing.T) {
	b := newBench(t, quirks.Settings{})
	b.opts.Wire.Registries = nil
	got := b.examine(false)
	want(t, got, "connection", Fail, "certificate")
	if !strings.Contains(got["connection"].Hint, "ca_file") {
		t.Errorf("%+v", got["connection"])
	}
	b.opts.Wire.Registries = map[ociaddr.Registry]wire.Settings{b.host: {InsecureSkipVerify: true}}
	want(t, b.examine(false), "TLS", Warn, "not verified")
}

// TestFailingHelpers shows the detail and the hint of the report for each way in which a credential helper can
// fail.
func TestFailingHelpers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, tc := range map[string]struct {
		script, detail, hint string
	}{
		"complains": {"echo MARK-x; echo vault is sealed >&2; exit 3", "exit status 3: vault is sealed", "run it by hand"},
		"garbage":   {"echo MARK-x", "not the JSON", "is not a credential helper"},
		"endless":   {"yes MARK-x | head -c 100000", "longer than", "is not a credential helper"},
		"hangs":     {"exec sleep 5", "no answer within", "it may be waiting for input"},
		"missing":   {"", "no such program on PATH", "install docker-credential-missing"},
		"../x":      {"", "cannot hold a path", "put the program on PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.script != "" {
				if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			b := newBench(t, quirks.Settings{Access: quirks.Access{User: "u", Password: "p"}})
			if name == "hangs" {
				b.opts.Login.HelperTimeout = time.Second
			}
			b.files(map[string]string{dockerConfig: fmt.Sprintf(`{"credsStore": %q}`, name)})
			got := b.examine(false)
			want(t, got, "credential", Fail, "docker-credential-"+name)
			want(t, got, "credential", Fail, tc.detail)
			want(t, got, "connection", OK, "answers")
			want(t, got, "TLS", OK, "")
			if !strings.Contains(got["credential"].Hint, tc.hint) {
				t.Errorf("hint: %s", got["credential"].Hint)
			}
			// A failing helper does not matter if the registry requires no login.
			b.registry.Set(func(s *quirks.Settings) { s.User = "" })
			got = b.examine(false)
			want(t, got, "credential", Warn, "the registry did not ask for it")
			want(t, got, "authentication", OK, "")
		})
	}
}

func TestBrokenLoginFile(t *testing.T) {
	b := newBench(t, quirks.Settings{Access: quirks.Access{User: "u", Password: "p"}})
	files := map[string]string{"/home/u/.dockercfg": "garbage MARK-x"}
	b.files(files)
	got := b.examine(false)
	want(t, got, "credential", Fail, "the login file /home/u/.dockercfg (it does not parse: line 1: it is not JSON)")
	want(t, got, "authentication", Fail, "")
	if !strings.Contains(got["authentication"].Hint, "/home/u/.dockercfg: it does not parse") {
		t.Errorf("%+v", got["authentication"])
	}
	// A broken file does not matter if another source contains the login.
	files[dockerConfig] = fmt.Sprintf(`{"auths": {%q: {"username": "u", "password": "p"}}}`, b.host)
	got = b.examine(false)
	want(t, got, "credential", OK, ".dockercfg (it does not parse")
	want(t, got, "authentication", OK, "")
	// However, a broken file matters if a block names it.
	b.opts.Login.Defaults = &login.Defaults{Discover: true, Files: []string{"/gone.json"}}
	got = b.examine(false)
	want(t, got, "credential", Fail, "/gone.json")
	if len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestRefusedParts(t *testing.T) {
	all := []string{artifact.TypeTarget, artifact.TypeEvidence, artifact.TypeProvider}
	without := func(refused string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == refused })
	}
	for name, tc := range map[string]struct {
		change func(*quirks.Settings)
		status Status
		then   map[string]Status // the expected statuses, by check; "" means that the check must not exist
	}{
		"evidence": {func(s *quirks.Settings) { s.Allowed = without(artifact.TypeEvidence) }, Warn, map[string]Status{"versions": OK, "removal": OK}},
		"packages": {func(s *quirks.Settings) { s.Allowed = without(artifact.TypeTarget) }, Fail, map[string]Status{"push": OK, "versions": "", "removal": ""}},
		"versions": {func(s *quirks.Settings) { s.Allowed = without(artifact.TypeProvider) }, Fail, map[string]Status{"evidence": OK, "removal": OK}},
		"removal":  {func(s *quirks.Settings) { s.NoDelete = true }, Warn, map[string]Status{"versions": OK}},
		"push": {func(s *quirks.Settings) { s.User, s.Password, s.Tokens, s.ReadOnly = "u", "p", true, true }, Fail,
			map[string]Status{"authentication": OK, "packages": "", "removal": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, quirks.Settings{})
			b.login("u", "p")
			b.registry.Set(tc.change)
			got := b.examine(true)
			want(t, got, name, tc.status, "")
			if got[name].Hint == "" {
				t.Errorf("no hint for %+v", got[name])
			}
			for other, status := range tc.then {
				want(t, got, other, status, "")
			}
		})
	}
}

// TestDeletedChild shows the report if a clean-up job has deleted a manifest that an index refers to.
func TestDeletedChild(t *testing.T) {
	b := newBench(t, quirks.Settings{})
	x := b.store("0.0.0-doctor")[0]
	want(t, b.examine(false), "pull", OK, "the newest version, 0.0.0-doctor, is complete for linux_amd64")
	if err := x.Store.Delete(t.Context(), x.stored[0]); err != nil {
		t.Fatal(err)
	}
	want(t, b.examine(false), "pull", Fail, x.stored[0].Digest.String())
}

// TestProxyCache shows that only the response to GET decides whether a package exists. A proxy cache responds to
// HEAD with 404 until the first GET.
func TestProxyCache(t *testing.T) {
	b := newBench(t, quirks.Settings{})
	x := b.store("0.0.0-doctor")[0]
	uncached := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodHead || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	}
	b.rec.Intercept(uncached)
	want(t, b.examine(false), "pull", OK, "the newest version, 0.0.0-doctor, is complete for linux_amd64")
	layer := artifact.Package{Digest: digest.FromString(x.tag)}.Layer()
	b.rec.Intercept(nil)
	if err := x.Store.Delete(t.Context(), layer); err != nil {
		t.Fatal(err)
	}
	b.rec.Intercept(uncached)
	want(t, b.examine(false), "pull", Fail, layer.Digest.String())
}

func TestNoRepositoryYet(t *testing.T) {
	b := newBench(t, quirks.Settings{})
	got := b.examine(false)
	want(t, got, "tags", Warn, "no such repository yet")
	if _, pulled := got["pull"]; pulled {
		t.Errorf("%+v", got)
	}
}

// TestTags shows that the doctor reports tags that OpenTofu does not read as the gateway does. With a tag such as 2, tofu
// init fails unless a constraint excludes 2.0.0.
func TestTags(t *testing.T) {
	for name, tt := range map[string]struct {
		tags []string
		want []string // the checks "tag", as status and a part of the detail
	}{
		"clean":                      {[]string{"1.0.0", "1.1.0"}, nil},
		"other tools' tags":          {[]string{"1.0.0", "latest"}, nil},
		"newer":                      {[]string{"1.0.0", "2"}, []string{`failed OpenTofu reads tag "2" as version 2.0.0, which does not exist: tofu init fails`}},
		"older":                      {[]string{"1.0.0", "0.9"}, []string{`failed OpenTofu reads tag "0.9" as version 0.9.0, which does not exist: tofu init fails where a constraint selects it`}},
		"of a version that is there": {[]string{"1.0.0", "1"}, []string{`warning OpenTofu reads tag "1" as version 1.0.0, which has a tag of its own`}},
		"read by nobody":             {[]string{"1.0.0", "v1.1.0"}, []string{"failed the tag looks like a version, and no client recognises it"}},
		"errors first":               {[]string{"1.0.0", "1", "2"}, []string{"failed OpenTofu reads", "warning OpenTofu reads"}},
		"no version":                 {[]string{"2"}, []string{`failed OpenTofu reads tag "2"`}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, quirks.Settings{})
			b.store(tt.tags...)
			var got []string
			for _, c := range b.repository().Examine(t.Context()).Checks {
				if c.Name == "tag" {
					got = append(got, fmt.Sprintf("%s %s", c.Status, c.Detail))
				}
			}
			if len(got) != len(tt.want) {
				t.Fatalf("checks %q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tt.want[i]) {
					t.Errorf("check %q, want %q", got[i], tt.want[i])
				}
			}
		})
	}
	r := &Report{}
	r.foundTags(make([]artifact.Finding, 30))
	if last := r.Checks[len(r.Checks)-1]; len(r.Checks) != maxTagFindings+1 || last.Detail != "20 more" {
		t.Errorf("%d checks, the last %+v", len(r.Checks), last)
	}
}

// TestEvidenceOfTheNewestVersion shows that a version whose evidence the registry protocol or clients refuse is reported,
// and that the origin is known all the same.
func TestEvidenceOfTheNewestVersion(t *testing.T) {
	reg := stored.For(t, "${namespace}/${type}")
	released := reg.Build("acme/null", "1.0.0")
	a := reg.Push(released)
	addr, repo, err := reg.Repository(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		change func(*artifact.Evidence)
		status Status
		says   string
	}{
		{func(*artifact.Evidence) {}, OK, "the newest version, 1.0.0, is complete for"},
		{stored.Commented(t, reg.Signer), Fail, "malformed SHA256SUMS: line 4 is not a SHA-256 and a file name"},
		{func(e *artifact.Evidence) { e.SHA256SUMS = append(bytes.Clone(e.SHA256SUMS), "acme\n"...) }, Fail, "malformed SHA256SUMS: line 4"},
		{func(e *artifact.Evidence) {
			e.SHA256SUMS = bytes.Replace(e.SHA256SUMS, []byte("linux"), []byte("plan9"), 1)
		}, Fail, "signature refused"},
		{func(e *artifact.Evidence) { e.SHA256SUMS, e.Record.Verdict = nil, trust.ChecksumOnly }, OK, "is complete"},
	} {
		stored.ReplaceEvidence(t, repo, a.String(), "1.0.0", func(e *artifact.Evidence) {
			e.SHA256SUMS, e.Signature = released.SHA256SUMS, released.Signature
			tc.change(e)
		})
		x := Repository{Subject: a, Address: addr, Template: "a test's", Store: repo, Embedded: true, Explain: func(err error) error { return err }}
		r := x.Examine(t.Context())
		got := checks(t, r)
		want(t, got, "pull", tc.status, tc.says)
		if (got["pull"].Hint == "") != (tc.status == OK) || r.Origin != stored.Host {
			t.Errorf("%s: hint %q, origin %q", tc.says, got["pull"].Hint, r.Origin)
		}
	}
}
