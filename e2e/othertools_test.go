package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestVersionsThatOtherToolsCopy shows what clients and commands do with a version that another tool has copied. Some tools
// leave no provider index: no client installs it, so list and verify fail, the gateway answers 502, and copy stores
// nothing.
func TestVersionsThatOtherToolsCopy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.tlsRegistry()
	s.pushTo(a, world.Null+"@"+nullVersion)
	from := a.Host + "/providers/" + world.Null + ":" + nullVersion
	oras := clients.ORAS(t)
	cp := func(t *testing.T, to string, args ...string) {
		s.workspace("").MustRun(t, oras, append([]string{"cp", "--from-plain-http=false", "--to-plain-http=false", from, to}, args...)...)
	}
	for name, tc := range map[string]struct {
		copy func(t *testing.T, to string)
		says string // the finding of verify; "" if the copy is whole
	}{
		"whole, as by oras, crane and regctl": {copy: func(t *testing.T, to string) { cp(t, to) }},
		// So does skopeo without --all.
		"oras cp --platform": {func(t *testing.T, to string) { cp(t, to, "--platform", runtime.GOOS+"/"+runtime.GOARCH) }, "media type"},
		// skopeo 1.9.3 --all writes the index without its artifactType.
		"without artifactType": {func(t *testing.T, to string) {
			cp(t, to)
			ws := s.workspace("")
			var index map[string]any
			clients.Must(t, json.Unmarshal([]byte(ws.MustRun(t, oras, "manifest", "fetch", "--plain-http=false", to)), &index))
			delete(index, "artifactType")
			s.orasIndex(ws, to, index)
		}, "artifact type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := s.tlsRegistry()
			tc.copy(t, b.Host+"/providers/"+world.Null+":"+nullVersion)
			whole, status := tc.says == "", 0
			if !whole {
				status = 1
				wantFinding(t, s.verify(1, "--template", template(b), world.Null).Versions[0].Findings, "error", nullVersion, tc.says)
			} else if v := s.verify(0, "--template", template(b), world.Null); len(v.Versions[0].Findings) != 0 {
				t.Errorf("%+v", v)
			}
			for _, args := range [][]string{
				{"list", "--template", template(b), world.Null},
				{"copy", "--from", template(b), "--to", "embedded", "--data", t.TempDir(), world.Null},
			} {
				if got := s.run(args...); got.status != status || !whole && !strings.Contains(got.stderr+got.stdout, tc.says) {
					t.Errorf("%v: status %d: %s%s", args, got.status, got.stdout, got.stderr)
				}
			}
			gateway := s.serve("--template", template(b), "--no-cache")
			users := map[string]clients.Client{world.NetworkMirror(gateway.URL): clients.Terraform(t), world.OCIMirror(template(b)): clients.Tofu(t)}
			for config, client := range users {
				if out, err := s.user(config, nullVersion).Run(client, "init", "-no-color"); (err == nil) != whole {
					t.Errorf("%s: %v\n%s", client.Name, err, out)
				}
			}
			if !whole && !strings.Contains(gateway.Log(), tc.says) {
				t.Errorf("the gateway's log does not say %q", tc.says)
			}
		})
	}
}

// TestPlatformAsOtherToolsReadIt shows that the content of a platform's manifest is the release's zip, byte for byte, which
// crane export and oras pull write.
func TestPlatformAsOtherToolsReadIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	host, ws := hostPackage(t, s.null), s.workspace("")
	ws.MustRun(t, clients.ORAS(t), "pull", "--plain-http=false", "--platform", host.OS+"/"+host.Arch, r.Host+"/providers/"+world.Null+":"+nullVersion)
	data, err := os.ReadFile(filepath.Join(ws.Dir, host.Filename))
	if err != nil || !bytes.Equal(data, host.Data) || release.Sum(data) != host.SHA256 {
		t.Errorf("%d bytes, want %d, %v", len(data), len(host.Data), err)
	}
}

// TestBundlesOfCosign shows that a sigstore bundle, which cosign 3 attaches to the index as a referrer, disturbs no client,
// is listed as no version, and is copied. The copied bundle still belongs to the index.
func TestBundlesOfCosign(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.tlsRegistry(), s.tlsRegistry()
	index := s.digests("push", "--template", template(a), world.Null+"@"+nullVersion)[world.Null+" "+nullVersion]
	const bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"
	attachedTo := s.attach(a.Host+"/providers/"+world.Null+"@"+index, bundle, `{"mediaType":"`+bundle+`"}`)
	gateway := s.serve("--template", template(a))
	s.user(world.NetworkMirror(gateway.URL), nullVersion).MustRun(t, clients.Terraform(t), "init", "-no-color")
	s.user(world.OCIMirror(template(a)), nullVersion).MustRun(t, clients.Tofu(t), "init", "-no-color")
	if out := s.mustRun("list", "--template", template(a), world.Null); strings.Contains(out, "sha256-") || !strings.Contains(out, nullVersion) {
		t.Errorf("list: %s", out)
	}
	if v := s.verify(0, "--template", template(a), world.Null); len(v.Findings)+len(v.Versions[0].Findings) != 0 {
		t.Errorf("verify: %+v", v)
	}
	if out := s.mustRun("copy", "--from", template(a), "--to", template(b), world.Null); !strings.Contains(out, "pushed, 3 platforms, 1 referrer") {
		t.Errorf("copy: %s", out)
	}
	s.wantAttached("copy", attached{index: {attachedTo + " " + bundle}}, func(digest string) []string {
		return []string{"--plain-http=false", b.Host + "/providers/" + world.Null + "@" + digest}
	})
}

// TestLoginOfHelm shows that a login that "helm registry login" has written is found.
func TestLoginOfHelm(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, s.secure(registry.Options{Users: map[string]string{"robot": "password"}}))
	ca, err := s.CA.WriteFile(t.TempDir())
	clients.Must(t, err)
	push := []string{"push", world.Null + "@" + nullVersion, "--template", template(r)}
	if got := s.run(push...); got.status != 1 || !strings.Contains(got.stderr, "no login for "+r.Host+" was found") && !strings.Contains(got.stderr, "run: ocibridge login") {
		t.Errorf("without a login: %+v", got)
	}
	s.ws.MustRun(t, clients.Program(t, "helm"), "registry", "login", r.Host, "--ca-file", ca, "--username", "robot", "--password", "password")
	if got := s.run(push...); got.status != 0 {
		t.Errorf("with helm's login: %+v", got)
	}
	if got := s.doctor("--template", template(r), world.Null)["credential"]; got.Status != "ok" || !strings.Contains(got.Detail, filepath.Join("helm", "registry", "config.json")) {
		t.Errorf("doctor: %+v", got)
	}
}
