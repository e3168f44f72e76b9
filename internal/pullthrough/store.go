package pullthrough

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// store is a provider's repository, with what its origin offers beside it.
type store struct {
	catalog.Store // the repository
	p             *Puller
	address       provider.Address
}

var _ catalog.Offerer = (*store)(nil)

// Offers implements [catalog.Offerer].
func (s *store) Offers(ctx context.Context) ([]catalog.Offer, []string, error) {
	l, err := s.p.list(ctx, s.address)
	if err != nil {
		return nil, nil, err
	}
	return l.offers, l.warnings, nil
}

// Forget implements [catalog.Offerer].
func (s *store) Forget() {
	s.p.lists.Drop(func(a provider.Address) bool { return a == s.address }, nil)
	s.p.releases.Drop(func(about subject) bool { return about.provider == s.address }, nil)
}

// Complete implements [catalog.Offerer].
func (s *store) Complete(ctx context.Context, v provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	about := subject{s.address, v}
	l, err := s.p.list(ctx, s.address)
	if err != nil {
		return s.orStored(ctx, about, stored, err)
	}
	offer, ok := l.offer(v)
	if !ok && stored == nil && !s.p.lists.Last(s.address).Current(time.Now()) {
		if l, err = s.p.askAgain(ctx, s.address); err != nil {
			return nil, err
		}
		offer, ok = l.offer(v)
	}
	if !ok || stored != nil && covers(stored, offer) {
		if stored != nil {
			s.p.settle(about, settlement{stored.Index.Digest, ok, sumOf(offer.Platforms), time.Time{}})
		}
		return stored, nil
	}
	r, err := s.p.release(ctx, about)
	switch {
	case errors.Is(err, ErrNotOffered):
		return stored, nil
	case err != nil:
		return s.orStored(ctx, about, stored, err)
	case stored == nil:
		return r.version, nil
	}
	found := s.unite(ctx, stored, r)
	if found == stored {
		s.p.settle(about, settlement{stored.Index.Digest, true, sumOf(offer.Platforms), time.Now().Add(settledFor)})
	}
	return found, nil
}

// orStored returns what is stored in place of what the origin has trouble with, or
// must not be believed about.
func (s *store) orStored(ctx context.Context, about subject, stored *artifact.Version, err error) (*artifact.Version, error) {
	if stored == nil {
		return nil, err
	}
	s.p.o.Log.DebugContext(ctx, "only what the registry has of a version is served", "version", about.String(), "err", err)
	return stored, nil
}

// covers reports whether all platforms that the origin offers are stored.
func covers(stored *artifact.Version, o catalog.Offer) bool {
	return len(o.Platforms) > 0 && !slices.ContainsFunc(o.Platforms, func(platform provider.Platform) bool {
		return !slices.ContainsFunc(stored.Packages, func(p artifact.Package) bool { return p.Platform == platform })
	})
}

// unite returns what is stored, with the packages that the origin has beside it, if
// the origin's evidence vouches for all of them and is no weaker than what is
// stored. Else it is what is stored alone.
func (s *store) unite(ctx context.Context, stored *artifact.Version, r *release) *artifact.Version {
	out := *stored
	out.Packages = slices.Clone(stored.Packages)
	for _, p := range stored.Packages {
		sum, listed := r.sums.Sum(provider.PackageFilename(s.address, r.subject.version, p.Platform))
		d := digest.NewDigestFromBytes(digest.SHA256, sum[:])
		switch {
		case listed && d != p.Digest:
			s.p.o.Log.ErrorContext(ctx, "the registry and the origin have different packages: the registry's is served",
				"version", r.subject.String(), "platform", p.Platform.String(), "registry", p.Digest, "origin", d,
				"hint", "find out which of them the publisher released")
			return stored
		case !listed:
			return stored
		}
	}
	if stored.Evidence != nil && stored.Evidence.Digest != r.version.Evidence.Digest && r.sums.Verdict() != trust.Signed {
		return stored
	}
	for _, p := range r.packages {
		if !slices.ContainsFunc(stored.Packages, func(q artifact.Package) bool { return q.Platform == p.Platform }) {
			out.Packages = append(out.Packages, p)
		}
	}
	out.Missing = slices.DeleteFunc(slices.Clone(stored.Missing), func(m artifact.MissingPackage) bool {
		return slices.ContainsFunc(out.Packages, func(p artifact.Package) bool { return p.Platform == m.Platform })
	})
	if len(out.Packages) == len(stored.Packages) {
		return stored
	}
	slices.SortFunc(out.Packages, func(a, b artifact.Package) int { return a.Platform.Compare(b.Platform) })
	out.Evidence = r.version.Evidence
	if out.Protocols == nil {
		out.Protocols = r.version.Protocols
	}
	out.Index = describe(&out)
	return &out
}

