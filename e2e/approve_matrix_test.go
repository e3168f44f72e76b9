package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// row is a row of the matrix of approvals, whose version is stored.
type row struct {
	approvals.Case
	*approvals.World
	// Honest is the decision while the registry answers as it should.
	Honest approvals.Decision
	// Partly reports whether the manifest has any approval. A push must not lose it, also if another one is missing.
	Partly bool
}

func (r *row) want() approvals.Decision { return r.Want }

// matrix is one registry with the versions of all rows, and one configuration with their requirements. Each row has a namespace of its
// own.
type matrix struct {
	*scene
	registry *approvals.Registry
	rows     []*row
	trust    string // the trust blocks
}

// newMatrix stores the rows in a registry.
func newMatrix(t *testing.T, handler http.Handler, cases []approvals.Case) *matrix {
	t.Helper()
	m := &matrix{scene: newScene(t), registry: approvals.NewRegistry(t, handler)}
	shared := approvals.NewShared(t)
	shared.Publisher = m.Signer
	dir := t.TempDir()
	for i, c := range cases {
		w := approvals.NewWorld(t, shared, m.registry.In(fmt.Sprintf("case%d", i)), c)
		if c.Change != nil {
			c.Change(w)
		}
		blocks := c.Blocks(w)
		policy := approvals.Policy(t, blocks)
		_, honest, _ := w.Decide(t.Context(), policy)
		m.rows = append(m.rows, &row{c, w, honest, w.IsSigned(t.Context(), policy)})
		m.trust += trustBlock(t, dir, w, blocks)
	}
	return m
}

// trustBlock returns the trust block of a row. It writes the files that the block names to a folder.
func trustBlock(t *testing.T, dir string, w *approvals.World, blocks []approvals.Require) string {
	t.Helper()
	text := fmt.Sprintf("trust %q {\n", approvals.Host+"/"+w.Namespace+strings.Repeat("/*", strings.Count(w.Address.Path(), "/")-1))
	for i, b := range blocks {
		file := func(kind string, data []byte) string {
			name := filepath.Join(dir, fmt.Sprintf("%s-%d-%s", w.Namespace, i, kind))
			clients.Must(t, os.WriteFile(name, data, 0o600))
			return name
		}
		text += fmt.Sprintf("  require %q {\n", b.Name)
		if b.PublicKey != nil {
			text += fmt.Sprintf("    public_key = file(%q)\n", file("key.pub", b.PublicKey))
		} else {
			text += fmt.Sprintf("    issuer = %q\n    identity = %q\n    trusted_root = %q\n", b.Issuer, b.Identity, file("root.json", b.TrustedRoot))
		}
		if b.Predicate != "" {
			text += fmt.Sprintf("    predicate = %q\n", b.Predicate)
		}
		if b.ReportOnly {
			text += "    enforce = false\n"
		}
		text += "  }\n"
	}
	return text + "}\n"
}

// config writes a configuration for a registry.
func (m *matrix) config(r *approvals.Registry, more string) string {
	m.t.Helper()
	providers, modules := r.Templates()
	return m.configured(fmt.Sprintf("oci_mirror {\n  repository_template = %q\n  include = [%q]\n}\nmodule_mirror {\n  repository_template = %q\n  include = [%q]\n}\n",
		providers, approvals.Host+"/*/*", modules, approvals.Host+"/*/*/*") + more + m.trust)
}

// lie makes the registry answer each row as its case says, or truthfully.
func (m *matrix) lie(on bool) {
	for _, r := range m.rows {
		r.Intercept(nil)
		if on {
			r.Intercept(r.Answer)
		}
	}
}

// each calls f for each row, for several rows at a time.
func (m *matrix) each(f func(*row)) {
	var tasks sync.WaitGroup
	slots := make(chan struct{}, 32) // most rows wait for a registry that does not answer
	for _, r := range m.rows {
		slots <- struct{}{}
		tasks.Go(func() { f(r); <-slots })
	}
	tasks.Wait()
}

