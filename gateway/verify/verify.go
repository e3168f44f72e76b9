// Package verify decides which stored versions a gateway may serve where the
// configuration says verify = "required".
//
// The registry is taken for an enemy here: it may hand out any index, manifest or
// package that it likes. What it cannot make is a signature by a key that the
// configuration pins. So a version is served only if the evidence in its index is
// signed by such a key, and of it only the packages whose digest the signed
// document lists under exactly the name of that provider's type, that version and
// that platform. What else the index says is not believed: not the h1: hash, of
// which clients would take one for as good as the signed one, and not the file
// name. What is left to the registry is to withhold a version or a platform, or to
// hand out one that the same key signed for a provider of the same type under
// another address.
//
// A provider whose keys nobody pins is refused: a registry that forges a package
// forges the evidence, too.
package verify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// ErrRefused means that a version is in the registry, and must not be served.
var ErrRefused = errors.New("refused: its evidence does not vouch for it")

// Options configure a [Checker].
type Options struct {
	// Policy says which keys may have signed a provider's versions. Where it pins
	// none, all of them are refused. Nil pins none.
	Policy func(provider.Address) trust.Policy
	// Log is told once of what is refused, and why; nil: nobody is.
	Log *slog.Logger
	// Counters counts what was found; nil: the checker has its own.
	Counters *telemetry.VerifyCounters
}

// Checker checks versions, and remembers what it found by the digest of their
// index. It is safe for concurrent use.
type Checker struct {
	policy func(provider.Address) trust.Policy
	log    *slog.Logger

	n *telemetry.VerifyCounters

	mu          sync.Mutex
	young, aged map[subject]*outcome
}

// remembered is how many outcomes are kept at least; at most, twice as many. One
// takes some 300 bytes, and 16 KiB at most.
const remembered = 16 << 10

// subject is what an outcome is about: one index under two names is two things.
type subject struct {
	provider provider.Address
	version  provider.Version
	index    digest.Digest
	missing  string // the platforms that could not be looked at
}

// outcome is what was found of an index.
type outcome struct {
	platforms []provider.Platform // vouched for
	err       error               // wraps ErrRefused; nil: to be served
}

// New returns a checker.
func New(o Options) *Checker {
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Counters == nil {
		o.Counters = &telemetry.VerifyCounters{}
	}
	return &Checker{policy: o.Policy, log: o.Log, n: o.Counters, young: map[subject]*outcome{}}
}

// Counts are how many indexes were found so since the start.
type Counts struct {
	Verified uint64 // to be served
	Refused  uint64
	Withheld uint64 // packages, of versions that are served without them
}

// Counts returns them.
func (c *Checker) Counts() Counts {
	return Counts{c.n.Verified.Load(), c.n.Refused.Load(), c.n.Withheld.Load()}
}

// Check returns what of a version may be served, without the hashes that the index
// claims and with packages under their proper names; found itself is not changed.
// It asks store only for what it sees first, five times at most. Errors wrap
// [ErrRefused], which is final for that index, or are the store's, after which it
// may be asked again.
func (c *Checker) Check(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
	s := subject{a, v, found.Index.Digest, missingPlatforms(found)}
	o := c.recall(s)
	if o == nil {
		var err error
		ctx, end := telemetry.Start(ctx, "verify")
		if o, err = c.decide(ctx, store, a, v, found); err != nil {
			c.n.Undecided.Add(1)
			end(err)
			return nil, err
		}
		end(o.err)
		if c.remember(s, o) {
			c.report(ctx, s, o, found)
		}
	}
	if o.err != nil {
		return nil, o.err
	}
	out := *found
	out.Packages = nil
	for _, p := range found.Packages {
		if slices.Contains(o.platforms, p.Platform) {
			p.H1, p.Filename = provider.Hash{}, provider.PackageFilename(a, v, p.Platform)
			out.Packages = append(out.Packages, p)
		}
	}
	return &out, nil
}

// missingPlatforms returns the names of the missing packages' platforms, with commas
// between them.
func missingPlatforms(found *artifact.Version) string {
	var names []string
	for _, m := range found.Missing {
		names = append(names, m.Platform.String())
	}
	return strings.Join(names, ",")
}

// decide checks a version. An error means that nothing was decided.
func (c *Checker) decide(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*outcome, error) {
	policy := c.policy(a)
	if !policy.Pins() {
		return refuse(hint.Wrap(fmt.Errorf("%s %s: %w by a pinned key: none is pinned for this provider", a, v, trust.ErrUnsigned),
			`verify = "required" serves only what a trust block with keys is for`)), nil
	}
	verified, err := artifact.Verify(ctx, store, a, v, found, policy)
	switch {
	case err != nil && !artifact.IsInvalid(err) && !trust.Refused(err):
		return nil, err
	case err != nil:
		return refuse(err), nil
	case !verified.Pinned: // never: a policy that pins keys accepts nothing else
		return refuse(fmt.Errorf("%s %s: %w by a pinned key", a, v, trust.ErrUnsigned)), nil
	}
	// A platform that was added unsigned is left out. One that has another package
	// than was signed is an attack, or damage: said aloud, for who finds it missing
	// may look elsewhere.
	for _, r := range verified.Refused {
		if !errors.Is(r.Err, trust.ErrNotListed) {
			return refuse(fmt.Errorf("%s %s: %w", a, v, r.Err)), nil
		}
	}
	if len(verified.Packages) == 0 {
		if len(verified.Refused) == 0 {
			return refuse(fmt.Errorf("%s %s: %w: it holds no package", a, v, artifact.ErrNotProvider)), nil
		}
		return refuse(fmt.Errorf("%s %s: %w", a, v, verified.Refused[0].Err)), nil
	}
	o := &outcome{}
	for _, p := range verified.Packages {
		o.platforms = append(o.platforms, p.Platform)
	}
	return o, nil
}

func refuse(err error) *outcome {
	return &outcome{err: artifact.Brief(fmt.Errorf("%w: %w", ErrRefused, err), ErrRefused)}
}

// recall returns what was found of an index, nil if nothing is known.
func (c *Checker) recall(s subject) *outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.young[s]; o != nil {
		return o
	}
	o := c.aged[s]
	if o != nil {
		c.add(s, o) // it is in use
	}
	return o
}

// remember keeps an outcome, and reports whether it is the first for this index:
// it may have been checked twice at once.
func (c *Checker) remember(s subject, o *outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.young[s] == nil && c.aged[s] == nil
	c.add(s, o)
	return first
}

// add keeps an outcome. What was not used for longest goes first, many at once.
func (c *Checker) add(s subject, o *outcome) {
	if len(c.young) >= remembered {
		c.young, c.aged = map[subject]*outcome{}, c.young
	}
	c.young[s] = o
}

// report counts a new outcome and tells of it.
func (c *Checker) report(ctx context.Context, s subject, o *outcome, found *artifact.Version) {
	about := []any{"provider", s.provider.String(), "version", s.version.String(), "index", s.index.String()}
	if o.err != nil {
		c.log.ErrorContext(ctx, "version refused", append(about, "err", o.err, "refused_so_far", c.n.Refused.Add(1))...)
		return
	}
	c.n.Verified.Add(1)
	for _, p := range found.Packages {
		if !slices.Contains(o.platforms, p.Platform) {
			c.n.Withheld.Add(1)
			c.log.WarnContext(ctx, "package withheld: the signed SHA256SUMS in its evidence does not list it", append(about, "platform", p.Platform.String())...)
		}
	}
}
