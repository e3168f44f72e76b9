package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// commonFlags are the flags of the commands that process many versions in a registry.
type commonFlags struct {
	registryFlags
	output outputFlag
	log    logFlag
	jobs   jobsFlag
}

// register adds the flags to a command. jobs is the usage text of --jobs.
func (f *commonFlags) register(cmd *cobra.Command, jobs string) {
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.jobs.register(cmd, jobs)
}

// perform runs a command that changes registries or files. The function plan checks the
// command line, the function do carries out the plan, and the function document returns the
// JSON output. With --output json, perform prints the document even if do fails, but not if
// the command line is wrong.
func perform[P, R any](f *commonFlags, cmd *cobra.Command, plan func(settings) (P, error), do func(context.Context, settings, P) (R, error), document func(R, error) any) error {
	s, settingsErr := f.settings(cmd) // settings runs before plan, because the configuration file sets flags
	p, err := plan(s)
	if err != nil {
		return usage(err)
	}
	var results R
	if err = settingsErr; err == nil {
		results, err = do(cmd.Context(), s, p)
	}
	if !f.output.json() || errors.As(err, new(usageError)) {
		return err
	}
	if werr := printJSON(cmd.OutOrStdout(), document(results, err)); err == nil {
		return werr
	}
	return err
}

// resultsDocument returns the JSON output of a command that reports a result for each version
// or file.
func resultsDocument[T any](results []T, err error) any {
	return struct {
		Results []T               `json:"results"`
		Error   map[string]string `json:"error,omitempty"`
	}{orEmpty(results), errorDocument(err)}
}

// errorDocument returns the message and the hint of err for JSON output. It returns nil if err
// is nil.
func errorDocument(err error) map[string]string {
	if err == nil {
		return nil
	}
	return map[string]string{"message": err.Error(), "hint": hint.Of(err)}
}

// orEmpty replaces a nil list with an empty list. JSON encodes an empty list as [] and a nil
// list as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// printJSON prints v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// warnAll prints each warning on a line of its own.
func warnAll(stderr io.Writer, warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(stderr, "warning: %s\n", w)
	}
}

// configured returns the addresses of the provider blocks in the configuration file.
func (s settings) configured() []provider.Address {
	var out []provider.Address
	for _, p := range s.file.Providers {
		out = append(out, p.Address)
	}
	return out
}
