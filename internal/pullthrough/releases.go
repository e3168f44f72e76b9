package pullthrough

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// maxReleases and maxReleaseBytes bound what is in memory of versions.
	maxReleases     = 1024
	maxReleaseBytes = 16 << 20
	// releaseLasts is how long what was verified of a version is not asked for again.
	releaseLasts = time.Hour
	// packageLasts is how long the place of a package is believed, which may be a URL
	// that ends.
	packageLasts = time.Minute
)

// ErrNotOffered means that the origin does not offer a version, or that the scope
// does not allow it.
var ErrNotOffered = errors.New("not offered")

// release is a version whose SHA256SUMS was accepted.
type release struct {
	subject  subject
	sums     *trust.Checksums
	origin   string
	packages []artifact.Package // sorted by platform; their sizes and h1 are not known
	version  *artifact.Version  // of those packages, with evidence
	blobs    map[digest.Digest][]byte
	at       time.Time
	bytes    int64 // about what it takes in memory; guarded by releases.mu

	mu    sync.Mutex
	sizes map[digest.Digest]int64
	there map[digest.Digest]bool // in the registry by now
	found map[provider.Platform]place
	// logged has the SHA-256 of warnings that the log has, maxLogged at most.
	logged [][sha256.Size]byte
}

// maxLogged is how many warnings about a version are remembered as logged. Further ones
// are logged each time.
const maxLogged = 16

// unlogged returns the warnings that the log does not have, and remembers them as logged.
func (r *release) unlogged(warnings []string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range warnings {
		sum := sha256.Sum256([]byte(w))
		if slices.Contains(r.logged, sum) {
			continue
		}
		if len(r.logged) < maxLogged {
			r.logged = append(r.logged, sum)
		}
		out = append(out, w)
	}
	return out
}

// inherit remembers the warnings that an earlier answer about the version has logged.
func (r *release) inherit(before *release) {
	if before == nil {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	r.logged = slices.Clone(before.logged)
}

// wanted is a package that can be had from its origin.
type wanted struct {
	subject  subject
	platform provider.Platform
	filename string
	digest   digest.Digest
}

func (w wanted) key() packageKey { return packageKey{w.subject.provider, w.digest} }

// releases are those of all versions that were asked for of late.
type releases struct {
	mu       sync.Mutex
	entries  map[subject]*releaseEntry
	packages map[packageKey]wanted
	bytes    int64
}

// packageKey names a package of a provider. Another one may have the same, as where two
// registries offer what is on GitHub: each is taken from its own origin, so that trouble
// of the one is none of the other.
type packageKey struct {
	provider provider.Address
	digest   digest.Digest
}

type releaseEntry struct {
	used    time.Time
	release *release // nil: nothing is known
	failure failure
	call    *call[*release]
}

// release returns what is verified of a version that l offers.
func (p *Puller) release(ctx context.Context, s subject) (*release, error) {
	rs := &p.releases
	rs.mu.Lock()
	e := rs.entries[s]
	if e == nil {
		e = &releaseEntry{}
		rs.entries[s] = e
	}
	now := time.Now()
	e.used = now
	switch {
	case e.failure.holds(now):
		defer rs.mu.Unlock()
		if e.release != nil && errors.Is(e.failure.err, catalog.ErrSource) {
			return e.release, nil
		}
		return nil, e.failure.err
	case e.release != nil && now.Sub(e.release.at) < releaseLasts:
		defer rs.mu.Unlock()
		return e.release, nil
	}
	c := e.call
	if c == nil {
		c = &call[*release]{done: make(chan struct{})}
		request := ctx
		if p.task(func(ctx context.Context) { p.learn(telemetry.Follow(ctx, request), s, e, c) }) {
			e.call = c
		} else {
			c.err = trouble(errClosed)
			close(c.done)
		}
	}
	before := e.release
	rs.mu.Unlock()
	r, err := c.wait(ctx)
	if before != nil && errors.Is(err, catalog.ErrSource) {
		return before, nil
	}
	return r, err
}

// learn asks the origin about a version, and keeps what it said.
func (p *Puller) learn(ctx context.Context, s subject, e *releaseEntry, c *call[*release]) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	spanned, end := telemetry.Start(ctx, "origin version", slog.String("provider", s.provider.String()), slog.String("version", s.version.String()))
	r, warnings, err := p.resolve(spanned, s)
	err = brief(err)
	end(err)
	rs := &p.releases
	rs.mu.Lock()
	e.call = nil
	rs.fail(e, failure{})
	switch {
	case err == nil:
		r.inherit(e.release)
		rs.replace(s, e, r)
	case errors.Is(err, catalog.ErrSource):
		rs.fail(e, failFor(err, troubleLasts))
	default:
		rs.replace(s, e, nil)
		if !errors.Is(err, ErrNotOffered) { // which the list decides about
			rs.fail(e, failFor(err, refusalLasts))
		}
	}
	rs.tidy()
	rs.evict()
	rs.mu.Unlock()
	c.value, c.err = r, err
	close(c.done)
	if err == nil {
		p.task(r.prepare)
	}
	if errors.Is(err, ErrNotOffered) {
		return
	}
	event := Event{Kind: Verified, Provider: s.provider, Version: s.version, From: s.provider.Hostname(), Err: err}
	if err == nil {
		r.describe(&event)
		p.o.Log.InfoContext(ctx, "pulled through: checksums accepted", "version", s.String(), "from", r.origin, "verdict", r.sums.Verdict(), "key", r.sums.Signer().Fingerprint, "platforms", len(r.packages))
		for _, w := range r.unlogged(warnings) {
			p.o.Log.WarnContext(ctx, "pulled through: the origin's answer about a version has a flaw", "version", s.String(), "warning", w)
		}
	}
	if err != nil && ctx.Err() == nil {
		p.o.Log.WarnContext(ctx, "pulled through: nothing is known of a version", "version", s.String(), "err", err, "hint", hint.Of(err))
	}
	p.o.Events(event)
}

