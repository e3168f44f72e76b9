package modulezip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-slug"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// ofClients returns the files that go-slug, the library of OpenTofu, packs from a folder, without the names that are never
// part of a module. Its ignore file has the given rules.
func ofClients(tb testing.TB, dir, rules string) (names []string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, ignoreFile), []byte(rules), 0o644); err != nil {
		tb.Fatal(err)
	}
	packer, err := slug.NewPacker(slug.ApplyTerraformIgnore())
	if err != nil {
		tb.Fatal(err)
	}
	packed, err := packer.Pack(dir, io.Discard)
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range packed.Files {
		if !strings.HasSuffix(name, "/") && !slices.ContainsFunc(strings.Split(name, "/"), isPrivate) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// listed returns the files that Pack chooses from a folder.
func listed(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	defer root.Close()
	rules, err := readRules(root)
	if err != nil {
		tb.Fatal(err)
	}
	entries, err := list(tb.Context(), root, rules, false)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.name)
	}
	return names
}

// TestIgnoreAsClients shows that .terraformignore excludes the files that clients exclude, also where a rule is surprising.
func TestIgnoreAsClients(t *testing.T) {
	folder := tree{
		"main.tf": "", "a.log": "", "a+b": "", "aab": "", "x{2}": "", "xx": "", "$x": "", "x$y": "", "[a].md": "", "a.md": "", "naïve.md": "",
		"docs/a.md": "", "docs/keep.md": "", "docs/sub/b.md": "", "docs/sub/keep.md": "", "sub/docs/b.md": "",
		"sub/docs/deep/c.md": "", "docs2/a.md": "", "deep/docs": "", "deep/a/b/c/d.log": "", ".git/HEAD": "", "sub/.terraform/x": "", "modules/.terraform/modules/y": "",
	}.write(t)
	for _, rules := range []string{
		"docs", "docs/", "/docs", "/docs/", "docs/*", "docs/**", "**/docs", "**/docs/**", "docs\ndocs/", "docs\ndocs/*", "docs/*/",
		"docs/\n!docs/keep.md", "docs/*\n!docs/keep.md", "docs/*\n!keep.md", "docs/**\n!docs/sub/", "!docs/keep.md\ndocs/", "docs/\n!a.log", "docs/*\n!none\ndocs/*",
		"*", "*\n!*.md", "**", "/", "*/", "/*", "/*/", "!*", "*\n!docs/", "*\n!docs/\n!docs/**",
		"*.log", "/*.log", "a?log", "?.md", "a.md", "a*", "*b", "**b", "d**/*.md", "deep/**/d.log", "deep/*/d.log", "deep/**",
		"[ab].md", "[!a].md", "[^a].md", `\[a\].md`, "(", "(a|x)*", "a+b", "x{2}", `x\{2\}`, "$x", "x$*", `\*.md`, `a\`, "na?ve.md", "naïve.md", "^a.md",
		"  docs/  ", "\tdocs/\r", "#docs/", "docs/ # comment", "! docs/keep.md", "!#x", "docs/\n\n# comment\n!docs/keep.md",
		".git/", "!.git/\n!.git/**", "!.terraform/**", "!.terraform/modules/**\n*",
	} {
		t.Run(rules, func(t *testing.T) {
			if want, got := ofClients(t, folder, rules), listed(t, folder); !slices.Equal(got, want) {
				t.Errorf("%q, clients pack %q", got, want)
			}
		})
	}
}

// TestIgnoreFromWindows shows that a byte order mark changes no rule, and that a file in another encoding, whose rules would
// match nothing, is refused.
func TestIgnoreFromWindows(t *testing.T) {
	files := tree{"main.tf": "", "secrets/key.txt": ""}
	files[ignoreFile] = "\ufeffsecrets/\r\n.terraformignore\r\n"
	if got := listed(t, files.write(t)); !slices.Equal(got, []string{"main.tf"}) {
		t.Errorf("with a byte order mark: %v", got)
	}
	for name, content := range map[string]string{
		"UTF-16":                           "\xff\xfes\x00/\x00\n\x00",
		"UTF-16 without a byte order mark": "s\x00/\x00\n\x00",
		"big-endian":                       "\xfe\xff\x00s\x00/\x00\n",
		"a letter of Windows-1252":         "m\xe4rz/\n",
	} {
		files[ignoreFile] = content
		t.Run(name, func(t *testing.T) {
			refused(t, files.write(t), ".terraformignore is not UTF-8")
		})
	}
}

// TestIgnoreBounds shows the bounds on an ignore file. What is within them passes, and one beyond them is an error that
// says what to do.
func TestIgnoreBounds(t *testing.T) {
	overhead := mustRule(t, "x{1}").steps - 1
	for _, tt := range []struct {
		name           string
		within, beyond string
		err            string
	}{
		{"the number of rules", strings.Repeat("a\n\n# b\n", maxRules), strings.Repeat("a\n", maxRules+1), ".terraformignore has more than 1000 rules"},
		{"the length of a rule", "a\n" + strings.Repeat("b", maxRule), "a\n" + strings.Repeat("b", maxRule+1), "line 2 of .terraformignore has 257 bytes"},
		{"the length of a comment", "#" + strings.Repeat("b", maxIgnoreBytes-1), "#" + strings.Repeat("b", maxIgnoreBytes), ".terraformignore has more than 61440 bytes"},
		{"the steps of a rule", fmt.Sprintf("x{%d}", maxRuleSteps-overhead), fmt.Sprintf("a\nx{%d}", maxRuleSteps-overhead+1), "line 2 of .terraformignore is a pattern of 1001 steps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pack(t, tree{"main.tf": "", ignoreFile: tt.within}.write(t))
			refused(t, tree{"main.tf": "", ignoreFile: tt.beyond}.write(t), tt.err)
		})
	}
}

func mustRule(t *testing.T, text string) ignoreRule {
	t.Helper()
	rule, err := parseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

// TestIgnoreCost shows the bound on the comparisons of all names with all rules.
func TestIgnoreCost(t *testing.T) {
	rule := mustRule(t, "*.log")
	name := "a.tf"
	rules := &ignoreRules{rules: []ignoreRule{rule, rule}, steps: maxSteps - int64(2*rule.steps*len(name))}
	if excluded, err := rules.excludes(t.Context(), name); excluded || err != nil {
		t.Errorf("%v, %v", excluded, err)
	}
	if _, err := rules.excludes(t.Context(), name); !errors.Is(err, ErrUnpackable) || hint.Of(err) == "" {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

// cancelled is a context that is cancelled once it has been asked a number of times.
type cancelled struct {
	context.Context
	cancel context.CancelFunc
	left   int
}

// Err implements [context.Context].
func (c *cancelled) Err() error {
	if c.left--; c.left == 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// TestInterruptedRules shows that packing ends between two rules, and leaves no temporary file. A comparison with one rule
// is bounded (TestIgnoreBounds).
func TestInterruptedRules(t *testing.T) {
	dir := tree{"main.tf": "", ignoreFile: strings.Repeat("*.log\n", maxRules)}.write(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counted := &cancelled{ctx, cancel, maxRules / 2}
	if _, err := Pack(counted, dir); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if counted.left < -1 {
		t.Errorf("it was asked %d times after the interrupt", -counted.left)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("temporary files %v, %v", left, err)
	}
}

// FuzzIgnore shows that .terraformignore excludes the files that clients exclude, whatever the names and the rules.
func FuzzIgnore(f *testing.F) {
	f.Add("docs/a.md", "docs/sub/b.md", "docs/*")
	f.Add("docs/a.md", "docs/sub/b.md", "docs/\n!docs/a.md")
	f.Add("a/b/c", "a+b", "a\n!b/\n[c]")
	f.Add("ä/\\.x", "$", "ä/**/\n\\$")
	f.Fuzz(func(t *testing.T, one, two, text string) {
		rules, err := parseRules([]byte(text))
		if err != nil || len(text) > maxIgnoreBytes || strings.HasPrefix(text, "\ufeff") {
			return
		}
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		for _, name := range []string{one, two} {
			if len(name) > maxName || root.MkdirAll(filepath.Dir(name), 0o755) != nil || root.WriteFile(name, nil, 0o644) != nil {
				return // no name of a file
			}
		}
		entries, err := list(t.Context(), root, rules, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.name)
		}
		isRules := func(name string) bool { return name == ignoreFile } // ofClients writes it
		want := slices.DeleteFunc(ofClients(t, dir, written(text)), isRules)
		if got = slices.DeleteFunc(got, isRules); !slices.Equal(got, want) {
			t.Errorf("%q, clients pack %q", got, want)
		}
	})
}

// written returns the rules of an ignore file without the lines that have none.
func written(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if rule := strings.TrimSpace(line); strings.TrimPrefix(rule, "!") != "" {
			fmt.Fprintln(&out, rule)
		}
	}
	return out.String()
}
