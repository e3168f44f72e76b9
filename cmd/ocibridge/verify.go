package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const verifyExamples = `  # everything that is stored
  ocibridge verify

  # the versions that match, packages downloaded and hashed again
  ocibridge verify --packages 'registry.opentofu.org/hashicorp/null@~> 3.0'

  # what is wrong, for a scheduled job
  ocibridge verify --output json | jq '.providers[].versions[] | select(.findings != [])'`

// verifyFlags are the flags of verify.
type verifyFlags struct {
	storedFlags
	packages bool
}

func newVerifyCommand() *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify [PROVIDER | PROVIDER@VERSION | PATTERN]...",
		Short: "Check again what is stored, without its origin",
		Long: `verify checks stored versions against the evidence beside them, SHA256SUMS and its
signature, and against the keys that trust blocks pin. It asks nobody but the
registry. And it lists every way in which a version would not install with the
clients' own rules, whichever tool pushed it, with what to do about it.

VERSION is a version or a version constraint, of which every match is checked.
Without arguments, everything is that ocibridge list shows.

It exits with 1 if there is an error; warnings alone do not count.`,
		Example: verifyExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.packages, "packages", false, "download every package, too, and hash it again")
	return cmd
}

// verification is what verify shows, as JSON.
type verification struct {
	Providers []*verifiedProvider `json:"providers"`
	Unlisted  []unlisted          `json:"unlisted,omitempty"`
}

type verifiedProvider struct {
	Provider   provider.Address   `json:"provider"`
	Repository ociaddr.Repository `json:"repository"`
	Problem    *problem           `json:"error,omitempty"`
	// Findings are about tags that are no versions.
	Findings []artifact.Finding `json:"findings"`
	Versions []*verifiedVersion `json:"versions"`
}

type verifiedVersion struct {
	Version   provider.Version    `json:"version"`
	Digest    string              `json:"digest,omitempty"` // of the index
	Platforms []provider.Platform `json:"platforms,omitempty"`
	// Signature is what the check found, and not what push recorded.
	Signature *signature `json:"signature,omitempty"`
	// Pinned is set if the key is one that a trust block pins.
	Pinned   bool               `json:"pinned"`
	Findings []artifact.Finding `json:"findings"`
	Problem  *problem           `json:"error,omitempty"` // for which it could not be checked

	refused bool // there is a signature, and it does not count
}

func (f *verifyFlags) run(cmd *cobra.Command, args []string) error {
	what, err := parseAllWanted(args, true)
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
	out, err := f.verifyAll(cmd.Context(), back, found, s.trustRules(), what)
	if err != nil {
		return err
	}
	out.Unlisted = skipped
	if f.output.json() {
		err = printJSON(cmd.OutOrStdout(), out)
	} else {
		err = out.print(cmd.OutOrStdout())
	}
	if err != nil {
		return err
	}
	return out.failed()
}

// verifyAll checks every version found. Providers that were named must be there.
func (f *verifyFlags) verifyAll(ctx context.Context, back *backend, found []*stored, rules trust.Rules, named []wanted) (*verification, error) {
	out := &verification{Providers: []*verifiedProvider{}}
	for _, p := range found {
		v := &verifiedProvider{
			Provider: p.provider, Repository: p.repository, Problem: problemOf(p.err),
			Findings: []artifact.Finding{}, Versions: make([]*verifiedVersion, len(p.matches)),
		}
		isNamed := slices.ContainsFunc(named, func(w wanted) bool { return w.pattern == nil && w.provider == p.provider })
		if p.err == nil && len(p.matches) == 0 && isNamed {
			v.Problem = problemOf(missingVersion(p))
		}
		if p.all() {
			v.Findings = append(v.Findings, artifact.LintTags(p.tags)...)
		}
		out.Providers = append(out.Providers, v)
	}
	err := f.each(ctx, found, func(ctx context.Context, i, j int) {
		out.Providers[i].Versions[j] = f.verify(ctx, back, found[i], found[i].matches[j], rules.For(found[i].provider))
	})
	return out, err
}

// verify checks one version.
func (f *verifyFlags) verify(ctx context.Context, back *backend, p *stored, v provider.Version, policy trust.Policy) *verifiedVersion {
	out := &verifiedVersion{Version: v, Findings: []artifact.Finding{}}
	linted, err := artifact.Lint(ctx, p.store, p.provider, v)
	if errors.Is(err, errdef.ErrNotFound) {
		err = hint.New("the registry lists the tag, and does not have it", "if it was not deleted just now, ask whoever runs the registry")
	}
	if err == nil {
		out.Findings = append(out.Findings, linted.Findings...)
		if linted.Version != nil {
			out.describe(linted.Version)
			err = f.check(ctx, p, v, linted.Version, policy, out)
		}
	}
	out.Problem = problemOf(back.explain(err, p.repository))
	return out
}

