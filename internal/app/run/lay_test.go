package run

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/provider"
)

func TestDataFolder(t *testing.T) {
	abs := t.TempDir()
	for _, tc := range []struct{ variable, dir, want string }{
		{"", ".", ".terraform"}, {"", "sub", filepath.Join("sub", ".terraform")}, {"data", "sub", filepath.Join("sub", "data")}, {abs, "sub", abs},
	} {
		if got := dataFolder(func(string) string { return tc.variable }, tc.dir); got != tc.want {
			t.Errorf("%q in %s: %s", tc.variable, tc.dir, got)
		}
	}
}

func TestInitWord(t *testing.T) {
	for text, want := range map[string]bool{
		"init": true, "terraform init && terraform plan": true, "--terragrunt-init": true, "run --all init": true, "initialize": false, "plan": false,
	} {
		if got := initWord.MatchString(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// TestIsUsed shows that the locks of the other client's registry do not count, unless the configuration names it.
func TestIsUsed(t *testing.T) {
	atTerraform, atTofu := provider.MustParseAddress("registry.terraform.io/hashicorp/null"), provider.MustParseAddress("registry.opentofu.org/hashicorp/null")
	elsewhere := provider.MustParseAddress("registry.acme.example/hashicorp/null")
	for _, tc := range []struct {
		command  string
		a        provider.Address
		required []requirement
		want     bool
	}{
		{"terraform", atTerraform, nil, true}, {"terraform", atTofu, nil, false}, {"tofu", atTofu, nil, true}, {"/usr/bin/tofu", atTerraform, nil, false},
		{"sh", atTerraform, nil, true}, {"sh", atTofu, nil, true}, {"tofu", elsewhere, nil, true},
		{"tofu", atTerraform, []requirement{{provider: atTerraform}}, true}, {"tofu", atTerraform, []requirement{{provider: atTerraform, isShort: true}}, false},
	} {
		l := &layer{Options: &Options{Command: []string{tc.command}}, needs: needs{required: tc.required}}
		if got := l.isUsed(tc.a); got != tc.want {
			t.Errorf("%s for %s: %t", tc.a, tc.command, got)
		}
	}
}

// TestCheckLock shows which hashes a lock file must have before a package is laid: all that a client could add to it.
func TestCheckLock(t *testing.T) {
	zip := func(c string) string { return "zh:" + strings.Repeat(c, 64) }
	h1 := func(c string) string { return "h1:" + strings.Repeat(c, 42) + "A=" }
	parse := func(texts ...string) (out []provider.Hash) {
		for _, text := range texts {
			h, err := provider.ParseHash(text)
			clients.Must(t, err)
			out = append(out, h)
		}
		return out
	}
	offer := &serve.Offer{Digest: digest.Digest("sha256:" + strings.Repeat("a", 64)), H1: parse(h1("A"))[0], Signed: parse(zip("a"), zip("b")), Listed: parse(zip("a"), h1("A"), zip("b"), h1("B"))}
	complete := []string{h1("A"), zip("a"), zip("b"), h1("B")}
	for name, tc := range map[string]struct {
		host   string
		hashes []string
		laid   bool
	}{
		"complete":                        {"registry.acme.example", complete, true},
		"unknown scheme":                  {"registry.acme.example", append([]string{"unknown:1"}, complete...), false},
		"no h1 at all":                    {"registry.acme.example", []string{zip("a"), zip("b")}, false},
		"without a hash of this package":  {"registry.acme.example", []string{h1("A"), zip("b"), h1("B")}, false},
		"without this h1":                 {"registry.acme.example", []string{zip("a"), zip("b"), h1("B")}, false},
		"without a signed zip":            {"registry.acme.example", []string{h1("A"), zip("a"), h1("B")}, false},
		"without another h1":              {"registry.acme.example", []string{h1("A"), zip("a"), zip("b")}, true},
		"complete, OpenTofu's registry":   {"registry.opentofu.org", complete, true},
		"without another h1, OpenTofu's":  {"registry.opentofu.org", []string{h1("A"), zip("a"), zip("b")}, false},
		"without another h1, Terraform's": {"registry.terraform.io", []string{h1("A"), zip("a"), zip("b")}, true},
	} {
		p := lockfile.Provider{Address: provider.MustParseAddress(tc.host + "/acme/null"), Hashes: tc.hashes}
		if err := (&layer{}).checkLock(p, offer); (err == nil) != tc.laid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSweepCopies shows that what a killed command has left is removed, and that nothing of a running one is.
func TestSweepCopies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[data]*")
	clients.Must(t, os.Mkdir(dir, 0o755))
	c := copies{in: dir}
	temp, err := c.next()
	clients.Must(t, err)
	folder := filepath.Dir(temp)
	for _, name := range []string{folder, filepath.Join(dir, temporary+"1.d"), filepath.Join(dir, temporary+"2.d"), filepath.Join(dir, "providers")} {
		clients.Must(t, os.MkdirAll(filepath.Join(name, "0"), 0o755))
	}
	for _, name := range []string{temporary + "1", temporary + "3"} {
		clients.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		clients.Must(t, os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Now().Add(-time.Hour)))
	}
	sweepCopies(dir)
	entries, err := os.ReadDir(dir)
	clients.Must(t, err)
	if got, want := namesOf(entries), []string{filepath.Base(folder[:len(folder)-2]), filepath.Base(folder), "providers"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	c.remove()
	if entries, err = os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", namesOf(entries), err)
	}
}

func namesOf(entries []fs.DirEntry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}

// TestRemoveLinks shows which links are removed: those to packages of a cache that are gone, or that the lock file does not name
// with their hash.
func TestRemoveLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // symbolic links need a privilege there
	}
	home := t.TempDir()
	unpacked := func(cache, digit string) string {
		return filepath.Join(home, cache, "archives", "unpacked", strings.Repeat(digit, 64))
	}
	there, gone, old, elsewhere := unpacked("cache", "a"), unpacked("cache", "b"), unpacked("old", "a"), filepath.Join(home, "elsewhere")
	for _, dir := range []string{there, elsewhere} {
		clients.Must(t, os.MkdirAll(dir, 0o755))
	}
	h1, ok := archives.UnpackedHash(there)
	other, _ := archives.UnpackedHash(gone)
	if _, isOther := archives.UnpackedHash(elsewhere); !ok || isOther {
		t.Fatal("the paths of unpacked packages are not known")
	}
	a, platform := provider.MustParseAddress("registry.acme.example/acme/null"), provider.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	l := &layer{Options: &Options{}, platform: platform, data: filepath.Join(home, "work", ".terraform")}
	for name, want := range map[string]struct {
		to     string
		hashes []provider.Hash // nil: the version is not locked
		stays  bool
	}{
		"locked": {there, []provider.Hash{other, h1}, true}, "not locked": {there, nil, false}, "another hash": {there, []provider.Hash{other}, false},
		"gone": {gone, []provider.Hash{other}, false}, "another cache": {old, []provider.Hash{h1}, false},
		"elsewhere": {elsewhere, nil, true}, "nowhere": {filepath.Join(home, "nowhere"), nil, true},
	} {
		p := lockfile.Provider{Address: a, Version: provider.MustParseVersion("1.0.0")}
		l.needs.locked = nil
		if want.hashes != nil {
			for _, h := range want.hashes {
				p.Hashes = append(p.Hashes, h.String())
			}
			l.needs.locked = []lockfile.Provider{p}
		}
		clients.Must(t, os.MkdirAll(filepath.Dir(l.target(p)), 0o755))
		clients.Must(t, os.Symlink(want.to, l.target(p)))
		l.removeLinks()
		if _, err := os.Lstat(l.target(p)); (err == nil) != want.stays {
			t.Errorf("%s: %v", name, err)
		}
		_ = os.Remove(l.target(p))
	}
	// A folder is never touched.
	p := lockfile.Provider{Address: a, Version: provider.MustParseVersion("2.0.0")}
	clients.Must(t, os.MkdirAll(l.target(p), 0o755))
	l.removeLinks()
	if _, err := os.Lstat(l.target(p)); err != nil {
		t.Error(err)
	}
}

// TestCopies shows that the folder is made when it is needed, that another process sees that it is in use, and that nothing is
// left of it.
func TestCopies(t *testing.T) {
	in := filepath.Join(t.TempDir(), ".terraform")
	c := copies{in: in}
	c.remove()
	if _, err := os.Lstat(in); err == nil {
		t.Error("there is a folder that nobody needs")
	}
	first, err := c.next()
	clients.Must(t, err)
	second, err := c.next()
	clients.Must(t, err)
	if first == second || filepath.Dir(first) != filepath.Dir(second) {
		t.Errorf("%s and %s", first, second)
	}
	clients.Must(t, os.Mkdir(first, 0o755))
	if files.IsAbandoned(strings.TrimSuffix(filepath.Dir(first), ".d")) {
		t.Error("it is not locked")
	}
	c.remove()
	if entries, err := os.ReadDir(in); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", namesOf(entries), err)
	}
}
