package provider

import (
	"strings"
	"testing"
)

// TestPackageNames shows what the file name of a package says about its type, version and platform. A
// name that spells the same version is a name of the same package. Other versions and platforms are
// another package. A name without a version and a platform says nothing.
func TestPackageNames(t *testing.T) {
	const same, other, silent, renamed = "same", "another", "silent", "renamed"
	a, p := MustParseAddress("registry.acme.example/acme/my-widget-2"), MustParsePlatform("linux_amd64")
	for _, tc := range []struct{ version, name, want string }{
		{"1.4.0", "terraform-provider-my-widget-2_1.4.0_linux_amd64.zip", same},
		{"1.4.0", "terraform-provider-my-widget-2_v1.4.0_linux_amd64.zip", same},
		{"1.4.0", "terraform-provider-my-widget-2_V1.4.0_linux_amd64.zip", same},
		{"1.4.0", "terraform-provider-my-widget-2_1.4_linux_amd64.zip", same},
		{"1.4.0", "terraform-provider-my-widget-2-1.4.0-linux-amd64.zip", same},
		{"1.4.0", "terraform-provider-my-widget-2-v1.4.0_linux_amd64.zip", same},
		{"1.4.0", "terraform-provider-my-widget-2_v1.4.0.linux-amd64.zip", same},
		{"1.4.0-rc.1", "terraform-provider-my-widget-2_v1.4.0-rc.1_linux_amd64.zip", same},
		{"1.4.0-rc.1", "terraform-provider-my-widget-2-1.4.0-rc.1-linux-amd64.zip", same},
		{"1.4.0+b.1", "terraform-provider-my-widget-2_v1.4.0+b.1_linux_amd64.zip", same},

		{"1.4.0", "terraform-provider-my-widget-2_v1.3.0_linux_amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2_v1.4.1_linux_amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2_1.3_linux_amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2_vv1.4.0_linux_amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2_latest_linux_amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2_v1.4.0-rc.1_linux_amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2_v1.4.0+b.1_linux_amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2_v1.4.0_darwin_arm64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2-1.3.0-linux-amd64.zip", other},
		{"1.4.0", "terraform-provider-my-widget-2-1.4.0-darwin-arm64.zip", other},
		{"1.4.0-rc.1", "terraform-provider-my-widget-2_1.4.0-RC.1_linux_amd64.zip", other},

		{"1.4.0", "terraform-provider-gadget_1.4.0_linux_amd64.zip", renamed},
		{"1.4.0", "terraform-provider-gadget_v1.4.0_linux_amd64.zip", renamed},

		{"1.4.0", "my-widget-2.zip", silent},
		{"1.4.0", "my-widget-2_1.4.0_linux_amd64.zip", silent},
		{"1.4.0", "terraform-provider-my-widget-2-v1.4.0-linux-amd64-bin.zip", silent},
		{"1.4.0", "terraform-provider-My-Widget-2_1.4.0_linux_amd64.zip", silent}, // but the type's letter case
	} {
		v := MustParseVersion(tc.version)
		if got := SpellsPackage(tc.name, a, v, p); got != (tc.want == same) {
			t.Errorf("%s: SpellsPackage %t", tc.name, got)
		}
		if got, ok := NamedPlatform(tc.name, a, v); (ok && got == p) != (tc.want == same) {
			t.Errorf("%s: NamedPlatform %s, %t", tc.name, got, ok)
		}
		if got := Misnamed(tc.name, v, p); got != (tc.want == other) {
			t.Errorf("%s: Misnamed %t", tc.name, got)
		}
		if got := NamesAnother(tc.name, a, v, p); got != (tc.want == other || tc.want == renamed) {
			t.Errorf("%s: NamesAnother %t", tc.name, got)
		}
	}
}

func TestSpellsFile(t *testing.T) {
	a, v := MustParseAddress("registry.acme.example/acme/widget"), MustParseVersion("1.4.0")
	for name, want := range map[string]bool{
		"terraform-provider-widget_1.4.0_SHA256SUMS":      true,
		"terraform-provider-widget_v1.4.0_SHA256SUMS":     true,
		"terraform-provider-widget-V1.4.0-SHA256SUMS":     true,
		"terraform-provider-widget_v1.3.0_SHA256SUMS":     false,
		"terraform-provider-widget_v1.4.0_SHA256SUMS.sig": false,
		"terraform-provider-widget_SHA256SUMS":            false,
		"terraform-provider-widgets_1.4.0_SHA256SUMS":     false,
		"SHA256SUMS": false,
	} {
		if got := SpellsFile(name, a, v, "SHA256SUMS"); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// FuzzPackageFilename shows that the published name of a package is never taken for the name of another
// package, and that a v before the version makes no difference.
func FuzzPackageFilename(f *testing.F) {
	f.Add("acme/widget", "1.4.0", "linux_amd64")
	f.Add("acme/my-widget-2", "1.4.0-rc.1-linux-amd64+b", "darwin_arm64")
	f.Add("acme/v1", "0.0.0--", "a_0")
	f.Fuzz(func(t *testing.T, address, version, platform string) {
		a, err := ParseAddress("registry.acme.example/" + address)
		if err != nil {
			return
		}
		v, err := ParseVersion(version)
		if err != nil {
			return
		}
		p, err := ParsePlatform(platform)
		if err != nil {
			return
		}
		published := PackageFilename(a, v, p)
		for _, name := range []string{published, strings.Replace(published, "_"+version+"_", "_v"+version+"_", 1)} {
			if got, ok := NamedPlatform(name, a, v); !ok || got != p || !SpellsPackage(name, a, v, p) || Misnamed(name, v, p) || NamesAnother(name, a, v, p) {
				t.Errorf("%s is not taken for a name of %s %s for %s", name, a, v, p)
			}
		}
	})
}