// paths are the URLs of a row's version below the root of a gateway.
type paths struct {
	lists               []string
	documents, archives []string
}

func (r *row) paths() (p paths) {
	v := r.Version.String()
	a, ok := r.AsProvider()
	if !ok {
		base := "hosts/" + approvals.Host + "/v1/modules/" + strings.TrimPrefix(r.Address.Path(), approvals.Host+"/") + "/"
		return paths{[]string{base + "versions"}, []string{base + v + "/download"}, []string{base + v + "/vpc-" + v + ".zip"}}
	}
	mirror, host := "providers/"+a.Path()+"/", "hosts/"+approvals.Host+"/v1/providers/"+a.Namespace()+"/"+a.Type()+"/"
	zip := v + "/" + runtime.GOOS + "_" + runtime.GOARCH + "/" + r.Release(a, r.Version, "").Packages[0].Filename
	if r.Hangs { // each request takes as long as the gateway waits
		return paths{[]string{mirror + "index.json"}, []string{mirror + v + ".json"}, nil}
	}
	return paths{
		[]string{mirror + "index.json", host + "versions"},
		[]string{mirror + v + ".json", host + v + "/download/" + runtime.GOOS + "/" + runtime.GOARCH, host + v},
		[]string{mirror + zip, host + zip},
	}
}

