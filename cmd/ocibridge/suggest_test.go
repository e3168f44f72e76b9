package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestSynonymsNameFlags checks that each suggestion is a flag of a command, and that no synonym hides a
// flag.
func TestSynonymsNameFlags(t *testing.T) {
	flags := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRootCommand())
	for word, names := range synonyms {
		for _, name := range names {
			if !flags[name] {
				t.Errorf("%s suggests --%s, which no command has", word, name)
			}
		}
	}
}
