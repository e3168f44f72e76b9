package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const listExamples = `  # everything in the embedded registry, or in one that lists its repositories
  ocibridge list

  # one provider, and all of a namespace
  ocibridge list registry.opentofu.org/hashicorp/null 'registry.acme.example/acme/*'

  # versions that are not signed
  ocibridge list --output json | jq -r '.providers[] | .provider as $p | .versions[] | select(.signature.verdict != "signed") | "\($p) \(.version)"'`

func newListCommand() *cobra.Command {
	f := &storedFlags{}
	cmd := &cobra.Command{
		Use:   "list [PROVIDER | PATTERN]...",
		Short: "List the providers in a registry",
		Long: `list shows what is stored: versions, platforms, sizes, and who signed. The
signature is what push recorded; ocibridge verify checks it.

PROVIDER is HOSTNAME/NAMESPACE/TYPE; a PATTERN has * in the place of its last parts.
Without arguments, and for patterns, providers are looked for in the provider blocks
of ocibridge.hcl, and in the registry's catalog where it has one: the embedded
registry, Harbor, distribution and some others do.

It exits with 1 if something could not be read.`,
		Example: listExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.list(cmd, args)
		},
	}
	f.register(cmd)
	return cmd
}

// listing is what list shows, as JSON.
type listing struct {
	Providers []*listedProvider `json:"providers"`
	Unlisted  []unlisted        `json:"unlisted,omitempty"`
}

type listedProvider struct {
	Provider   provider.Address   `json:"provider"`
	Repository ociaddr.Repository `json:"repository"`
	Problem    *problem           `json:"error,omitempty"`
	Versions   []*listedVersion   `json:"versions"`
}

type listedVersion struct {
	Version   provider.Version    `json:"version"`
	Tag       ociaddr.Tag         `json:"tag"`
	Digest    string              `json:"digest,omitempty"` // of the index
	Platforms []provider.Platform `json:"platforms,omitempty"`
	Size      int64               `json:"size,omitempty"` // of all packages, in bytes
	Signature *signature          `json:"signature,omitempty"`
	Problem   *problem            `json:"error,omitempty"`
}

// parseAllWanted reads the arguments of a command.
func parseAllWanted(args []string, versions bool) ([]wanted, error) {
	var out []wanted
	for _, s := range args {
		w, err := parseWanted(s, versions)
		if err != nil {
			return nil, usage(err)
		}
		out = append(out, w)
	}
	return out, nil
}

// openFor opens the backend for what the arguments name.
func (f *storedFlags) openFor(s settings, args []wanted, stderr io.Writer) (*backend, error) {
	var named []provider.Address
	for _, w := range args {
		if w.pattern == nil {
			named = append(named, w.provider)
		}
	}
	return f.open(s, named, f.log.open(stderr))
}

// openFound opens the backend and finds in it what the arguments name. The caller closes
// the backend.
func (f *storedFlags) openFound(cmd *cobra.Command, s settings, what []wanted) (back *backend, found []*stored, skipped []unlisted, err error) {
	if back, err = f.openFor(s, what, cmd.ErrOrStderr()); err != nil {
		return nil, nil, nil, err
	}
	found, skipped, err = f.find(cmd.Context(), s, back, what)
	if err == nil {
		err = nothingFound(found, skipped)
	}
	if err != nil {
		back.Close()
		return nil, nil, nil, err
	}
	warnUnlisted(cmd.ErrOrStderr(), skipped)
	return back, found, skipped, nil
}

func (f *storedFlags) list(cmd *cobra.Command, args []string) error {
	what, err := parseAllWanted(args, false)
	if err != nil {
		return err
	}
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	back, found, skipped, err := f.openFound(cmd, s, what)
	if err != nil {
		return err
	}
	defer back.Close()
	out, err := f.readAll(cmd.Context(), back, found)
	if err != nil {
		return err
	}
	out.Unlisted = skipped
	if err := out.print(cmd.OutOrStdout(), f.output.json()); err != nil {
		return err
	}
	return out.failed()
}

// readAll reads every version found.
func (f *storedFlags) readAll(ctx context.Context, back *backend, found []*stored) (*listing, error) {
	out := &listing{Providers: []*listedProvider{}}
	for _, p := range found {
		out.Providers = append(out.Providers, &listedProvider{
			Provider: p.provider, Repository: p.repository, Problem: problemOf(p.err), Versions: make([]*listedVersion, len(p.matches)),
		})
	}
	err := f.each(ctx, found, func(ctx context.Context, i, j int) {
		out.Providers[i].Versions[j] = listVersion(ctx, back, found[i], found[i].matches[j])
	})
	return out, err
}

// listVersion reads a version, and the record of its evidence.
func listVersion(ctx context.Context, back *backend, p *stored, v provider.Version) *listedVersion {
	out := &listedVersion{Version: v}
	out.Tag, _ = ociaddr.VersionTag(v) // it was read from one
	found, err := artifact.Read(ctx, p.store, p.provider, v)
	if err != nil {
		out.Problem = problemOf(back.explain(err, p.repository))
		return out
	}
	out.Digest = found.Index.Digest.String()
	for _, pkg := range found.Packages {
		out.Platforms = append(out.Platforms, pkg.Platform)
		out.Size += pkg.Size
	}
	out.Signature = &signature{Verdict: artifact.NoEvidence}
	if found.Evidence != nil {
		record, err := artifact.ReadRecord(ctx, p.store, *found.Evidence)
		if err != nil {
			out.Signature, out.Problem = nil, problemOf(back.explain(err, p.repository))
			return out
		}
		out.Signature = &signature{found.RecordedStanding(record.Verdict, p.provider, v), record.Fingerprint}
	}
	return out
}

// failed returns an error if something could not be read.
func (l *listing) failed() error {
	n := 0
	for _, p := range l.Providers {
		if p.Problem != nil {
			n++
		}
		for _, v := range p.Versions {
			if v.Problem != nil {
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	return hint.New(count(n, "problem")+" in reading what is stored", "the list says which; where it does not say what to do, ocibridge verify PROVIDER@VERSION does")
}

func (l *listing) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, l)
	}
	width := terminalWidth(w)
	var out strings.Builder
	for i, p := range l.Providers {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s in %s\n", p.Provider, p.Repository)
		if p.Problem != nil {
			fmt.Fprintf(&out, "%scannot be listed: %s\n", tableIndent, p.Problem.line())
			continue
		}
		if len(p.Versions) == 0 {
			fmt.Fprintf(&out, "%sno version\n", tableIndent)
			continue
		}
		t := table{header: []string{"VERSION", "PLATFORMS", "SIZE", "SIGNATURE"}, wrap: 1}
		for _, v := range p.Versions {
			t.rows = append(t.rows, v.row())
		}
		out.WriteString(t.text(width))
	}
	if len(l.Providers) == 0 {
		out.WriteString("no provider\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// row is the version's row in the table.
func (v *listedVersion) row() []string {
	if v.Problem != nil {
		return []string{v.Version.String(), "cannot be read: " + v.Problem.Message}
	}
	var platforms []string
	for _, p := range v.Platforms {
		platforms = append(platforms, p.String())
	}
	return []string{v.Version.String(), strings.Join(platforms, " "), size(v.Size), v.Signature.text(true)}
}

// printJSON prints a document for a program.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
