package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Severity is the severity of a [Finding].
type Severity string

const (
	// SeverityError means that some client cannot install the version, or that parts of the
	// stored content contradict each other.
	SeverityError Severity = "error"
	// SeverityWarning means that all clients can install the version, but something should
	// be improved.
	SeverityWarning Severity = "warning"
)

// Finding is one problem with stored content.
type Finding struct {
	Severity Severity `json:"severity"`
	Where    string   `json:"where"` // a platform, the evidence, or a tag
	What     string   `json:"what"`
	Hint     string   `json:"hint"` // how to fix it
}

// Linted is the result of [Lint].
type Linted struct {
	// Version is the readable part of the version, or nil if nothing is readable. If no
	// finding is an error, Version is the same as the result of [Read].
	Version  *Version
	Findings []Finding // first those about the index, then those about each platform
}

// Prober is the part of a repository that [Lint] uses. oras-go's remote.Repository
// implements it.
type Prober interface {
	ReferenceFetcher
	Blobs() registry.BlobStore
}

// Lint lists every reason why clients would refuse to install a stored version, and every
// contradiction within the version. Any tool can have written the version. Lint fetches
// every manifest that the index refers to. It sends a HEAD request for every package, and
// compares the announced size with the size in the manifest. It downloads a package only if
// the registry does not announce the size.
//
// Lint returns errdef.ErrNotFound if the tag does not exist. Other errors are about the
// connection to the registry.
func Lint(ctx context.Context, store Prober, a provider.Address, v provider.Version) (*Linted, error) {
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return nil, err
	}
	l := &linter{store: store, provider: a, version: v, tag: string(tag)}
	desc, data, err := fetchTag(ctx, store, l.tag)
	if err == nil {
		err = foreignOr(nil, data, a)
	}
	switch {
	case err == nil:
		err = l.lintIndex(ctx, desc, data)
	case IsContent(err):
		l.add(l.tag, err)
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return &Linted{l.found, l.findings}, nil
}

// linter collects the findings about one version.
type linter struct {
	store    Prober
	provider provider.Address
	version  provider.Version
	tag      string
	found    *Version
	findings []Finding
}

func (l *linter) report(s Severity, where, what, help string) {
	l.findings = append(l.findings, Finding{s, where, what, help})
}

// add reports an error about stored content as a finding.
func (l *linter) add(where string, err error) {
	l.report(SeverityError, where, err.Error(), remedy(err, l.provider))
}

// remedy returns a hint that tells the user how to fix stored content that caused err.
func remedy(err error, a provider.Address) string {
	const again = "push the version again with ocibridge push --force, which replaces what the tag names"
	switch {
	case hint.Of(err) != "":
		return hint.Of(err)
	case errors.Is(err, ErrMissing):
		return "a clean-up job may have deleted it: exempt what indexes name from it, and send it again with ocibridge push --force"
	case errors.Is(err, ErrForeign):
		return HelpForeign(err, a)
	case errors.Is(err, ErrDamaged):
		return "the registry, or a proxy in front of it, returns other bytes than were stored: ask its operator"
	case errors.Is(err, ErrAmbiguous):
		return "clients refuse to choose: " + again
	case errors.Is(err, ErrTooLarge):
		return "clients read no larger manifest: " + again
	}
	return "clients do not recognise it as a provider: " + again
}

// lintIndex checks the index and everything that it refers to.
func (l *linter) lintIndex(ctx context.Context, desc ocispec.Descriptor, data []byte) error {
	found, flaws := examineIndex(desc, data)
	for _, f := range flaws {
		if f.where == DocsWhere {
			l.reportDocs(f.err)
			continue
		}
		if f.minor {
			l.reportIgnored(found, f)
			continue
		}
		l.add(cmp.Or(f.where, l.tag), f.err)
	}
	if err := found.checkOwner(l.provider, l.version, "index"); err != nil {
		l.add(l.tag, err)
	}
	if found.Index.MediaType == "" && len(found.Packages) == 0 && found.Evidence == nil {
		return nil // it contains nothing that could be checked
	}
	l.found = found
	if m := desc.MediaType; m != "" && m != ocispec.MediaTypeImageIndex && found.Index.MediaType == ocispec.MediaTypeImageIndex {
		l.report(SeverityError, l.tag, fmt.Sprintf("the registry announces the index as %.80q", m), "clients use the announced media type: push the version again with ocibridge push --force")
	}
	if err := l.lintPackages(ctx); err != nil {
		return err
	}
	if err := l.lintEvidence(ctx); err != nil {
		return err
	}
	return l.lintDocs(ctx)
}

// reportDocs reports an error about the documentation.
func (l *linter) reportDocs(err error) {
	l.report(SeverityError, DocsWhere, err.Error(), HelpDocs)
}

