// Package doccheck checks the documentation. docs/explanation/threat-model.md and docs/explanation/reliability.md name a test for each
// of their promises. The tests of this package fail if such a test does not exist.
package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../../.."

// documents maps each page with checked tables to the minimum number of their rows. Because of the minimum, a
// lost table is noticed.
var documents = map[string]int{
	"docs/explanation/threat-model.md": 110,
	"docs/explanation/reliability.md":  55,
	"docs/developers/fuzzing.md":       30,
}

// reference matches the name of a test in a document. The form of a name is `pkg/path.TestName`, with an
// optional slash and subtest.
var reference = regexp.MustCompile("`([a-z0-9_/]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]*)(?:/([^`]+))?`")

func TestNamedTestsExist(t *testing.T) {
	for name, least := range documents {
		t.Run(name, func(t *testing.T) {
			page, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			problems, rows := check(root, string(page))
			for _, p := range problems {
				t.Error(p)
			}
			if rows < least {
				t.Errorf("%d rows name tests, fewer than %d", rows, least)
			}
		})
	}
}

// check checks the names of tests on a page. It returns the problems that it finds. rows is the number of table
// rows that must name tests, which are the rows of tables whose last column is "test".
func check(root, page string) (problems []string, rows int) {
	tests := map[string]*pkg{}
	inTable, named := false, false
	for i, line := range strings.Split(page, "\n") {
		for _, m := range reference.FindAllStringSubmatch(line, -1) {
			dir, test, sub := m[1], m[2], m[3]
			if tests[dir] == nil {
				tests[dir] = parsePackage(filepath.Join(root, filepath.FromSlash(dir)))
			}
			if !tests[dir].has(test, sub) {
				problems = append(problems, fmt.Sprintf("line %d: there is no test %s", i+1, m[0]))
			}
		}
		cells := cellsOf(line)
		switch {
		case len(cells) == 0:
			inTable = false
		case !inTable:
			inTable, named = true, strings.TrimSpace(cells[len(cells)-1]) == "test"
		case named && !strings.HasPrefix(strings.TrimSpace(cells[0]), "---"):
			rows++
			if last := cells[len(cells)-1]; strings.Count(last, "`") == 0 || strings.Count(last, "`") != 2*len(reference.FindAllString(last, -1)) {
				problems = append(problems, fmt.Sprintf("line %d: the last column is no list of `package.TestName`: %s", i+1, last))
			}
		}
	}
	return problems, rows
}

// cellsOf returns the cells of a table row, or nil for any other line.
func cellsOf(line string) []string {
	inner, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !ok {
		return nil
	}
	return strings.Split(strings.TrimSuffix(inner, "|"), "|")
}

// pkg contains what the checks need to know about a package's test files.
type pkg struct {
	dir      string
	tests    map[string]*ast.File
	literals map[*ast.File]map[string]bool // the string literals of each file
}

func parsePackage(dir string) *pkg {
	p := &pkg{dir: dir, tests: map[string]*ast.File{}, literals: map[*ast.File]map[string]bool{}}
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return p
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler reports the error
		}
		literals := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					literals[s] = true
				}
			}
			return true
		})
		p.literals[file] = literals
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				p.tests[f.Name.Name] = file
			}
		}
	}
	return p
}

// has reports whether a test exists. If sub is not "", has also requires that subtest. The name of a subtest is
// a string in the file of the test, or the name of a script in testdata.
func (p *pkg) has(test, sub string) bool {
	file, ok := p.tests[test]
	if !ok || sub == "" || p.literals[file][sub] {
		return ok
	}
	scripts, err := filepath.Glob(filepath.Join(p.dir, "testdata", "script", path.Base(sub)+".txt*"))
	return err == nil && len(scripts) > 0
}

// TestEveryFuzzTestIsListed shows that docs/developers/fuzzing.md lists every fuzz test and the property that it shows, and
// that every fuzz test has a corpus.
func TestEveryFuzzTestIsListed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/developers/fuzzing.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && name != root && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		for _, m := range fuzzTest.FindAllStringSubmatch(string(src), -1) {
			found++
			if test := "`" + filepath.ToSlash(dir) + "." + m[1] + "`"; !strings.Contains(string(page), test) {
				t.Errorf("docs/developers/fuzzing.md does not list %s", test)
			}
			if corpus, err := os.ReadDir(filepath.Join(filepath.Dir(name), "testdata", "fuzz", m[1])); err != nil || len(corpus) == 0 {
				t.Errorf("%s has no corpus, %v: make fuzz, and then make fuzz-corpus", m[1], err)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d fuzz tests, %v", found, err)
	}
}

var fuzzTest = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

func TestCheck(t *testing.T) {
	const table = "| promise | test |\n|---|---|\n"
	for row, want := range map[string]string{
		"| a | `internal/test/doccheck.TestCheck` |":                                              "",
		"| a | `internal/test/doccheck.TestCheck/a subtest`, `cmd/ocibridge.TestScripts/trust` |": "",
		"| a | `internal/test/doccheck.TestGone` |":                                               "there is no test",
		"| a | `internal/test/doccheck.TestCheck/" + "gone` |":                                    "there is no test",
		"| a | `internal/gone.TestCheck` |":                                                       "there is no test",
		"| a | `internal/test/doccheck.TestCheck`, `the code` |":                                  "no list",
		"| a | ask somebody |":                                                                    "no list",
		"| a | |":                                                                                 "no list",
		"text about `internal/test/doccheck.TestGone`":                                            "there is no test",
	} {
		problems, _ := check(root, table+row+"\n")
		if got := strings.Join(problems, "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
	if _, rows := check(root, table+"| a | b |\n| a | b |\n\n| other | table |\n|---|---|\n| a | b |\n"); rows != 2 {
		t.Errorf("%d rows", rows)
	}
	_ = "a subtest"
}
