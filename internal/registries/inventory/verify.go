package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/providerdoc"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Verifier checks versions of providers by their evidence. It implements [Checks].
type Verifier struct {
	Policy   func(provider.Address) trust.Policy
	Packages bool // whether to download and hash every package
	// Required means that the gateway serves only versions that a pinned key has signed.
	Required bool
}

func (v Verifier) lint(tags []ociaddr.Tag) []artifact.Finding {
	return append([]artifact.Finding{}, artifact.LintTags(tags)...)
}

// verify checks one version.
func (v Verifier) verify(ctx context.Context, p *Stored[provider.Address], version provider.Version) *VersionReport {
	c := &check{
		VersionReport: &VersionReport{Version: version, Pinned: new(bool), Findings: []artifact.Finding{}},
		provider:      p, policy: v.Policy(p.Address),
	}
	err := c.run(ctx, v.Packages)
	if v.Required && !c.policy.Pins() {
		c.report(artifact.SeverityError, "evidence", `the gateway refuses it, by verify = "required": no key is pinned for this provider`,
			fmt.Sprintf("name the publisher's key in a trust block that selects %s", p.Address))
	}
	c.Problem = problem(p.explain(err))
	return c.VersionReport
}

// check is the check of one version.
type check struct {
	*VersionReport
	provider *Stored[provider.Address]
	policy   trust.Policy
}

// run lints the version and checks its evidence and, if packages is set, its packages.
func (c *check) run(ctx context.Context, packages bool) error {
	linted, err := artifact.Lint(ctx, c.provider.store, c.provider.Address, c.Version)
	if errors.Is(err, errdef.ErrNotFound) {
		return hint.New("the registry lists the tag, but has no manifest for it", "unless it was deleted just now, ask the operator of the registry")
	}
	if err != nil {
		return err
	}
	c.Findings = append(c.Findings, linted.Findings...)
	if linted.Version == nil {
		return nil
	}
	found := *linted.Version
	c.found, c.Digest = linted.Version, found.Index.Digest.String()
	for _, p := range found.Packages {
		c.Platforms = append(c.Platforms, p.Platform)
	}
	found.Packages = slices.DeleteFunc(slices.Clone(found.Packages), func(p artifact.Package) bool { return p.Digest == "" })
	if err := c.checkEvidence(ctx, &found); err != nil || !packages {
		return err
	}
	if err := c.checkPackages(ctx, found.Packages); err != nil {
		return err
	}
	return c.checkDocs(ctx, &found)
}

// checkDocs downloads the documentation, and reads its pages. It does not report what Lint has reported.
func (c *check) checkDocs(ctx context.Context, found *artifact.Version) error {
	if found.Docs == nil || slices.ContainsFunc(c.Findings, func(f artifact.Finding) bool { return f.Where == artifact.DocsWhere }) {
		return nil
	}
	d, err := artifact.ReadDocs(ctx, c.provider.store, *found.Docs, c.provider.Address, c.Version)
	var zip []byte
	if err == nil {
		zip, err = artifact.FetchDocs(ctx, c.provider.store, d)
	}
	if err == nil {
		_, err = providerdoc.Read(ctx, zip)
	}
	if artifact.IsContent(err) || errors.Is(err, providerdoc.ErrZip) {
		c.report(artifact.SeverityError, artifact.DocsWhere, err.Error(), artifact.HelpDocs)
		return nil
	}
	return err
}

// checkPackages downloads every package and compares it with its hashes. It also looks for the provider's
// program in each package.
func (c *check) checkPackages(ctx context.Context, packages []artifact.Package) error {
	for _, pkg := range packages {
		content, err := artifact.Rehash(ctx, c.provider.store, c.provider.Address.Type(), pkg)
		switch {
		case artifact.IsContent(err):
			c.report(artifact.SeverityError, pkg.Platform.String(), err.Error(), helpForBytes(err, "push it again from its origin with ocibridge push --force"))
		case err != nil:
			return fmt.Errorf("%s: %w", pkg.Platform, err)
		case content.Program != nil:
			c.report(artifact.SeverityWarning, pkg.Platform.String(), "it unpacks, but "+content.Program.Error(), "ask its publisher for a new release")
		}
	}
	return nil
}

// helpForBytes returns the hint for a package or zip with wrong bytes. again says how to push it again.
func helpForBytes(err error, again string) string {
	if errors.Is(err, artifact.ErrDamaged) {
		again = "registries keep content whose digest they have, so remove the version with ocibridge remove, collect the registry's garbage (of the embedded one with ocibridge gc), and push it again"
	}
	return "do not install it, and find out what changed it: " + again
}

