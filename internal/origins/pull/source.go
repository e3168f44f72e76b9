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
	"github.com/opentofu/svchost"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Selects implements [catalog.Origin].
func (p *Puller) Selects(a subject.Address) bool {
	return p.o.Scope.Selects(a) && (p.o.Modules != nil || subject.TraitsOf(a).Origins) && p.isOrigin(a.Hostname())
}

// isOrigin reports whether a host can be an origin; see [Options.Names].
func (p *Puller) isOrigin(host string) bool {
	return strings.ContainsAny(host, ".:") || p.o.Names != nil && p.o.Names(svchost.Hostname(host))
}

// Offers implements [catalog.Origin].
func (p *Puller) Offers(ctx context.Context, a subject.Address) ([]catalog.Offer, []string, error) {
	l, err := p.list(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	return l.offers, l.warnings, nil
}

// Forget implements [catalog.Origin].
func (p *Puller) Forget(a subject.Address) {
	p.lists.Drop(func(other subject.Address) bool { return other == a }, nil)
	p.releases.Drop(func(about providerVersion) bool { return subject.Address(about.provider) == a }, nil)
	p.moduleFetches.forget(a)
}

// Complete implements [catalog.Origin].
func (p *Puller) Complete(ctx context.Context, a subject.Address, v provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	if m, ok := a.(module.Address); ok {
		return p.announce(ctx, moduleVersion{m, v}, stored)
	}
	about := providerVersion{a.(provider.Address), v}
	offer, ok, err := p.find(ctx, a, v, stored == nil)
	if err != nil {
		return p.orStored(ctx, about, stored, err)
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

// find returns the origin's offer of a version. If fresh is set, a version is absent only from a current list.
func (p *Puller) find(ctx context.Context, a subject.Address, v provider.Version, fresh bool) (offer catalog.Offer, ok bool, err error) {
	answer, err := p.lists.Get(ctx, a)
	if err != nil {
		return offer, false, outage(err)
	}
	return p.findIn(ctx, answer, a, v, fresh)
}

// findIn is [Puller.find] in a list that the cache has returned. That list decides whether the origin is asked again, because the
// cache may have a newer one by now.
func (p *Puller) findIn(ctx context.Context, answer *listAnswer, a subject.Address, v provider.Version, fresh bool) (offer catalog.Offer, ok bool, err error) {
	offer, ok = answer.Value.offer(v)
	if !ok && fresh && !answer.Current(time.Now()) {
		l, err := p.askAgain(ctx, a)
		if err != nil {
			return offer, false, err
		}
		offer, ok = l.offer(v)
	}
	return offer, ok, nil
}

// orStored returns the stored version, or err if there is none. err says why the origin's version cannot be used.
func (p *Puller) orStored(ctx context.Context, about providerVersion, stored *artifact.Version, err error) (*artifact.Version, error) {
	if stored == nil {
		return nil, err
	}
	p.o.Log.DebugContext(ctx, "only what the registry has of a version is served", "version", about.String(), "err", err)
	return stored, nil
}

// covers reports whether the stored version has all platforms that the origin offers. It is false if the offer lists no
// platforms.
func covers(stored *artifact.Version, o catalog.Offer) bool {
	return len(o.Platforms) > 0 && !slices.ContainsFunc(o.Platforms, func(platform provider.Platform) bool {
		return !slices.ContainsFunc(stored.Packages, func(p artifact.Package) bool { return p.Platform == platform })
	})
}

// merge returns the stored version with the packages that only the origin has. The result has no index, because no index in
// the registry lists these packages. If the origin's evidence lacks stored packages, or is weaker than the stored evidence,
// merge returns the stored version.
func (p *Puller) merge(ctx context.Context, stored *artifact.Version, r *release) *artifact.Version {
	out := *stored
	out.Packages = slices.Clone(stored.Packages)
	for _, pkg := range stored.Packages {
		sum, listed := r.sums.SumFor(pkg.Platform, pkg.Filename)
		d := digest.NewDigestFromBytes(digest.SHA256, sum[:])
		if listed && d == pkg.Digest {
			continue
		}
		if listed && p.isNew(r.subject, fmt.Sprint("conflict ", pkg.Digest)) {
			p.o.Log.ErrorContext(ctx, "the registry and the origin have different packages: the registry's is served",
				"version", r.subject.String(), "platform", pkg.Platform.String(), "registry", pkg.Digest, "origin", d,
				"hint", "find out which of them the publisher released")
		}
		return stored
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

// blob is a package that the registry has or that its origin may have.
type blob struct {
	catalog.Stored // the package in the registry
	p              *Puller
	want           wanted
}

var (
	_ catalog.Origin = (*Puller)(nil)
	_ catalog.Blob   = (*blob)(nil)
)

// Package implements [catalog.Origin].
func (p *Puller) Package(a provider.Address, v provider.Version, pkg artifact.Package, stored catalog.Stored) catalog.Blob {
	return &blob{stored, p, wanted{providerVersion{a, v}, pkg.Platform, provider.PackageFilename(a, v, pkg.Platform), pkg.Digest}}
}

// isOffered reports whether a verified release in memory has the package.
func (b *blob) isOffered() bool {
	a := b.p.releases.Last(b.want.subject)
	return a != nil && a.Err == nil && a.Value.has(b.want)
}

// has reports whether a release has a package.
func (r *release) has(w wanted) bool {
	p := r.find(w.platform)
	return p != nil && p.Digest == w.digest
}

// Exists implements [catalog.Blob].
func (b *blob) Exists(ctx context.Context) (bool, error) {
	if b.isOffered() {
		return true, nil
	}
	return b.Stored.Exists(ctx)
}

// Open reads the package from the registry or from its origin. It joins a download in flight,
// and starts a download if the registry lacks the package.
func (b *blob) Open(ctx context.Context, size, offset int64) (io.ReadCloser, int64, error) {
	offered := b.isOffered()
	if offered {
		if r := b.p.underway(ctx, b.want); r != nil {
			return r.readFrom(ctx, size, offset)
		}
	}
	body, start, err := b.Stored.Open(ctx, size, offset)
	if err == nil || ctx.Err() != nil {
		return body, start, err
	}
	if !offered { // a failed download may have removed the release from memory
		return nil, 0, cmp.Or(b.p.failure(b.want.key()), err)
	}
	if !errors.Is(err, errdef.ErrNotFound) {
		b.p.o.Log.WarnContext(ctx, "the registry is unavailable: fetching the package from its origin", "file", b.want.filename, "err", brief(err))
	}
	r, err := b.p.join(ctx, b.Store, b.want, nil)
	if err != nil {
		return nil, 0, err
	}
	return r.readFrom(ctx, size, offset)
}

// failure returns the error of a download that has failed recently, or nil if there is none.
func (p *Puller) failure(key packageKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.failed[key]; f.holds(time.Now()) {
		return f.err
	}
	return nil
}

// readFrom moves the reader to the given offset. If the download does not have the given size, readFrom closes the reader
// and returns an error.
func (r *reader) readFrom(ctx context.Context, size, offset int64) (io.ReadCloser, int64, error) {
	got, err := r.d.Size(ctx)
	if err == nil && got != size {
		err = fmt.Errorf("%s: its origin has %d bytes, not %d", r.d.want.filename, got, size)
	}
	if err == nil {
		_, err = r.Seek(offset, io.SeekStart)
	}
	if err != nil {
		r.Close()
		return nil, 0, err
	}
	return r, offset, nil
}

// Size implements [catalog.Blob]. If begin is set and the package is not known to be stored, it starts the download.
func (b *blob) Size(ctx context.Context, begin bool) (int64, error) {
	w := b.want
	r, err := b.p.release(ctx, w.subject)
	switch {
	case errors.Is(err, ErrNotOffered):
		return 0, outage(err) // the version was offered when the client requested its metadata
	case err != nil:
		return 0, err
	case !r.has(w):
		return 0, outage(hint.New(fmt.Sprintf("%s: its origin lists another package now", w.filename), "ask again"))
	}
	size := r.size(w.digest)
	if begin && !r.isStored(w.digest) {
		reader, err := b.p.join(ctx, b.Store, w, nil)
		if err != nil {
			return 0, err
		}
		defer reader.Close()
		if size > 0 {
			return size, reader.d.Begun(ctx)
		}
		return reader.d.Size(ctx)
	}
	if size == 0 {
		at, err := b.p.locate(ctx, r, w)
		if err != nil {
			return 0, brief(err)
		}
		if at.Size != nil {
			r.setSize(w.digest, at.Size(ctx))
		}
		if size = r.size(w.digest); size == 0 {
			return 0, outage(fmt.Errorf("%s: its origin does not say how large it is", w.filename))
		}
	}
	return size, b.p.limit.fits(size)
}

// Requested implements [catalog.Blob]. It queues the push of the package's version, because the client gets the package from
// a cache, and no download queues the push.
func (b *blob) Requested() {
	if r := b.p.current(b.want.subject); r != nil && r.isStored(b.want.digest) {
		return
	}
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	b.p.pushLocked(b.Store, b.want, nil)
}