// get requests a URL below the root of a gateway.
func (m *matrix) get(g *world.Gateway, path string) (status int, body string) {
	resp, err := m.CA.HTTPClient().Get(g.Root + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(data)
}

// decisionOf returns the decision that a status says.
func decisionOf(status int) approvals.Decision {
	switch status {
	case http.StatusOK, http.StatusNoContent:
		return approvals.Approved
	case http.StatusUnavailableForLegalReasons:
		return approvals.NotApproved
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return approvals.Unavailable
	}
	return approvals.Decision(fmt.Sprint(status))
}

// checkServed checks the answers of a gateway about all rows. wants returns the decisions that are right for a row.
func (m *matrix) checkServed(when string, g *world.Gateway, wants func(*row) []approvals.Decision) {
	m.t.Helper()
	m.each(func(r *row) {
		wrong := func(path string, status int, body string) {
			m.t.Errorf("%s, %s (%s): %s: %d %.300s, want %v", when, r.Name, r.Namespace, path, status, body, wants(r))
		}
		want, p := wants(r), r.paths()
		listed := func() {
			for _, path := range p.lists {
				status, body := m.get(g, path)
				lists := strings.Contains(body, `"`+r.Version.String()+`"`)
				got := decisionOf(status)
				switch {
				case got == approvals.Unavailable:
					if !slices.Contains(want, approvals.Unavailable) {
						wrong(path, status, body)
					}
				case status != http.StatusOK && !slices.Contains(want, got), slices.Equal(want, []approvals.Decision{approvals.Approved}) && !lists:
					wrong(path, status, body)
				case slices.Equal(want, []approvals.Decision{approvals.NotApproved}) && lists && !m.onlyDenied(g, r, path, body):
					wrong(path, status, body)
				}
			}
		}
		listed() // before anybody has asked for the version, and after that
		for _, path := range slices.Concat(p.documents, p.archives) {
			if status, body := m.get(g, path); !slices.Contains(want, decisionOf(status)) {
				wrong(path, status, body)
			}
		}
		listed()
	})
}

// onlyDenied reports whether a list of the registry protocols has versions only because all of them are denied: clients then request
// them, and get the reason.
func (m *matrix) onlyDenied(g *world.Gateway, r *row, path, body string) bool {
	for _, v := range []string{"1.0.0", "2.0.0", "9.0.0"} {
		if v == r.Version.String() || !strings.Contains(body, `{"version":"`+v+`"`) {
			continue
		}
		other := *r
		other.World = r.At(v)
		if status, _ := m.get(g, other.paths().documents[0]); status != http.StatusUnavailableForLegalReasons {
			return false
		}
	}
	return strings.HasSuffix(path, "versions")
}

// byGateway returns the decisions of a gateway that are right for a row.
func byGateway(d approvals.Decision) []approvals.Decision {
	if d == approvals.Foreign {
		d = approvals.NotApproved
	}
	return []approvals.Decision{d}
}

// foreign returns the decisions that are right for a row, for a caller that answers about content of another version as about invalid
// content.
func foreign(d approvals.Decision) []approvals.Decision {
	if d == approvals.Foreign {
		return []approvals.Decision{approvals.NotApproved, approvals.Unavailable}
	}
	return []approvals.Decision{d}
}

// verifiedRow is the report of "ocibridge verify" about one provider or module.
type verifiedRow struct {
	Provider, Module string
	Error            *struct{ Message string }
	Versions         []struct {
		Version  string
		Error    *struct{ Message string }
		Findings []struct{ Severity string }
		Approval *struct {
			Approved bool
			Missing  []struct{ Requirement, Reason string }
			Error    *struct{ Message string }
		}
	}
}

// verify runs "ocibridge verify" and its form for modules for all rows. It returns the decisions and which versions wait, by row, and the
// status, by kind. Content of another version is not approved, or cannot be read.
func (m *matrix) verify(r *approvals.Registry, flags ...string) (decisions map[*row]approvals.Decision, waiting map[*row]bool, status map[string]int) {
	m.t.Helper()
	config := m.config(r, "")
	decisions, waiting, status = map[*row]approvals.Decision{}, map[*row]bool{}, map[string]int{}
	for _, command := range [][]string{{"verify"}, {"module", "verify"}} {
		kind := command[0]
		args := append(slices.Clone(command), append([]string{"--config", config, "--output", "json", "--jobs", "16"}, flags...)...)
		for _, r := range m.rows {
			if r.Module == (kind == "module") && !r.Hangs {
				args = append(args, r.Address.String()+"@"+r.Version.String())
			}
		}
		got := m.run(args...)
		status[kind] = got.status
		var report struct{ Providers, Modules []verifiedRow }
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			m.t.Fatalf("%v: %v\n%s%s", command, err, got.stdout, got.stderr)
		}
		for _, of := range append(report.Providers, report.Modules...) {
			i := slices.IndexFunc(m.rows, func(r *row) bool { return r.Address.String() == of.Provider+of.Module })
			if of.Error != nil && len(of.Versions) == 0 && !strings.Contains(of.Error.Message, "is stored in") {
				decisions[m.rows[i]] = approvals.Unavailable
			}
			for _, v := range of.Versions {
				r := m.rows[i]
				switch a := v.Approval; {
				case v.Version != r.Version.String():
				case v.Error != nil, a == nil:
					decisions[r] = approvals.Unavailable
				case a.Error != nil:
					decisions[r] = approvals.Unavailable
				case !a.Approved:
					decisions[r] = approvals.NotApproved
					waiting[r] = true
				default:
					decisions[r] = approvals.Approved
					waiting[r] = len(a.Missing) > 0
				}
			}
		}
	}
	return decisions, waiting, status
}