// describe says on what grounds a version was accepted.
func (r *release) describe(e *Event) {
	e.From, e.Verdict, e.Fingerprint = r.origin, r.sums.Verdict(), r.sums.Signer().Fingerprint
}

// replace gives an entry another release, or none. It is called with mu held.
func (rs *releases) replace(s subject, e *releaseEntry, r *release) {
	if old := e.release; old != nil {
		rs.bytes -= old.bytes
		for _, p := range old.packages {
			if is := (packageKey{s.provider, p.Digest}); rs.packages[is].subject == s {
				delete(rs.packages, is)
			}
		}
	}
	e.release = r
	if r == nil {
		return
	}
	rs.bytes += r.bytes
	for _, p := range r.packages {
		w := wanted{s, p.Platform, p.Filename, p.Digest}
		rs.packages[w.key()] = w
	}
}

// fail gives an entry another failure, or none. It is called with mu held.
func (rs *releases) fail(e *releaseEntry, f failure) {
	rs.bytes += f.size() - e.failure.size()
	e.failure = f
}

// remove forgets a version. It is called with mu held.
func (rs *releases) remove(s subject) {
	e := rs.entries[s]
	rs.fail(e, failure{})
	rs.replace(s, e, nil)
	delete(rs.entries, s)
}

// tidy forgets failures and places whose time has passed, and versions of which nothing
// is known. It is called with mu held.
func (rs *releases) tidy() {
	now := time.Now()
	for s, e := range rs.entries {
		if e.call != nil {
			continue
		}
		if !e.failure.holds(now) {
			rs.fail(e, failure{})
		}
		if e.release != nil {
			rs.grow(e.release, e.release.dropPlaces(now))
		} else if e.failure.err == nil {
			delete(rs.entries, s)
		}
	}
}

// grow counts n bytes more of a release. It is called with mu held.
func (rs *releases) grow(r *release, n int64) {
	r.bytes += n
	if e := rs.entries[r.subject]; e != nil && e.release == r {
		rs.bytes += n
	}
}

// addPlace keeps where a package of a release is.
func (rs *releases) addPlace(r *release, platform provider.Platform, at place) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.grow(r, r.dropPlaces(at.at)+r.addPlace(platform, at))
	if rs.bytes > maxReleaseBytes {
		rs.tidy() // places that have expired go before releases that are in use
	}
	rs.evict()
}

