package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Severity is how much a [Finding] matters.
type Severity string

const (
	// SeverityError: some client cannot install what it should, or what is stored
	// contradicts itself.
	SeverityError Severity = "error"
	// SeverityWarning: clients install it, and something could be better.
	SeverityWarning Severity = "warning"
)

// Finding is one thing that is wrong with what is stored.
type Finding struct {
	Severity Severity `json:"severity"`
	Where    string   `json:"where"` // a platform, the evidence, or a tag
	What     string   `json:"what"`
	Hint     string   `json:"hint"` // what to do about it
}

// Linted is what [Lint] found.
type Linted struct {
	// Version is what could be read, as [Read] returns it if no finding is an
	// error; nil if nothing could.
	Version  *Version
	Findings []Finding // about the index, then by platform
}

// Prober is what [Lint] needs of a repository. oras-go's remote.Repository is
// one.
type Prober interface {
	ReferenceFetcher
	Blobs() registry.BlobStore
}

// Lint lists every way in which a stored version would not install with the
// clients' own rules, or contradicts itself, whoever pushed it. It asks for every
// manifest that the index names, and by HEAD for every package, whose size it
// compares. It downloads a package only where the registry does not announce a size.
//
// An error is about the way to the registry, or errdef.ErrNotFound about the tag.
func Lint(ctx context.Context, store Prober, a provider.Address, v provider.Version) (*Linted, error) {
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return nil, err
	}
	l := &linter{store: store, provider: a, version: v, tag: string(tag)}
	desc, data, err := fetchTag(ctx, store, l.tag)
	if IsContent(err) {
		l.add(l.tag, err)
		return &Linted{nil, l.findings}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := l.lintIndex(ctx, desc, data); err != nil {
		return nil, err
	}
	return &Linted{l.found, l.findings}, nil
}

// linter gathers the findings about one version.
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

// add reports an error of package artifact about what is stored.
func (l *linter) add(where string, err error) {
	l.report(SeverityError, where, err.Error(), remedy(err))
}

// remedy says what to do about content that is refused.
func remedy(err error) string {
	const again = "push the version again with ocibridge push --force, which replaces what the tag names"
	switch {
	case hint.Of(err) != "":
		return hint.Of(err)
	case errors.Is(err, ErrMissing):
		return "a clean-up job may have deleted it: exempt what indexes name from it, and send it again with ocibridge push --force"
	case errors.Is(err, ErrForeign):
		return "let the repository template give each provider a repository of its own"
	case errors.Is(err, ErrDamaged):
		return "the registry, or something before it, hands out other bytes than were stored: ask whoever runs it"
	case errors.Is(err, ErrAmbiguous):
		return "clients refuse to choose: " + again
	case errors.Is(err, ErrTooLarge):
		return "clients read no larger manifest: " + again
	}
	return "clients do not take it for a provider: " + again
}

// lintIndex looks at the index, and at everything that it names.
func (l *linter) lintIndex(ctx context.Context, desc ocispec.Descriptor, data []byte) error {
	found, flaws := examineIndex(desc, data)
	for _, f := range flaws {
		if f.minor {
			l.passedOver(found, f)
			continue
		}
		l.add(cmp.Or(f.where, l.tag), f.err)
	}
	if err := found.checkOwner(l.provider, l.version); err != nil {
		l.add(l.tag, err)
	}
	if found.Index.MediaType == "" && len(found.Packages) == 0 && found.Evidence == nil {
		return nil // nothing in it is ours to look at
	}
	l.found = found
	if m := desc.MediaType; m != "" && m != ocispec.MediaTypeImageIndex && found.Index.MediaType == ocispec.MediaTypeImageIndex {
		l.report(SeverityError, l.tag, fmt.Sprintf("the registry announces the index as %.80q", m), "clients go by what the registry announces: push the version again with ocibridge push --force")
	}
	if err := l.lintPackages(ctx); err != nil {
		return err
	}
	return l.lintEvidence(ctx)
}

// passedOver reports an entry that no client takes: an error if its platform is
// left without a package.
func (l *linter) passedOver(found *Version, f flaw) {
	what := strings.TrimPrefix(f.err.Error(), errPassedOver.Error()+": ")
	severity := SeverityError
	if slices.ContainsFunc(found.Packages, func(p Package) bool { return p.Platform.String() == f.where }) {
		severity = SeverityWarning
	}
	l.report(severity, f.where, "clients pass over an entry: "+what, "give the entry a platform of os and architecture alone, in Go's names for them, such as linux and amd64")
}

// lintPackages looks at the platform manifests and their layers, several at once.
func (l *linter) lintPackages(ctx context.Context) error {
	each := make([]linter, len(l.found.Packages))
	g, ctx := errgroup.WithContext(ctx)
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

// lintPackage looks at one platform's manifest, and completes the package from it
// if the index does not describe it.
func (l *linter) lintPackage(ctx context.Context, p *Package) error {
	where := p.Platform.String()
	if !isSHA256(p.Manifest.Digest) {
		l.report(SeverityWarning, where, fmt.Sprintf("its manifest has the digest %s", p.Manifest.Digest), "many registries and tools know sha256 alone: push the version again with ocibridge push --force")
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
			"one package stands in another's place: push the version again from its origin with ocibridge push --force")
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
		p.Size = size // for who downloads it
	}
	return nil
}

func (l *linter) sizeDiffers(where, stated string, size int64) {
	l.report(SeverityError, where, fmt.Sprintf("%s, and the registry has %d", stated, size),
		"clients refuse content of another size: push the version again with ocibridge push --force")
}

