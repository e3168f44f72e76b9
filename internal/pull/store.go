package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Selects implements [catalog.Origin].
func (p *Puller) Selects(a provider.Address) bool { return p.o.Scope.Selector.Selects(a) }

// Offers implements [catalog.Origin].
func (p *Puller) Offers(ctx context.Context, a provider.Address) ([]catalog.Offer, []string, error) {
	l, err := p.list(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	return l.offers, l.warnings, nil
}

// Forget implements [catalog.Origin].
func (p *Puller) Forget(a provider.Address) {
	p.lists.Drop(func(other provider.Address) bool { return other == a }, nil)
	p.releases.Drop(func(about subject) bool { return about.provider == a }, nil)
}

// Complete implements [catalog.Origin].
func (p *Puller) Complete(ctx context.Context, a provider.Address, v provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	about := subject{a, v}
	l, err := p.list(ctx, a)
	if err != nil {
		return p.orStored(ctx, about, stored, err)
	}
	offer, ok := l.offer(v)
	if !ok && stored == nil && !p.lists.Last(a).Current(time.Now()) {
		if l, err = p.askAgain(ctx, a); err != nil {
			return nil, err
		}
		offer, ok = l.offer(v)
	}
	if !ok || stored != nil && covers(stored, offer) {
		return stored, nil
	}
	r, err := p.release(ctx, about)
	switch {
	case errors.Is(err, ErrNotOffered):
		return stored, nil
	case err != nil:
		return p.orStored(ctx, about, stored, err)
	case stored == nil:
		return r.version, nil
	}
	return p.merge(ctx, stored, r), nil
}

// orStored returns the stored version if there is one, because the origin failed or was
// refused.
func (p *Puller) orStored(ctx context.Context, about subject, stored *artifact.Version, err error) (*artifact.Version, error) {
	if stored == nil {
		return nil, err
	}
	p.o.Log.DebugContext(ctx, "only what the registry has of a version is served", "version", about.String(), "err", err)
	return stored, nil
}

// covers reports whether all platforms that the origin offers are stored.
func covers(stored *artifact.Version, o catalog.Offer) bool {
	return len(o.Platforms) > 0 && !slices.ContainsFunc(o.Platforms, func(platform provider.Platform) bool {
		return !slices.ContainsFunc(stored.Packages, func(p artifact.Package) bool { return p.Platform == platform })
	})
}

// merge returns the stored version with the packages that only the origin has, and without
// an index, because no index in the registry has these packages. The origin's
// evidence must list all stored packages, and must not be weaker than the stored evidence;
// otherwise merge returns the stored version.
func (p *Puller) merge(ctx context.Context, stored *artifact.Version, r *release) *artifact.Version {
	out := *stored
	out.Packages = slices.Clone(stored.Packages)
	for _, pkg := range stored.Packages {
		sum, listed := r.sums.Sum(provider.PackageFilename(r.subject.provider, r.subject.version, pkg.Platform))
		d := digest.NewDigestFromBytes(digest.SHA256, sum[:])
		switch {
		case listed && d != pkg.Digest:
			if r.isNew(fmt.Sprint("conflict ", pkg.Digest)) {
				p.o.Log.ErrorContext(ctx, "the registry and the origin have different packages: the registry's is served",
					"version", r.subject.String(), "platform", pkg.Platform.String(), "registry", pkg.Digest, "origin", d,
					"hint", "find out which of them the publisher released")
			}
			return stored
		case !listed:
			return stored
		}
	}
	if stored.Evidence != nil && stored.Evidence.Digest != r.version.Evidence.Digest && r.sums.Verdict() != trust.Signed {
		return stored
	}
	for _, pkg := range r.packages {
		if !slices.ContainsFunc(stored.Packages, func(q artifact.Package) bool { return q.Platform == pkg.Platform }) {
			out.Packages = append(out.Packages, pkg)
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
	out.Index = ocispec.Descriptor{}
	return &out
}

// store reads the packages of a provider from its repository and its origin.
type store struct {
	catalog.Store // the repository
	p             *Puller
	address       provider.Address
}

var (
	_ catalog.Origin   = (*Puller)(nil)
	_ catalog.Packages = (*store)(nil)
)

// Packages implements [catalog.Origin].
func (p *Puller) Packages(a provider.Address, repository catalog.Store) catalog.Packages {
	return &store{Store: repository, p: p, address: a}
}

// Exists implements [catalog.Packages].
func (s *store) Exists(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	if _, ok := s.p.wants(s.address, desc.Digest); ok {
		return true, nil
	}
	return s.Store.Exists(ctx, desc)
}

// Fetch reads a package from the registry or from its origin. It joins a download in flight, and starts a download if
// the registry lacks the package.
func (s *store) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	w, can := s.p.wants(s.address, desc.Digest)
	if can {
		if d := s.p.underway(ctx, w); d != nil {
			return readAlong(ctx, d, desc)
		}
	}
	body, err := s.Store.Fetch(ctx, desc)
	if err == nil || ctx.Err() != nil {
		return body, err
	}
	if !can { // a failed download may have ended what was known of the package
		return nil, cmp.Or(s.p.failure(s.address, desc.Digest), err)
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

// failure returns the error of a download that failed a moment ago, or nil.
func (p *Puller) failure(a provider.Address, d digest.Digest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.failed[packageKey{a, d}]; f.holds(time.Now()) {
		return f.err
	}
	return nil
}

// readAlong returns the reader of a download. It returns an error if the download has another size than desc.
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

// Size implements [catalog.Packages]. With begin, it starts the download.
func (s *store) Size(ctx context.Context, pkg artifact.Package, begin bool) (int64, error) {
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

// Requested implements [catalog.Packages]. It stores a package, with its version, after a client got the package from a
// cache. Such a request starts no download, which would store the package otherwise.
func (s *store) Requested(pkg artifact.Package) {
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

// find returns the facts about a package. It requests the package's version again if the version was evicted.
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

// versionOf parses the version in the file name of a package.
func versionOf(a provider.Address, pkg artifact.Package) (provider.Version, error) {
	rest, ok := strings.CutPrefix(pkg.Filename, "terraform-provider-"+a.Type()+"_")
	rest, is := strings.CutSuffix(rest, "_"+pkg.Platform.String()+".zip")
	if !ok || !is {
		return provider.Version{}, fmt.Errorf("%s is no package that can be pulled through", pkg.Filename)
	}
	return provider.ParseVersion(rest)
}

// stored returns the descriptor of a package that the registry already has, tagged or not. It returns nil if the
// registry lacks the package or fails.
func (s *store) stored(ctx context.Context, d digest.Digest) *ocispec.Descriptor {
	desc, err := s.Store.Blobs().Resolve(ctx, d.String())
	if err != nil || desc.Digest != d || desc.Size <= 0 {
		return nil
	}
	return &desc
}