// evict forgets what was not used for longest, while there is too much. It is called
// with mu held.
func (rs *releases) evict() {
	for len(rs.entries) > maxReleases || rs.bytes > maxReleaseBytes {
		var oldest subject
		var at time.Time
		for s, e := range rs.entries {
			if e.call == nil && (at.IsZero() || e.used.Before(at)) {
				oldest, at = s, e.used
			}
		}
		if at.IsZero() {
			return
		}
		rs.remove(oldest)
	}
}

// forget drops what is known of a provider's versions.
func (rs *releases) forget(a provider.Address) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for s, e := range rs.entries {
		if s.provider == a && e.call == nil {
			rs.remove(s)
		}
	}
}

// drop drops what is known of one version.
func (rs *releases) drop(s subject) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if e := rs.entries[s]; e != nil && e.call == nil {
		rs.remove(s)
	}
}

// wants returns what package of a provider a digest is of, if that is known.
func (p *Puller) wants(a provider.Address, d digest.Digest) (wanted, bool) {
	p.releases.mu.Lock()
	defer p.releases.mu.Unlock()
	w, ok := p.releases.packages[packageKey{a, d}]
	return w, ok
}

// blob returns evidence that is in memory alone.
func (p *Puller) blob(a provider.Address, d digest.Digest) ([]byte, bool) {
	p.releases.mu.Lock()
	defer p.releases.mu.Unlock()
	for s, e := range p.releases.entries {
		if s.provider == a && e.release != nil {
			if data, ok := e.release.blobs[d]; ok {
				e.used = time.Now()
				return data, true
			}
		}
	}
	return nil, false
}

// current returns a release that need not be asked for; nil for none.
func (p *Puller) current(s subject) *release {
	p.releases.mu.Lock()
	defer p.releases.mu.Unlock()
	e := p.releases.entries[s]
	if e == nil || e.release == nil || time.Since(e.release.at) >= releaseLasts {
		return nil
	}
	e.used = time.Now()
	return e.release
}

// resolve asks the origin for the metadata of one package, by which it has the
// SHA256SUMS that lists all of them, and verifies that. An error wraps ErrNotOffered,
// or [catalog.ErrSource] for trouble, or says why the version is refused. The warnings
// are about the origin's answer.
func (p *Puller) resolve(ctx context.Context, s subject) (_ *release, warnings []string, err error) {
	l, err := p.fetchable(ctx, s.provider)
	if err != nil {
		return nil, nil, err
	}
	offer, ok := l.offer(s.version)
	if !ok {
		return nil, nil, ErrNotOffered
	}
	var r *origin.Release
	for _, platform := range p.candidates(offer) {
		r, err = p.o.Origin.Release(ctx, s.provider, l.listing, s.version, []provider.Platform{platform})
		if !errors.Is(err, origin.ErrPlatformNotFound) {
			break
		}
	}
	switch {
	case errors.Is(err, origin.ErrVersionNotFound), errors.Is(err, origin.ErrPlatformNotFound):
		return nil, nil, p.withdrawn(ctx, s, err)
	case trust.Refused(err):
		return nil, nil, err
	case err != nil:
		return nil, nil, trouble(err)
	}
	sums, err := p.o.Policy(s.provider).Accept(ctx, r.Claims)
	switch {
	case err != nil && ctx.Err() != nil && !trust.Refused(err):
		return nil, nil, trouble(err) // nothing was decided
	case err != nil:
		return nil, nil, err
	}
	out := &release{
		subject: s, sums: sums, origin: r.Origin, at: time.Now(),
		sizes: map[digest.Digest]int64{}, there: map[digest.Digest]bool{}, found: map[provider.Platform]place{},
	}
	if err := out.list(offer.Platforms); err != nil {
		return nil, nil, err
	}
	for _, pkg := range r.Packages {
		if known := out.find(pkg.Platform); known != nil && known.Filename == pkg.Filename {
			out.bytes += out.addPlace(pkg.Platform, place{pkg, out.at})
		}
	}
	out.bytes += claimsBytes(r.Claims)
	return out, r.Warnings, out.encode(r.Protocols, r.About)
}

// maxCandidates is how many platforms an origin is asked for that it lists and does
// not have.
const maxCandidates = 3

