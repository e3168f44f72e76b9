package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/registries/inventory"
)

const listExamples = `  # all versions in the embedded registry, or in a registry with a catalog
  ocibridge list

  # one provider, and all of a namespace
  ocibridge list registry.opentofu.org/hashicorp/null \
    'registry.acme.example/acme/*'

  # what a bundle contains
  ocibridge list --from oci-archive:providers.tar

  # unsigned versions
  ocibridge list --output json | jq -r '.providers[] | .provider as $p
    | .versions[] | select(.signature.verdict != "signed")
    | "\($p) \(.version)"'`

func newListCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "list [PROVIDER | PATTERN]...",
		Short: "List the providers in a registry or a bundle",
		Long: `list shows the stored versions with their platforms, sizes and signatures. A
signature is shown as push recorded it; ocibridge verify checks it. Versions that the
gateway block of ocibridge.hcl denies or deprecates are marked. If trust blocks have
require blocks, list checks the approvals, and shows which versions wait for one.

PROVIDER is HOSTNAME/NAMESPACE/TYPE. A PATTERN is a PROVIDER whose last parts are *.
Without arguments, and for patterns, list searches the provider blocks of
ocibridge.hcl and the registry's catalog. The embedded registry, Harbor,
distribution and some other registries have a catalog.

With --from, list reads a bundle of ocibridge copy, and no registry.

It exits with 1 if a provider or a version could not be read.`,
		Example: listExamples,
		RunE:    func(cmd *cobra.Command, args []string) error { return readsProviders.list(f, cmd, args) },
	}
	f.register(cmd)
	return cmd
}

// listText formats a listing as one table for each provider or module. If w is a terminal, each
// table fits the terminal's width.
func (k *reads[A]) listText(l *inventory.Report[A], w io.Writer) string {
	var out strings.Builder
	for i, of := range l.Stored {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s\n", of)
		if of.Problem != nil {
			fmt.Fprintf(&out, "  cannot be listed: %s\n", of.Problem)
			continue
		}
		if len(of.Versions) == 0 {
			out.WriteString("  no version\n")
		}
		out.WriteString(k.versionsText(of.Versions, terminalWidth(w)))
	}
	if len(l.Stored) == 0 {
		fmt.Fprintf(&out, "no %s\n", l.Noun)
	}
	return out.String()
}

// versionsText formats the versions of a provider or module as a table. After the table, it adds a
// line for each version that cannot be read.
func (k *reads[A]) versionsText(versions []*inventory.VersionReport, width int) string {
	rows := [][]string{append([]string{"VERSION"}, k.columns...)}
	denies := slices.ContainsFunc(versions, func(v *inventory.VersionReport) bool {
		return v.Problem == nil && (v.Denied != nil || v.Deprecated != nil)
	})
	if denies {
		rows[0] = append(rows[0], "GATEWAY")
	}
	approvals := slices.ContainsFunc(versions, func(v *inventory.VersionReport) bool { return v.Problem == nil && v.Approval != nil })
	if approvals {
		rows[0] = append(rows[0], "APPROVAL")
	}
	unreadable := ""
	for _, v := range versions {
		if v.Problem != nil {
			unreadable += fmt.Sprintf("  %s  cannot be read: %s\n", v.Version, v.Problem.Message)
			continue
		}
		row := append([]string{v.Version.String()}, k.row(v)...)
		if v.Denied != nil {
			row = append(row, "denied")
		} else if v.Deprecated != nil {
			row = append(row, "deprecated")
		} else if denies {
			row = append(row, "")
		}
		if v.Approval != nil {
			row = append(row, v.Approval.Text())
		} else if approvals {
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return unreadable
	}
	return tableText(rows, k.flexes, width) + unreadable
}
