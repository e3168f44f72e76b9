package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// kind says what a question asks for.
type kind int

const (
	listing   kind = iota // the versions of a provider or module
	version               // the index that a version's tag names
	evidence              // the evidence that desc names
	content               // the content that desc names
	summary               // the summary of a provider's versions
	approvals             // the signatures of the manifest that desc names, as a version
)

var kindNames = [...]string{listing: "versions", version: "version", evidence: "evidence", content: "content", summary: "summary", approvals: "approvals"}

// question is one question to the registry, or to the union of the registry and the origin.
type question struct {
	kind    kind
	union   bool
	prefix  string // the beginning of the name under which the answer is cached
	subject subject.Address
	version provider.Version   // only if kind is version or approvals
	desc    ocispec.Descriptor // only if kind is evidence, content or approvals
	// account returns the account of the subject's repository. Only the first call calls
	// Options.Account.
	account func() Account
}

// question returns a question about a provider or a module.
func (v View) question(k kind, of subject.Address) question {
	v.union = v.union && (subject.TraitsOf(of).Origins || v.c.opts.Origin.Selects(of))
	return question{
		kind: k, union: v.union, prefix: v.c.prefix(v.union), subject: of,
		account: sync.OnceValue(func() Account { return v.c.opts.Account(of) }),
	}
}

// versionOf returns a question about a version. If versions need approvals, the question is about the registry alone, because
// nobody has signed a version together with the packages that the origin adds. The exception are origins for which the gateway
// vouches.
func (v View) versionOf(a subject.Address, of provider.Version) question {
	v.union = v.union && !v.c.registryAlone(a)
	q := v.question(version, a)
	q.version = of
	return q
}

// registryAlone reports whether questions about versions of a provider or a module are about the registry alone: see
// [View.versionOf].
func (c *Catalog) registryAlone(of subject.Address) bool {
	return c.policy(of).Enforces() && !c.opts.Approvals.Vouches(of)
}

// contentOf returns a question of kind evidence or content. The question is about the union
// only if the origin has the content in memory.
func (v View) contentOf(k kind, of subject.Address, desc ocispec.Descriptor) question {
	q := v.question(k, of)
	if q.union {
		if _, has := v.c.opts.Origin.Blob(q.provider(), desc.Digest); !has {
			q = v.c.ofRegistry(q)
		}
	}
	// The cache keeps the question. Annotations are left out, because they can have any length.
	q.desc = ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
	return q
}

// ofRegistry returns the same question to the registry alone.
func (c *Catalog) ofRegistry(q question) question {
	q.union, q.prefix = false, c.prefix(false)
	return q
}

// name is the name under which the answer is cached. For a listing or a version, it is the prefix
// and the path of the mirror's document, so that a request finds the answer by its path.
func (q question) name() string {
	switch q.kind {
	case listing:
		return q.prefix + pathOf(q.subject) + "/index.json"
	case version:
		return q.prefix + pathOf(q.subject) + "/" + q.version.String() + ".json"
	case evidence:
		return q.prefix + pathOf(q.subject) + "/" + string(q.desc.Digest)
	case summary:
		return q.prefix + pathOf(q.subject) + "@summary"
	case approvals:
		return q.prefix + pathOf(q.subject) + "/" + q.version.String() + "!" + string(q.desc.Digest)
	}
	return q.prefix + pathOf(q.subject) + "@" + string(q.desc.Digest)
}

// prefix returns the prefix of the registry's answers if there is also an origin. The answers of the
// union have no prefix, because they are requested more often.
func (c *Catalog) prefix(union bool) string {
	if union || c.opts.Origin == nil {
		return ""
	}
	return "registry:"
}

// span begins the span of a question to the registry.
func (q question) span(ctx context.Context) (context.Context, telemetry.End) {
	return telemetry.Start(ctx, "catalog fetch", slog.String("kind", kindNames[q.kind]), subject.Attr(q.subject), slog.String("version", q.version.String()))
}

// answer is an answer of the registry or of the union. If its Err is not nil, the version or
// provider is absent, is not served, or is refused.
type answer = fresh.Answer[*Item]

// newAnswer returns an answer, and sets how long it is current and can be served stale.
func (c *Catalog) newAnswer(item *Item, err error) answer {
	a := answer{Value: item, Err: err, TTL: c.opts.TagTTL, StaleFor: c.opts.StaleIfError}
	switch k := item.about.kind; {
	case err == nil && (k == evidence || k == content):
		a.TTL, a.StaleFor = fresh.Forever, fresh.Forever // a digest names the same content forever
	case k == approvals:
		a.TTL = c.approvalTTL(item.verdict)
	}
	return a
}

