package e2e

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/contents"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// ownNull is a provider that no origin has.
const ownNull = "registry.acme.example/platform/null"

const denialReason = "CVE-2026-1: it leaks tokens"

// releaseFolder returns the flags with which push takes the null provider as a release of ownNull.
func (s *scene) releaseFolder() []string {
	s.t.Helper()
	dir, key := s.t.TempDir(), filepath.Join(s.t.TempDir(), "key.asc")
	clients.Must(s.t, s.null.WriteDir(dir))
	clients.Must(s.t, os.WriteFile(key, []byte(s.Signer.ArmoredPublicKey()), 0o600))
	return []string{"--release-dir", dir, "--as", ownNull + "@" + nullVersion, "--public-key", key}
}

// ownUser returns a workspace that requires ownNull.
func (s *scene) ownUser(cliConfig string) *clients.Workspace {
	s.t.Helper()
	ws := s.workspace(cliConfig)
	clients.Must(s.t, ws.WriteConfig(strings.ReplaceAll(world.UseNull(nullVersion), world.Null, ownNull)))
	return ws
}

// wantReason checks that the gateway refuses a version with the reason of its deny rule.
func (s *scene) wantReason(gateway *world.Gateway) {
	s.t.Helper()
	resp, err := s.CA.HTTPClient().Get(gateway.URL + ownNull + "/" + nullVersion + ".json")
	clients.Must(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	clients.Must(s.t, err)
	if got := fmt.Sprintf("%d %s", resp.StatusCode, body); got != "451 this version is denied here: "+denialReason+"\n" {
		s.t.Errorf("the gateway answers %q", got)
	}
}

func denying(provider string) string {
	return fmt.Sprintf("gateway {\n  deny = [{ match = %q, reason = %q }]\n}\n", provider+"@"+nullVersion, denialReason)
}

// blobs returns the total size of the blobs in a registry's data folder.
func blobs(t *testing.T, dir string) (size int64) {
	t.Helper()
	clients.Must(t, filepath.WalkDir(filepath.Join(dir, "docker", "registry", "v2", "blobs"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	}))
	return size
}

// TestWithdraw shows that a release is pushed, denied with a reason, removed and its bytes freed. Nothing of it is left
// in the registry.
func TestWithdraw(t *testing.T) { forEachProgram(t, testWithdraw) }

func testWithdraw(t *testing.T, program registry.Program) {
	s := newScene(t)
	r := s.tlsRegistryOf(program)
	s.pushTo(r, s.releaseFolder()...)
	s.attach(r.Host+"/providers/"+ownNull+":"+nullVersion, "application/vnd.example.signature", "signed")
	gateway := s.serve("--template", template(r))
	s.ownUser(world.NetworkMirror(gateway.URL)).MustRun(t, clients.Terraform(t), "init", "-no-color")
	clients.Must(t, gateway.Stop())

	gateway = s.serve("--template", template(r), "--config", s.configured(denying(ownNull)))
	s.wantReason(gateway)
	before := blobs(t, r.Dir)

	plan := s.mustRun("remove", "--dry-run", "--template", template(r), ownNull+"@"+nullVersion)
	if !strings.Contains(plan, "(application/vnd.example.signature) stays; --referrers removes it\n") {
		t.Errorf("dry run: %s", plan)
	}
	s.mustRun("verify", "--packages", "--template", template(r), ownNull)
	out := s.mustRun("remove", "--referrers", "--template", template(r), ownNull+"@"+nullVersion)
	if !strings.Contains(out, ownNull+" "+nullVersion+": removed, ") || !strings.Contains(out, "The registry's garbage collection can free up to ") {
		t.Errorf("remove: %s", out)
	}
	stored, err := r.Contents("providers/" + ownNull)
	clients.Must(t, err)
	if len(stored.Tags) > 0 || len(stored.Manifests) > 0 {
		t.Errorf("tags %v, manifests %v are left", stored.Tags, stored.Manifests)
	}
	clients.Must(t, r.CollectGarbage(t.Context()))
	if after := blobs(t, r.Dir); before == 0 || after != 0 {
		t.Errorf("%d of %d bytes are left", after, before)
	}

	s.wantReason(gateway)
	s.ownUser(world.NetworkMirror(gateway.URL)).MustFail(t, clients.Terraform(t), "init", "-no-color")
}

// TestWithdrawFromTheEmbeddedRegistry shows that a denied version is removed from the embedded registry, and that
// nothing but its blobs is left.
func TestWithdrawFromTheEmbeddedRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(s.releaseFolder()...)
	gateway := s.serve("--data", s.data, "--config", s.configured(denying(ownNull)))
	s.wantReason(gateway)
	s.ownUser(world.OCIMirror(gateway.RepositoryTemplate)).MustFail(t, clients.Tofu(t), "init", "-no-color")
	out := s.mustRun("inspect", "--data", s.data, "--config", s.configured(denying(ownNull)), ownNull+"@"+nullVersion)
	if !strings.Contains(out, denialReason) {
		t.Errorf("inspect: %s", out)
	}
	out = s.mustRun("remove", "--data", s.data, ownNull+"@"+nullVersion)
	if !strings.Contains(out, ": removed, ") || !strings.Contains(out, "ocibridge gc can free ") {
		t.Errorf("remove: %s", out)
	}
	stored, err := contents.Read(filepath.Join(s.data, "registry"), ownNull)
	clients.Must(t, err)
	if len(stored.Tags) > 0 || len(stored.Manifests) > 0 {
		t.Errorf("tags %v, manifests %v are left", stored.Tags, stored.Manifests)
	}
	s.wantReason(gateway)
}