// describe returns a descriptor that stands for the index of a version which is in
// memory alone: the same for the same packages, as far as they are known, and
// evidence, and of no content that could be fetched.
func describe(v *artifact.Version) ocispec.Descriptor {
	var text strings.Builder
	fmt.Fprintf(&text, "pull-through of %s %s\nevidence %s\n", v.Provider.Path(), v.Version, v.Evidence.Digest)
	for _, p := range v.Packages {
		fmt.Fprintf(&text, "%s %s %d %s %s\n", p.Platform, p.Digest, p.Size, p.Filename, p.H1)
	}
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString(text.String()), Size: int64(text.Len())}
}

// errUnsettled has whoever asks what a tag names read the version itself.
var errUnsettled = errors.New("what the tag names is not all that there is")

// resolver says what a tag names. oras-go's remote.Repository is one.
type resolver interface {
	Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error)
}

// settlement is an index to which the origin had nothing to add.
type settlement struct {
	index     digest.Digest
	offered   bool
	platforms [sha256.Size]byte // sumOf those that the origin offered then
	until     time.Time         // zero: as long as it offers those
}

// sumOf stands for platforms: a settlement outlives the list that has them.
func sumOf(platforms []provider.Platform) [sha256.Size]byte {
	var text []byte
	for _, platform := range platforms {
		text = append(append(text, platform.String()...), '\n')
	}
	return sha256.Sum256(text)
}

const (
	// maxSettled bounds how many are remembered.
	maxSettled = 8 << 10
	// settledFor is how long what the origin offers is passed over that does not go
	// with what is stored.
	settledFor = 10 * time.Minute
)

func (p *Puller) settle(about subject, s settlement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.settled) >= maxSettled {
		clear(p.settled)
	}
	p.settled[about] = s
}

// Resolve returns what a version's tag names, if that is all that there is of it.
func (s *store) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	inner, ok := s.Store.(resolver)
	v, isVersion := ociaddr.Tag(reference).Version()
	if !ok || !isVersion {
		return ocispec.Descriptor{}, errUnsettled
	}
	s.p.mu.Lock()
	known, ok := s.p.settled[subject{s.address, v}]
	s.p.mu.Unlock()
	if !ok || !known.until.IsZero() && time.Now().After(known.until) {
		return ocispec.Descriptor{}, errUnsettled
	}
	l, err := s.p.list(ctx, s.address)
	if err != nil {
		return ocispec.Descriptor{}, errUnsettled
	}
	if offer, ok := l.offer(v); ok != known.offered || sumOf(offer.Platforms) != known.platforms {
		return ocispec.Descriptor{}, errUnsettled
	}
	desc, err := inner.Resolve(ctx, reference)
	if err == nil && desc.Digest != known.index {
		return ocispec.Descriptor{}, errUnsettled
	}
	return desc, err
}

// Exists reports whether a blob is stored, or can be had.
func (s *store) Exists(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	if _, ok := s.p.blob(s.address, desc.Digest); ok {
		return true, nil
	}
	inner, ok := s.Store.(interface {
		Exists(context.Context, ocispec.Descriptor) (bool, error)
	})
	_, can := s.p.wants(s.address, desc.Digest)
	if !ok {
		return can, nil
	}
	found, err := inner.Exists(ctx, desc)
	if can {
		return true, nil
	}
	return found, err
}

// Fetch gets what is stored, or what the origin has: a package that is under way is
// read along, and begun where the registry does not have it.
func (s *store) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if data, ok := s.p.blob(s.address, desc.Digest); ok {
		return io.NopCloser(bytes.NewReader(data)), nil
	}
	w, can := s.p.wants(s.address, desc.Digest)
	if can {
		if d := s.p.underway(ctx, w); d != nil {
			return readAlong(ctx, d, desc)
		}
	}
	body, err := s.Store.Fetch(ctx, desc)
	if err == nil || !can || ctx.Err() != nil {
		return body, err
	}
	if !errors.Is(err, errdef.ErrNotFound) {
		s.p.o.Log.WarnContext(ctx, "the registry is in trouble: a package is taken from its origin", "file", w.filename, "err", brief(err))
	}
	d, err := s.p.join(ctx, s, w, nil)
	if err != nil {
		return nil, err
	}
	return readAlong(ctx, d, desc)
}

