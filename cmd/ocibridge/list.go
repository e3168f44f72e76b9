package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/inventory"
)

const listExamples = `  # all versions in the embedded registry, or in a registry with a catalog
  ocibridge list

  # one provider, and all of a namespace
  ocibridge list registry.opentofu.org/hashicorp/null 'registry.acme.example/acme/*'

  # unsigned versions
  ocibridge list --output json | jq -r '.providers[] | .provider as $p | .versions[] | select(.signature.verdict != "signed") | "\($p) \(.version)"'`

func newListCommand() *cobra.Command {
	f := &inventoryFlags{}
	cmd := &cobra.Command{
		Use:   "list [PROVIDER | PATTERN]...",
		Short: "List the providers in a registry",
		Long: `list shows the stored versions with their platforms, sizes and signatures. A
signature is shown as push recorded it; ocibridge verify checks it.

PROVIDER is HOSTNAME/NAMESPACE/TYPE. A PATTERN is a PROVIDER whose last parts are *.
Without arguments, and for patterns, list searches the provider blocks of
ocibridge.hcl and the registry's catalog. The embedded registry, Harbor,
distribution and some other registries have a catalog.

It exits with 1 if a provider or a version could not be read.`,
		Example: listExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			queries, err := parseQueries(args, false)
			if err != nil {
				return err
			}
			return show(f, cmd, queries, func(ctx context.Context, found *inventory.Selection, _ settings) (*inventory.Listing, error) {
				return found.List(ctx)
			}, listText)
		},
	}
	f.register(cmd)
	return cmd
}

// listText formats a listing as tables that fit the terminal w.
func listText(l *inventory.Listing, w io.Writer) string {
	width := terminalWidth(w)
	var out strings.Builder
	for i, p := range l.Providers {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s in %s\n", p.Provider, p.Repository)
		if p.Problem != nil {
			fmt.Fprintf(&out, "%scannot be listed: %s\n", tableIndent, p.Problem)
			continue
		}
		if len(p.Versions) == 0 {
			fmt.Fprintf(&out, "%sno version\n", tableIndent)
			continue
		}
		t := table{header: []string{"VERSION", "PLATFORMS", "SIZE", "SIGNATURE"}, wrap: 1}
		for _, v := range p.Versions {
			t.rows = append(t.rows, listRow(v))
		}
		out.WriteString(t.text(width))
	}
	if len(l.Providers) == 0 {
		out.WriteString("no provider\n")
	}
	return out.String()
}

// listRow returns the table row of a version.
func listRow(v *inventory.ListedVersion) []string {
	if v.Problem != nil {
		return []string{v.Version.String(), "cannot be read: " + v.Problem.Message}
	}
	var platforms []string
	for _, p := range v.Platforms {
		platforms = append(platforms, p.String())
	}
	return []string{v.Version.String(), strings.Join(platforms, " "), size(v.Size), v.Signature.Text(true)}
}
