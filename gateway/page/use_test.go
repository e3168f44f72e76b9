package page

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

func TestSources(t *testing.T) {
	for address, want := range map[string][]sourceView{
		"registry.opentofu.org/hashicorp/null":  {{"Source in OpenTofu", "hashicorp/null"}, {"Source in Terraform", "registry.opentofu.org/hashicorp/null"}},
		"registry.terraform.io/hashicorp/null":  {{"Source in Terraform", "hashicorp/null"}, {"Source in OpenTofu", "registry.terraform.io/hashicorp/null"}},
		"bücher.example/acme/shelf":             {{"Source address", "bücher.example/acme/shelf"}},
		"registry.opentofu.org:8443/acme/thing": {{"Source address", "registry.opentofu.org:8443/acme/thing"}},
	} {
		a := provider.MustParseAddress(address)
		if got := sources(a.Hostname(), a.Namespace()+"/"+a.Type(), a.String()); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", address, got, want)
		}
	}
}

// TestPublicDocs checks the links to the documentation at public registries.
func TestPublicDocs(t *testing.T) {
	for address, want := range map[string]string{
		"registry.opentofu.org/hashicorp/null": "https://search.opentofu.org/provider/hashicorp/null/v3.2.4",
		"registry.terraform.io/hashicorp/null": "https://registry.terraform.io/providers/hashicorp/null/3.2.4/docs",
		"registry.acme.example/acme/widget":    "",
	} {
		if got := publicDocs(provider.MustParseAddress(address), provider.MustParseVersion("3.2.4")); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestConstraint shows that the constraint of a version selects the version and its compatible successors.
func TestConstraint(t *testing.T) {
	for version, tc := range map[string]struct{ want, in, out string }{
		"3.2.4":        {"~> 3.2", "3.9.0", "4.0.0"},
		"10.20.30":     {"~> 10.20", "10.21.0", "10.19.9"},
		"0.9.1":        {"~> 0.9.1", "0.9.2", "0.10.0"},
		"1.2.3+build":  {"~> 1.2", "1.3.0", "2.0.0"},
		"2.0.0-beta.1": {want: ""},
	} {
		v := provider.MustParseVersion(version)
		got := constraint(v)
		if got != tc.want {
			t.Errorf("%s: %q, want %q", version, got, tc.want)
		}
		if got == "" {
			continue
		}
		set, err := provider.ParseConstraint(got)
		if err != nil || !set.Has(v) || !set.Has(provider.MustParseVersion(tc.in)) || set.Has(provider.MustParseVersion(tc.out)) {
			t.Errorf("%s does not select %s and %s without %s: %v", got, version, tc.in, tc.out, err)
		}
	}
}

// TestLockEntry shows that the block of the lock file parses, and omits packages that clients should not install.
func TestLockEntry(t *testing.T) {
	a, v := provider.MustParseAddress("bücher.example/acme/shelf"), provider.MustParseVersion("1.0.0-rc.1")
	pkg := func(text string) artifact.Package { return artifact.Package{Digest: digest.FromString(text)} }
	all := []packageView{{Package: pkg("a")}, {Package: pkg("b"), Unvouched: "it is another's"}, {Package: pkg("c"), Missing: "sha256:00"}, {Package: pkg("d")}, {Package: pkg("a")}}
	text := lockEntry(a, v, all)
	f, err := lockfile.Parse("page", []byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	got, ok := f.Provider(a)
	want := []provider.Hash{all[0].ZipHash(), all[3].ZipHash()}
	slices.SortFunc(want, func(a, b provider.Hash) int { return strings.Compare(a.String(), b.String()) })
	if !ok || !slices.Equal(got.Known(), want) {
		t.Errorf("the block has the hashes %v, want %v:\n%s", got.Known(), want, text)
	}
	if text := lockEntry(a, v, all[1:3]); text != "" {
		t.Errorf("without hashes: %s", text)
	}
}

func TestFilter(t *testing.T) {
	var all []provider.Version
	for _, v := range []string{"2.1.0-beta.1", "2.0.0", "1.20.0", "1.2.1+build.7", "1.2.0", "0.1.2"} {
		all = append(all, provider.MustParseVersion(v))
	}
	for text, want := range map[string]string{
		"":                              "2.1.0-beta.1 2.0.0 1.20.0 1.2.1+build.7 1.2.0 0.1.2",
		" 1.2 ":                         "1.20.0 1.2.1+build.7 1.2.0",
		"1.2.":                          "1.2.1+build.7 1.2.0",
		"v2":                            "2.1.0-beta.1 2.0.0",
		"BETA":                          "2.1.0-beta.1",
		"build":                         "1.2.1+build.7",
		"~> 1.2":                        "1.20.0 1.2.1+build.7 1.2.0",
		">= 1.3, < 3.0":                 "2.0.0 1.20.0",
		"= 2.1.0-beta.1":                "2.1.0-beta.1",
		"aws":                           "",
		"<script>":                      "",
		"> x":                           "",
		strings.Repeat("é", 100):        "",
		strings.Repeat("1", 5000):       "",
		">" + strings.Repeat("9", 5000): "",
	} {
		f := newFilter(text)
		var got []string
		for _, v := range f.apply(all) {
			got = append(got, v.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%.40q selects %q, want %q", text, got, want)
		}
		if bad := strings.ContainsAny(text, "<>") && want == ""; f.Bad != bad {
			t.Errorf("%.40q: Bad is %v", text, f.Bad)
		}
	}
	if len(all) != 6 || all[0].String() != "2.1.0-beta.1" {
		t.Errorf("the list has changed: %v", all)
	}
}
