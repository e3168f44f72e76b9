package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const inspectExamples = `  ocibridge inspect registry.opentofu.org/hashicorp/null@3.2.4

  # the newest that matches
  ocibridge inspect 'registry.opentofu.org/hashicorp/null@~> 3.0'

  # all hashes, as they stand in a lock file
  ocibridge inspect --output json registry.opentofu.org/hashicorp/null@3.2.4 | jq -r '.packages[].hashes[]'`

func newInspectCommand() *cobra.Command {
	f := &storedFlags{}
	cmd := &cobra.Command{
		Use:   "inspect PROVIDER@VERSION",
		Short: "Show one stored version in full",
		Long: `inspect shows a version as it is stored: manifests, digests and hashes of every
platform, and what push recorded of its origin and signature, which ocibridge verify
checks.

VERSION is a version, or a version constraint, of which the newest stored match is
taken.`,
		Example: inspectExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(hint.New(fmt.Sprintf("%d arguments, not one PROVIDER@VERSION", len(args)), "name one version, such as registry.opentofu.org/hashicorp/null@3.2.4"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.inspect(cmd, args[0])
		},
	}
	f.register(cmd)
	return cmd
}

// inspected is one version in full, as JSON.
type inspected struct {
	Provider   provider.Address   `json:"provider"`
	Version    provider.Version   `json:"version"`
	Repository ociaddr.Repository `json:"repository"`
	Tag        ociaddr.Tag        `json:"tag"`
	Digest     string             `json:"digest"` // of the index
	Declared   *declared          `json:"declared,omitempty"`
	Protocols  []string           `json:"protocols,omitempty"`
	Evidence   *inspectedEvidence `json:"evidence,omitempty"`
	Partial    []ociaddr.Tag      `json:"partial_tags,omitempty"`
	Packages   []inspectedPackage `json:"packages"`
	Missing    []inspectedMissing `json:"missing,omitempty"`
}

// inspectedMissing is a platform whose manifest the registry lacks.
type inspectedMissing struct {
	Platform provider.Platform `json:"platform"`
	Manifest string            `json:"manifest"` // its digest
}

// declared is what the index says that it is.
type declared struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
}

type inspectedPackage struct {
	Platform provider.Platform `json:"platform"`
	Filename string            `json:"filename"`
	Size     int64             `json:"size"`     // in bytes
	Digest   string            `json:"digest"`   // of the layer
	Manifest string            `json:"manifest"` // its digest
	Hashes   []provider.Hash   `json:"hashes"`   // zh:, and h1: if it is known
}

type inspectedEvidence struct {
	Digest      string        `json:"digest"` // of its manifest
	Origin      string        `json:"origin"`
	Verdict     trust.Verdict `json:"verdict"`
	Fingerprint string        `json:"fingerprint,omitempty"`
	Protocols   []string      `json:"protocols,omitempty"`
	// SHA256SUMS, Signature and SigningKeys are how many bytes there are of each.
	SHA256SUMS  int `json:"sha256sums_size"`
	Signature   int `json:"signature_size"`
	SigningKeys int `json:"signing_keys_size"`
}

func (f *storedFlags) inspect(cmd *cobra.Command, arg string) error {
	r, err := parseRequest(arg)
	if err != nil {
		return usage(err)
	}
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	what := []wanted{{request: r}}
	back, err := f.openFor(s, what, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer back.Close()
	found, _, err := f.find(cmd.Context(), s, back, what)
	if err != nil {
		return err
	}
	out, err := inspectVersion(cmd.Context(), back, found[0])
	if err != nil {
		return err
	}
	if f.output.json() {
		err = printJSON(cmd.OutOrStdout(), out)
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), out.text())
	}
	if err != nil {
		return err
	}
	return out.failed()
}