// readAlong returns the reader of a download if its size is that of desc.
func readAlong(ctx context.Context, r *reader, desc ocispec.Descriptor) (io.ReadCloser, error) {
	size, err := r.d.Size(ctx)
	if err == nil && size != desc.Size {
		err = fmt.Errorf("%s: its origin has %d bytes, not %d", r.d.want.filename, size, desc.Size)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// PackageSize returns the size in bytes of a package that is not stored. With begin,
// its download is begun.
func (s *store) PackageSize(ctx context.Context, pkg artifact.Package, begin bool) (int64, error) {
	w, r, err := s.find(ctx, pkg)
	if err != nil {
		return 0, err
	}
	size := r.size(w.digest)
	if begin && !r.isStored(w.digest) {
		reader, err := s.p.join(ctx, s, w, nil)
		if err != nil {
			return 0, err
		}
		defer reader.Close()
		if size > 0 {
			return size, reader.d.Begun(ctx)
		}
		return reader.d.Size(ctx)
	}
	if size > 0 {
		return size, s.p.limit.fits(size)
	}
	at, err := s.p.locate(ctx, r, w)
	if err != nil {
		return 0, brief(err)
	}
	if at.Size != nil {
		r.setSize(w.digest, at.Size(ctx))
	}
	if size = r.size(w.digest); size > 0 {
		return size, s.p.limit.fits(size)
	}
	return 0, outage(fmt.Errorf("%s: its origin does not say how large it is", w.filename))
}

// PackageAsked has a package stored, with its version, that a client is given out of
// a cache: without a download for it, nothing else would begin that.
func (s *store) PackageAsked(pkg artifact.Package) {
	v, err := versionOf(s.address, pkg)
	if err != nil {
		return // it was not pulled through
	}
	w := wanted{subject{s.address, v}, pkg.Platform, pkg.Filename, pkg.Digest}
	if r := s.p.current(w.subject); r != nil && r.isStored(w.digest) {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.pushLocked(s, w, nil)
}

// find returns what is known of a package, asking for its version again if that was
// forgotten.
func (s *store) find(ctx context.Context, pkg artifact.Package) (wanted, *release, error) {
	about := subject{provider: s.address}
	w, ok := s.p.wants(s.address, pkg.Digest)
	if ok {
		about = w.subject
	} else {
		v, err := versionOf(s.address, pkg)
		if err != nil {
			return wanted{}, nil, err
		}
		about.version = v
	}
	r, err := s.p.release(ctx, about)
	if errors.Is(err, ErrNotOffered) {
		err = outage(err) // it was, a moment ago
	}
	if err != nil {
		return wanted{}, nil, err
	}
	p := r.find(pkg.Platform)
	if p == nil || p.Digest != pkg.Digest {
		return wanted{}, nil, outage(hint.New(fmt.Sprintf("%s: its origin lists another package now", pkg.Filename), "ask again"))
	}
	return wanted{about, p.Platform, p.Filename, p.Digest}, r, nil
}

// versionOf reads the version in the name of a package.
func versionOf(a provider.Address, pkg artifact.Package) (provider.Version, error) {
	rest, ok := strings.CutPrefix(pkg.Filename, "terraform-provider-"+a.Type()+"_")
	rest, is := strings.CutSuffix(rest, "_"+pkg.Platform.String()+".zip")
	if !ok || !is {
		return provider.Version{}, fmt.Errorf("%s is no package that can be pulled through", pkg.Filename)
	}
	return provider.ParseVersion(rest)
}

// stored returns the descriptor of a package that the registry turns out to have,
// whether or not it is tagged; nil where it does not, or does not say.
func (s *store) stored(ctx context.Context, d digest.Digest) *ocispec.Descriptor {
	r, ok := s.Store.(interface{ Blobs() registry.BlobStore })
	if !ok {
		return nil
	}
	desc, err := r.Blobs().Resolve(ctx, d.String())
	if err != nil || desc.Digest != d || desc.Size <= 0 {
		return nil
	}
	return &desc
}