// checkVerified checks the decisions of "ocibridge verify" about all rows. want returns the right decision about a row.
func (m *matrix) checkVerified(when string, r *approvals.Registry, want func(*row) approvals.Decision) {
	m.t.Helper()
	copied := r != m.registry
	all, _, _ := m.verify(r)
	kept, waits, status := m.verify(r, "--waiting")
	pending := map[string]bool{}
	for _, r := range m.rows {
		if r.Hangs {
			continue
		}
		d := want(r)
		if copied && d != approvals.Approved && all[r] == "" {
			continue // copy refuses what it cannot verify
		}
		if !slices.Contains(foreign(d), all[r]) {
			m.t.Errorf("%s, %s (%s): verify: %q, want %s", when, r.Name, r.Namespace, all[r], d)
		}
		missing := d == approvals.NotApproved || d == approvals.Approved && r.Reported > 0
		if waits[r] != missing {
			m.t.Errorf("%s, %s (%s): verify --waiting: waits %v, %q", when, r.Name, r.Namespace, waits[r], kept[r])
		}
		if _, shown := kept[r]; shown != (missing || d == approvals.Unavailable || d == approvals.Foreign) {
			m.t.Errorf("%s, %s (%s): verify --waiting: %q, want %s", when, r.Name, r.Namespace, kept[r], d)
		}
		kind := "verify"
		if r.Module {
			kind = "module"
		}
		pending[kind] = pending[kind] || d == approvals.Unavailable || d == approvals.Foreign
	}
	for kind, failed := range pending {
		if copied {
			break // absent versions fail, too
		}
		if want := map[bool]int{true: 1, false: 3}[failed]; status[kind] != want {
			m.t.Errorf("%s: %s --waiting: status %d, want %d", when, kind, status[kind], want)
		}
	}
}

// configuration returns a client's configuration that requires the versions of rows.
func configuration(rows []*row) string {
	providers, modules := "", ""
	for _, r := range rows {
		if r.Module {
			modules += fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n}\n", r.Namespace, r.Address.String(), r.Version.String())
		} else {
			providers += fmt.Sprintf("    %s = {\n      source  = %q\n      version = %q\n    }\n", r.Namespace, r.Address.String(), r.Version.String())
		}
	}
	return "terraform {\n  required_providers {\n" + providers + "  }\n}\n" + modules
}

// installed reports whether a client has installed the version of a row.
func installed(ws *clients.Workspace, r *row) bool {
	if r.Module {
		_, err := os.Stat(filepath.Join(ws.Dir, ".terraform", "modules", r.Namespace, "main.tf"))
		return err == nil
	}
	_, err := os.Stat(filepath.Join(ws.Dir, ".terraform", "providers", filepath.FromSlash(r.Address.Path()), r.Version.String()))
	return err == nil
}

// checkInstalls shows that a client installs by init the approved versions and no other. init runs the client with a CLI configuration, or
// by exec.
func (m *matrix) checkInstalls(how string, client clients.Client, want func(*row) approvals.Decision, init func(*clients.Workspace) (string, error)) {
	m.t.Helper()
	for _, modules := range []bool{false, true} {
		var good []*row
		bad := map[approvals.Decision][]*row{}
		for _, r := range m.rows {
			switch d := want(r); {
			case r.Module != modules || r.Hangs:
			case d == approvals.Approved:
				good = append(good, r)
			default:
				bad[d] = append(bad[d], r)
			}
		}
		try := func(rows []*row) (*clients.Workspace, string, error) {
			ws := m.workspace("")
			ws.Env["TF_REGISTRY_DISCOVERY_RETRY"] = "0"
			clients.Must(m.t, ws.WriteConfig(configuration(rows)))
			out, err := init(ws)
			return ws, out, err
		}
		if ws, out, err := try(good); err != nil {
			m.t.Errorf("%s, %s: the approved versions: %v\n%s", how, client.Name, err, out)
		} else {
			for _, r := range good {
				if !installed(ws, r) {
					m.t.Errorf("%s, %s: %s (%s) is not installed\n%s", how, client.Name, r.Name, r.Namespace, out)
				}
			}
		}
		refused := func(rows []*row) {
			// A client that fails to find some providers installs no other one, and names only those.
			for left := rows; len(left) > 0; {
				ws, out, err := try(left)
				_, errors, _ := strings.Cut(out, "Error: ")
				next := slices.DeleteFunc(slices.Clone(left), func(r *row) bool {
					return strings.Contains(errors, r.Address.String()) || strings.Contains(errors, `"`+r.Namespace+`"`)
				})
				for _, r := range rows {
					if installed(ws, r) {
						m.t.Errorf("%s, %s: %s (%s) is installed", how, client.Name, r.Name, r.Namespace)
					}
				}
				if err == nil || len(next) == len(left) {
					m.t.Errorf("%s, %s: %d versions are not refused:\n%s", how, client.Name, len(left), out)
					break
				}
				left = next
			}
		}
		// Clients request unavailable versions one after another, and again and again.
		m.each(func(r *row) {
			if slices.Contains(bad[approvals.Unavailable], r) {
				refused([]*row{r})
			}
		})
		delete(bad, approvals.Unavailable)
		for _, rows := range bad {
			refused(rows)
		}
	}
}

