package pull

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
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// maxReleases and maxReleaseBytes are the maximum number and the maximum size in bytes of the versions in memory.
	maxReleases     = 1024
	maxReleaseBytes = 16 << 20
	// releaseTTL is how long a verified version is current.
	releaseTTL = time.Hour
	// packageLasts is how long the location of a package is used. It is short because the location may be a URL that
	// expires.
	packageLasts = time.Minute
)

// ErrNotOffered means that the origin does not offer a version, or the scope excludes it.
var ErrNotOffered = errors.New("not offered")

// release is a version whose SHA256SUMS was accepted.
type release struct {
	subject  providerVersion
	sums     *trust.Checksums
	origin   string
	packages []artifact.Package       // sorted by platform; sizes and h1 are unknown
	version  *artifact.Version        // the version with these packages and its evidence
	blobs    map[digest.Digest][]byte // the blobs of the evidence
	at       time.Time
	// incomplete means that the origin failed to describe a platform. The release is then resolved again soon.
	incomplete bool
	bytes      int64 // roughly the memory of the release, without its locations
	learned
}

// learned holds facts about a release's packages that the Puller finds out after it has resolved the release.
type learned struct {
	mu        sync.Mutex // guards the following
	sizes     map[digest.Digest]int64
	stored    map[digest.Digest]time.Time // when pushes have stored packages
	locations map[provider.Platform]location
}

// maxLogged is the maximum number of warnings that are remembered as logged.
const maxLogged = 4096

// isNew reports whether a warning about a version has not been logged yet. It also remembers the warning as logged.
func (p *Puller) isNew(version fmt.Stringer, warning string) bool {
	known, _ := p.logged.ContainsOrAdd(sha256.Sum256([]byte(version.String()+" "+warning)), struct{}{})
	return !known
}

// wanted is a package that its origin offers.
type wanted struct {
	subject  providerVersion
	platform provider.Platform
	filename string
	digest   digest.Digest
}

func (w wanted) key() packageKey { return packageKey{w.subject.provider, w.digest} }

// packageKey names a package of a provider. Two providers may have the same package, for example from the same GitHub
// release. It is fetched from each provider's own origin, so that the failure of one origin does not affect the other.
type packageKey struct {
	provider provider.Address
	digest   digest.Digest
}

type releaseAnswer = fresh.Answer[*release]

// newReleases returns the cache of verified versions.
func (p *Puller) newReleases() *fresh.Cache[providerVersion, *release] {
	return fresh.New(fresh.Options[providerVersion, *release]{
		Key: providerVersion.String, Fetch: p.refreshRelease, Follow: telemetry.Follow, Log: p.o.Log,
		Size:    func(_ providerVersion, r *release, err error) int64 { return r.memory() + errorSize(err) },
		Timeout: metadataTimeout, FailureTTL: outageTTL, MaxBytes: maxReleaseBytes, MaxEntries: maxReleases,
	})
}

// release returns the verified release of a version, from the cache or from the origin.
func (p *Puller) release(ctx context.Context, s providerVersion) (*release, error) {
	a, err := p.releases.Get(ctx, s)
	if err != nil {
		return nil, outage(err)
	}
	return a.Value, a.Err
}

