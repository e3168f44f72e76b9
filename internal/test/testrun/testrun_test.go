package main

import (
	"go/build"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// inProject changes to a folder with a small project, in which some texts are replaced. It has the packages of each kind. Its
// tests skip as those of the real project do.
func inProject(t *testing.T, replace ...string) (notes string) {
	t.Helper()
	project, err := os.ReadFile("testdata/project.txtar")
	clients.Must(t, err)
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(strings.NewReplacer(replace...).Replace(string(project)))).Files {
		name := filepath.Join(dir, f.Name)
		clients.Must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		clients.Must(t, os.WriteFile(name, f.Data, 0o644))
	}
	t.Chdir(dir)
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=acme", "-c", "user.email=acme@example.com", "commit", "-q", "-m", "first"}} {
		_, err := git(args...)
		clients.Must(t, err)
	}
	notes = filepath.Join(t.TempDir(), "notes")
	t.Setenv("NOTES", notes)
	return notes
}

// do runs one part, and returns what it prints.
func do(part string, race bool) (string, error) {
	var out strings.Builder
	r := &run{race: race, tools: "ocibridge", flags: []string{"-count=1", "-vet=off", "-ldflags=-w"}, report: newReport(&out)}
	err := r.do(part)
	return out.String(), err
}

// TestBothParts shows that "all" runs what "test" has left, a subtest included, and nothing else twice. Of the packages, none is
// concurrent: with -race, they run without the race detector.
func TestBothParts(t *testing.T) {
	testkit.LeaveToAll(t)
	for name, race := range map[string]bool{"plain": false, "race": true} {
		t.Run(name, func(t *testing.T) { bothParts(t, race) })
	}
}

func bothParts(t *testing.T, race bool) {
	t.Helper()
	notes := inProject(t)
	first, err := do("test", race)
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	for _, want := range []string{`(?m)^ok  \tgithub.com/ocibridge/ocibridge/unit\t[0-9.]+s$`, `(?m)^ok  \tgithub.com/ocibridge/ocibridge/e2e\t`, `the 1 tests and subtests that need more tools`,
		`(?m)^The slowest packages:\n +[0-9.]+ s  (unit|e2e)$`, `(?m)^The slowest tests:\n +[0-9.]+ s  (unit|e2e) [A-Z]`} {
		if !regexp.MustCompile(want).MatchString(first) {
			t.Errorf("make test does not print %s:\n%s", want, first)
		}
	}
	second, err := do("all", race)
	if err != nil {
		t.Fatalf("%v\n%s", err, second)
	}
	for _, want := range []string{"make test has run on these sources", "ocibridge/unit\t", "ocibridge/e2e\t", "ocibridge/deploy\t", "ocibridge/tools/release\t"} {
		if !strings.Contains(second, want) {
			t.Errorf("make test-all does not print %q:\n%s", want, second)
		}
	}
	ran, err := os.ReadFile(notes)
	clients.Must(t, err)
	got := slices.Sorted(strings.Lines(string(ran)))
	if want := []string{"FuzzSeeds/seed#0\n", "TestMeasures\n", "TestParts/has_a/b\n", "TestParts/needs_tofu\n", "TestPlain\n"}; !slices.Equal(got, want) {
		t.Errorf("ran %q, want %q, each once", got, want)
	}
	if rec, there := readRecord(sourceState()); there {
		t.Errorf("the next run does not begin anew: %v", rec)
	}
}

// TestFaults shows that a run fails, and says why, if a test fails, is skipped unseen, does not run or does not build.
func TestFaults(t *testing.T) {
	testkit.LeaveToAll(t)
	for name, tc := range map[string]struct{ old, new, want string }{
		"failed":      {"func TestPlain(t *testing.T) { note(t) }", "func TestPlain(t *testing.T) { t.Error(`so it is`) }", "(?s)so it is\n--- FAIL: TestPlain .*FAIL\tgithub.com/ocibridge/ocibridge/unit.*\nFAIL\n  failed: unit TestPlain\n"},
		"skipped":     {"func TestPlain(t *testing.T) { note(t) }", "func TestPlain(t *testing.T) { t.Skip(`not today`) }", "\nFAIL\n  skipped, and not listed in internal/test/testrun/skips.go: unit TestPlain: not today\n"},
		"did not run": {"func TestPlain(t *testing.T) { note(t) }", "func TestPlain(t *testing.T) { note(t) }\nfunc TestMain(m *testing.M) { os.Exit(0) }", "\nFAIL\n  did not run: unit TestPlain TestParts TestMeasures FuzzSeeds\n"},
		"crashed":     {"func TestPlain(t *testing.T) { note(t) }", "func TestPlain(t *testing.T) { panic(`so it is`) }", "(?s)panic: so it is.*\nFAIL\n  failed: unit TestPlain\n  failed: unit: 3 tests did not run\n"},
		"no build":    {"func TestPlain(t *testing.T) { note(t) }", "func TestPlain(t *testing.T) { nothing() }", "(?s)undefined: nothing.*\nFAIL\n  failed: unit: 4 tests did not run\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inProject(t, tc.old, tc.new)
			out, err := do("test", false)
			if err == nil || !regexp.MustCompile(tc.want).MatchString(out) || !strings.Contains(out, "ok  \tgithub.com/ocibridge/ocibridge/e2e") {
				t.Errorf("error %v, want %s in\n%s", err, tc.want, out)
			}
			if name != "failed" {
				return
			}
			if out, err := do("all", false); err == nil || strings.Contains(out, "has run on these sources") || !regexp.MustCompile(tc.want).MatchString(out) {
				t.Errorf("make test-all on the same sources: error %v, want %s in\n%s", err, tc.want, out)
			}
		})
	}
}