// checkAll checks all ways to the versions.
func (m *matrix) checkAll(hasAPI bool) {
	t := m.t
	step := func(what string, f func()) {
		start := time.Now()
		f()
		t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
	}
	live := "gateway {\n  tag_ttl = \"0s\"\n}\n"

	step("serve", func() {
		m.lie(true)
		m.checkServed("cold", m.serve("--config", m.config(m.registry, live)), func(r *row) []approvals.Decision { return byGateway(r.Want) })
	})
	step("serve, the last answer", func() {
		kept := m.config(m.registry, fmt.Sprintf("gateway {\n  tag_ttl = \"0s\"\n  cache {\n    directory = %q\n  }\n}\n", t.TempDir()))
		m.lie(false)
		g := m.serve("--config", kept)
		m.checkServed("before the registry fails", g, func(r *row) []approvals.Decision { return byGateway(r.Honest) })
		m.lie(true)
		last := func(r *row) []approvals.Decision {
			if r.Want == approvals.Unavailable {
				return []approvals.Decision{r.Honest, approvals.Unavailable}
			}
			return byGateway(r.Want)
		}
		m.checkServed("while the registry fails", g, last)
		clients.Must(t, g.Stop())
		m.checkServed("after a restart", m.serve("--config", kept), last)
	})
	step("verify", func() { m.checkVerified("verify", m.registry, (*row).want) })
	if hasAPI { // exec has the gateway that was checked above, and each init takes time
		step("exec", func() {
			t.Run("exec", func(t *testing.T) {
				both(t, func(t *testing.T, client clients.Client) {
					t.Parallel()
					m.checkInstalls("exec", client, (*row).want, m.installsByExec(client))
				})
			})
		})
	}
	m.lie(false)
	step("copies", func() { m.checkCopies(hasAPI) })
	step("pushes", func() {
		m.checkPushes()
		m.lie(false)
		m.checkServed("after pushes", m.serve("--config", m.config(m.registry, live)), func(r *row) []approvals.Decision { return byGateway(r.Honest) })
	})
}

