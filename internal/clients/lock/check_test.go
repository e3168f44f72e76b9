package lock

import (
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

// hash returns a hash of the given scheme that repeats one letter.
func hash(scheme string, letter byte) string {
	if scheme == "h1" {
		return "h1:" + strings.Repeat(string(letter), 42) + "A="
	}
	return "zh:" + strings.Repeat(string(letter), 64)
}

func TestCheck(t *testing.T) {
	linux, darwin := provider.MustParsePlatform("linux_amd64"), provider.MustParsePlatform("darwin_arm64")
	linuxZH, darwinZH, strangeZH := hash("zh", '1'), hash("zh", '2'), hash("zh", '9')
	linuxH1, darwinH1, strangeH1 := hash("h1", '1'), hash("h1", '2'), hash("h1", '9')
	parse := func(texts ...string) (out []provider.Hash) {
		for _, s := range texts {
			h, err := provider.ParseHash(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, h)
		}
		return out
	}
	pkg := func(p provider.Platform, zh, h1 string) artifact.Package {
		out := artifact.Package{Platform: p, Digest: digest.Digest("sha256:" + strings.TrimPrefix(zh, "zh:"))}
		if h1 != "" {
			out.H1 = parse(h1)[0]
		}
		return out
	}
	stored := func(packages ...artifact.Package) reading {
		return reading{verified: &artifact.Verified{Packages: packages}}
	}
	listed := func(packages ...artifact.Package) reading {
		r := stored(packages...)
		r.listed, r.platforms = parse(linuxZH, darwinZH, hash("zh", '3')), []provider.Platform{linux, darwin}
		return r
	}
	all := listed(pkg(linux, linuxZH, linuxH1), pkg(darwin, darwinZH, darwinH1))
	some := listed(pkg(linux, linuxZH, linuxH1))
	bare := listed(pkg(linux, linuxZH, linuxH1), pkg(darwin, darwinZH, ""))
	noDocument := stored(pkg(linux, linuxZH, linuxH1))

	for name, tc := range map[string]struct {
		version reading
		hashes  []string
		culprit string // the hash that the error names; "" for no error
	}{
		"no hashes":                                {all, nil, ""},
		"all":                                      {all, []string{linuxZH, darwinZH, linuxH1, darwinH1}, ""},
		"a file of it that is no package":          {all, []string{hash("zh", '3')}, ""},
		"schemes to come":                          {all, []string{"h9:x", linuxZH}, ""},
		"nothing but schemes to come":              {all, []string{"h9:x"}, ""},
		"a zip of no such release":                 {all, []string{linuxZH, strangeZH}, strangeZH},
		"a content of no such release":             {all, []string{linuxH1, strangeH1}, strangeH1},
		"a content that may be darwin's":           {some, []string{linuxH1, darwinH1}, ""},
		"a content that may be darwin's, unhashed": {bare, []string{linuxZH, darwinH1}, ""},
		"the zip of a package that is elsewhere":   {some, []string{darwinZH, darwinH1}, ""},
		"nothing in common":                        {some, []string{darwinH1}, darwinH1},
		"no document, another platform beside":     {noDocument, []string{linuxZH, darwinZH, darwinH1}, ""},
		"no document, nothing in common":           {noDocument, []string{darwinH1, darwinZH}, darwinH1},
	} {
		t.Run(name, func(t *testing.T) {
			list := ""
			if tc.hashes != nil {
				list = "  hashes = [\n    \"" + strings.Join(tc.hashes, "\",\n    \"") + "\",\n  ]\n"
			}
			file, err := lockfile.Parse("f", []byte("provider \"registry.opentofu.org/hashicorp/null\" {\n  version = \"3.2.4\"\n"+list+"}\n"))
			if err != nil {
				t.Fatal(err)
			}
			err = tc.version.check(t.Context(), file, file.Providers[0])
			if tc.culprit == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.culprit+`" contradicts`) || !strings.HasPrefix(err.Error(), "f:") || hint.Of(err) == "" {
				t.Errorf("%v", err)
			}
		})
	}
}
