package ociaddr

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

func TestParseRepository(t *testing.T) {
	for in, want := range map[string]Repository{
		"ghcr.io/acme/null":                       {"ghcr.io", "acme/null"},
		"localhost:5000/a":                        {"localhost:5000", "a"},
		"127.0.0.1:5000/a/b/c":                    {"127.0.0.1:5000", "a/b/c"},
		"[::1]:5000/a":                            {"[::1]:5000", "a"},
		"harbor.example.com/p/registry.x.org/a-b": {"harbor.example.com", "p/registry.x.org/a-b"},
		"ghcr.io/a__b/c--d/e.f_g":                 {"ghcr.io", "a__b/c--d/e.f_g"},
		"embedded/xn--80akhbyknj4f.com/a/b":       {"embedded", "xn--80akhbyknj4f.com/a/b"},
	} {
		got, err := ParseRepository(in)
		if err != nil || got != want {
			t.Errorf("ParseRepository(%q) = %v, %v", in, got, err)
		}
		if err == nil && got.String() != in {
			t.Errorf("%q prints as %q", in, got)
		}
	}
	for _, in := range []string{
		"", "ghcr.io", "ghcr.io/", "/a", "ghcr.io//a", "ghcr.io/a/", "ghcr.io/A", "ghcr.io/a:1", "ghcr.io/a@sha256:00", "https://ghcr.io/a",
		"ghcr.io/a/../b", "ghcr.io/_a", "ghcr.io/a..b", "ghcr.io/a___b", "gh cr.io/a", "ghcr.io:port/a", "ghcr.io:99999/a", "-x.io/a", "ghcr.io/é",
		"ghcr.io/" + strings.Repeat("a", 300), "[::x]/a",
	} {
		if got, err := ParseRepository(in); err == nil {
			t.Errorf("ParseRepository(%q) = %v", in, got)
		}
	}
}

