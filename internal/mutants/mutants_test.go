package main

import (
	"go/format"
	"os"
	"strings"
	"testing"
)

// TestMutants: each takes something away that is there, and leaves a program. That
// its test fails then, make mutants shows.
func TestMutants(t *testing.T) {
	t.Chdir("../..")
	for _, m := range mutants {
		src, err := m.mutated()
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := format.Source([]byte(src)); err != nil {
			t.Errorf("%s: %v", m.guard, err)
		}
	}
}

func TestTableIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), tableOf(mutants)) {
		t.Errorf("docs/threat-model.md lacks the table that go run ./internal/mutants -table prints")
	}
}