// HelpDocs is the hint for documentation that cannot be read.
const HelpDocs = "clients do not need it, and install the version: push the release folder again with ocibridge push --docs DIR --force"

// lintDocs checks that the documentation is there. It does not read the pages.
func (l *linter) lintDocs(ctx context.Context) error {
	if l.found.Docs == nil {
		return nil
	}
	d, err := readDocs(ctx, l.store, *l.found.Docs, l.provider, l.version)
	if IsContent(err) {
		l.reportDocs(err)
		return nil
	}
	if err != nil {
		return err
	}
	size, err := blobSize(ctx, l.store.Blobs(), d.Zip)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		l.reportDocs(fmt.Errorf("%w: the zip %s", ErrMissing, d.Zip.Digest))
	case err != nil:
		return fmt.Errorf("documentation: %w", err)
	case size != d.Zip.Size:
		l.reportDocs(fmt.Errorf("%w: its manifest gives the zip %d bytes, and the registry has %d", ErrDamaged, d.Zip.Size, size))
	}
	return nil
}

// reportIgnored reports an index entry that every client ignores. The finding is an error if no other entry has a
// package for the platform.
func (l *linter) reportIgnored(found *Version, f flaw) {
	what := strings.TrimPrefix(f.err.Error(), errIgnored.Error()+": ")
	severity := SeverityError
	if slices.ContainsFunc(found.Packages, func(p Package) bool { return p.Platform.String() == f.where }) {
		severity = SeverityWarning
	}
	l.report(severity, f.where, "clients ignore an entry: "+what, "give the entry a platform of os and architecture alone, in Go's names for them, such as linux and amd64")
}

