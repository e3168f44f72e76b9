package lockfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

func TestCheck(t *testing.T) {
	linux, darwin := provider.MustParsePlatform("linux_amd64"), provider.MustParsePlatform("darwin_arm64")
	linuxZH, darwinZH, strangeZH := hash("zh", '1'), hash("zh", '2'), hash("zh", '9')
	linuxH1, darwinH1, strangeH1 := hash("h1", '1'), hash("h1", '2'), hash("h1", '9')
	one := func(s string) provider.Hash { return hashes(t, s)[0] }
	pkg := func(p provider.Platform, zh, h1 string) lockfile.Package {
		out := lockfile.Package{Platform: p, Zip: one(zh)}
		if h1 != "" {
			out.H1 = one(h1)
		}
		return out
	}
	listed := func(packages ...lockfile.Package) lockfile.Release {
		return lockfile.Release{Packages: packages, Listed: hashes(t, linuxZH, darwinZH, hash("zh", '3')), Platforms: []provider.Platform{linux, darwin}}
	}
	all := listed(pkg(linux, linuxZH, linuxH1), pkg(darwin, darwinZH, darwinH1))
	some := listed(pkg(linux, linuxZH, linuxH1))
	bare := listed(pkg(linux, linuxZH, linuxH1), pkg(darwin, darwinZH, ""))
	noDocument := lockfile.Release{Packages: []lockfile.Package{pkg(linux, linuxZH, linuxH1)}}

	for name, tc := range map[string]struct {
		release lockfile.Release
		hashes  []string
		culprit string // "" for none
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
			lines := []string{`  version = "3.2.4"`}
			if tc.hashes != nil {
				lines = append(lines, "  hashes = [", `    "`+strings.Join(tc.hashes, "\",\n    \"")+`",`, "  ]")
			}
			file, err := lockfile.Parse("f", []byte(block(lines...)))
			if err != nil {
				t.Fatal(err)
			}
			err = file.Check(null, tc.release)
			if tc.culprit == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, lockfile.ErrContradiction) || !strings.Contains(err.Error(), tc.culprit) || !strings.HasPrefix(err.Error(), "f:") || hint.Of(err) == "" {
				t.Errorf("%v", err)
			}
		})
	}
}