func TestErrorsHideLogins(t *testing.T) {
	for in, want := range map[string]string{
		"https://u:MARK@ghcr.io/a/b":                 "https://[redacted]@ghcr.io/a/b",
		"https://MARK:@ghcr.io/a/b":                  "https://[redacted]@ghcr.io/a/b",
		"https://MARK@ghcr.io/a/b":                   "https://[redacted]@ghcr.io/a/b",
		"u:MARK@ghcr.io/a/b":                         "[redacted]@ghcr.io/a/b",
		"u:MA/RK@x@ghcr.io/a/b":                      "[redacted]@ghcr.io/a/b",
		"u:MARK@ghcr.io":                             "[redacted]@ghcr.io",
		"ghcr.io/u:MARK@a/b":                         "[redacted]@a/b",
		"https://u:MARK@ghcr.io/a@sha256:00":         "https://[redacted]@ghcr.io/a@sha256:00",
		"localhost:5000/a/b@sha256:00":               "localhost:5000/a/b@sha256:00",
		"ghcr.io:port/a/b":                           "ghcr.io:port/a/b",
		"u:MARK@ghcr.io/" + strings.Repeat("a", 300): "[redacted]@ghcr.io/a",
	} {
		if got := HideLogin(in); !strings.HasPrefix(got, want) {
			t.Errorf("HideLogin(%q) = %q", in, got)
		}
		_, rerr := ParseRepository(in)
		_, herr := ParseRegistry(in)
		for _, err := range []error{rerr, herr} {
			if err == nil || strings.Contains(err.Error()+hint.Of(err), "MARK") || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", in, err)
			}
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for in, want := range map[Registry]bool{
		"localhost": true, "localhost:5000": true, "127.0.0.1": true, "127.1.2.3:5000": true, "[::1]:5000": true, "[::1]": true, "registry.localhost": true,
		"ghcr.io": false, "10.0.0.1:5000": false, "localhost.example.com": false, "notlocalhost": false,
	} {
		if got := in.IsLoopback(); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestCanonical(t *testing.T) {
	for name, want := range map[Registry]Registry{
		"GHCR.io": "ghcr.io", "docker.io": DockerHub, "Index.docker.io": DockerHub, "registry-1.docker.io": DockerHub, "hub.docker.com": "hub.docker.com",
	} {
		if got := name.Canonical(); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestVersionTags(t *testing.T) {
	for version, tag := range map[string]Tag{"3.2.4": "3.2.4", "1.0.0-beta.1": "1.0.0-beta.1", "1.0.0+build.5": "1.0.0_build.5", "1.0.0-rc1+x": "1.0.0-rc1_x"} {
		v := provider.MustParseVersion(version)
		got, err := VersionTag(v)
		if err != nil || got != tag {
			t.Errorf("VersionTag(%s) = %s, %v", version, got, err)
		}
		if back, ok := tag.Version(); !ok || back != v {
			t.Errorf("%s is version %s, %v", tag, back, ok)
		}
	}
	for _, tag := range []Tag{"latest", "v1.2.3", "1.2", "1", "01.2.3", "1.2.3.4", "1.2.3_", "1.2.3_a_b", "sha256-abc", "ocibridge-part.1.2.3.linux_amd64", "ocibridge-seen.1.2.3_b", "9223372036854775808.0.0", "1.2.3+x"} {
		if v, ok := tag.Version(); ok {
			t.Errorf("%s is version %s", tag, v)
		}
	}
	if tag, err := VersionTag(provider.MustParseVersion("1.0.0-" + strings.Repeat("a", 122))); err != nil {
		t.Errorf("a tag of 128 characters: %s, %v", tag, err)
	}
}

// TestLongNamesOfTags shows that the error for a tag of 1 MiB is short. A registry may list
// such tags.
func TestLongNamesOfTags(t *testing.T) {
	if tag, err := ParseTag(strings.Repeat("\x7f", 1<<20)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%.100s, an error of %d bytes", tag, len(fmt.Sprint(err)))
	}
}

func TestAnnouncementTags(t *testing.T) {
	v := provider.MustParseVersion("1.0.0-rc.1+build.5")
	tag, err := AnnouncementTag(v, "abcdefghij234567")
	if err != nil || tag != "ocibridge-part.1.0.0-rc.1_build.5.abcdefghij234567" {
		t.Fatalf("%s, %v", tag, err)
	}
	if got, ok := tag.Announcement(); !ok || got != v {
		t.Errorf("%s announces %s, %v", tag, got, ok)
	}
	if a, b := NewAnnouncementID(), NewAnnouncementID(); a == b || len(a) != 16 {
		t.Errorf("IDs %s and %s", a, b)
	}
	for _, tag := range []Tag{"1.0.0", "ocibridge-part.", "ocibridge-part.1.0.0", "ocibridge-part.x.abcdefghij234567", "ocibridge-part.1.0.0.abcdefghij23456",
		"ocibridge-part.1.0.0.abcdefghij23456_", "ocibridge-part.1.0.0.ABCDEFGHIJ234567", "ocibridge-part.1.0.0.linux_amd64", "ocibridge-part.1.0.0.evidence"} {
		if v, ok := tag.Announcement(); ok {
			t.Errorf("%s announces %s", tag, v)
		}
	}
	if tag, err := AnnouncementTag(provider.MustParseVersion("1.0.0-"+strings.Repeat("a", 120)), "abcdefghij234567"); !strings.Contains(hint.Of(err), "push all its platforms at once") {
		t.Errorf("a tag of %d characters, %v (hint %q)", len(tag), err, hint.Of(err))
	}
}

// TestPartialTags shows how tags that earlier releases put on platforms and on evidence are
// parsed.
func TestPartialTags(t *testing.T) {
	v, p := provider.MustParseVersion("1.0.0-rc.1+build.5"), provider.MustParsePlatform("linux_amd64")
	if gv, gp, ok := Tag("ocibridge-part.1.0.0-rc.1_build.5.linux_amd64").Partial(); !ok || gv != v || gp != p {
		t.Errorf("Partial = %s, %s, %v", gv, gp, ok)
	}
	for _, tag := range []Tag{"1.0.0", "ocibridge-part.", "ocibridge-part.1.0.0", "ocibridge-part.x.linux_amd64", "ocibridge-part.1.0.0.linux", "ocibridge-part.1.0.0.abcdefghij234567"} {
		if v, p, ok := tag.Partial(); ok {
			t.Errorf("%s is %s for %s", tag, v, p)
		}
	}
}

func TestAttachedTags(t *testing.T) {
	d := digest.FromString("x")
	tags := append(CosignTags(d), ReferrersTag(d))
	if want := Tag("sha256-" + d.Encoded()); len(tags) != 4 || tags[3] != want || tags[0] != want+".sig" || tags[1] != want+".att" || tags[2] != want+".sbom" {
		t.Errorf("%v", tags)
	}
	for _, tag := range tags {
		if got, ok := tag.Subject(); !ok || got != d {
			t.Errorf("%s is attached to %s, %t", tag, got, ok)
		}
		if v, ok := tag.Version(); ok {
			t.Errorf("%s is version %s", tag, v)
		}
		if _, err := ParseTag(string(tag)); err != nil {
			t.Error(err)
		}
	}
	for _, tag := range []Tag{"1.2.3", "sha256-", "sha256-00", ReferrersTag(d) + ".sig.sig", ReferrersTag(d) + ".", Tag("sha512-" + d.Encoded()), Tag("sha256-" + strings.ToUpper(d.Encoded()))} {
		if got, ok := tag.Subject(); ok {
			t.Errorf("%s is attached to %s", tag, got)
		}
	}
}

func TestOwnTags(t *testing.T) {
	v := provider.MustParseVersion("1.2.3-rc1+b")
	const part, evidence, announcement Tag = "ocibridge-part.1.2.3-rc1_b.linux_amd64", "ocibridge-part.1.2.3-rc1_b.evidence", "ocibridge-part.1.2.3-rc1_b.abcdefghij234567"
	for _, tt := range []struct {
		tag    Tag
		partOf bool
	}{
		{part, true}, {evidence, true}, {announcement, true}, {"1.2.3-rc1_b", false},
		{"ocibridge-part.1.2.3", false}, {"ocibridge-part..evidence", false}, {"ocibridge-part.1.2.evidence", false},
	} {
		if got, ok := tt.tag.PartOf(); ok != tt.partOf || ok && got != v {
			t.Errorf("%s is a part of %s: %t", tt.tag, got, ok)
		}
		if _, ok := tt.tag.Version(); ok != (tt.tag == "1.2.3-rc1_b") {
			t.Errorf("%s is a version: %t", tt.tag, ok)
		}
	}
}

// FuzzParseRepository compares ParseRepository with the library that OpenTofu uses for repository addresses. The
// library must accept each address that ParseRepository accepts, and return the same registry and name.
func FuzzParseRepository(f *testing.F) {
	for _, s := range []string{"ghcr.io/acme/null", "localhost:5000/a", "[::1]:5000/a", "ghcr.io/a:1", "ghcr.io/a@sha256:00", "a/b__c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRepository(s)
		if err != nil {
			return
		}
		if again, err := ParseRepository(r.String()); err != nil || again != r {
			t.Fatalf("%q is %q, which parses to %v, %v", s, r, again, err)
		}
		ref, err := registry.ParseReference(s)
		if err != nil || ref.Registry != string(r.Registry) || ref.Repository != r.Name || ref.Reference != "" {
			t.Fatalf("%q: OpenTofu reads %+v, %v", s, ref, err)
		}
		// The embedded registry, which is distribution, must accept the name too.
		if named, err := reference.WithName(r.Name); err != nil || named.Name() != r.Name {
			t.Fatalf("%q: distribution reads %v, %v", s, named, err)
		}
		// A URL that contains the registry and the name must have exactly this host and
		// path.
		if u, err := url.Parse("https://" + string(r.Registry) + "/v2/" + r.Name + "/tags/list"); err != nil || u.Host != string(r.Registry) || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "/v2/"+r.Name+"/tags/list" {
			t.Fatalf("%q leads to %v, %v", s, u, err)
		}
	})
}

func FuzzTagVersion(f *testing.F) {
	for _, s := range []string{"1.2.3", "1.2.3_b", "latest", "ocibridge-part.1.2.3.linux_amd64", "ocibridge-seen.1.2.3_b", "9223372036854775808.0.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, ok := Tag(s).Version(); ok {
			if back, err := VersionTag(v); err != nil || string(back) != s {
				t.Fatalf("tag %q is version %s, whose tag is %q, %v", s, v, back, err)
			}
		}
		if v, ok := Tag(s).PartOf(); ok && !strings.HasPrefix(s, "ocibridge-part."+strings.ReplaceAll(v.String(), "+", "_")+".") {
			t.Fatalf("tag %q is a part of %s", s, v)
		}
	})
}

func TestModuleTags(t *testing.T) {
	got := ModuleTags([]Tag{"v1.0.0", "1.0.0", "v1.1.0_b1", "2.0.0", "v2.0.0", "latest", "vv1.0.0", "v1.0", "ocibridge-state", "v"})
	want := map[string]Tag{"1.0.0": "1.0.0", "1.1.0+b1": "v1.1.0_b1", "2.0.0": "2.0.0"}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for v, tag := range want {
		if got[provider.MustParseVersion(v)] != tag {
			t.Errorf("%s has the tag %q, want %s", v, got[provider.MustParseVersion(v)], tag)
		}
	}
}
