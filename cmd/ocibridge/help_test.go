package main

import (
	"testing"

	"github.com/ocibridge/ocibridge/docs"
)

// TestTopicsAreNoCommands checks that no topic has the name of a command, because "ocibridge
// help NAME" would then be ambiguous.
func TestTopicsAreNoCommands(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		if _, ok := docs.Find(c.Name()); ok {
			t.Errorf("%s is a command and a topic", c.Name())
		}
	}
}
