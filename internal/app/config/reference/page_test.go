package main

import (
	"bytes"
	"os"
	"testing"
)

func TestPageIsCurrent(t *testing.T) {
	want, err := page("../schema.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/reference/configuration.md is stale: run go generate ./internal/app/config")
	}
}