// checkPushes shows that no push and no merging copy changes a version that has approvals, or of which the approvals are unknown, and that
// each changes the others. A key of the pushes approves no version for others.
func (m *matrix) checkPushes() {
	t := m.t
	var rows []*row // whose stored packages are those of the publisher
	for _, r := range m.rows {
		if a, ok := r.AsProvider(); ok && r.Version == approvals.Version && r.Honest != approvals.Foreign && r.tagged() == r.Stored.Digest {
			m.Origin.Add(r.Release(a, r.Version, ""))
			rows = append(rows, r)
		}
	}
	named := func(rows []*row, args ...string) []string {
		for _, r := range rows {
			args = append(args, r.Address.String()+"@"+r.Version.String())
		}
		return append(args, "--jobs", "16")
	}
	keeps := func(r *row) bool { return r.Partly || r.Want == approvals.Unavailable }
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	clients.Must(t, err)
	key := filepath.Join(t.TempDir(), "key.pem")
	clients.Must(t, os.WriteFile(key, approvals.PrivatePEM(t, private), 0o600))
	plain, signs := m.config(m.registry, ""), m.config(m.registry, fmt.Sprintf("sign {\n  key = %q\n}\n", key))
	source := approvals.NewRegistry(t, loopback.For(t).Truth)
	from, _ := source.Templates()
	to, _ := m.registry.Templates()
	m.mustRun(named(rows, "push", "--template", from, "--platform", approvals.Others[0])...)
	m.lie(true)
	for _, step := range []struct {
		what string
		args []string
	}{
		{"a merging copy", []string{"copy", "--config", plain, "--from", from, "--to", to}},
		{"a push", []string{"push", "--config", plain, "--platform", approvals.Others[1]}},
		{"a push that signs", []string{"push", "--config", signs, "--platform", approvals.Others[2]}},
	} {
		before := map[*row]digest.Digest{}
		for _, r := range rows {
			before[r] = r.tagged()
		}
		// A push ends at the first error, so each row that must fail has a push of its own.
		var all []*row
		var mu sync.Mutex
		out := map[*row]result{}
		m.each(func(r *row) {
			if !slices.Contains(rows, r) || r.Hangs {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if !keeps(r) {
				all = append(all, r)
				return
			}
			mu.Unlock()
			got := m.run(named([]*row{r}, step.args...)...)
			mu.Lock()
			out[r] = got
		})
		together := m.run(named(all, step.args...)...)
		for _, r := range rows {
			got, alone := out[r]
			if !alone {
				got = together
			}
			if same := r.tagged() == before[r]; !r.Hangs && (same != keeps(r) || same != (got.status != 0)) {
				t.Errorf("%s, %s (%s): unchanged %v, want %v, status %d\n%s", step.what, r.Name, r.Namespace, same, keeps(r), got.status, got.stderr)
			}
		}
	}
	folder := t.TempDir()
	clients.Must(t, os.WriteFile(filepath.Join(folder, "main.tf"), []byte(`output "name" { value = "another" }`), 0o600))
	for _, r := range m.rows {
		if !r.Module {
			continue
		}
		before := r.tagged()
		got := m.run("module", "push", folder, "--as", r.Address.String()+"@"+r.Version.String(), "--force", "--config", plain)
		if same := r.tagged() == before; same != r.Partly || same != (got.status != 0) {
			t.Errorf("module push, %s (%s): unchanged %v, want %v\n%s", r.Name, r.Namespace, same, r.Partly, got.stderr)
		}
	}
}

// tagged returns the digest of the manifest that the tag of the row's version names.
func (r *row) tagged() digest.Digest {
	r.TB.Helper()
	return r.Tagged(r.TB.(*testing.T).Context()).Digest
}

// checkCopies shows that the decisions about copies are those about the originals. Copies by other tools can lack signatures, and approve
// nothing else.
func (m *matrix) checkCopies(hasAPI bool) {
	t := m.t
	distribution, err := registry.For(t, registry.Options{}).Handler()
	clients.Must(t, err)
	honest := func(r *row) approvals.Decision { return r.Honest }
	for name, to := range map[string]*approvals.Registry{"with the API": approvals.NewRegistry(t, loopback.For(t).Truth), "without the API": approvals.NewRegistry(t, distribution)} {
		for _, modules := range []bool{false, true} {
			from, _ := m.registry.Templates()
			at, _ := to.Templates()
			if modules {
				_, from = m.registry.Templates()
				_, at = to.Templates()
			}
			args := []string{"copy", "--from", from, "--to", at, "--jobs", "16"}
			for _, r := range m.rows {
				if r.Module == modules && r.Honest != approvals.Foreign {
					args = append(args, r.Address.String()+"@"+r.Version.String())
				}
			}
			m.run(args...) // fails for the versions that it refuses
		}
		m.checkVerified("ocibridge copy to a registry "+name, to, honest)
	}
	run := func(program string, args ...string) {
		_, _ = m.ws.Run(clients.Program(t, program), args...) // these tools fail for some lists of referrers, and then copy no tag
	}
	for tool, copy := range map[string]func(from, to, tag string){
		"oras": func(from, to, tag string) {
			run("oras", "cp", "-r", "--from-plain-http", "--to-plain-http", from+":"+tag, to+":"+tag)
		},
		"crane": func(from, to, _ string) { run("crane", "copy", "--all-tags", from, to) },
	} {
		to := approvals.NewRegistry(t, loopback.For(t).Truth)
		m.each(func(r *row) {
			name, _, _ := strings.Cut(r.Image(""), "@")
			copy(name, strings.Replace(name, m.registry.Host, to.Host, 1), r.Version.String())
		})
		got, _, _ := m.verify(to)
		approved := 0
		for _, r := range m.rows {
			lacks := got[r] == "" || got[r] == approvals.NotApproved && (tool == "oras" || hasAPI)
			if approved += map[bool]int{true: 1}[got[r] == approvals.Approved]; !r.Hangs && !slices.Contains(foreign(r.Honest), got[r]) && !lacks {
				t.Errorf("%s, %s (%s): %q, want %s", tool, r.Name, r.Namespace, got[r], r.Honest)
			}
		}
		if approved == 0 {
			t.Errorf("%s copies no approved version", tool)
		}
	}
}

// installsBy returns an init by a client that has a gateway's network mirror, and its registry of modules.
func (m *matrix) installsBy(g *world.Gateway, client clients.Client) func(*clients.Workspace) (string, error) {
	return func(ws *clients.Workspace) (string, error) {
		err := ws.WriteCLIConfig(fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = %q\n  }\n}\n", approvals.Host, g.Root+"hosts/"+approvals.Host+"/v1/modules/") + world.NetworkMirror(g.URL))
		clients.Must(m.t, err)
		return ws.Run(client, "init", "-no-color", "-backend=false")
	}
}

