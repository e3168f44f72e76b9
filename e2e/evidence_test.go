package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// mirrorFolder writes a mirror folder of the null provider, like "providers mirror". Its package differs from
// the package at the origin.
func (s *scene) mirrorFolder(goos, arch string) string {
	s.t.Helper()
	r := release.For(s.t, release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: nullVersion, Contents: []release.Content{
		{OS: goos, Arch: arch, Files: map[string][]byte{"terraform-provider-null_v" + nullVersion: []byte("something else")}}}})
	p := r.Packages[0]
	root := s.t.TempDir()
	dir := filepath.Join(root, filepath.FromSlash(world.Null))
	clients.Must(s.t, os.MkdirAll(dir, 0o755))
	write := func(name string, data []byte) { clients.Must(s.t, os.WriteFile(filepath.Join(dir, name), data, 0o644)) }
	write(p.Filename, p.Data)
	write("index.json", fmt.Appendf(nil, `{"versions":{%q:{}}}`, nullVersion))
	write(nullVersion+".json", fmt.Appendf(nil, `{"archives":{"%s_%s":{"hashes":["zh:%s"],"url":%q}}}`, goos, arch, p.SHA256, p.Filename))
	return root
}

// listed returns the verdict and the platforms that ocibridge list shows for the null provider's version.
func (s *scene) listed(template string) (verdict string, platforms []string) {
	s.t.Helper()
	var out struct {
		Providers []struct {
			Versions []struct {
				Platforms []string `json:"platforms"`
				Signature struct {
					Verdict string `json:"verdict"`
				} `json:"signature"`
			} `json:"versions"`
		} `json:"providers"`
	}
	text := s.run("list", "--template", template, "--output", "json", world.Null)
	if err := json.Unmarshal([]byte(text.stdout), &out); err != nil || len(out.Providers) != 1 || len(out.Providers[0].Versions) != 1 {
		s.t.Fatalf("%v: %s%s", err, text.stdout, text.stderr)
	}
	v := out.Providers[0].Versions[0]
	return v.Signature.Verdict, v.Platforms
}

// TestUnsignedIsNeverListedAsSigned pushes and syncs unsigned packages into a signed version, and signed
// packages into an unsigned version. It shows that list never shows the unsigned packages as signed.
func TestUnsignedIsNeverListedAsSigned(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, platform := range []string{"darwin_arm64", "freebsd_amd64"} {
		t.Run(platform, func(t *testing.T) {
			goos, arch, _ := strings.Cut(platform, "_")
			folder := s.mirrorFolder(goos, arch)
			reg := registry.For(t, registry.Options{})
			signed := []string{"push", world.Null + "@" + nullVersion, "--platform", "linux_amd64", "--template", template(reg)}
			unsigned := []string{"push", "--mirror-dir", folder, "--allow-unsigned", "--template", template(reg)}
			s.ws.MustRun(t, s.bridge, signed...)
			config := filepath.Join(t.TempDir(), "ocibridge.hcl")
			clients.Must(t, os.WriteFile(config, fmt.Appendf(nil, `trust %q {
  allow_unsigned = true
}
provider %[1]q {
  versions = ">= 0"
  from     = %q
}
`, world.Null, folder), 0o600))
			for _, args := range [][]string{unsigned, {"sync", "--config", config, "--template", template(reg)}} {
				if r := s.run(args...); r.status == 0 || !strings.Contains(r.stderr, "conflict") || !strings.Contains(r.stderr, "hint: ") {
					t.Errorf("%s: status %d\n%s%s", args[0], r.status, r.stdout, r.stderr)
				}
			}
			if verdict, platforms := s.listed(template(reg)); verdict != "signed" || len(platforms) != 1 {
				t.Errorf("listed %v as %q", platforms, verdict)
			}
			s.ws.MustRun(t, s.bridge, "verify", "--packages", "--template", template(reg), world.Null)

			// With --force, push stores the package, and list shows nothing as signed.
			s.ws.MustRun(t, s.bridge, append(unsigned, "--force")...)
			if verdict, platforms := s.listed(template(reg)); verdict != "checksum only" || len(platforms) != 2 {
				t.Errorf("forced: listed %v as %q", platforms, verdict)
			}
			if r := s.run(signed...); strings.Contains(r.stdout, "completed") {
				t.Errorf("a push of the signed release: %s%s", r.stdout, r.stderr)
			}
			if verdict, _ := s.listed(template(reg)); verdict != "checksum only" {
				t.Errorf("after the signed one: listed as %q", verdict)
			}
			s.ws.MustRun(t, s.bridge, append(signed, "--force")...)
			if verdict, platforms := s.listed(template(reg)); verdict != "signed" || len(platforms) != 1 {
				t.Errorf("the signed one by force: listed %v as %q", platforms, verdict)
			}
			s.ws.MustRun(t, s.bridge, "verify", "--template", template(reg), world.Null)
		})
	}
}

