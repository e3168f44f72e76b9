package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/provider"
)

const verifyExamples = `  # all stored versions
  ocibridge verify

  # the versions that match; download and hash their packages, too
  ocibridge verify --packages 'registry.opentofu.org/hashicorp/null@~> 3.0'

  # a bundle, before it crosses the air gap
  ocibridge verify --packages --from oci-archive:providers.tar

  # versions that wait for an approval
  ocibridge verify --waiting

  # versions with findings, for a scheduled job
  ocibridge verify --output json \
    | jq '.providers[].versions[] | select(.findings != [])'`

func newVerifyCommand() *cobra.Command {
	f, packages, waiting := &readerFlags{}, false, false
	cmd := &cobra.Command{
		Use:   "verify [PROVIDER | PROVIDER@VERSION | PATTERN]...",
		Short: "Verify stored versions again, without their origins",
		Long: `verify checks stored versions against their evidence, which is SHA256SUMS and its
signature, and against the keys that trust blocks pin. It sends requests only to the
registry. It also lists everything that keeps clients from installing a version,
whichever tool pushed it, and says what to do about it.

VERSION is a version or a version constraint; verify checks every version that
matches. Without arguments, it checks all versions that ocibridge list shows. With
--from, it checks the versions in a bundle of ocibridge copy, and sends no requests.

If trust blocks have require blocks, verify warns of each version that waits for an
approval. With --waiting, it only checks the approvals, and lists the versions that wait.
It then exits with 3 if there is such a version.

It exits with 1 if there is an error. Warnings do not count.`,
		Example: verifyExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			if waiting {
				if packages {
					return usage(hint.New("--waiting and --packages exclude each other", "run verify once for each"))
				}
				return readsProviders.waiting(f, cmd, args)
			}
			return readsProviders.verify(f, cmd, args, func(s settings) inventory.Checks[provider.Address] {
				return inventory.Verifier{Policy: s.file.Trust.For, Packages: packages, Required: s.file.Gateway.VerifyRequired}
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&packages, "packages", false, "also download and hash every package")
	cmd.Flags().BoolVar(&waiting, "waiting", false, waitingUsage)
	return cmd
}

const waitingUsage = "list the versions that wait for an approval, check nothing else, and exit with 3 if there are any"

// verifyText formats a verification for people, with colours on a terminal.
func verifyText[A inventory.Address](r *inventory.Report[A], w io.Writer) string {
	var out strings.Builder
	for _, of := range r.Stored {
		if of.Problem != nil || len(of.Findings) > 0 {
			fmt.Fprintf(&out, "%s\n", of)
			printFindings(&out, w, of.Findings, of.Problem)
		}
		for _, v := range of.Versions {
			fmt.Fprintf(&out, "%s %s: %s\n", of.Address, v.Version, verifySummary(v))
			printFindings(&out, w, v.Findings, v.Problem)
		}
	}
	if len(r.Stored) == 0 {
		fmt.Fprintf(&out, "no %s\n", r.Noun)
	}
	return out.String()
}

// verifySummary returns the result for a version in a few words.
func verifySummary(v *inventory.VersionReport) string {
	errs, warnings := inventory.Count(v.Findings)
	parts := []string{"ok"}
	if v.Problem != nil {
		parts[0] = "not checked"
	} else if errs > 0 {
		parts[0] = count(errs, "error")
	}
	if warnings > 0 {
		parts = append(parts, count(warnings, "warning"))
	}
	if v.Approval != nil && v.Approval.Problem == nil {
		parts = append(parts, v.Approval.Text())
	}
	if v.Platforms != nil {
		parts = append(parts, count(len(v.Platforms), "platform"))
	}
	if v.Files > 0 {
		parts = append(parts, count(v.Files, "file"))
	}
	switch s := v.Signature; {
	case s == nil:
	case v.Refused:
		parts = append(parts, "signature refused")
	case s.Verdict == artifact.NoEvidence:
		parts = append(parts, "not signed")
	case *v.Pinned:
		parts = append(parts, s.Text(false)+", which is pinned")
	default:
		parts = append(parts, s.Text(false))
	}
	if v.Deprecated != nil {
		parts = append(parts, "deprecated: "+v.Deprecated.Reason)
	}
	return strings.Join(parts, ", ")
}

// printFindings prints findings to out in the format of doctor's checks. If p is not nil, this problem comes first. The
// caller prints the text to w later: if w is a terminal, the text has colours and fits its width.
func printFindings(out, w io.Writer, findings []artifact.Finding, p *inventory.Problem) {
	if p != nil {
		findings = append([]artifact.Finding{{Severity: artifact.SeverityError, Where: "registry", What: p.Message, Hint: p.Hint}}, findings...)
	}
	const before = 2 + 8 + 1 // the columns before the text
	for _, f := range findings {
		fmt.Fprintf(out, "  %s %s\n", column(w, string(f.Severity)), besideText(terminalWidth(w), before, f.Where+": "+f.What))
		if f.Hint != "" {
			fmt.Fprintf(out, "  %-8s %s\n", "", besideText(terminalWidth(w), before, "hint: "+f.Hint))
		}
	}
}