// refreshRelease implements [fresh.Options].Fetch for releases. A refusal of a version is an answer, and not a failure.
func (p *Puller) refreshRelease(ctx context.Context, s providerVersion, _ *releaseAnswer) (releaseAnswer, error) {
	spanned, end := telemetry.Start(ctx, "origin version", slog.String("provider", s.provider.String()), slog.String("version", s.version.String()))
	r, warnings, err := p.resolve(spanned, s)
	err = brief(err)
	end(err)
	if errors.Is(err, ErrNotOffered) {
		return releaseAnswer{Err: err}, nil // without a TTL, because the list decides whether the version is offered
	}
	event := Event{Kind: Verified, Subject: s.provider, Version: s.version, From: s.provider.Hostname(), Err: err}
	defer func() { p.o.Events(event) }()
	if err != nil {
		if ctx.Err() == nil {
			p.o.Log.WarnContext(ctx, "pulled through: nothing is known of a version", "version", s.String(), "err", err, "hint", hint.Of(err))
		}
		err = flatten(err)
		if errors.Is(err, catalog.ErrSource) {
			return releaseAnswer{}, err
		}
		return releaseAnswer{Err: err, TTL: refusalTTL}, nil
	}
	r.describe(&event)
	p.o.Log.InfoContext(ctx, "pulled through: checksums accepted", "version", s.String(), "from", r.origin, "verdict", r.sums.Verdict(), "key", r.sums.Signer().Fingerprint, "platforms", len(r.packages))
	for _, w := range warnings {
		if p.isNew(s, w) {
			p.o.Log.WarnContext(ctx, "pulled through: the origin's answer about a version has a flaw", "version", s.String(), "warning", w)
		}
	}
	p.task(r.prepare)
	ttl := releaseTTL
	if r.incomplete {
		ttl = refusalTTL
	}
	return releaseAnswer{Value: r, At: r.at, TTL: ttl, StaleFor: fresh.Forever}, nil
}

// describe sets the fields of an event that say where a version comes from and why it was accepted.
func (r *release) describe(e *Event) {
	e.From, e.Verdict, e.Fingerprint = r.origin, r.sums.Verdict(), r.sums.Signer().Fingerprint
}

// Blob implements [catalog.Origin].
func (p *Puller) Blob(a provider.Address, d digest.Digest) ([]byte, bool) {
	for _, answer := range p.releases.Good() {
		if r := answer.Value; r.subject.provider == a {
			if data, ok := r.blobs[d]; ok {
				p.releases.Last(r.subject) // marks the release as used
				return data, true
			}
		}
	}
	return nil, false
}

// current returns a current release from memory, or nil.
func (p *Puller) current(s providerVersion) *release {
	if a := p.releases.Current(s.String(), time.Now()); a != nil {
		return a.Value
	}
	return nil
}

// resolve requests a version from the origin, and verifies its SHA256SUMS. It requests the metadata of only one package,
// which leads to the SHA256SUMS file that lists all packages. The error wraps [ErrNotOffered] if the version is not offered,
// and [catalog.ErrSource] if the origin fails. Any other error says why the version is refused. The warnings are about flaws
// in the origin's response.
func (p *Puller) resolve(ctx context.Context, s providerVersion) (_ *release, warnings []string, err error) {
	l, err := p.list(ctx, s.provider)
	if err != nil {
		return nil, nil, err
	}
	offer, ok := l.offer(s.version)
	if !ok {
		return nil, nil, ErrNotOffered
	}
	var r *origin.Release
	for _, platform := range p.candidates(offer) {
		r, err = p.o.Origin.Release(ctx, s.provider, listingOf(offer), s.version, []provider.Platform{platform})
		if !errors.Is(err, origin.ErrPlatformNotFound) {
			break
		}
	}
	switch {
	case errors.Is(err, origin.ErrVersionNotFound), errors.Is(err, origin.ErrPlatformNotFound):
		return nil, nil, p.withdrawn(ctx, s.provider, s.version, err)
	case trust.Refused(err):
		return nil, nil, err
	case err != nil:
		return nil, nil, outage(err)
	}
	sums, err := p.o.Policy(s.provider).Accept(ctx, r.Claims)
	switch {
	case err != nil && ctx.Err() != nil && !trust.Refused(err):
		return nil, nil, outage(err) // ctx ended before the policy had decided
	case err != nil:
		return nil, nil, err
	}
	if err := p.o.CheckDowngrade(ctx, sums); err != nil {
		return nil, nil, err
	}
	out := &release{
		subject: s, sums: sums, origin: r.Origin, at: time.Now(),
		learned: learned{sizes: map[digest.Digest]int64{}, stored: map[digest.Digest]time.Time{}, locations: map[provider.Platform]location{}},
	}
	warnings = r.Warnings
	out.list(offer.Platforms)
	others, err := p.listOthers(ctx, out, offer.Platforms, r)
	if err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, others...)
	if len(out.packages) == 0 {
		return nil, nil, hint.Wrap(fmt.Errorf("%s: %w: none of its packages is", s, trust.ErrNotListed),
			"the release is incomplete: its publisher must list every package under its exact file name")
	}
	for _, pkg := range r.Packages {
		if known := out.find(pkg.Platform); known != nil && known.Filename == pkg.Filename {
			out.addLocation(pkg.Platform, location{pkg, out.at})
		}
	}
	out.bytes += claimsBytes(r.Claims)
	return out, warnings, out.encode(r.Protocols, r.About)
}

