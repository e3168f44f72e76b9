package main

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestMutants shows that the source contains the guard of each mutant, and can be parsed without the guard.
// Whether the mutant's test then fails is shown only by "make mutants".
func TestMutants(t *testing.T) {
	t.Chdir("../../..")
	for _, m := range mutants {
		_, src, err := m.mutated()
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := format.Source([]byte(src)); err != nil {
			t.Errorf("%s: %v", m.guard, err)
		}
	}
}

func TestDeclared(t *testing.T) {
	const src = `package p

const one, two = 1, 2

var (
	three = 3
	four  = 4
)

type T[K any] struct{}

func f()                 {}
func (*T[K]) f()         {}
func (t T[K]) g()        {}
func (*Pair[K, V]) f()   {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := declared(file)
	text := func(n ast.Node) string { return src[n.Pos()-file.FileStart : n.End()-file.FileStart] }
	for name, want := range map[string]string{
		"one": "one, two = 1, 2", "two": "one, two = 1, 2", "three": "three = 3", "four": "four  = 4",
		"T": "T[K any] struct{}", "f": "func f()                 {}",
		"(*T).f": "func (*T[K]) f()         {}", "T.g": "func (t T[K]) g()        {}", "(*Pair).f": "func (*Pair[K, V]) f()   {}",
	} {
		if found[name] == nil || text(found[name]) != want {
			t.Errorf("%s: not found as %q", name, want)
		}
		delete(found, name)
	}
	if len(found) > 0 {
		t.Errorf("more declarations: %v", found)
	}
}

func TestMutantOfNothing(t *testing.T) {
	t.Chdir("../../..")
	for name, m := range map[string]mutant{
		"no such function":           {in: "internal/test/mutants.none", old: "a"},
		"no name":                    {in: "internal/test/mutants", old: "a"},
		"no such package":            {in: "internal/none.main", old: "a"},
		"a function of tests":        {in: "internal/test/mutants.TestMutantOfNothing", old: "no such package"},
		"a text of another function": {in: "internal/test/mutants.functionName", old: "func receiverName"},
		"a text that occurs twice":   {in: "internal/test/mutants.functionName", old: "decl.Recv"},
	} {
		if _, _, err := m.mutated(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTableIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../../docs/explanation/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), tableOf(mutants)) {
		t.Errorf("docs/explanation/threat-model.md does not contain the table that go run ./internal/test/mutants -table prints")
	}
}
