package main

import (
	"testing"

	"github.com/ocibridge/ocibridge/docs"
)

// TestTopicsAreNoCommands: "ocibridge help NAME" prints one thing.
func TestTopicsAreNoCommands(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		if _, ok := docs.Find(c.Name()); ok {
			t.Errorf("%s is a command and a topic", c.Name())
		}
	}
}