// lintPackages checks the platform manifests and their layers concurrently.
func (l *linter) lintPackages(ctx context.Context) error {
	each := make([]linter, len(l.found.Packages))
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(manifestFetches)
	for i := range l.found.Packages {
		each[i] = linter{store: l.store, provider: l.provider, version: l.version}
		p := &l.found.Packages[i]
		g.Go(func() error { return each[i].lintPackage(ctx, p) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var without []string
	for i, p := range l.found.Packages {
		l.findings = append(l.findings, each[i].findings...)
		if p.H1.IsZero() {
			without = append(without, p.Platform.String())
		}
	}
	if len(without) > 0 {
		l.report(SeverityWarning, l.tag, "no h1: hash for "+strings.Join(without, ", "),
			"lock files made through the gateway have only zh: for them; ocibridge push --force computes it, unless the zip has entries on which clients disagree")
	}
	return nil
}

// lintPackage checks the manifest of one platform. It completes a package that the index does not describe.
func (l *linter) lintPackage(ctx context.Context, p *Package) error {
	where := p.Platform.String()
	if !isSHA256(p.Manifest.Digest) {
		l.report(SeverityWarning, where, fmt.Sprintf("its manifest has the digest %s", p.Manifest.Digest), "many registries and tools support only sha256: push the version again with ocibridge push --force")
	}
	layer, err := fetchLayer(ctx, l.store, p.Manifest)
	if err != nil && l.correctSize(ctx, where, &p.Manifest) {
		layer, err = fetchLayer(ctx, l.store, p.Manifest)
	}
	if IsContent(err) {
		l.add(where, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	inManifest := Package{Platform: p.Platform, Manifest: p.Manifest}
	inManifest.fill(layer, l.provider, l.version)
	stated := "its manifest gives"
	if p.Size == inManifest.Size {
		stated = "its manifest and its index entry give"
	}
	if p.Digest == "" {
		if p.UnusedAnnotations {
			l.report(SeverityWarning, where, "the annotations of its index entry do not describe a package, and are not used", "push the version again with ocibridge push --force")
		}
		*p = inManifest
	} else {
		l.compare(*p, inManifest, layer.Annotations[ocispec.AnnotationTitle] != "")
	}
	if provider.Misnamed(p.Filename, l.version, p.Platform) {
		l.report(SeverityError, where, fmt.Sprintf("its file name is %s, of another version or platform", p.Filename),
			"a package is stored in place of another one: push the version again from its origin with ocibridge push --force")
	} else if f, other := OtherFilename(l.provider, l.version, *p); other {
		l.findings = append(l.findings, f)
	}
	size, err := blobSize(ctx, l.store.Blobs(), inManifest.Layer())
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		l.add(where, fmt.Errorf("%w: the package %s", ErrMissing, inManifest.Digest))
	case err != nil:
		return fmt.Errorf("%s: %w", where, err)
	case size != inManifest.Size:
		l.sizeDiffers(where, fmt.Sprintf("%s the package %d bytes", stated, inManifest.Size), size)
		p.Size = size // so that the package can be downloaded
	}
	return nil
}

func (l *linter) sizeDiffers(where, stated string, size int64) {
	l.report(SeverityError, where, fmt.Sprintf("%s, and the registry has %d", stated, size),
		"clients refuse content of another size: push the version again with ocibridge push --force")
}

// correctSize compares the size of a manifest in its index entry with the size in the registry. If they
// differ, it reports a finding, corrects manifest.Size and returns true.
func (l *linter) correctSize(ctx context.Context, where string, manifest *ocispec.Descriptor) bool {
	desc, body, err := l.store.FetchReference(ctx, manifest.Digest.String())
	if err != nil {
		return false
	}
	body.Close()
	if desc.Size <= 0 || desc.Size == manifest.Size {
		return false
	}
	l.sizeDiffers(where, fmt.Sprintf("its index entry gives the manifest %d bytes", manifest.Size), desc.Size)
	manifest.Size = desc.Size
	return true
}

// blobSize returns the size of a blob in bytes. It returns the size that HEAD announces, or else the size that GET
// announces. If neither announces a size, it downloads the blob, and stops one byte after the size in the
// descriptor. A failed HEAD does not prove that the blob is missing: some registries refuse HEAD, and a proxy cache
// fetches a blob only on the first GET. So only a failed GET returns errdef.ErrNotFound.
func blobSize(ctx context.Context, blobs registry.BlobStore, desc ocispec.Descriptor) (int64, error) {
	found, err := blobs.Resolve(ctx, desc.Digest.String())
	var lost *url.Error
	if err == nil && found.Size > 0 || errors.As(err, &lost) {
		return found.Size, err
	}
	found, body, err := blobs.FetchReference(ctx, desc.Digest.String())
	if err != nil { // if GET announces no size, oras-go sends a HEAD request, which can fail
		body, err = blobs.Fetch(ctx, desc)
	}
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if found.Size > 0 {
		return found.Size, nil
	}
	return io.Copy(io.Discard, io.LimitReader(body, min(desc.Size, math.MaxInt64-1)+1))
}

// OtherFilename compares the file name of a package with the published name. If the file name is not a
// spelling of the published name, OtherFilename returns a finding and true.
func OtherFilename(a provider.Address, v provider.Version, p Package) (Finding, bool) {
	want := provider.PackageFilename(a, v, p.Platform)
	return Finding{
		SeverityWarning, p.Platform.String(), fmt.Sprintf("its file name is %s, and not %s", p.Filename, want),
		"if its origin has it under this name, ask the publisher for the other one; otherwise push the version again from its origin with ocibridge push --force",
	}, !provider.SpellsPackage(p.Filename, a, v, p.Platform)
}

// compare reports where the index and the manifest describe a package differently. OpenTofu's oci_mirror
// uses the manifest. named is true if the manifest contains a file name.
func (l *linter) compare(p, inManifest Package, named bool) {
	where := p.Platform.String()
	differ := func(s Severity, what, annotated, actual string) {
		l.report(s, where, fmt.Sprintf("the index gives the %s %s, its manifest %s", what, annotated, actual),
			"one of them was changed after the push: push the version again with ocibridge push --force")
	}
	if p.Digest != inManifest.Digest {
		differ(SeverityError, "digest", p.Digest.String(), inManifest.Digest.String())
	}
	if p.Size != inManifest.Size {
		differ(SeverityError, "size", strconv.FormatInt(p.Size, 10), strconv.FormatInt(inManifest.Size, 10))
	}
	if named && p.Filename != inManifest.Filename {
		differ(SeverityWarning, "file name", p.Filename, inManifest.Filename)
	}
	if !p.H1.IsZero() && !inManifest.H1.IsZero() && p.H1 != inManifest.H1 {
		differ(SeverityError, "hash", p.H1.String(), inManifest.H1.String())
	}
}

// lintEvidence checks that the evidence can be read.
func (l *linter) lintEvidence(ctx context.Context) error {
	if l.found.Evidence == nil {
		l.report(SeverityWarning, "evidence", "there is none, so the publisher's signature cannot be checked",
			"push it from its origin with ocibridge push; a registry that refused it may allow the artifact type "+TypeEvidence)
		return nil
	}
	e, err := ReadEvidence(ctx, l.store, *l.found.Evidence)
	if err != nil && l.correctSize(ctx, "evidence", l.found.Evidence) {
		e, err = ReadEvidence(ctx, l.store, *l.found.Evidence)
	}
	if IsContent(err) {
		l.add("evidence", err)
		return nil
	}
	if err != nil {
		return err
	}
	if said := l.found.Evidence.Annotations[annotationVerdict]; said != "" && said != string(e.Record.Verdict) {
		l.report(SeverityError, "evidence", fmt.Sprintf("the index gives the verdict %q, and its record %q", said, e.Record.Verdict),
			"one of them was changed after the push: push the version again with ocibridge push --force")
	}
	return nil
}