func (v *verifiedVersion) describe(found *artifact.Version) {
	v.Digest = found.Index.Digest.String()
	for _, p := range found.Packages {
		v.Platforms = append(v.Platforms, p.Platform)
	}
}

func (v *verifiedVersion) report(s artifact.Severity, where, what, help string) {
	v.Findings = append(v.Findings, artifact.Finding{Severity: s, Where: where, What: what, Hint: help})
}

// check compares a version with its evidence, and its packages with their hashes.
func (f *verifyFlags) check(ctx context.Context, p *stored, ver provider.Version, found *artifact.Version, policy trust.Policy, out *verifiedVersion) error {
	known := *found
	known.Packages = slices.DeleteFunc(slices.Clone(found.Packages), func(p artifact.Package) bool { return p.Digest == "" })
	if err := out.checkEvidence(ctx, p, ver, &known, policy); err != nil {
		return err
	}
	if !f.packages {
		return nil
	}
	for _, pkg := range known.Packages {
		err := rehash(ctx, p, pkg)
		switch {
		case artifact.IsContent(err):
			out.report(artifact.SeverityError, pkg.Platform.String(), err.Error(), "do not install it: push it again from its origin with ocibridge push --force, and find out how it came to be so")
		case err != nil:
			return fmt.Errorf("%s: %w", pkg.Platform, err)
		}
	}
	return nil
}

// checkEvidence checks the signature again. Lint has reported evidence that does not
// read, and that there is none.
func (v *verifiedVersion) checkEvidence(ctx context.Context, p *stored, ver provider.Version, found *artifact.Version, policy trust.Policy) error {
	isBad := func(f artifact.Finding) bool { return f.Where == "evidence" && f.Severity == artifact.SeverityError }
	if slices.ContainsFunc(v.Findings, isBad) {
		return nil
	}
	// Without pinned keys, what nobody signed is compared with its checksums at
	// least: clients install it.
	lenient := policy
	lenient.AllowUnsigned = true
	verified, err := artifact.Verify(ctx, p.store, p.provider, ver, found, lenient)
	switch {
	case err == nil:
	case errors.Is(err, artifact.ErrNothingToCheck) && !policy.Pins():
		v.Signature = &signature{Verdict: artifact.NoEvidence}
		if found.Evidence != nil && !policy.AllowUnsigned {
			v.report(artifact.SeverityWarning, "evidence", err.Error(), hint.Of(err))
		}
		return nil
	case trust.Refused(err):
		v.Signature = &signature{Verdict: artifact.NoEvidence}
		v.refused = errors.Is(err, trust.ErrSignature)
		v.report(artifact.SeverityError, "evidence", err.Error(), orHint(err, "do not trust this version: push it again from its origin with ocibridge push --force"))
		return nil
	default:
		return err
	}
	v.Signature = &signature{verified.Standing(), verified.Signer.Fingerprint}
	v.Pinned = verified.Pinned
	switch {
	case verified.Verdict == trust.Signed:
	case verified.Evidence.Record.Verdict == trust.Signed:
		v.report(artifact.SeverityError, "evidence", "its record says that it is signed, and it is not", "do not trust this version: push it again from its origin with ocibridge push --force")
	case !policy.AllowUnsigned:
		v.report(artifact.SeverityWarning, "evidence", "nobody signed it: its packages match its checksums, which anybody could have written",
			"push it with --refresh-evidence from an origin that has it signed, or allow it with allow_unsigned = true in a trust block")
	}
	if verified.Signer.Expired {
		v.report(artifact.SeverityWarning, "evidence", "the key or the signature has expired", "clients accept it with a warning; strict_expiry in a trust block refuses it")
	}
	v.reportOtherNames(p.provider, ver, verified, policy)
	for _, r := range verified.Refused {
		if r.OtherName() {
			continue
		}
		v.report(artifact.SeverityError, r.Package.Platform.String(), r.Err.Error(), orHint(r.Err, "the publisher has not signed this package: push it again from its origin with ocibridge push --force"))
	}
	return nil
}