// maxCandidates is the maximum number of platforms whose metadata is requested for one version. More than one request
// is necessary only if the origin lists platforms that it does not have.
const maxCandidates = 3

// candidates returns the platforms whose metadata resolve requests, one after another, until a request succeeds.
func (p *Puller) candidates(o catalog.Offer) []provider.Platform {
	out := p.ranked(o.Platforms)
	if len(out) == 0 {
		out = p.likely()
	}
	return out[:min(len(out), maxCandidates)]
}

// likely returns the platforms that clients are most likely to request.
func (p *Puller) likely() []provider.Platform {
	return append(slices.Clone(p.o.Scope.Platforms), provider.MustParsePlatform("linux_amd64"))
}

// ranked returns platforms in the order in which clients are likely to request them.
func (p *Puller) ranked(platforms []provider.Platform) []provider.Platform {
	wish, out := p.likely(), slices.Clone(platforms)
	rank := func(platform provider.Platform) int {
		if i := slices.Index(wish, platform); i >= 0 {
			return i
		}
		return len(wish)
	}
	slices.SortStableFunc(out, func(a, b provider.Platform) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

// withdrawn returns the error for a version that the origin lists, but does not have. If a new list no longer has the
// version, the error wraps [ErrNotOffered]. Otherwise it wraps [catalog.ErrSource].
func (p *Puller) withdrawn(ctx context.Context, a subject.Address, v provider.Version, err error) error {
	l, lerr := p.askAgain(ctx, a)
	if lerr != nil {
		return lerr
	}
	if _, ok := l.offer(v); !ok {
		return fmt.Errorf("%w: %v", ErrNotOffered, err)
	}
	return outage(err)
}

// list adds the packages that the accepted SHA256SUMS lists under names that contain their version and platform. It adds
// only packages for the offered platforms, or the packages for all platforms if no platform is offered.
func (r *release) list(offered []provider.Platform) {
	platforms := offered
	if len(platforms) == 0 {
		platforms = r.sums.Platforms()
	}
	for _, platform := range platforms {
		if name, sum, ok := r.sums.Package(platform); ok {
			r.add(platform, name, sum)
		}
	}
}

// add adds a package to the release.
func (r *release) add(platform provider.Platform, name string, sum [sha256.Size]byte) {
	r.packages = append(r.packages, artifact.Package{
		Platform: platform, Filename: name, Digest: digest.NewDigestFromBytes(digest.SHA256, sum[:]), Size: artifact.UnknownSize,
	})
	slices.SortFunc(r.packages, func(a, b artifact.Package) int { return a.Platform.Compare(b.Platform) })
}

// listOthers adds the packages that SHA256SUMS lists under names that do not say the platform. It asks the origin about
// each offered platform that the release still lacks, except those in known. It takes at most a third of the time that is
// left, so that a request that hangs costs only its own platform. If the origin fails to describe a platform, the release
// lasts less long. That is an error only if the release has no package.
func (p *Puller) listOthers(ctx context.Context, r *release, offered []provider.Platform, known *origin.Release) (warnings []string, err error) {
	isListed := func(platform provider.Platform) bool { return r.find(platform) != nil }
	if p.o.UsualNames {
		if lacking := slices.DeleteFunc(slices.Clone(offered), isListed); len(lacking) > 0 {
			warnings = append(warnings, fmt.Sprintf("left out: %s, because SHA256SUMS has other names for the packages, and verify = \"required\" serves no others: %.200s",
				hint.Count(len(lacking), "platform"), strings.Trim(fmt.Sprint(lacking), "[]")))
		}
		return warnings, nil
	}
	warning := ""
	for _, pkg := range known.Packages {
		warning = cmp.Or(warning, r.addOther(pkg, known.Claims.Announced[pkg.Filename]))
	}
	lacking := slices.DeleteFunc(p.ranked(offered), isListed)
	if more := len(lacking) - maxOthers; more > 0 {
		warnings = append(warnings, fmt.Sprintf("left out: %s, because SHA256SUMS has other names for the packages, and the origin is asked about %d at most", hint.Count(more, "platform"), maxOthers))
		lacking = lacking[:maxOthers]
	}
	ctx, cancel := context.WithTimeout(ctx, timeLeft(ctx)/3)
	defer cancel()
	n := len(lacking)
	packages, sums, failed := make([]origin.Package, n), make([][sha256.Size]byte, n), make([]error, n)
	var g panics.Group
	g.SetLimit(otherRequests)
	for i, platform := range lacking {
		g.Go(func() error {
			packages[i], sums[i], failed[i] = p.o.Origin.Package(ctx, r.subject.provider, r.subject.version, platform)
			return nil
		})
	}
	g.Wait()
	for i, pkg := range packages {
		if failed[i] == nil {
			warning = cmp.Or(warning, r.addOther(pkg, sums[i]))
		}
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	for i, err := range failed {
		switch {
		case err == nil, errors.Is(err, origin.ErrPlatformNotFound):
		case len(r.packages) == 0:
			return nil, outage(err)
		default:
			r.incomplete = true
			warnings = append(warnings, fmt.Sprintf("%s is left out: SHA256SUMS does not list it under its usual name, and its origin fails to describe it: %v", lacking[i], err))
		}
	}
	return warnings, nil
}

// addOther adds a package that the origin announces with a file name and a SHA-256. As in a push, the accepted
// SHA256SUMS must list both. Otherwise, addOther does nothing. It returns a warning if the file name is not the
// published one, and "" otherwise.
func (r *release) addOther(pkg origin.Package, announced [sha256.Size]byte) (warning string) {
	sum, listed := r.sums.SumFor(pkg.Platform, pkg.Filename)
	if r.find(pkg.Platform) != nil || !listed || sum != announced {
		return ""
	}
	r.add(pkg.Platform, pkg.Filename, sum)
	r.addLocation(pkg.Platform, location{pkg, r.at})
	if _, refused := artifact.Vouched(r.sums, r.packages); len(refused) > 0 {
		return refused[0].Err.Error()
	}
	return ""
}

const (
	// maxOthers is the maximum number of requests for packages with other names. otherRequests is the maximum number of
	// such requests at a time.
	maxOthers     = 32
	otherRequests = 4
)

// timeLeft returns the time until the deadline of ctx, or metadataTimeout if it has none.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return metadataTimeout
}

// encode sets r.version and r.blobs to the version and the evidence that a push would store. The version has no index.
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
		Owner: r.subject.provider, Version: r.subject.version, Protocols: protocols,
		Packages: r.packages, Evidence: &manifest.Descriptor,
	}
	return nil
}

const (
	releaseBytes = 4 << 10 // roughly the memory of a release without its evidence and packages
	packageBytes = 768     // roughly the memory of each package
)

// claimsBytes estimates the memory in bytes of accepted claims, without the blobs of the evidence.
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

// find returns the package for a platform, or nil.
func (r *release) find(platform provider.Platform) *artifact.Package {
	i := slices.IndexFunc(r.packages, func(p artifact.Package) bool { return p.Platform == platform })
	if i < 0 {
		return nil
	}
	return &r.packages[i]
}
