package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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

// TestExamplesNameOneOrigin shows that no example names Terraform's public registry: all examples are of OpenTofu's, because
// clients do not find a provider that was pushed under one of the two hosts under the other one.
func TestExamplesNameOneOrigin(t *testing.T) {
	examples := map[string]string{}
	var learn func(*cobra.Command)
	learn = func(c *cobra.Command) {
		examples["ocibridge help "+c.CommandPath()] = c.Example
		for _, sub := range c.Commands() {
			learn(sub)
		}
	}
	learn(newRootCommand())
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{"README.md": string(readme)}
	for _, topic := range docs.Topics() {
		pages[topic.Name] = topic.Text()
	}
	for name, text := range pages {
		isFenced := false
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				isFenced = !isFenced
			}
			if isFenced || strings.HasPrefix(line, "    ") {
				examples[name] += line
			}
		}
	}
	if len(examples) < 50 || !strings.Contains(examples["README.md"], "ocibridge push registry.opentofu.org/") {
		t.Errorf("%d pages and commands have examples, README.md:\n%s", len(examples), examples["README.md"])
	}
	for name, text := range examples {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "registry.terraform.io") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
