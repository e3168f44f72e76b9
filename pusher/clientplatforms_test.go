package pusher_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// TestPlatformsOfNoClient shows that a push warns once of each package that no client can request, whether the
// package is pushed or SHA256SUMS alone lists it.
func TestPlatformsOfNoClient(t *testing.T) {
	b := newBench(t)
	spec := release.Spec{Host: pushbench.Host, Namespace: "acme", Type: "widget", Version: "1.0.1", Signer: b.Signer}
	for _, p := range []string{"linux_amd64", "darwin_all", "linux_armv6", "linux_amd64v2", "macos_amd64", "linux_riscv64", "js_wasm"} {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v1.0.1": []byte(p)}})
	}
	b.Release = release.For(t, spec)
	b.Origin.Add(b.Release)
	odd := []string{"darwin_all", "linux_armv6", "linux_amd64v2", "macos_amd64"}
	for what, tc := range map[string]struct {
		platforms []string
		says      string
	}{
		"dropped": {[]string{"linux_amd64", "linux_riscv64"}, "which is not pushed: no client requests it"},
		"pushed":  {nil, "no client requests "},
	} {
		warnings := b.MustPush(tc.platforms...).Warnings
		if len(warnings) != len(odd) {
			t.Errorf("%s: %q", what, warnings)
		}
		all := strings.Join(warnings, "\n")
		for _, p := range odd {
			if strings.Count(all, "1.0.1_"+p+".zip") != 1 || strings.Count(all, tc.says) != len(odd) {
				t.Errorf("%s, %s: %s", what, p, all)
			}
		}
	}
}

// TestPlatformsOfNoClientInOtherSpellings shows that a push also warns of packages that only SHA256SUMS lists, under
// another spelling of the usual name. Files of another version and other files give no warning.
func TestPlatformsOfNoClientInOtherSpellings(t *testing.T) {
	for name, warns := range map[string]bool{
		"terraform-provider-widget_1.0.1_darwin_all.zip":        true,
		"terraform-provider-widget_v1.0.1_darwin_all.zip":       true,
		"terraform-provider-widget-1.0.1-darwin-all.zip":        true,
		"terraform-provider-widget_1.0.1_linux_amd64_v2.zip":    true,
		"terraform-provider-widget_v1.0.1_linux_amd64_v2.zip":   true,
		"terraform-provider-widget_v1.0.1_linux.zip":            true,
		"terraform-provider-widget_v1.0.1_linux_riscv64.zip":    false,
		"terraform-provider-widget_v1.0.0_darwin_all.zip":       false,
		"terraform-provider-widget_1.0.1-rc1_darwin_all.zip":    false,
		"terraform-provider-widget_v1.0.1_manifest.json":        false,
		"terraform-provider-widget_docs_v1.0.1_darwin_all.zip":  false,
		"terraform-provider-widget_v1.0.1_SHA256SUMS.other.zip": true,
		"docs.zip": false,
	} {
		b := newBench(t)
		b.Release = release.For(t, release.Spec{Host: pushbench.Host, Namespace: "acme", Type: "widget", Version: "1.0.1", Signer: b.Signer, Contents: []release.Content{
			{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-widget_v1.0.1": []byte("linux")}},
			{OS: "other", Arch: "any", Filename: name, Files: map[string][]byte{"terraform-provider-widget_v1.0.1": []byte("other")}},
		}})
		b.Origin.Add(b.Release)
		want := 0
		if warns {
			want = 1
		}
		warnings := b.MustPush("linux_amd64").Warnings
		if len(warnings) != want || warns && !strings.Contains(warnings[0], name+", which is not pushed: no client requests it") {
			t.Errorf("%s: %q", name, warnings)
		}
	}
}