// TestRefreshEvidence shows what happens when a publisher signs the same packages with a new key.
// --refresh-evidence then replaces the stored signature, and the gateway's users see the new signature.
func TestRefreshEvidence(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	reg := s.tlsRegistry()
	push := []string{"push", world.Null + "@" + nullVersion, "--template", template(reg)}
	s.ws.MustRun(t, s.bridge, push...)
	old, next := s.Signer, pgp.For(t, "Acme, next year")
	signed := *s.null
	clients.Must(t, signed.Sign(next))
	s.Origin.Add(&signed)
	for _, step := range []struct {
		args   []string
		says   string
		signer *pgp.Signer
	}{
		{push, "unchanged", old},
		{append(push, "--refresh-evidence"), ": refreshed", next},
		{append(push, "--refresh-evidence"), "unchanged", next},
	} {
		if out := s.ws.MustRun(t, s.bridge, step.args...); !strings.Contains(out, step.says) {
			t.Errorf("%v: %s", step.args, out)
		}
		if out := s.ws.MustRun(t, s.bridge, "verify", "--template", template(reg), world.Null); !strings.Contains(out, ": ok, ") || !strings.Contains(out, step.signer.Fingerprint()) {
			t.Errorf("verify: %s", out)
		}
	}
	s.Signer = next
	gateway := s.serve("--template", template(reg), "--include", world.Null)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.direct(gateway)
		if out := ws.MustRun(t, client, "init", "-no-color"); !strings.Contains(out, signedBy(client, s)) {
			t.Errorf("%s does not say %q:\n%s", client.Name, signedBy(client, s), out)
		}
	}
}

// TestTrustOfAPush shows that a push accepts signatures of pinned keys, even if the keys have expired. It
// refuses signatures of keys that are not pinned. With strict_expiry, it refuses expired keys.
func TestTrustOfAPush(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	expired := pgp.For(t, "Acme, last year", pgp.Expired())
	old := release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: "1.0.0", Signer: expired, Contents: []release.Content{
		{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-null_v1.0.0": []byte("program")}}}})
	s.Origin.Add(old)
	for name, tc := range map[string]struct {
		version, block string
		refused        string // a part of the push's error; "" if it succeeds
		says           string // a part of the output of verify
	}{
		"the pinned key":      {nullVersion, fmt.Sprintf("keys = [%q]", s.Signer.Fingerprint()), "", s.Signer.Fingerprint() + ", which is pinned"},
		"another is pinned":   {nullVersion, fmt.Sprintf("keys = [%q]", expired.Fingerprint()), "signature refused", ""},
		"pinned and expired":  {"1.0.0", fmt.Sprintf("keys = [%q]", expired.Fingerprint()), "", expired.Fingerprint() + ", which is pinned"},
		"expired, strictly":   {"1.0.0", "strict_expiry = true", "expired", ""},
		"not expired, strict": {nullVersion, "strict_expiry = true", "", "signed by " + s.Signer.Fingerprint()},
	} {
		t.Run(name, func(t *testing.T) {
			reg := registry.For(t, registry.Options{})
			config := filepath.Join(t.TempDir(), "ocibridge.hcl")
			clients.Must(t, os.WriteFile(config, fmt.Appendf(nil, "trust %q {\n  %s\n}\n", world.Host+"/acme/*", tc.block), 0o600))
			r := s.run("push", world.Null+"@"+tc.version, "--config", config, "--template", template(reg))
			if (r.status == 0) != (tc.refused == "") || !strings.Contains(r.stderr, tc.refused) {
				t.Errorf("status %d: %s%s", r.status, r.stdout, r.stderr)
			}
			if tc.refused != "" {
				if got := tagsOnDisk(t, reg); len(got) != 0 {
					t.Errorf("tagged %v", got)
				}
				return
			}
			if out := s.ws.MustRun(t, s.bridge, "verify", "--config", config, "--template", template(reg), world.Null); !strings.Contains(out, tc.says) {
				t.Errorf("verify does not say %q: %s", tc.says, out)
			}
		})
	}
}