// TestRemovedPlatform shows that clients install the remaining platforms of a version, and find no package for the
// removed platform. A later push completes the version.
func TestRemovedPlatform(t *testing.T) { forEachProgram(t, testRemovedPlatform) }

func testRemovedPlatform(t *testing.T, program registry.Program) {
	s := newScene(t)
	r := registry.For(t, registry.Options{Program: program})
	s.pushTo(r, world.Null+"@"+nullVersion)
	out := s.mustRun("remove", "--platform", "windows_amd64", "--template", template(r), world.Null+"@"+nullVersion)
	if !strings.Contains(out, "; keeps darwin_arm64, linux_amd64\n") || !strings.Contains(out, ": removed windows_amd64, ") {
		t.Errorf("remove: %s", out)
	}
	s.mustRun("verify", "--packages", "--template", template(r), world.Null)
	gateway := s.serve("--template", template(r))
	ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	ws.MustRun(t, clients.Terraform(t), "init", "-no-color")
	ws.MustFail(t, clients.Terraform(t), "providers", "lock", "-net-mirror="+gateway.URL, "-platform=windows_amd64", world.Null)

	out = s.mustRun("remove", "--platform", "linux_amd64", "--template", template(r), world.Null+"@"+nullVersion)
	if !strings.Contains(out, "; keeps darwin_arm64\n") {
		t.Errorf("remove: %s", out)
	}
	if out := s.pushTo(r, world.Null+"@"+nullVersion); !strings.Contains(out, "completed") {
		t.Errorf("push: %s", out)
	}
	s.mustRun("verify", "--packages", "--template", template(r), world.Null)
}

// TestUsersSeeTheReason shows that both clients print the reason of a denial, through a host block and through exec:
// beside another version, if every version is denied, and after the denied version was removed.
func TestUsersSeeTheReason(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const other = "1.0.1"
	s.offer(other)
	s.push(world.Null+"@"+nullVersion, world.Null+"@"+other)
	flags := []string{"--data", s.data, "--config", s.configured(denying(world.Null) + "pull_through {\n  enabled = false\n}\n")}
	gateway := s.serve(flags...)
	block := hostBlock(world.Host, strings.TrimSuffix(gateway.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/")
	// flat returns an output without the line breaks and the frames that clients put around warnings.
	flat := func(out string) string {
		return strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' || r == '\n' || r == '│' }), " ")
	}
	warning, refusal := "- "+nullVersion+" is denied here: "+denialReason, "451 Unavailable For Legal Reasons"
	each := func(when, version string, status int, wants ...string) {
		t.Helper()
		for _, client := range []clients.Client{clients.Terraform(t), clients.Tofu(t)} {
			ws, run := s.user(block, version), (*clients.Workspace).MustRun
			if status != 0 {
				run = (*clients.Workspace).MustFail
			}
			outputs := map[string]string{"host block": run(ws, t, client, "init", "-no-color")}
			got := s.execIn(s.user("", version), append(flags, "--", client.Path, "init", "-no-color")...)
			if outputs["exec"] = got.stdout + got.stderr; got.status != status {
				t.Errorf("%s, exec of %s: status %d", when, client.Name, got.status)
			}
			for how, out := range outputs {
				for _, want := range wants {
					if !strings.Contains(flat(out), want) {
						t.Errorf("%s, %s of %s: no %q in\n%s", when, how, client.Name, want, out)
					}
				}
			}
			if said := world.Null + " " + nullVersion + ": denied by configuration: " + denialReason; status != 0 && !strings.Contains(got.stderr, said) {
				t.Errorf("%s, exec of %s: no %q in\n%s", when, client.Name, said, got.stderr)
			}
		}
	}
	each("another version", ">= 1.0.0", 0, warning, "Installing "+world.Null+" v"+other)
	each("the denied version", nullVersion, 1, warning)
	s.mustRun("remove", "--data", s.data, world.Null+"@"+other)
	each("every version is denied", ">= 1.0.0", 1, warning, refusal)
	s.mustRun("remove", "--data", s.data, world.Null+"@"+nullVersion)
	s.mustRun("gc", "--data", s.data)
	each("every version was removed", ">= 1.0.0", 1, warning, refusal)
}
