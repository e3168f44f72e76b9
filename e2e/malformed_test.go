package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestMalformedChecksumsStored shows that every command reports a stored version whose SHA256SUMS has a comment, as an older
// build could store it. The registry protocol does not serve the version, and the network mirror does, because it needs no
// such document.
func TestMalformedChecksumsStored(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	from := []string{"--template", template(r)}
	s.pushTo(r, world.Null+"@"+nullVersion)
	gateway := s.serve(append(from, "--no-cache")...)
	locked := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	locked.MustRun(t, clients.Tofu(t), "init", "-no-color")
	stored.ReplaceEvidence(t, repository(t, r, world.Null), world.Null, nullVersion, stored.Commented(t, s.Signer))
	const says = "malformed SHA256SUMS: line "

	wantFinding(t, s.verify(1, append(from, world.Null)...).Versions[0].Findings, "error", "evidence", says)
	if got := s.doctor(append(from, world.Null)...)["pull"]; got.Status != "failed" || !strings.Contains(got.Detail, says) {
		t.Errorf("doctor: %+v", got)
	}
	for _, args := range [][]string{
		{"copy", "--from", template(r), "--to", "embedded", "--data", t.TempDir(), world.Null},
		{"copy", "--from", template(r), "--to", "oci:" + filepath.Join(t.TempDir(), "bundle"), world.Null},
		{"copy", "--from", template(r), "--to", "mirror:" + filepath.Join(t.TempDir(), "mirror"), world.Null},
		append([]string{"lock", locked.Dir}, from...),
	} {
		if got := s.run(args...); got.status != 1 || !strings.Contains(got.stderr, says) || !strings.Contains(got.stderr, "hint: ") {
			t.Errorf("%v: status %d: %s%s", args, got.status, got.stdout, got.stderr)
		}
	}

	gateway = s.serve(from...)
	s.originOff()
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		s.user(world.NetworkMirror(gateway.URL), nullVersion).MustRun(t, client, "init", "-no-color")
		ws := s.user("", nullVersion)
		clients.Must(t, ws.WriteCLIConfig(hostBlock(world.Host, strings.TrimSuffix(gateway.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/")))
		if out := ws.MustFail(t, client, "init", "-no-color"); !strings.Contains(out, "502") && !strings.Contains(out, "giving up") {
			t.Errorf("%s fails for another reason:\n%s", client.Name, out)
		}
	}
	if !strings.Contains(gateway.Log(), says) {
		t.Errorf("the log does not say why")
	}

	// The origin offers a correct document.
	s.Origin.Intercept(nil)
	s.pushTo(r, "--refresh-evidence", world.Null+"@"+nullVersion)
	s.verify(0, append(from, world.Null)...)
}
