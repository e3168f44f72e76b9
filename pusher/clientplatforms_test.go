package pusher_test

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/release"
)

// TestPlatformsOfNoClient shows that a push warns once of each package that no client can request, whether the
// package is pushed or SHA256SUMS alone lists it.
func TestPlatformsOfNoClient(t *testing.T) {
	b := newBench(t)
	spec := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: "1.0.1", Signer: b.signer}
	for _, p := range []string{"linux_amd64", "darwin_all", "linux_armv6", "linux_amd64v2", "macos_amd64", "linux_riscv64", "js_wasm"} {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v1.0.1": []byte(p)}})
	}
	b.release = release.For(t, spec)
	b.origin.Add(b.release)
	odd := []string{"darwin_all", "linux_armv6", "linux_amd64v2", "macos_amd64"}
	for what, tc := range map[string]struct {
		platforms []string
		says      string
	}{
		"dropped": {[]string{"linux_amd64", "linux_riscv64"}, "which is not pushed: no client requests it"},
		"pushed":  {nil, "no client requests "},
	} {
		warnings := b.mustPush(tc.platforms...).Warnings
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