// Item is the content of one answer. It is immutable, apart from the documents that are cached
// with it.
type Item struct {
	// Address is the provider that the item is about. It is zero if the item is about a module.
	Address provider.Address
	// Version is the version that the item is about. It is zero in a list of versions.
	Version provider.Version
	// Versions lists the versions of the provider or module, oldest first. Callers must not change it.
	Versions []provider.Version
	// Warnings are the origin's warnings to the provider's users. Callers must not change them.
	Warnings []string
	// Found is the content of a version; nil in a list of versions. Callers must not change it.
	Found *artifact.Version

	about    question
	evidence *artifact.Evidence
	tags     tagList    // only in a list of versions
	added    time.Time  // see Added
	withheld []withheld // the versions that a list omits besides those that rules deny by their versions, oldest first
	verdict  approval.Verdict
	approval string // the name of the question whether the version is approved; "" in other items
	// undecided means that a list from disk has versions about which no verdict was known.
	undecided bool
	parts     []digest.Digest // the content that a version was read from
	content   []byte
	offers    []Offer // the versions that the origin offers, oldest first
	summary   artifact.Summary
	state     ocispec.Descriptor // the manifest that summary was read from
	read      *artifact.Version  // the version as it was read, before Options.Check has decided about it
	// stored is the registry's version, to which the origin has added packages. It is set only
	// in an item of the union, and only if the registry has the version.
	stored *artifact.Version

	savedAt   atomic.Int64 // the time in the item's record on disk, in Unix nanoseconds; 0 if there is none
	documents [documentKinds]atomic.Pointer[cachedDocument]
}

// Added returns when the catalog saw that the registry's list of versions had gained a version since the answer before. The
// push was earlier, by at most the time between both answers. The result is zero if the catalog has seen no such change, and
// in items that are no lists of the registry.
func (i *Item) Added() time.Time {
	if i.added.After(time.Now()) {
		return time.Time{} // the clock was wrong
	}
	return i.added
}

// Document is a kind of document that can be cached with an item.
type Document int

const (
	// MirrorDocument is a document of the network mirror protocol, and RegistryDocument a list
	// of versions in a registry protocol.
	MirrorDocument Document = iota
	RegistryDocument
	documentKinds
)

// cachedDocument is an encoded response for clients.
type cachedDocument struct {
	value any
	size  int64
}

// newItem returns an empty item for the answer to a question.
func newItem(q question) *Item { return &Item{Address: q.provider(), Version: q.version, about: q} }

// Document returns the item's document of the given kind, or nil if [Catalog.CacheDocument] has
// not cached one.
func (i *Item) Document(kind Document) any {
	if d := i.documents[kind].Load(); d != nil {
		return d.value
	}
	return nil
}

// shorten returns a short form of an error that is part of an answer.
func shorten(err error) error {
	if _, ok := errors.AsType[*refusal](err); ok {
		return err // a refusal is short already
	}
	return artifact.Brief(err, ErrAbsent, ErrNotServed)
}

const (
	errorOverhead = 256 // roughly the size of an error without its text, in bytes
	wrappings     = 4   // roughly how many copies of an error's text are in memory: each error that wraps it has one
)

// sizeOf returns roughly the memory of an answer, in bytes.
func sizeOf(q question, i *Item, err error) int64 {
	if i != nil && i.about.union != q.union {
		return 0 // the item comes from the registry's answer, which already counts it
	}
	var n int64
	if err != nil {
		n = errorOverhead + wrappings*int64(len(err.Error())+len(hint.Of(err)))
	}
	if i != nil {
		n += i.size()
	}
	return n
}

// size is roughly the memory of an item, in bytes.
func (i *Item) size() int64 {
	n := int64(len(i.content)) + 88*int64(len(i.parts)) + int64(len(i.tags.etag)+len(i.approval)) + verdictSize(i.verdict) + 40*int64(len(i.withheld))
	for _, w := range i.Warnings {
		n += 32 + int64(len(w))
	}
	for _, v := range i.tags.versions {
		n += 72 + int64(len(v.String()))
	}
	n += 72 * int64(len(i.tags.leadingV))
	if len(i.Versions) != len(i.tags.versions) {
		n += 72 * int64(len(i.Versions))
	}
	if i.summary != nil {
		n += i.summary.MemorySize()
	}
	for _, o := range i.offers {
		n += 160 + int64(len(o.Version.String())) + textsSize(o.Protocols)
		for _, p := range o.Platforms {
			n += 40 + int64(len(p.OS)+len(p.Arch))
		}
	}
	if e := i.evidence; e != nil {
		r := e.Record
		n += int64(len(e.SHA256SUMS)+len(e.Signature)+len(e.SigningKeys)+len(r.Origin)+len(r.Fingerprint)+len(r.Source)+len(r.PublishedAt)) + textsSize(r.Protocols)
	}
	for n2, v := range []*artifact.Version{i.Found, i.read} {
		if v != nil && (n2 == 0 || v != i.Found) {
			n += foundSize(v)
		}
	}
	for k := range i.documents {
		if d := i.documents[k].Load(); d != nil {
			n += d.size
		}
	}
	return n
}

