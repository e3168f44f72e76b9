package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// versionView describes one version.
type versionView struct {
	Version    provider.Version
	Protocols  []string
	Deprecated string // why the configuration deprecates the version, or ""
	Signature  signatureView
	Packages   []packageView
	Published  string     // the time that the origin stated in the evidence, or ""
	SourceURL  string     // the repository of the source code that the origin stated, or ""
	Docs       string     // the page with the documentation at the public registry, or ""
	Files      []fileView // the release's documents
	providerBlocks
	Reference string         // the OCI reference, if clients can read it
	Index     string         // the digest of the index, or "" if no part of the version is in the registry
	Manual    *docsView      // the stored documentation; nil if there is none
	Approvals *approvalsView // nil if the provider's versions need no approval
}

// providerBlocks are for users to copy.
type providerBlocks struct {
	Require string // the required_providers block
	Lock    string // the block of the lock file, or ""
}

// fileView is a file to download.
type fileView struct{ Title, Name, URL string }

// packageView describes the package for one platform.
type packageView struct {
	artifact.Package
	URL       string // "" if it cannot be downloaded
	Elsewhere bool   // the package is not in the registry, and is fetched when it is first requested
	Missing   string // the digest of a manifest that the registry lacks, or ""
	Unvouched string // the reason why the evidence does not cover the package, or ""
}

// UnvouchedState returns the CSS class for a package that the evidence does not cover.
func (p packageView) UnvouchedState() string {
	if p.Unvouched == rowOther {
		return classOf(rowOther)
	}
	return classOf(rowRefused)
}

// signatureView says who signed a version.
type signatureView struct {
	State       string // one of the states of a version
	Pinned      bool   // the configuration pins the key
	Text        string
	Fingerprint string
	Source      string // the origin that the push recorded
}

// Class returns the CSS class of the state.
func (s signatureView) Class() string { return classOf(s.State) }

// describe describes a version. Its errors come from the catalog.
func (p *page) describe(ctx context.Context, r *http.Request, view catalog.View, a provider.Address, v provider.Version) (*versionView, error) {
	item, err := view.Version(ctx, a, v)
	if err != nil {
		return nil, err
	}
	found := item.Found
	out := &versionView{Version: v, Deprecated: p.Catalog.Deprecated(a, v), Docs: publicDocs(a, v), Protocols: found.Protocols, providerBlocks: providerBlocks{Require: requirement(a, v)}}
	stored := item.Stored()
	if stored != nil {
		out.Index = stored.Index.Digest.String()
		if p.Reference != nil {
			out.Reference = p.Reference(p.gatewayURL(r).String(), a, v)
		}
	}
	out.Approvals, out.Manual = p.approvals(ctx, item), p.docs(ctx, r, view, item)
	verified, err := artifact.Verify(ctx, view.Metadata(a), a, v, found, p.lenient(a))
	out.Signature = p.judge(a, found, verified, err)
	if verified != nil {
		out.Published, out.SourceURL = verified.Evidence.Record.PublishedAt, verified.Evidence.Record.Source
		out.Files = p.files(r, a, v, verified.Evidence)
	}
	for _, pkg := range found.Packages {
		pkg.H1, pkg.Size = p.H1Of(pkg), max(pkg.Size, 0) // the template omits a size of 0
		out.Packages = append(out.Packages, packageView{
			Package:   pkg,
			URL:       p.PackageLink(r, base(r), a, v, pkg),
			Elsewhere: stored == nil || !slices.ContainsFunc(stored.Packages, func(s artifact.Package) bool { return s.Platform == pkg.Platform }),
			Unvouched: unvouched(verified, pkg.Platform),
		})
	}
	for _, m := range found.Missing {
		missing := artifact.Package{Platform: m.Platform, Filename: provider.PackageFilename(a, v, m.Platform)}
		out.Packages = append(out.Packages, packageView{Package: missing, Missing: m.Manifest.String()})
	}
	slices.SortStableFunc(out.Packages, func(a, b packageView) int { return a.Platform.Compare(b.Platform) })
	out.Lock = lockEntry(a, v, out.Packages)
	return out, nil
}

