package e2e

import (
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// TestApprovalsAndCosign shows that the real cosign accepts the signatures of ocibridge approve, and that ocibridge accepts both kinds of
// cosign's signatures: in a registry without a referrers API, and in the copies that ocibridge, oras and crane make. A revocation by
// one key keeps the signatures by another key under the same tag.
func TestApprovalsAndCosign(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	cosign, other := approvals.NewCosign(t), approvals.NewCosign(t)
	from, to := registry.For(t, registry.Options{}), registry.For(t, registry.Options{})
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		clients.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		clients.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	public, private, err := ed25519.GenerateKey(nil)
	clients.Must(t, err)
	own, ownPublic := write("own.pem", string(approvals.PrivatePEM(t, private))), write("own.pub", string(approvals.PublicPEM(t, public)))
	write("vpc/main.tf", `output "name" { value = "vpc" }`)
	config := write("ocibridge.hcl", `trust "registry.acme.example/*/*/*" {
  require "ours" {
    public_key = file("`+ownPublic+`")
  }
  require "cosign" {
    public_key = file("`+cosign.PublicKey()+`")
  }
}
`)
	const vpc = "registry.acme.example/platform/vpc/aws"
	place := func(r *registry.Registry, prefix string) string {
		return r.Host + "/" + prefix + "/${namespace}/${name}/${system}"
	}
	image := func(r *registry.Registry, prefix string) string { return r.Host + "/" + prefix + "/platform/vpc/aws" }
	waiting := func(template string) int {
		t.Helper()
		return s.run("module", "verify", "--waiting", "--config", config, "--template", template, vpc).status
	}
	s.mustRun("module", "push", filepath.Join(dir, "vpc"), "--as", vpc+"@1.0.0", "--template", place(from, "m"))
	var inspected struct{ Digest string }
	clients.Must(t, json.Unmarshal([]byte(s.mustRun("module", "inspect", vpc+"@1.0.0", "--template", place(from, "m"), "--output", "json")), &inspected))
	index := image(from, "m") + "@" + inspected.Digest

	// 1. Both sign.
	s.mustRun("approve", "--key", own, "--template", place(from, "m"), vpc+"@1.0.0")
	if err := cosign.Verify(image(from, "m")+":1.0.0", ownPublic); err != nil {
		t.Errorf("cosign does not accept the approval: %v", err)
	}
	if waiting(place(from, "m")) != 3 {
		t.Error("it does not wait for cosign's signature")
	}
	cosign.SignSimple(index)
	if got := waiting(place(from, "m")); got != 0 {
		t.Errorf("with a simple signature: status %d", got)
	}
	// 2. A revocation keeps the other signature under the same tag.
	other.SignSimple(index)
	s.mustRun("approve", "--revoke", "--key", other.PublicKey(), "--template", place(from, "m"), vpc+"@1.0.0")
	if got := waiting(place(from, "m")); got != 0 {
		t.Errorf("after the revocation of another signature: status %d", got)
	}
	s.mustRun("approve", "--revoke", "--key", cosign.PublicKey(), "--template", place(from, "m"), vpc+"@1.0.0")
	if waiting(place(from, "m")) != 3 {
		t.Error("the revoked signature still counts")
	}
	cosign.Sign(index)
	if got := waiting(place(from, "m")); got != 0 {
		t.Errorf("with a bundle: status %d", got)
	}
	// 3. Copies have the approvals.
	for name, cp := range map[string]func(to string){
		"ocibridge": func(string) {
			s.mustRun("copy", "--from", place(from, "m"), "--to", place(to, "ocibridge"), vpc)
		},
		"oras": func(to string) {
			s.workspace("").MustRun(t, clients.ORAS(t), "cp", "-r", "--from-plain-http", "--to-plain-http", image(from, "m")+":1.0.0", to+":1.0.0")
		},
		"crane": func(to string) {
			s.workspace("").MustRun(t, clients.Program(t, "crane"), "copy", "--all-tags", image(from, "m"), to)
		},
	} {
		cp(image(to, name))
		if got := waiting(place(to, name)); got != 0 {
			t.Errorf("%s: status %d", name, got)
		}
		if err := cosign.Verify(image(to, name)+":1.0.0", ownPublic); err != nil {
			t.Errorf("%s: cosign: %v", name, err)
		}
	}
	// 4. A removal leaves nothing behind.
	s.mustRun("remove", vpc+"@1.0.0", "--template", place(to, "crane"))
	if left, err := to.Contents("crane/platform/vpc/aws"); err != nil || strings.Contains(strings.Join(left.TagNames(), " "), "sha256-") {
		t.Errorf("%v, %+v", err, left)
	}
}
