package main

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// goroutines are, with the packages of golang.org/x/sync, the imports of a file whose code runs in several goroutines. net/http
// is not among them, because it also has constants and types.
var goroutines = []string{"net/http/httptest", "sync", "sync/atomic", "testing/synctest"}

// isConcurrent reports whether a file starts goroutines, guards data against them, or starts a server in the test's process.
func isConcurrent(f *ast.File) bool {
	for _, i := range f.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil && (slices.Contains(goroutines, path) || strings.HasPrefix(path, "golang.org/x/sync/")) {
			return true
		}
	}
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr: // of package time or context
			found = found || n.Sel.Name == "AfterFunc"
		}
		return !found
	})
	return found
}

// kit is the beginning of the names of the parts from which tests are built.
const kit = module + "/internal/test/testkit/"

// markConcurrent also marks the packages that import a concurrent part of internal/test/testkit, which starts the servers of
// tests. Other imports do not matter: their own tests examine them.
func markConcurrent(all []declared) {
	for changed := true; changed; {
		changed = false
		for i, d := range all {
			if !d.Concurrent && slices.ContainsFunc(all, func(other declared) bool {
				return other.Concurrent && strings.HasPrefix(other.Package, kit) && slices.Contains(d.imports, other.Package)
			}) {
				all[i].Concurrent, changed = true, true
			}
		}
	}
}

// separate returns the tests of packages that need the race detector, and those of the other packages. In most of those,
// nothing runs at once: neither they nor their tests start goroutines or servers. The others are the parts of testkit, whose
// servers run under the race detector in the tests of the packages that use them.
func separate(all []declared, units chosen) (racing, calm chosen) {
	racing, calm = chosen{}, chosen{}
	for _, d := range all {
		switch tests, there := units[d.Package]; {
		case there && d.Concurrent && !strings.HasPrefix(d.Package, kit):
			racing[d.Package] = tests
		case there:
			calm[d.Package] = tests
		}
	}
	return racing, calm
}