// approvalsView says which required approvals a served version has.
type approvalsView struct {
	Approved []approval.Approval
	Missing  []approval.Missing // those that are not enforced
	Unknown  bool               // the signatures cannot be read now
}

// approvals describes the approvals of a version, or returns nil if it needs none or is not stored yet.
func (p *page) approvals(ctx context.Context, item *catalog.Item) *approvalsView {
	if p.Catalog.Policy(item.Subject()).IsZero() {
		return nil
	}
	verdict, err := p.Catalog.Approval(ctx, item)
	if err == nil && len(verdict.Approvals)+len(verdict.Missing) == 0 {
		return nil
	}
	return &approvalsView{verdict.Approvals, verdict.Missing, err != nil}
}

// files returns the documents of a signed version. The gateway serves no documents of unsigned versions.
func (p *page) files(r *http.Request, a provider.Address, v provider.Version, e *artifact.Evidence) (out []fileView) {
	if !e.Signed() {
		return nil
	}
	documents, err := gateway.Documents(a, v, e)
	if err != nil {
		p.Log.WarnContext(r.Context(), "cannot show", "path", r.URL.Path, "version", v.String(), "err", hint.Brief(err))
	}
	titles := [...]string{"Checksums", "Signature", "Public keys"}
	for i, d := range documents {
		out = append(out, fileView{titles[i], d.Name, p.DocumentLink(r, base(r), a, v, d)})
	}
	return out
}

// unvouched returns the reason why the evidence does not cover a platform's package, or "".
func unvouched(v *artifact.Verified, platform provider.Platform) string {
	if v == nil {
		return ""
	}
	i := slices.IndexFunc(v.Refused, func(r artifact.Refusal) bool { return r.Package.Platform == platform })
	switch {
	case i < 0:
		return ""
	case v.Verdict == trust.Signed && v.Refused[i].OtherName():
		return rowOther
	}
	return "The evidence does not vouch for this package"
}

// lenient returns a provider's policy that also accepts unsigned packages, so that the page can tell a missing signature
// from an invalid one.
func (p *page) lenient(a provider.Address) trust.Policy {
	policy := p.Policy(a)
	policy.AllowUnsigned = true
	return policy
}

// judge describes the results v and err of checking the evidence.
func (p *page) judge(a provider.Address, found *artifact.Version, v *artifact.Verified, err error) signatureView {
	pins := p.Policy(a).Pins()
	switch {
	case errors.Is(err, artifact.ErrNothingToCheck) && found.Evidence != nil:
		return signatureView{State: rowChecksum, Text: "Nobody signed these packages. Their source, such as a mirror, provided hashes at most, which were not stored: there is nothing to check now."}
	case errors.Is(err, artifact.ErrNothingToCheck):
		return signatureView{State: rowNone, Text: "Nothing in the registry says who published the packages."}
	case errors.Is(err, trust.ErrUnsigned), errors.Is(err, trust.ErrSignature):
		if pins {
			return signatureView{State: rowUnpinned, Text: "The stored evidence has no valid signature by a key that this gateway’s configuration pins for the provider."}
		}
		return signatureView{State: rowSignature, Text: "The signature in the stored evidence does not verify."}
	case err != nil && (isInvalid(err) || trust.Refused(err)):
		return signatureView{State: rowEvidence, Text: "The stored evidence is malformed, or does not match the packages."}
	case err != nil:
		return signatureView{State: rowUnknown, Text: "The registry did not return the evidence. Try again later."}
	}
	out := signatureView{Source: v.Evidence.Record.Origin}
	switch {
	case v.Verdict != trust.Signed:
		out.State, out.Text = rowChecksum, "The packages match checksums that nobody signed."
	case v.Pinned:
		out.State, out.Pinned, out.Text = rowSigned, true, "The gateway has just verified the signature with the key that its configuration pins for the provider."
	default:
		out.State, out.Text = rowSigned, "The signature is valid, by a key that came with the packages. No key is pinned for the provider here."
	}
	otherName := v.Standing() == artifact.SignedOtherName
	if otherName {
		out.State = rowOther
		out.Text += " But the signed file names do not say which version and platform the packages are for. Clients install them; a gateway with verify = “required” does not serve them."
	}
	if out.Fingerprint = v.Signer.Fingerprint; v.Signer.Expired() {
		out.Text += " The key, or the signature, has expired, or is dated in the future."
	}
	if slices.ContainsFunc(v.Refused, func(r artifact.Refusal) bool { return !r.OtherName() || !otherName }) {
		out.Text += " Not all platforms are covered: see below."
	}
	return out
}

