package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/inventory"
	"github.com/ocibridge/ocibridge/internal/query"
)

// registerReader adds the flags of commands that read stored versions.
func (f *commonFlags) registerReader(cmd *cobra.Command) {
	f.register(cmd, "number of versions to read at once")
	cmd.ValidArgsFunction = f.complete
}

// report is the result of a command that reads the registry. The command prints the report as
// text or as JSON.
type report interface {
	// Failed returns an error if the report contains an error.
	Failed() error
}

// show finds the providers that the queries select, and prints the report that the function
// read returns about them. It fails if the report contains an error. The function text formats
// the report for people. The parameter w is the writer that show prints the text to.
func show[R report](f *commonFlags, cmd *cobra.Command, queries []query.Query, read func(context.Context, *inventory.Selection, settings) (R, error), text func(r R, w io.Writer) string) error {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	back, err := f.open(s, query.Addresses(queries), f.log.open(stderr))
	if err != nil {
		return err
	}
	defer back.Close()
	found, err := (&inventory.Inventory{Registry: back, Configured: s.configured(), Jobs: int(f.jobs)}).Find(cmd.Context(), queries)
	if err != nil {
		return err
	}
	for _, u := range found.Unlisted {
		fmt.Fprintf(stderr, "warning: %s\n", u.Warning())
	}
	r, err := read(cmd.Context(), found, s)
	if err != nil {
		return err
	}
	if f.output.json() {
		err = printJSON(stdout, r)
	} else {
		_, err = io.WriteString(stdout, text(r, stdout))
	}
	if err != nil {
		return err
	}
	return r.Failed()
}

// parseQueries parses the arguments of a command as queries. If versions is false, a query
// must not contain a version.
func parseQueries(args []string, versions bool) ([]query.Query, error) {
	var out []query.Query
	for _, s := range args {
		q, err := query.Parse(s, versions)
		if err != nil {
			return nil, usage(err)
		}
		out = append(out, q)
	}
	return out, nil
}