// correctSize reports whether an index entry gives a manifest another size than the
// registry, and puts the registry's in its place.
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

// blobSize returns how many bytes the registry has of a blob: as HEAD announces it, or
// GET where HEAD does not. Where neither does, it counts them, to one more than the
// descriptor gives. Only GET decides whether the blob is there, with errdef.ErrNotFound if
// not: registries refuse HEAD, and proxy caches fetch a blob at the first GET.
func blobSize(ctx context.Context, blobs registry.BlobStore, desc ocispec.Descriptor) (int64, error) {
	found, err := blobs.Resolve(ctx, desc.Digest.String())
	var lost *url.Error
	if err == nil && found.Size > 0 || errors.As(err, &lost) {
		return found.Size, err
	}
	found, body, err := blobs.FetchReference(ctx, desc.Digest.String())
	if err != nil { // oras-go asks by HEAD again where GET announces no size
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

// OtherFilename is the finding that a package has another file name than the published
// one; false if it has that.
func OtherFilename(a provider.Address, v provider.Version, p Package) (Finding, bool) {
	want := provider.PackageFilename(a, v, p.Platform)
	return Finding{
		SeverityWarning, p.Platform.String(), fmt.Sprintf("its file name is %s, and not %s", p.Filename, want),
		"if its origin has it under this name, ask the publisher for the other one; otherwise push the version again from its origin with ocibridge push --force",
	}, p.Filename != want
}

// compare reports where an index says something else of a package than the
// package's manifest, which is what OpenTofu's oci_mirror goes by.
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

// lintEvidence reads the evidence.
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
		l.report(SeverityError, "evidence", fmt.Sprintf("the index says %q of it, its record %q", said, e.Record.Verdict),
			"one of them was changed after the push: push the version again with ocibridge push --force")
	}
	return nil
}

// LintTags finds the tags that OpenTofu reads as a version which has another tag, and
// the tags that look like versions although no client reads them. A finding is an error
// if a tag makes OpenTofu fail, or if no other tag names its version.
func LintTags(tags []ociaddr.Tag) []Finding {
	l := &tagLinter{tags: map[ociaddr.Tag]bool{}}
	for _, t := range tags {
		l.tags[t] = true
		if v, ok := t.Version(); ok && !v.IsPrerelease() && v.Compare(l.newest) > 0 {
			l.newest = v
		}
	}
	var out []Finding
	for _, t := range tags {
		if _, ok := t.Version(); ok {
			continue
		}
		read, err := provider.ReadByOpenTofu(strings.ReplaceAll(string(t), "_", "+"))
		switch {
		case errors.Is(err, provider.ErrOpenTofuPanics):
			out = append(out, Finding{SeverityError, string(t), fmt.Sprintf("OpenTofu panics on tag %q: tofu init fails", t), "remove the tag: until then OpenTofu installs no version from this repository"})
		case err == nil:
			out = append(out, l.readByOpenTofu(t, read))
		case looksLikeVersion.MatchString(string(t)):
			out = append(out, l.readByNobody(t))
		}
	}
	return out
}

// tagLinter judges one tag by the other tags of its repository.
type tagLinter struct {
	tags   map[ociaddr.Tag]bool
	newest provider.Version // of those that no constraint needs to name
}

// readByOpenTofu reports a tag that OpenTofu reads as a version, in canonical form.
// OpenTofu then asks the registry for the tag of that version.
func (l *tagLinter) readByOpenTofu(t ociaddr.Tag, read string) Finding {
	f := Finding{Severity: SeverityError, Where: string(t)}
	v, err := provider.ParseVersion(read)
	switch want := ociaddr.Tag(strings.ReplaceAll(read, "+", "_")); {
	case want == t: // else t would name a version
		f.What = fmt.Sprintf("OpenTofu installs tag %q, and a gateway does not serve it: %v", t, err)
		f.Hint = "give the version smaller numbers, and remove this tag"
	case l.tags[want]:
		f.Severity = SeverityWarning
		f.What = fmt.Sprintf("OpenTofu reads tag %q as version %s, which has a tag of its own", t, read)
		f.Hint = "remove this tag: no client reads what it names"
	default:
		f.What = fmt.Sprintf("OpenTofu reads tag %q as version %s, which does not exist: tofu init fails", t, read)
		if err == nil && (v.IsPrerelease() || v.Compare(l.newest) < 0) {
			f.What += " where a constraint selects it"
		}
		f.Hint = fmt.Sprintf("remove this tag; if it names version %s, tag it %s first", read, want)
	}
	return f
}

// readByNobody reports a tag that looks like a version although no client reads it.
func (l *tagLinter) readByNobody(t ociaddr.Tag) Finding {
	_, err := provider.ParseVersion(strings.ReplaceAll(string(t), "_", "+"))
	f := Finding{SeverityError, string(t), "the tag looks like a version, and clients take it for none", hint.Of(err)}
	meant, ok := provider.LooseVersion(string(t))
	if !ok {
		return f
	}
	tag, err := ociaddr.VersionTag(meant)
	if err == nil {
		f.Hint = fmt.Sprintf("tag it %s, and remove this one", tag)
	}
	// v3.2 is often kept beside 3.2.4, as container images have it.
	if l.tags[tag] || strings.Count(string(t), ".") < 2 {
		f.Severity = SeverityWarning
	}
	return f
}

// looksLikeVersion matches two numbers and what may follow, after a v at most.
var looksLikeVersion = regexp.MustCompile(`^[vV]?[0-9]+\.[0-9]+([._-].*)?$`)
