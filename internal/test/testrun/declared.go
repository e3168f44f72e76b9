package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sceneDirective is the line in the doc comment of an end-to-end test that "make test" runs.
const sceneDirective = "//testrun:scene"

// declared is a package and the tests that its files declare, as "go test -list" prints them, without benchmarks.
type declared struct {
	Package string
	Dir     string
	Tests   []string
	Scenes  []string // the tests with a sceneDirective

	// Concurrent is whether the package or its tests run code in several goroutines.
	Concurrent bool

	imports []string // of the package and its tests
}

// listTests returns the packages below dir that have tests. flags are build flags of the go command. It resolves no imports,
// which can need the network.
func listTests(dir string, flags []string) ([]declared, error) {
	cmd := exec.Command("go", slices.Concat([]string{"list", "-find", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles"}, flags, []string{"./..."})...)
	cmd.Dir, cmd.Env = dir, moduleEnv(dir, flags)
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return nil, errors.New(string(exit.Stderr))
	} else if err != nil {
		return nil, err
	}
	var all []declared
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir                    string
			GoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			markConcurrent(all)
			return slices.DeleteFunc(all, func(d declared) bool { return len(d.Tests) == 0 }), nil
		} else if err != nil {
			return nil, err
		}
		found := declared{Package: p.ImportPath, Dir: dir}
		for _, names := range [][]string{p.GoFiles, p.TestGoFiles, p.XTestGoFiles} {
			if err := found.read(p.Dir, names); err != nil {
				return nil, err
			}
		}
		all = append(all, found)
	}
}

// read adds the tests in files of one package, what these import, and whether they are concurrent.
func (d *declared) read(dir string, names []string) error {
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		d.Concurrent = d.Concurrent || isConcurrent(f)
		for _, i := range f.Imports {
			d.imports = append(d.imports, strings.Trim(i.Path.Value, `"`))
		}
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		files = append(files, f)
		for _, decl := range f.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !isTest(f) {
				continue
			}
			d.Tests = append(d.Tests, f.Name.Name)
			if f.Doc != nil && slices.ContainsFunc(f.Doc.List, func(c *ast.Comment) bool { return c.Text == sceneDirective }) {
				d.Scenes = append(d.Scenes, f.Name.Name)
			}
		}
	}
	for _, e := range doc.Examples(files...) {
		if e.Output != "" || e.EmptyOutput {
			d.Tests = append(d.Tests, "Example"+e.Name)
		}
	}
	return nil
}

// isTest reports whether the go command runs the function as a test, or as a fuzz test with its seeds.
func isTest(f *ast.FuncDecl) bool {
	for prefix, param := range map[string]string{"Test": "T", "Fuzz": "F"} {
		rest, ok := strings.CutPrefix(f.Name.Name, prefix)
		if !ok || len(f.Type.Params.List) != 1 {
			continue
		}
		if r, _ := utf8.DecodeRuneInString(rest); rest != "" && unicode.IsLower(r) {
			continue
		}
		star, _ := f.Type.Params.List[0].Type.(*ast.StarExpr)
		if star == nil {
			continue
		}
		if sel, _ := star.X.(*ast.SelectorExpr); sel != nil && sel.Sel.Name == param {
			return true
		}
	}
	return false
}
