package lockfile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

// hash returns a hash of the given scheme that repeats a letter. Hashes of one scheme sort
// by their letters.
func hash(scheme string, letter byte) string {
	if scheme == "h1" {
		return "h1:" + strings.Repeat(string(letter), 42) + "A="
	}
	return "zh:" + strings.Repeat(string(letter), 64)
}

func hashes(t *testing.T, texts ...string) []provider.Hash {
	t.Helper()
	var out []provider.Hash
	for _, s := range texts {
		h, err := provider.ParseHash(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, h)
	}
	return out
}

const header = `# This file is maintained automatically by "tofu init".
# Manual edits may be lost in future updates.
`

func block(lines ...string) string {
	return "\nprovider \"registry.opentofu.org/hashicorp/null\" {\n" + strings.Join(lines, "\n") + "\n}\n"
}

var null = provider.MustParseAddress("registry.opentofu.org/hashicorp/null")

func TestNamespaceWithUnderscore(t *testing.T) {
	f, err := lockfile.Parse("a.hcl", []byte("provider \"app.terraform.io/acme_corp/null\" {\n  version = \"3.2.4\"\n}\n"))
	if err != nil || len(f.Providers) != 1 || f.Providers[0].Address.Namespace() != "acme_corp" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestParse(t *testing.T) {
	src := header + block(`  version     = "3.2.4"`, `  constraints = "~> 3.2"`, `  hashes = [`,
		`    "`+hash("h1", 'B')+`",`, `    "h9:of the future",`, `    "zh:not one",`, `    "`+hash("zh", 'c')+`",`, `  ]`) + `
provider "registry.terraform.io/hashicorp/null" {
  version = "3.2.3-beta.1"
}
`
	f, err := lockfile.Parse("a.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Providers) != 2 || len(f.Warnings) != 0 {
		t.Fatalf("%+v", f)
	}
	p, _ := f.Provider(null)
	if p.Version.String() != "3.2.4" || p.Constraints != "~> 3.2" || p.Line != 4 || len(p.Hashes) != 4 {
		t.Errorf("%+v", p)
	}
	if got := p.Known(); !slices.Equal(got, hashes(t, hash("h1", 'B'), hash("zh", 'c'))) {
		t.Errorf("known %v", got)
	}
	if p := f.Providers[1]; p.Address.String() != "registry.terraform.io/hashicorp/null" || p.Version.String() != "3.2.3-beta.1" || p.Hashes != nil || f.Where(p.Line) != "a.hcl:15" {
		t.Errorf("%+v", p)
	}
	if string(f.Bytes()) != src {
		t.Error("other bytes")
	}
}

func TestModuleLocksAreWarnedOf(t *testing.T) {
	f, err := lockfile.Parse("f", []byte("\nmodule \"a\" {}\nmodule \"b\" {}\n"))
	if err != nil || len(f.Warnings) != 1 || !strings.HasPrefix(f.Warnings[0], "f:2: locks of modules") {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct{ src, want string }{
		"syntax":            {"provider \"a", "f:1: "},
		"unknown block":     {header + "\nresource \"a\" {\n}\n", "f:4: unsupported block type"},
		"unknown argument":  {block(`  version = "1.0.0"`, `  h = 1`), "f:4: unsupported argument"},
		"no version":        {block(`  hashes = ["h1:a"]`), "f:2: missing required argument"},
		"null version":      {block(`  version = null`), "f:3: "},
		"loose version":     {block(`  version = "3.2"`), `f:3: invalid provider version number: invalid version "3.2"`},
		"bad constraints":   {block(`  version = "3.2.4"`, `  constraints = "=> 3"`), "f:4: invalid provider version constraints"},
		"no hash in list":   {block(`  version = "3.2.4"`, `  hashes = []`), "f:4: invalid provider hash set"},
		"hashes not a list": {block(`  version = "3.2.4"`, `  hashes = "h1:a"`), "f:4: "},
		"hash no text":      {block(`  version = "3.2.4"`, `  hashes = [`, `[],`, `]`), "f:5: "},
		"hash no scheme":    {block(`  version = "3.2.4"`, `  hashes = [`, `":a",`, `]`), "f:5: invalid provider hash"},
		"twice":             {block(`  version = "3.2.4"`) + block(`  version = "3.2.3"`), "f:6: duplicate provider lock: registry.opentofu.org/hashicorp/null is locked in line 2 already"},
		"argument twice":    {block(`  version = "3.2.4"`, `  version = "3.2.4"`), "f:4: attribute redefined"},
		"no hostname":       {`provider "hashicorp/null" {` + "\n  version = \"3.2.4\"\n}\n", "f:1: invalid provider source address"},
		"not canonical":     {"provider \"Registry.OpenTofu.org/hashicorp/null\" {\n  version = \"3.2.4\"\n}\n", `must be written as "registry.opentofu.org/hashicorp/null"`},
		"built in":          {"provider \"terraform.io/builtin/terraform\" {\n  version = \"3.2.4\"\n}\n", "is built into the clients"},
		"no label":          {"provider {\n}\n", "f:1: "},
		"expression":        {block(`  version = "3.2.${4}"`), "f:3: expression"},
		"unquoted version":  {block(`  version = 3.2.4`), "f:3: "},
		"function":          {block(`  version = upper("3.2.4")`), "f:3: expression"},
		"deep":              {block(`  version = ` + strings.Repeat("[", 9) + strings.Repeat("]", 9)), "f:3: too deep"},
		"deep again":        {"a = 1 " + strings.Repeat("]", 100) + "\nb = " + strings.Repeat("[", 100), "f:1: brackets: Here is a ']' that closes nothing"},
		"brackets of kinds": {"a = " + strings.Repeat("[}", 100), "f:1: brackets: Here is a '}' that closes nothing"},
		"blocks and lists":  {strings.Repeat("x {\na = 1 ]\n", 100), "f:2: brackets: Here is a ']' that closes nothing"},
		"index":             {block(`  version = a` + strings.Repeat("[b]", 100)), "f:3: expression"},
		"index on its line": {block(`  hashes = ["h1:a"` + "\n[b]]"), "f:4: expression"},
		"comparison":        {block(`  version = a == b`), "f:3: expression"},
		"subtraction":       {block(`  version = a -b`), "f:3: expression"},
		"dollars":           {block(`  version = "` + strings.Repeat("$$", 100) + `"`), "f:3: expression"},
		"percent signs":     {block(`  version = "%%"`), "f:3: expression"},
		"escape":            {block(`  version = "3.2.\u0034"`), "f:3: expression"},
		"comment open":      {"\na = /* " + strings.Repeat("[", 100), "f:2: expression"},
		"text open":         {"\nprovider \"a\n\" {}", "f:2: expression"},
		"carriage return":   {"# a\r b = [[[[[[[[[\n", "f:1: invalid character"},
		"not UTF-8":         {"# \xff\n", "f:1: invalid character encoding"},
		"no letter":         {"\u2603 = 1\n", "f:1: expression"},
		"tokens":            {strings.Repeat("#\n", 50_001), "f:50002: too long"},
		"several":           {block(`  version = "x"`, `  hashes = []`), "(and 1 more)"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := lockfile.Parse("f", []byte(tc.src))
			if err == nil {
				t.Fatalf("%+v", f)
			}
			if !strings.Contains(err.Error(), tc.want) || hint.Of(err) == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant %s", err, tc.want)
			}
		})
	}
	if _, err := lockfile.Parse("f", make([]byte, lockfile.MaxBytes+1)); err == nil {
		t.Error("too large")
	}
}