const doNotTrust = "do not trust this version: push it again from its origin with ocibridge push --force"

// checkEvidence verifies the signature. It does not report missing or unreadable evidence,
// because Lint has already done so.
func (c *check) checkEvidence(ctx context.Context, found *artifact.Version) error {
	unreadable := func(f artifact.Finding) bool {
		return f.Where == "evidence" && f.Severity == artifact.SeverityError
	}
	if slices.ContainsFunc(c.Findings, unreadable) {
		return nil
	}
	// Compare the checksums even if the policy does not allow unsigned packages, because
	// clients install them.
	lenient := c.policy
	lenient.AllowUnsigned = true
	verified, err := artifact.Verify(ctx, c.provider.store, c.provider.Address, c.Version, found, lenient)
	switch {
	case err == nil:
		c.reportVerified(verified)
		return nil
	case errors.Is(err, artifact.ErrNothingToCheck) && !c.policy.Pins():
		c.Signature = &Signature{Verdict: artifact.NoEvidence}
		if found.Evidence != nil && !c.policy.AllowUnsigned {
			c.report(artifact.SeverityWarning, "evidence", err.Error(), hint.Of(err))
		}
		return nil
	case trust.Refused(err):
		c.Signature = &Signature{Verdict: artifact.NoEvidence}
		c.Refused = errors.Is(err, trust.ErrSignature)
		help := cmp.Or(hint.Of(err), doNotTrust)
		if c.Refused {
			help += fmt.Sprintf(". If the publisher has signed this version again, replace the stored signature: ocibridge push --refresh-evidence %s@%s", c.provider.Address, c.Version)
		}
		c.report(artifact.SeverityError, "evidence", err.Error(), help)
		return nil
	}
	return err
}

// reportVerified compares a verified version with the recorded verdict and with the policy,
// and reports the differences.
func (c *check) reportVerified(verified *artifact.Verified) {
	c.Signature = &Signature{verified.Standing(), verified.Signer.Fingerprint}
	c.Pinned = &verified.Pinned
	switch {
	case verified.Verdict == trust.Signed:
	case verified.Evidence.Record.Verdict == trust.Signed:
		c.report(artifact.SeverityError, "evidence", "the record says that it is signed, but the signature does not cover it", doNotTrust)
	case !c.policy.AllowsUnsigned(verified.Checksums):
		c.report(artifact.SeverityWarning, "evidence", "it is unsigned: its packages match its checksums, but anybody could have written these",
			"push it with --refresh-evidence from an origin that signs it, or allow it with allow_unsigned = true in a trust block")
	}
	if why := verified.Signer.WhyExpired(); why != "" {
		c.report(artifact.SeverityWarning, "evidence", why, "strict_expiry in a trust block refuses it; ask the publisher for a release signed by a current key")
	}
	if _, unclean := trust.CleanKeys(verified.Evidence.SigningKeys); unclean != nil {
		c.report(artifact.SeverityWarning, "evidence", unclean.Error(), "push it again with --refresh-evidence, which stores the key in clean armour")
	}
	c.reportOtherNames(verified)
	for _, r := range verified.Refused {
		if !r.OtherName() {
			c.report(artifact.SeverityError, r.Package.Platform.String(), r.Err.Error(), cmp.Or(hint.Of(r.Err), "the publisher has not signed this package: push it again from its origin with ocibridge push --force"))
		}
	}
}

// reportOtherNames reports that a version is signed under another name. It reports this
// once for all platforms. The finding is an error if keys are pinned, because the signature
// does not cover the version and platform of such a package.
func (c *check) reportOtherNames(verified *artifact.Verified) {
	if verified.Standing() != artifact.SignedOtherName {
		return
	}
	var texts []string
	for _, r := range verified.Refused {
		if r.OtherName() {
			texts = append(texts, r.Err.Error())
			linted, _ := artifact.OtherFilename(c.provider.Address, c.Version, r.Package)
			c.Findings = slices.DeleteFunc(c.Findings, func(f artifact.Finding) bool { return f == linted })
		}
	}
	what := texts[0]
	if len(texts) > 1 {
		what += fmt.Sprintf("; so are %d more", len(texts)-1)
	}
	severity := artifact.SeverityWarning
	if c.policy.Pins() {
		severity = artifact.SeverityError
	}
	c.report(severity, "evidence", what, artifact.OtherNameHint)
}