// reportOtherNames reports a version that is signed under another name, once for all
// platforms. Where keys are pinned, that is an error: the signature does not say that
// the packages are this version's.
func (v *verifiedVersion) reportOtherNames(a provider.Address, ver provider.Version, verified *artifact.Verified, policy trust.Policy) {
	if verified.Standing() != artifact.SignedOtherName {
		return
	}
	var texts []string
	for _, r := range verified.Refused {
		if r.OtherName() {
			texts = append(texts, r.Err.Error())
			said, _ := artifact.OtherFilename(a, ver, r.Package)
			v.Findings = slices.DeleteFunc(v.Findings, func(f artifact.Finding) bool { return f == said })
		}
	}
	what := texts[0]
	if len(texts) > 1 {
		what += fmt.Sprintf("; so are %d more", len(texts)-1)
	}
	severity := artifact.SeverityWarning
	if policy.Pins() {
		severity = artifact.SeverityError
	}
	v.report(severity, "evidence", what, artifact.OtherNameHint)
}

func orHint(err error, otherwise string) string {
	if h := hint.Of(err); h != "" {
		return h
	}
	return otherwise
}

// rehash downloads a package to a temporary file.
func rehash(ctx context.Context, p *stored, pkg artifact.Package) error {
	tmp, err := os.CreateTemp("", "ocibridge-*.zip")
	if err != nil {
		return hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	return artifact.Rehash(ctx, p.store, pkg, tmp)
}

// counts returns how many errors and warnings there are.
func counts(findings []artifact.Finding) (errs, warnings int) {
	for _, f := range findings {
		if f.Severity == artifact.SeverityError {
			errs++
		} else {
			warnings++
		}
	}
	return errs, warnings
}

// failed returns an error if any finding is one, or something was not checked.
func (r *verification) failed() error {
	bad, all := 0, 0
	for _, p := range r.Providers {
		if n, _ := counts(p.Findings); n > 0 || p.Problem != nil {
			bad++
			all++
		}
		for _, v := range p.Versions {
			all++
			if n, _ := counts(v.Findings); n > 0 || v.Problem != nil {
				bad++
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return hint.New(fmt.Sprintf("%d of %d checks failed", bad, all), "each error above says what to do")
}

func (r *verification) print(w io.Writer) error {
	var out strings.Builder
	colours := isTerminal(w) && os.Getenv("NO_COLOR") == ""
	for _, p := range r.Providers {
		if p.Problem != nil || len(p.Findings) > 0 {
			fmt.Fprintf(&out, "%s in %s\n", p.Provider, p.Repository)
			printFindings(&out, p.Findings, p.Problem, colours)
		}
		for _, v := range p.Versions {
			fmt.Fprintf(&out, "%s %s: %s\n", p.Provider, v.Version, v.summary())
			printFindings(&out, v.Findings, v.Problem, colours)
		}
	}
	if len(r.Providers) == 0 {
		out.WriteString("no provider\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// summary is one version's outcome in a few words.
func (v *verifiedVersion) summary() string {
	errs, warnings := counts(v.Findings)
	parts := []string{"ok"}
	if v.Problem != nil {
		parts[0] = "not checked"
	} else if errs > 0 {
		parts[0] = count(errs, "error")
	}
	if warnings > 0 {
		parts = append(parts, count(warnings, "warning"))
	}
	if v.Platforms != nil {
		parts = append(parts, count(len(v.Platforms), "platform"))
	}
	if s := v.Signature; s != nil && s.Verdict == artifact.NoEvidence {
		parts = append(parts, v.notSigned())
	} else if s != nil {
		text := s.text(false)
		if v.Pinned {
			text += ", which is pinned"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// notSigned says what is wrong with a version's signature.
func (v *verifiedVersion) notSigned() string {
	if v.refused {
		return "signature refused"
	}
	return "not signed"
}

// printFindings prints findings as doctor prints checks.
func printFindings(out io.Writer, findings []artifact.Finding, p *problem, colours bool) {
	if p != nil {
		findings = append([]artifact.Finding{{Severity: artifact.SeverityError, Where: "registry", What: p.Message, Hint: p.Hint}}, findings...)
	}
	for _, f := range findings {
		mark := fmt.Sprintf("%-8s", f.Severity)
		if colours {
			mark = map[artifact.Severity]string{artifact.SeverityError: "\x1b[31m", artifact.SeverityWarning: "\x1b[33m"}[f.Severity] + mark + "\x1b[0m"
		}
		fmt.Fprintf(out, "  %s %s: %s\n", mark, hint.OneLine(f.Where), hint.OneLine(f.What))
		if f.Hint != "" {
			fmt.Fprintf(out, "  %-8s hint: %s\n", "", hint.OneLine(f.Hint))
		}
	}
}