// candidates returns the platforms whose metadata is asked for, until there is one:
// first what is likely to be asked for next.
func (p *Puller) candidates(o catalog.Offer) []provider.Platform {
	wish := append(slices.Clone(p.o.Scope.Platforms), provider.MustParsePlatform("linux_amd64"))
	out := slices.Clone(o.Platforms)
	if len(out) == 0 {
		out = wish
	}
	rank := func(platform provider.Platform) int {
		if i := slices.Index(wish, platform); i >= 0 {
			return i
		}
		return len(wish)
	}
	slices.SortStableFunc(out, func(a, b provider.Platform) int { return cmp.Compare(rank(a), rank(b)) })
	return out[:min(len(out), maxCandidates)]
}

// withdrawn returns what it means that the origin says that what it lists is not
// there: that it was withdrawn, if its list now says so, too.
func (p *Puller) withdrawn(ctx context.Context, s subject, err error) error {
	l, lerr := p.anew(ctx, s.provider)
	if lerr != nil {
		return lerr
	}
	if _, ok := l.offer(s.version); !ok {
		return fmt.Errorf("%w: %v", ErrNotOffered, err)
	}
	return trouble(err)
}

// list fills in the packages that the accepted document lists under the names that
// packages of the version are published under, of the platforms that the origin
// offers; of all platforms if it offers none.
func (r *release) list(offered []provider.Platform) error {
	platforms := offered
	if len(platforms) == 0 {
		prefix := strings.TrimSuffix(provider.PackageFilename(r.subject.provider, r.subject.version, provider.Platform{}), "_.zip")
		for _, name := range r.sums.Files() {
			rest, ok := strings.CutPrefix(name, prefix)
			rest, zip := strings.CutSuffix(rest, ".zip")
			if platform, err := provider.ParsePlatform(rest); ok && zip && err == nil {
				platforms = append(platforms, platform)
			}
		}
	}
	for _, platform := range platforms {
		name := provider.PackageFilename(r.subject.provider, r.subject.version, platform)
		if sum, ok := r.sums.Sum(name); ok {
			r.packages = append(r.packages, artifact.Package{
				Platform: platform, Filename: name, Digest: digest.NewDigestFromBytes(digest.SHA256, sum[:]),
			})
		}
	}
	slices.SortFunc(r.packages, func(a, b artifact.Package) int { return a.Platform.Compare(b.Platform) })
	if len(r.packages) == 0 {
		return hint.Wrap(fmt.Errorf("%s: %w under the names that its packages are published under", r.subject, trust.ErrNotListed),
			"what is published otherwise can be pushed, and not pulled through")
	}
	return nil
}

// encode makes the version and its evidence as a push would store it.
func (r *release) encode(protocols []string, about provider.About) error {
	manifest, blobs, err := artifact.EncodeEvidence(artifact.NewEvidence(r.sums, r.origin, protocols, about))
	if err != nil {
		return err
	}
	r.blobs = map[digest.Digest][]byte{}
	for _, b := range append(blobs, manifest) {
		r.blobs[b.Descriptor.Digest] = b.Data
		r.bytes += int64(cap(b.Data))
	}
	r.bytes += releaseBytes
	for _, p := range r.packages {
		r.bytes += packageBytes + int64(len(p.Filename))
	}
	r.version = &artifact.Version{
		Provider: r.subject.provider, Version: r.subject.version, Protocols: protocols,
		Packages: r.packages, Evidence: &manifest.Descriptor,
	}
	r.version.Index = describe(r.version)
	return nil
}

// What a release takes in memory beside its evidence, and each of its packages.
const (
	releaseBytes = 4 << 10
	packageBytes = 768
)

// claimsBytes is about what accepted claims take in memory beside the blobs of the
// evidence.
func claimsBytes(c trust.Claims) int64 {
	n := 2 * len(c.SHA256SUMS) // the parsed checksums
	for _, key := range c.Keys {
		n += len(key)
	}
	for name, report := range c.Reported {
		n += 256 + len(name) + 96*len(report.Hashes)
	}
	return int64(n + 256*len(c.Announced))
}

// find returns the package for a platform; nil for none.
func (r *release) find(platform provider.Platform) *artifact.Package {
	i := slices.IndexFunc(r.packages, func(p artifact.Package) bool { return p.Platform == platform })
	if i < 0 {
		return nil
	}
	return &r.packages[i]
}
