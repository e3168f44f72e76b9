package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
)

const inspectExamples = `  ocibridge inspect registry.opentofu.org/hashicorp/null@3.2.4

  # the newest that matches
  ocibridge inspect 'registry.opentofu.org/hashicorp/null@~> 3.0'

  # one in a bundle
  ocibridge inspect --from oci-archive:providers.tar \
    registry.opentofu.org/hashicorp/null@3.2.4

  # all hashes, in the form of lock files
  ocibridge inspect --output json registry.opentofu.org/hashicorp/null@3.2.4 \
    | jq -r '.packages[].hashes[]'`

func newInspectCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "inspect PROVIDER@VERSION",
		Short: "Show one stored version in full",
		Long: `inspect shows a stored version: the manifests, digests and hashes for every platform,
and the origin and signature as push recorded them. ocibridge verify checks them. It
also lists the signatures of the index that approve or cosign attached. Those that meet a
require block are verified.

VERSION is a version or a version constraint. inspect shows the newest stored version
that matches.`,
		Example: inspectExamples,
		Args:    oneVersion("PROVIDER@VERSION", "registry.opentofu.org/hashicorp/null@3.2.4"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inspect(f, cmd, readsProviders, args[0], inventory.Inspect, inspectText)
		},
	}
	f.register(cmd)
	return cmd
}

// approvalLines adds lines about the approval and the signatures of a version.
func approvalLines(a *inventory.Approval, signatures []inventory.InspectedSignature, unread *inventory.Problem, line func(name, format string, args ...any)) {
	if a != nil {
		line("approval", "%s", a.Text())
		for _, m := range a.Missing {
			line("", "%q: %s", m.Requirement, m.Reason)
		}
	}
	for _, s := range signatures {
		line("signed", "%s, in %s", s.Text(), s.Manifest)
	}
	if unread != nil {
		line("signed", "unknown: %s", unread)
	}
}

// inspectText formats the description of a version for people.
func inspectText(v *inventory.Inspection, _ io.Writer) string {
	var out strings.Builder
	line := func(indent, name, format string, args ...any) {
		fmt.Fprintf(&out, "%s%-*s %s\n", indent, 13-len(indent), name, hint.OneLine(fmt.Sprintf(format, args...)))
	}
	const i, ii = "  ", "    "
	fmt.Fprintf(&out, "%s %s\n", v.Provider, v.Version)
	line(i, "repository", "%s", v.Repository)
	line(i, "tag", "%s", v.Tag)
	line(i, "index", "%s", v.Digest)
	if v.Declared == nil {
		line(i, "pushed by", "another tool: the index does not say what it is")
	}
	if len(v.Protocols) > 0 {
		line(i, "protocols", "%s", strings.Join(v.Protocols, ", "))
	}
	if e := v.Evidence; e == nil {
		line(i, "signature", "none: there is no evidence")
	} else {
		line(i, "signature", "%s, as push recorded", inventory.Signature{Verdict: e.Verdict, Fingerprint: e.Fingerprint}.Text(false))
		line(i, "origin", "%s", e.Origin)
		line(i, "evidence", "%s: SHA256SUMS %s, signature %s, signing keys %s", e.Digest, size(int64(e.SHA256SUMS)), size(int64(e.Signature)), size(int64(e.SigningKeys)))
	}
	if d := v.Docs; d != nil {
		line(i, "docs", "%s: zip %s of %s", d.Digest, d.Zip, size(d.Size))
	}
	approvalLines(v.Approval, v.Signatures, v.SignaturesError, func(name, format string, args ...any) { line(i, name, format, args...) })
	if v.Denied != nil {
		line(i, "denied", "by the configuration of the gateway: %s", cmp.Or(v.Denied.Reason, "no reason is given"))
	}
	if v.Deprecated != nil {
		line(i, "deprecated", "by the configuration of the gateway: %s", v.Deprecated.Reason)
	}
	for _, t := range v.Partial {
		line(i, "partial tag", "%s", t)
	}
	if len(v.Packages) == 0 {
		line(i, "packages", "none for a platform on which a client runs")
	}
	for _, p := range v.Packages {
		fmt.Fprintf(&out, "\n%s%s\n", i, p.Platform)
		line(ii, "file", "%s", p.Filename)
		line(ii, "size", "%s (%d bytes)", size(p.Size), p.Size)
		line(ii, "layer", "%s", p.Digest)
		line(ii, "manifest", "%s", p.Manifest)
		for _, h := range p.Hashes {
			name := "h1"
			if h.IsZip() {
				name = "zh"
			}
			line(ii, name, "%s", h)
		}
	}
	for _, m := range v.Missing {
		fmt.Fprintf(&out, "\n%s%s\n", i, m.Platform)
		line(ii, "manifest", "%s, which the registry lacks: clients get an error", m.Manifest)
	}
	return out.String()
}