// installsByExec returns an init by "ocibridge exec".
func (m *matrix) installsByExec(client clients.Client) func(*clients.Workspace) (string, error) {
	config := m.config(m.registry, "")
	return func(ws *clients.Workspace) (string, error) {
		return ws.Run(m.bridge, "exec", "--config", config, "--", client.Path, "init", "-no-color", "-backend=false")
	}
}

// TestApprovals shows for each decision that both clients install approved versions and no other, by exec and through a gateway.
//
//testrun:scene
func TestApprovals(t *testing.T) {
	t.Parallel()
	var some []approvals.Case
	for _, c := range approvals.Cases() {
		if slices.Contains([]string{
			"message signature", "provenance of an identity", "a requirement that is not enforced", "no signature", "another key", "an index without names",
			"an approved digest under another tag", "a tag that has moved, with the old signature", "the API is refused with 404", "the blob of a signature is another",
			"a module", "a module without a signature",
		}, c.Name) {
			some = append(some, c)
		}
	}
	m := newMatrix(t, loopback.For(t).Truth, some)
	m.lie(true)
	g := m.serve("--config", m.config(m.registry, "gateway {\n  tag_ttl = \"0s\"\n}\n"))
	m.checkServed("gateway", g, func(r *row) []approvals.Decision { return byGateway(r.Want) })
	both(t, func(t *testing.T, client clients.Client) {
		m.checkInstalls("exec", client, (*row).want, m.installsByExec(client))
		m.checkInstalls("gateway", client, (*row).want, m.installsBy(g, client))
	})
}

// TestApprovalsEverywhere shows for each row of the matrix of approvals that all ways to the version decide in the same way: the documents and
// archives of a gateway, with and without earlier answers, verify, exec with both clients, and copies.
func TestApprovalsEverywhere(t *testing.T) {
	testkit.LeaveToAll(t)
	t.Parallel()
	for name, handler := range map[string]func() http.Handler{
		"with the API": func() http.Handler { return loopback.For(t).Truth },
		"without the API": func() http.Handler {
			h, err := registry.For(t, registry.Options{}).Handler()
			clients.Must(t, err)
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newMatrix(t, handler(), approvals.Cases()).checkAll(name == "with the API")
		})
	}
}