// failed returns an error if the registry lacks the manifest of a platform.
func (v *inspected) failed() error {
	if len(v.Missing) == 0 {
		return nil
	}
	var platforms []string
	for _, m := range v.Missing {
		platforms = append(platforms, m.Platform.String())
	}
	return hint.New(fmt.Sprintf("%s %s: the registry lacks the manifest of %s", v.Provider, v.Version, strings.Join(platforms, ", ")),
		"ocibridge verify %s@%s says what to do", v.Provider, v.Version)
}

// missingVersion is the error for what is asked for by name and not stored.
func missingVersion(p *stored) error {
	asked := "version"
	if !p.version.IsZero() {
		asked = "version " + p.version.String()
	} else if c := p.versions.String(); c != "" {
		asked = fmt.Sprintf("version that matches %q", c)
	}
	return hint.New(fmt.Sprintf("%s: no %s is stored in %s", p.provider, asked, p.repository),
		"ocibridge list %s shows what is, and ocibridge push stores more", p.provider)
}

// inspectVersion reads the newest of the versions found.
func inspectVersion(ctx context.Context, back *backend, p *stored) (*inspected, error) {
	if p.err != nil {
		return nil, p.err
	}
	if len(p.matches) == 0 {
		return nil, missingVersion(p)
	}
	v := p.matches[0]
	found, err := artifact.ReadAvailable(ctx, p.store, p.provider, v)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, missingVersion(p)
	}
	if err != nil {
		return nil, hint.Wrap(back.explain(fmt.Errorf("%s %s: %w", p.provider, v, err), p.repository), "ocibridge verify %s@%s lists all that is wrong with it", p.provider, v)
	}
	out := &inspected{
		Provider: p.provider, Version: v, Repository: p.repository, Digest: found.Index.Digest.String(), Protocols: found.Protocols,
		Packages: []inspectedPackage{},
	}
	out.Tag, _ = ociaddr.VersionTag(v) // it was read from one
	if !found.Provider.IsZero() && !found.Version.IsZero() {
		out.Declared = &declared{found.Provider, found.Version}
	}
	for _, pkg := range found.Packages {
		hashes := []provider.Hash{pkg.ZipHash()}
		if !pkg.H1.IsZero() {
			hashes = append(hashes, pkg.H1)
		}
		out.Packages = append(out.Packages, inspectedPackage{pkg.Platform, pkg.Filename, pkg.Size, pkg.Digest.String(), pkg.Manifest.Digest.String(), hashes})
	}
	for _, m := range found.Missing {
		out.Missing = append(out.Missing, inspectedMissing{m.Platform, m.Manifest.String()})
	}
	for _, t := range p.tags {
		if of, ok := t.PartOf(); ok && of == v {
			out.Partial = append(out.Partial, t)
		}
	}
	if found.Evidence == nil {
		return out, nil
	}
	e, err := artifact.ReadEvidence(ctx, p.store, *found.Evidence)
	if err != nil {
		return nil, hint.Wrap(back.explain(fmt.Errorf("%s %s: %w", p.provider, v, err), p.repository), "ocibridge verify %s@%s lists all that is wrong with it", p.provider, v)
	}
	out.Evidence = &inspectedEvidence{
		Digest: found.Evidence.Digest.String(), Origin: e.Record.Origin, Verdict: found.RecordedStanding(e.Record.Verdict, p.provider, v), Fingerprint: e.Record.Fingerprint,
		Protocols: e.Record.Protocols, SHA256SUMS: len(e.SHA256SUMS), Signature: len(e.Signature), SigningKeys: len(e.SigningKeys),
	}
	return out, nil
}

// text is the version for people.
func (v *inspected) text() string {
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
		line(i, "signature", "%s, as push recorded", signature{e.Verdict, e.Fingerprint}.text(false))
		line(i, "origin", "%s", e.Origin)
		line(i, "evidence", "%s: SHA256SUMS %s, signature %s, signing keys %s", e.Digest, size(int64(e.SHA256SUMS)), size(int64(e.Signature)), size(int64(e.SigningKeys)))
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
