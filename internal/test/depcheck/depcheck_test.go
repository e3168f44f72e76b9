// Package depcheck checks that packages import only what the map in CONTRIBUTING.md allows.
package depcheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ocibridge/ocibridge"

// row is a row of the map. The row's package may import the packages in imports. The entries "leaves", "tests"
// and "all of the product" mean all packages of that kind.
type row struct {
	kind    string // "leaf" or "package", from the header of the row's table, or "tests"
	imports []string
}

// readMap returns the rows of the map in CONTRIBUTING.md, by package name.
func readMap(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile("../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## The map\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows, kind := map[string]row{}, ""
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case len(cells) != 3 || strings.HasPrefix(cells[0], "---"):
			continue
		case strings.TrimSpace(cells[2]) == "imports":
			kind = strings.TrimSpace(cells[0])
			continue
		}
		r := row{kind, strings.Split(strings.TrimSpace(cells[2]), ", ")}
		if slices.Equal(r.imports, []string{"tests"}) {
			r.kind = "tests"
		}
		for _, name := range names.FindAllStringSubmatch(cells[0], -1) {
			if _, twice := rows[name[1]]; twice {
				t.Errorf("the map has package %s twice", name[1])
			}
			rows[name[1]] = r
		}
	}
	return rows
}

var names = regexp.MustCompile("`([^`]+)`")

// readParts returns the parts of the map, from the top to the bottom: the packages, or folders of packages, of each.
func readParts(t *testing.T) (parts [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n| part | owns |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	for line := range strings.Lines(section) {
		var part []string
		for _, name := range names.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			part = append(part, name[1])
		}
		if part != nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// floor returns the place of a package's part, counted from the top, and -1 for a package of no part.
func floor(parts [][]string, name string) int {
	return slices.IndexFunc(parts, func(part []string) bool {
		return slices.ContainsFunc(part, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
	})
}

// TestParts shows that each package of the product belongs to a part, and imports only packages of its own part and of
// the parts below it.
func TestParts(t *testing.T) {
	parts, rows := readParts(t), readMap(t)
	if len(parts) != 8 {
		t.Fatalf("the map has %d parts", len(parts))
	}
	for name, p := range importGraph(t) {
		at := floor(parts, name)
		if r, _ := rowOf(rows, name); (at < 0) != (r.kind == "tests" || name == "docs") {
			t.Errorf("%s: the map's part is number %d, its kind %q", name, at, r.kind)
			continue
		}
		for _, imported := range ours(p.Imports) {
			if to := floor(parts, imported); at >= 0 && to >= 0 && to < at {
				t.Errorf("%s imports %s, which is of a part above its own", name, imported)
			}
		}
	}
}

// rowOf returns the row of a package. All packages below internal/test/testkit share one row. The bool is false if
// there is no row.
func rowOf(rows map[string]row, name string) (row, bool) {
	if strings.HasPrefix(name, "internal/test/testkit/") {
		name = "internal/test/testkit"
	}
	r, found := rows[name]
	return r, found
}

type listed struct {
	ImportPath   string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func importGraph(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports", module+"/...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	graph := map[string]listed{}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return graph
		} else if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(p.ImportPath, module+"/"); ok {
			graph[name] = p
		}
	}
}

// ours returns those of the given imports that are packages of this module.
func ours(imports []string) (out []string) {
	for _, i := range imports {
		if name, ok := strings.CutPrefix(i, module+"/"); ok {
			out = append(out, name)
		}
	}
	return out
}

// TestMap shows that every package has a row in the map, and every row a package. It also shows that a package
// imports only the packages that its row allows, and imports each package that its row names.
func TestMap(t *testing.T) {
	graph, rows := importGraph(t), readMap(t)
	for name, r := range rows {
		p, found := graph[name]
		if !found {
			t.Errorf("the map has package %s, which does not exist", name)
		}
		for _, arrow := range r.imports {
			if _, isPackage := rows[arrow]; isPackage && !slices.Contains(ours(p.Imports), arrow) {
				t.Errorf("the map has an arrow from %s to %s, but the code has no such import", name, arrow)
			} else if !isPackage && !slices.Contains([]string{"-", "leaves", "tests", "all of the product"}, arrow) {
				t.Errorf("the row of %s names %q, which is no package", name, arrow)
			}
		}
	}
	for name, p := range graph {
		r, found := rowOf(rows, name)
		if !found {
			t.Errorf("the map has no package %s", name)
			continue
		}
		for _, imported := range ours(p.Imports) {
			to, _ := rowOf(rows, imported)
			if !r.allows(imported, to) {
				t.Errorf("%s imports %s, which the map does not allow", name, imported)
			}
		}
	}
}

// allows reports whether the package of r may import the package imported, whose row is to.
func (r row) allows(imported string, to row) bool {
	switch {
	case strings.HasPrefix(imported, "cmd/"):
		return false
	case r.kind == "tests" || to.kind == "leaf":
		return true
	case to.kind == "tests":
		return false
	}
	return slices.Contains(r.imports, "all of the product") || slices.Contains(r.imports, imported)
}

// TestObserversAreAlone shows that only one package imports the libraries for metrics and traces.
func TestObserversAreAlone(t *testing.T) {
	for name, p := range importGraph(t) {
		for _, imported := range p.Imports {
			if (strings.HasPrefix(imported, "github.com/prometheus/") || strings.HasPrefix(imported, "go.opentelemetry.io/")) && name != "internal/base/telemetry" {
				t.Errorf("%s imports %s, which is for internal/base/telemetry", name, imported)
			}
		}
	}
}

// TestOpenPGPIsAlone shows that only package trust imports the OpenPGP library. The reason is that trust limits
// the cost of keys and signatures.
func TestOpenPGPIsAlone(t *testing.T) {
	for name, p := range importGraph(t) {
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, "github.com/ProtonMail/go-crypto") && name != "trust" && !strings.HasPrefix(name, "internal/test/testkit/") {
				t.Errorf("%s imports %s, which is for trust", name, imported)
			}
		}
	}
}