func TestWith(t *testing.T) {
	b, d, f := hash("zh", 'b'), hash("zh", 'd'), hash("zh", 'f')
	for name, tc := range map[string]struct {
		before, after []string
		add           []string
	}{
		"before, between and after, as clients sort": {
			[]string{`  version = "3.2.4"`, `  hashes = [`, `    "` + d + `",`, `  ]`},
			[]string{`  version = "3.2.4"`, `  hashes = [`, `    "` + hash("h1", 'A') + `",`, `    "` + b + `",`, `    "` + d + `",`, `    "` + f + `",`, `  ]`},
			[]string{f, b, d, hash("h1", 'A'), b},
		},
		"the first hashes": {
			[]string{`  version     = "3.2.4"`, `  constraints = "3.2.4"`},
			[]string{`  version     = "3.2.4"`, `  constraints = "3.2.4"`, `  hashes = [`, `    "` + b + `",`, `    "` + d + `",`, `  ]`},
			[]string{d, b},
		},
		"comments stay": {
			[]string{`  # ours`, `  version = "3.2.4" # pinned`, `  hashes = [ // of linux`, `    "` + d + `" /* d */,  # the last`, `    # the end`, `  ]`},
			[]string{`  # ours`, `  version = "3.2.4" # pinned`, `  hashes = [ // of linux`, `    "` + b + `",`, `    "` + d + `",`, `    "` + f + `" /* d */,  # the last`, `    # the end`, `  ]`},
			[]string{b, f},
		},
		"no comma at the end": {
			[]string{`  hashes = ["` + b + `", "` + d + `"]`, `  version="3.2.4"`},
			[]string{`  hashes = ["` + b + `", "` + d + `",`, `    "` + f + `"]`, `  version="3.2.4"`},
			[]string{f},
		},
		"an order of its own": {
			[]string{`  version = "3.2.4"`, `  hashes = [`, `    "` + d + `",`, `    "` + b + `",`, `  ]`},
			[]string{`  version = "3.2.4"`, `  hashes = [`, `    "` + d + `",`, `    "` + b + `",`, `    "` + f + `",`, `  ]`},
			[]string{f},
		},
		"nothing to add": {
			[]string{`  version = "3.2.4"`, `  hashes=["` + b + `"]`},
			[]string{`  version = "3.2.4"`, `  hashes=["` + b + `"]`},
			[]string{b},
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := "\nprovider \"registry.terraform.io/hashicorp/null\" {\n  version = \"3.2.4\"\n}\n# end"
			for _, newline := range []string{"\n", "\r\n"} {
				whole := func(lines []string) string { return strings.ReplaceAll(header+block(lines...)+other, "\n", newline) }
				file, err := lockfile.Parse("f", []byte(whole(tc.before)))
				if err != nil {
					t.Fatal(err)
				}
				next, err := file.With(map[provider.Address][]provider.Hash{null: hashes(t, tc.add...)})
				if err != nil {
					t.Fatal(err)
				}
				if got := string(next.Bytes()); got != whole(tc.after) {
					t.Errorf("got\n%s\nwant\n%s", got, whole(tc.after))
				}
			}
		})
	}
}