// foundSize is roughly the memory of a version's content, in bytes.
func foundSize(v *artifact.Version) int64 {
	n := 512 + textsSize(v.Protocols) + int64(len(v.Index.MediaType)+len(v.Index.Digest))
	if e := v.Evidence; e != nil {
		n += 512 + int64(len(e.MediaType)+len(e.Digest))
		for key, value := range e.Annotations {
			n += int64(len(key) + len(value))
		}
	}
	if d := v.Docs; d != nil {
		n += 256 + int64(len(d.MediaType)+len(d.Digest))
	}
	n += 160 * int64(len(v.Missing))
	n += int64(len(v.Revision) + len(v.Tag) + len(v.Provenance.Location) + len(v.Provenance.Folder) + len(v.Provenance.Tree) + len(v.Provenance.TagObject))
	for _, p := range v.Packages {
		n += 400 + int64(len(p.Filename)+len(p.Digest)+len(p.Manifest.Digest)+len(p.Manifest.MediaType))
	}
	return n
}

// textsSize is roughly the memory of texts, in bytes.
func textsSize(texts []string) int64 {
	n := 16 * int64(len(texts))
	for _, t := range texts {
		n += int64(len(t))
	}
	return n
}

// pathOf returns the subject's path in the names of answers and in records.
func pathOf(s subject.Address) string { return subject.TraitsOf(s).Prefix + s.Path() }

// subjectAt returns the provider or the module with the given result of pathOf.
func subjectAt(path string) (subject.Address, error) {
	name, isModule := strings.CutPrefix(path, subject.Module.Traits().Prefix)
	parts := strings.Split(name, "/")
	switch {
	case isModule && len(parts) == 4:
		return module.AddressFromPath(parts[0], parts[1], parts[2], parts[3])
	case !isModule && len(parts) == 3:
		return provider.AddressFromPath(parts[0], parts[1], parts[2])
	}
	return nil, fmt.Errorf("%q is no path of a provider or a module", path)
}

// provider returns the question's provider, or the zero value if it is about a module.
func (q question) provider() provider.Address {
	a, _ := q.subject.(provider.Address)
	return a
}

// tagList is the part of a repository's list of tags that names versions.
type tagList struct {
	versions []provider.Version // oldest first, including denied versions
	leadingV []provider.Version // the versions of a module whose only tag has a leading v, oldest first
	etag     string             // "": the registry sent none
}

// versionsIn returns the versions that the tags of a repository name, in no particular order.
func versionsIn(tags []ociaddr.Tag, of subject.Address) (out tagList) {
	for v, t := range ociaddr.TagsOf(of, tags) {
		out.versions = append(out.versions, v)
		if hasLeadingV(t) {
			out.leadingV = append(out.leadingV, v)
		}
	}
	return out
}

// tag returns the tag of a version according to the last list of tags in memory. Without such a
// list, tag assumes that the tag of a module's version has no leading v.
func (c *Catalog) tag(q question) ociaddr.Tag {
	tag, _ := ociaddr.VersionTag(q.version) // reading the version reports the error
	if list := c.cache.Last(c.Registry().question(listing, q.subject)); list != nil && list.Err == nil && slices.Contains(list.Value.tags.leadingV, q.version) {
		return "v" + tag
	}
	return tag
}

// currentTag is like [Catalog.tag]. If a tag with a leading v is likely, it uses a current list
// of tags, because the tag without a v takes precedence as soon as it exists. An error means
// that the registry has not answered.
func (c *Catalog) currentTag(ctx context.Context, up *upstream) (ociaddr.Tag, error) {
	list := c.Registry().question(listing, up.subject)
	if subject.TraitsOf(up.subject).LeadingV && (hasLeadingV(c.tag(up.question)) || hasLeadingV(tagOf(up.before))) && !c.cache.Last(list).Current(time.Now()) {
		if _, err := c.cache.Ask(ctx, list); err != nil {
			return "", err
		}
	}
	return c.tag(up.question), nil
}

// hasLeadingV reports whether a module's tag has a leading v.
func hasLeadingV(t ociaddr.Tag) bool { return strings.HasPrefix(string(t), "v") }

// tagOf returns the tag of the module's version in an answer, or "" if there is none.
func tagOf(a *answer) ociaddr.Tag {
	if a == nil || a.Err != nil || a.Value.Found == nil {
		return ""
	}
	return a.Value.Found.Tag
}

// ModuleVersion is like [View.Version], for a module. Item.Found has exactly one package: the
// zip of the module. The version can be announced, see [Item.Announced].
func (v View) ModuleVersion(ctx context.Context, a module.Address, of provider.Version) (*Item, error) {
	item, err := v.Version(ctx, a, of)
	if err != nil && !errors.Is(err, ErrNotServed) && !errors.Is(err, ErrDenied) {
		err = fmt.Errorf("read the module %w", Named(a, of, err))
	}
	return item, err
}