// TestChangedSources shows that "all" finds no record of "test" if the sources differ, and therefore runs everything.
func TestChangedSources(t *testing.T) {
	inProject(t)
	clients.Must(t, record{State: sourceState()}.write())
	if _, there := readRecord(sourceState()); !there {
		t.Error("no record of the same sources")
	}
	clients.Must(t, os.WriteFile("more_test.go", []byte("package more\n"), 0o644))
	if _, there := readRecord(sourceState()); there {
		t.Error("there is a record of other sources")
	}
}

// TestSourceState shows that each change of a source changes the state, whether Git tracks the file or not. Variables that name
// another repository do not matter.
func TestSourceState(t *testing.T) {
	inProject(t)
	state := sourceState()
	t.Setenv("GIT_DIR", t.TempDir())
	if got := sourceState(); got != state || state == "" {
		t.Errorf("with GIT_DIR: %q, want %q", got, state)
	}
	seen := map[string]string{state: "the commit"}
	for _, c := range []struct{ name, content string }{{"new", "1"}, {"new", "2"}, {"other", "2"}, {"go.mod", "3"}} {
		clients.Must(t, os.WriteFile(c.name, []byte(c.content), 0o644))
		state := sourceState()
		if same, ok := seen[state]; ok || state == "" {
			t.Errorf("the state with %v is %q, like that of %s", c, state, same)
		}
		seen[state] = c.name + " " + c.content
	}
	clients.Must(t, os.MkdirAll("bin", 0o755))
	before := sourceState()
	clients.Must(t, os.WriteFile("bin/ignored", []byte("1"), 0o644))
	if got := sourceState(); got != before {
		t.Error("an ignored file changes the state")
	}
}