func TestWithOneLineBlock(t *testing.T) {
	file, err := lockfile.Parse("f", []byte(`provider "registry.opentofu.org/hashicorp/null" { version = "3.2.4" }`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := file.With(map[provider.Address][]provider.Hash{null: hashes(t, hash("zh", 'a'))})
	if err != nil {
		t.Fatal(err)
	}
	want := "provider \"registry.opentofu.org/hashicorp/null\" { \n  version = \"3.2.4\"\n  hashes = [\n    \"" + hash("zh", 'a') + "\",\n  ]\n }\n"
	if got := string(next.Bytes()); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestWithUnknownProvider(t *testing.T) {
	file, err := lockfile.Parse("f", []byte(header))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.With(map[provider.Address][]provider.Hash{null: nil}); err == nil {
		t.Error("a hash is added although there is no entry")
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockfile.Name)
	if _, err := lockfile.Read(path); err == nil || !strings.Contains(hint.Of(err), "tofu init") {
		t.Errorf("absent: %v, hint %q", err, hint.Of(err))
	}
	if _, err := lockfile.Read(dir); err == nil || !strings.Contains(hint.Of(err), "give the path of a file "+lockfile.Name) {
		t.Errorf("folder: %v, hint %q", err, hint.Of(err))
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("#", lockfile.MaxBytes+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockfile.Read(path); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("large: %v", err)
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "shared.hcl"), filepath.Join(dir, lockfile.Name)
	if err := os.WriteFile(target, []byte(header), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	read := func() *lockfile.File {
		f, err := lockfile.Read(link)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	prepare := func(f *lockfile.File, content string) *lockfile.Replacement {
		r, err := f.Prepare([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Discard)
		return r
	}
	// Discard removes the temporary file, and does not change the lock file.
	before := read()
	prepare(before, "# new\n").Discard()
	if got := string(read().Bytes()); got != header {
		t.Errorf("after Discard, the file contains %q", got)
	}
	// If the path is a link, Commit writes to the link's target, and keeps the target's
	// permissions.
	if err := prepare(before, "# new\n").Commit(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(target)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(read().Bytes()); got != "# new\n" || info.Mode().Perm() != 0o640 {
		t.Errorf("after Commit, the file contains %q and has mode %v", got, info.Mode())
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	// Commit does not replace a file that has changed since it was read.
	r := prepare(before, "# newer\n")
	if err := r.Commit(); err == nil || !strings.Contains(err.Error(), "changed by something else") {
		t.Errorf("%v", err)
	}
	r.Discard()
	if got := string(read().Bytes()); got != "# new\n" {
		t.Errorf("the file contains %q", got)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("left over: %v, %v", names, err)
	}
}

// comments returns the comments in a file, in their order.
func comments(src []byte) (out []string) {
	tokens, _ := hclsyntax.LexConfig(src, "", hcl.InitialPos)
	for _, token := range tokens {
		if token.Type == hclsyntax.TokenComment {
			out = append(out, strings.TrimSpace(string(token.Bytes)))
		}
	}
	return out
}

// FuzzParse shows that With can add hashes to any valid lock file, and changes nothing else.
func FuzzParse(f *testing.F) {
	zh := hash("zh", 'b')
	for _, s := range []string{
		"", header, header + block(`  version = "3.2.4"`),
		header + block(`  version = "3.2.4" # c`, `  hashes = [`, `    "`+zh+`",`, `  ]`),
		block(`  hashes = ["`+zh+`" /* c */]`, `  version="3.2.4"`),
		block(`  hashes = [ # a`, `# b`, `"h1:x" # c`, `, # d`, ` "zh:y" # e`, `]`, `  version="3.2.4"`),
		"provider \"registry.opentofu.org/hashicorp/null\" { version = \"3.2.4\" }",
		strings.ReplaceAll(block(`  version = "3.2.4"`, `  constraints = ""`, `  hashes = ["h1:a"]`), "\n", "\r\n"),
		"module \"a\" {}\n", "a = [[[[", "\ufeff", "\ufeff" + block(`  version = "3.2.4"`, `  hashes = ["`+zh+`"]`),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := lockfile.Parse("f", src)
		if err != nil {
			return
		}
		if string(file.Bytes()) != string(src) {
			t.Fatal("other bytes")
		}
		add := map[provider.Address][]provider.Hash{}
		more := []string{hash("h1", 'M'), hash("zh", '0'), zh, hash("zh", 'f')}
		for _, p := range file.Providers {
			add[p.Address] = hashes(t, more...)
		}
		next, err := file.With(add)
		if err != nil {
			t.Fatalf("%v in\n%q", err, src)
		}
		if !slices.Equal(comments(src), comments(next.Bytes())) {
			t.Errorf("comments %q became %q", comments(src), comments(next.Bytes()))
		}
		if len(next.Providers) != len(file.Providers) {
			t.Fatalf("%d entries became %d", len(file.Providers), len(next.Providers))
		}
		for i, p := range file.Providers {
			q := next.Providers[i]
			added := slices.DeleteFunc(slices.Clone(q.Hashes), func(h string) bool { return slices.Contains(more, h) && !slices.Contains(p.Hashes, h) })
			if q.Address != p.Address || q.Version != p.Version || q.Constraints != p.Constraints || !slices.Equal(added, p.Hashes) {
				t.Errorf("%+v became %+v", p, q)
			}
			if slices.IsSorted(p.Hashes) && !slices.IsSorted(q.Hashes) {
				t.Errorf("%q became %q", p.Hashes, q.Hashes)
			}
		}
		if again, err := next.With(add); err != nil || again != next {
			t.Errorf("adding the same again: %v", err)
		}
	})
}