// TestTransportsAreBounded shows that only internal/base/outgoing creates HTTP transports or uses those of net/http.
// The reason is that internal/base/outgoing limits the size of response headers.
func TestTransportsAreBounded(t *testing.T) {
	for name, p := range importGraph(t) {
		if strings.HasPrefix(name, "internal/test/testkit") || name == "internal/test/bench" || name == "internal/base/outgoing" {
			continue
		}
		for _, file := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join("../../..", name, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, use := range transports.FindAll(src, -1) {
				t.Errorf("%s/%s has %s, which is for internal/base/outgoing", name, file, use)
			}
		}
	}
}

// transports matches code that creates an HTTP transport, or that uses a transport of net/http.
var transports = regexp.MustCompile(`http\.(DefaultTransport|DefaultClient|Transport\{|(Get|Head|Post|PostForm)\()|new\(http\.Transport\)|(auth|retry)\.DefaultClient`)

// TestEndToEndUsesTheBinary shows that e2e imports no package of the program. e2e must use the program as a user
// does.
func TestEndToEndUsesTheBinary(t *testing.T) {
	p, ok := importGraph(t)["e2e"]
	if !ok {
		t.Fatal("no package e2e")
	}
	for _, imported := range ours(slices.Concat(p.Imports, p.TestImports, p.XTestImports)) {
		if !strings.HasPrefix(imported, "internal/test/testkit") {
			t.Errorf("e2e imports %s", imported)
		}
	}
}

// ownGoroutines are the goroutines that run no code on other parties' bytes, or whose panics are caught further down: the
// number of them in each file, and why a panic in them may end the process.
var ownGoroutines = map[string]struct {
	n   int
	why string
}{
	"gateway/catalog/catalog.go":               {1, "removes files of its own"},
	"internal/app/run/child.go":                {1, "waits for a child"},
	"internal/app/run/services.go":             {1, "exec, which has one user"},
	"internal/app/run/warm.go":                 {1, "waits for a group of exec"},
	"internal/app/serve/acme.go":               {1, "obtain catches the panics of the library"},
	"internal/app/serve/local.go":              {1, "net/http"},
	"internal/app/serve/operations.go":         {1, "net/http"},
	"internal/app/serve/serve.go":              {1, "reads the user's own settings"},
	"internal/app/serve/server.go":             {4, "net/http, and waits"},
	"internal/app/transfer/transfer.go":        {1, "commands, which have one user"},
	"internal/base/fresh/flight.go":            {3, "fetch catches the panics of Fetch; saves and waits"},
	"internal/origins/pull/download.go":        {1, "download.run catches the panics of the fetch"},
	"internal/origins/pull/pull.go":            {1, "waits"},
	"internal/origins/pull/push.go":            {1, "Puller.work catches the panics of a push"},
	"internal/registries/embedded/embedded.go": {2, "net/http, and times of use"},
}

// TestGoroutinesCatchPanics shows that each goroutine of the product calls panics.Catch, belongs to a panics.Group, or is in
// ownGoroutines. net/http recovers panics only in the goroutines of requests.
func TestGoroutinesCatchPanics(t *testing.T) {
	found := map[string]int{}
	for name, p := range importGraph(t) {
		if kinds := []string{"cmd", "e2e", "deploy", "tools", "internal/test"}; slices.ContainsFunc(kinds, func(k string) bool { return name == k || strings.HasPrefix(name, k+"/") }) {
			continue
		}
		if slices.Contains(p.Imports, "golang.org/x/sync/errgroup") && name != "internal/base/panics" {
			t.Errorf("%s imports errgroup, which does not carry panics: use internal/base/panics", name)
		}
		for _, file := range p.GoFiles {
			file = filepath.ToSlash(filepath.Join(name, file))
			found[file] = uncaught(t, file)
		}
	}
	for file, n := range found {
		if n != ownGoroutines[file].n {
			t.Errorf("%s starts %d goroutines without panics.Catch, and ownGoroutines has %d", file, n, ownGoroutines[file].n)
		}
	}
	for file := range ownGoroutines {
		if _, ok := found[file]; !ok {
			t.Errorf("there is no %s", file)
		}
	}
}

// uncaught returns how many goroutines a file starts whose code does not call panics.Catch. Functions that return an error
// belong to groups.
func uncaught(t *testing.T, file string) (n int) {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("../../..", file))
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch started := node.(type) {
		case *ast.GoStmt:
		case *ast.CallExpr:
			f, ok := started.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "Go" && f.Sel.Name != "DoChan" {
				return true
			}
			body, ok := started.Args[len(started.Args)-1].(*ast.FuncLit)
			if ok && f.Sel.Name == "Go" && body.Type.Results != nil {
				return true
			}
		default:
			return true
		}
		if code := src[files.Position(node.Pos()).Offset:files.Position(node.End()).Offset]; !bytes.Contains(code, []byte("panics.Catch(")) {
			n++
		}
		return true
	})
	return n
}