// requirement returns the required_providers block for a version and its compatible successors.
func requirement(a provider.Address, v provider.Version) string {
	var out strings.Builder
	fmt.Fprintf(&out, "terraform {\n  required_providers {\n    %s = {\n", a.Type())
	fmt.Fprintf(&out, "      source  = %q\n      version = %q\n    }\n  }\n}\n", a.String(), cmp.Or(constraint(v), v.String()))
	return out.String()
}

// sourceView is a source address as users of a client write it.
type sourceView struct{ Title, Address string }

// sources returns a source address as users of each client write it. They leave out the client's default host. full is
// the whole address, and short is the address without the host.
func sources(hostname, short, full string) []sourceView {
	switch hostname {
	case "registry.opentofu.org":
		return []sourceView{{"Source in OpenTofu", short}, {"Source in Terraform", full}}
	case "registry.terraform.io":
		return []sourceView{{"Source in Terraform", short}, {"Source in OpenTofu", full}}
	}
	return []sourceView{{"Source address", full}}
}

// publicDocs returns the URL of a version's documentation at the public registry of its host, or "" for other hosts.
func publicDocs(a provider.Address, v provider.Version) string {
	switch a.Hostname() {
	case "registry.opentofu.org":
		return "https://search.opentofu.org/provider/" + a.Namespace() + "/" + a.Type() + "/v" + v.String()
	case "registry.terraform.io":
		return "https://registry.terraform.io/providers/" + a.Namespace() + "/" + a.Type() + "/" + v.String() + "/docs"
	}
	return ""
}

// constraint returns a ~> constraint that allows a version and its compatible successors: the next minor versions, or
// for 0.x the next patches. It returns "" for a prerelease, which no such constraint selects.
func constraint(v provider.Version) string {
	if v.IsPrerelease() {
		return ""
	}
	core, _, _ := strings.Cut(v.String(), "+")
	if strings.HasPrefix(core, "0.") {
		return "~> " + core
	}
	return "~> " + core[:strings.LastIndexByte(core, '.')]
}

// lockEntry returns the block of a dependency lock file for a version, as clients write it with the constraint of
// [requirement]. It returns "" if no package has a hash.
func lockEntry(a provider.Address, v provider.Version, packages []packageView) string {
	var hashes []string
	for _, p := range packages {
		if p.Missing != "" || p.Unvouched != "" {
			continue
		}
		hashes = append(hashes, p.ZipHash().String())
		if !p.H1.IsZero() {
			hashes = append(hashes, p.H1.String())
		}
	}
	if len(hashes) == 0 {
		return ""
	}
	slices.Sort(hashes)
	var out strings.Builder
	fmt.Fprintf(&out, "provider %q {\n  version     = %q\n  constraints = %q\n  hashes = [\n", a.String(), v.String(), cmp.Or(constraint(v), v.String()))
	for _, h := range slices.Compact(hashes) {
		fmt.Fprintf(&out, "    %q,\n", h)
	}
	out.WriteString("  ]\n}\n")
	return out.String()
}