// TestListResolvesNoImports shows that tests are listed without the modules that they import, which could be downloads.
func TestListResolvesNoImports(t *testing.T) {
	inProject(t)
	clients.Must(t, os.WriteFile("unit/unit.go", []byte("package unit\nimport _ \"missing.example/module\"\n"), 0o644))
	if all, err := listTests(".", nil); err != nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestReason shows why a test was skipped, according to what it has written.
func TestReason(t *testing.T) {
	for output, want := range map[string]string{
		"    a_test.go:1: not today\n--- SKIP: TestA (0.00s)\n":                                                                                   "not today",
		"    a_test.go:1: first\n    a_test.go:2: not\n        today\n    --- SKIP: TestA/b (0.00s)\n":                                            "not\n        today",
		"    testscript.go:375: left to make test-all, which has all scripts\n    testscript.go:584: WORK=$WORK\n    --- SKIP: TestA/b (0.00s)\n": "left to make test-all, which has all scripts",
		"--- SKIP: TestA (0.00s)\n": "",
	} {
		if got := reason([]string{output}); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

// TestSkips shows which skips the table permits.
func TestSkips(t *testing.T) {
	s := skip{"auth", "TestHelper", "windows", "the helper is"}
	for _, tc := range []struct {
		t              test
		system, reason string
		want           bool
	}{
		{test{module + "/auth", "TestHelper"}, "windows", "the helper is a shell script", true},
		{test{module + "/auth", "TestHelper/sub"}, "windows", "the helper is a shell script", true},
		{test{module + "/auth", "TestHelper"}, "linux", "the helper is a shell script", false},
		{test{module + "/auth", "TestHelpers"}, "windows", "the helper is a shell script", false},
		{test{module + "/auth", "TestHelper"}, "windows", "another", false},
		{test{module + "/origin", "TestHelper"}, "windows", "the helper is a shell script", false},
	} {
		if got := s.permits(tc.t, tc.system, tc.reason); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}

// TestCommands shows that packages share a command only if its pattern runs exactly what was chosen, and that slow ones come first.
func TestCommands(t *testing.T) {
	all := []declared{{Package: module + "/a", Tests: []string{"TestG"}}, {Package: module + "/pusher", Tests: []string{"TestG"}}, {Package: "a", Tests: []string{"TestA", "TestB"}}, {Package: "b", Tests: []string{"TestB", "TestC"}}, {Package: "c", Tests: []string{"TestC"}}, {Package: "d", Tests: []string{"TestD"}}, {Package: module + "/e2e", Tests: []string{"TestE", "TestF"}}}
	got := commands(all, chosen{module + "/a": {"TestG"}, module + "/pusher": {"TestG"}, "a": {"TestA"}, "b": {"TestB/x/1+1", "TestC"}, "c": {"TestC"}, "d": {"TestD"}, module + "/e2e": {"TestE"}})
	want := []command{{[]string{module + "/pusher", module + "/a", "c", "d"}, ""}, {[]string{module + "/e2e", "a"}, "^TestA$|^TestE$"}, {[]string{"b"}, `^TestB$/^x$/^1\+1$|^TestC$`}}
	if !slices.EqualFunc(got, want, func(a, b command) bool { return a.pattern == b.pattern && slices.Equal(a.packages, b.packages) }) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDeclared shows that listTests finds what "go test -list" prints, benchmarks apart.
func TestDeclared(t *testing.T) {
	testkit.LeaveToAll(t)
	t.Chdir("../../..")
	all, err := listTests(".", nil)
	clients.Must(t, err)
	for _, name := range []string{"internal/test/testrun", "internal/base/document", "provider"} {
		out, err := exec.Command("go", "test", "-vet=off", "-ldflags=-w", "-list", "Test|Fuzz|Example", "./"+name).Output()
		clients.Must(t, err)
		want := slices.DeleteFunc(strings.Fields(string(out)), func(word string) bool { return !regexp.MustCompile("^(Test|Fuzz|Example)").MatchString(word) })
		i := slices.IndexFunc(all, func(d declared) bool { return short(d.Package) == name })
		if got := slices.Sorted(slices.Values(all[i].Tests)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestEveryTestIsInOnePart counts the tests of the project: each is in exactly one part of "make test-all", or left by the
// first part to the second. It finds the test files by themselves, so that no module and no build tag hides one. Scenes are
// end-to-end tests.
func TestEveryTestIsInOnePart(t *testing.T) {
	t.Chdir("../../..")
	t.Setenv("CGO_ENABLED", "0") // as in CI
	underRace, err := listTests(".", pass{Race: true}.buildFlags())
	clients.Must(t, err)
	plain, err := listTests(".", nil)
	clients.Must(t, err)
	ofReleases, err := listTests("tools/release", nil)
	clients.Must(t, err)
	units, scenes, _ := split(underRace)
	_, _, others := split(plain)
	n, parts := map[test]int{}, map[string]int{}
	count := func(part string, tests chosen) {
		for name, names := range tests {
			for _, t := range names {
				n[test{name, t}]++
				parts[part]++
			}
		}
	}
	count("units", units)
	count("scenes", scenes)
	count("others", others)
	for _, d := range ofReleases {
		count("releases", chosen{d.Package: d.Tests})
	}
	known := testFiles(t)
	for _, each := range known {
		if n[each] != 1 {
			t.Errorf("%s %s is in %d parts", each.Package, each.Name, n[each])
		}
	}
	t.Logf("%d tests: %v", len(known), parts)
	if total := parts["units"] + parts["scenes"] + parts["others"] + parts["releases"]; total != len(known) || parts["scenes"] == 0 || parts["others"] == 0 {
		t.Errorf("the parts have %v of %d tests", parts, len(known))
	}
	for name := range maps.Keys(scenes) {
		if short(name) != "e2e" {
			t.Errorf("package %s has scenes", name)
		}
	}
}

// testFiles returns the tests in all test files of the project, but for those of other platforms.
func testFiles(t *testing.T) []test {
	t.Helper()
	byFolder := map[string][]string{}
	clients.Must(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		dir, base := filepath.Dir(name), d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(base, "_test.go"):
			return nil
		}
		there, err := build.Default.MatchFile(dir, base)
		if there {
			byFolder[dir] = append(byFolder[dir], base)
		}
		return err
	}))
	var tests []test
	for dir, names := range byFolder {
		d := declared{}
		clients.Must(t, d.read(dir, names))
		for _, name := range d.Tests {
			tests = append(tests, test{path.Join(module, filepath.ToSlash(dir)), name})
		}
	}
	return tests
}
