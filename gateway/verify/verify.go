// Package verify decides which stored versions a gateway may serve with verify = "required".
//
// Only ocibridge itself imports this package: it can change at any time.
//
// The package assumes a hostile registry, which may answer with any index, manifest or package, but cannot
// sign with a key that the configuration pins. So a version is served only if a pinned key has signed the
// evidence that the version's index names. A package of that version is served only if the signed document
// lists its digest under its standard file name, or under another spelling of that name. The name consists of
// the provider's type, the version and the platform. The gateway ignores the file names and the h1: hashes in
// the index, because clients would trust an h1: hash as much as the signed digest. The registry can still
// withhold a version or a platform, and serve a version that the same key signed for another provider of the
// same type.
//
// All versions of a provider without pinned keys are refused, because a registry that forges a package can
// forge its evidence, too.
package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// ErrRefused means that a stored version must not be served.
var ErrRefused = errors.New("refused: its evidence does not vouch for it")

// Options configure a [Checker].
type Options struct {
	// Policy returns a provider's trust policy, which pins the keys that may sign its versions. If it pins no
	// key, all versions are refused. If Policy is nil, no keys are pinned.
	Policy   func(provider.Address) trust.Policy
	Log      *slog.Logger              // receives each refusal once, with its reason; may be nil
	Counters *telemetry.VerifyCounters // counts results; may be nil
}

// Checker checks versions, and caches their results. It is safe for concurrent use.
type Checker struct {
	policy  func(provider.Address) trust.Policy
	log     *slog.Logger
	n       *telemetry.VerifyCounters
	results *lru.Cache[subject, *outcome]
}

// remembered is the maximum number of cached results. One takes about 300 bytes, and at most 16 KiB.
const remembered = 16 << 10

// subject identifies what was checked, and is the key of the cache. An index is checked once for each version
// and provider for which it is stored, and again when packages that the registry lacked have arrived.
type subject struct {
	provider provider.Address
	version  provider.Version
	index    digest.Digest     // "" if the version is not stored
	content  [sha256.Size]byte // the hash of the evidence and packages; see contentOf
}

// outcome is the result of checking an index.
type outcome struct {
	packages []vouchedPackage // the packages that the evidence vouches for
	err      error            // wraps ErrRefused, or is nil if the version may be served
}

type vouchedPackage struct {
	platform provider.Platform
	filename string // the name that the signed document lists; "" means the standard name
}

// find returns the package for a platform.
func (o *outcome) find(p provider.Platform) (vouchedPackage, bool) {
	for _, v := range o.packages {
		if v.platform == p {
			return v, true
		}
	}
	return vouchedPackage{}, false
}

// New returns a checker.
func New(o Options) *Checker {
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	results, _ := lru.New[subject, *outcome](remembered) // fails only for a negative size
	log, n := cmp.Or(o.Log, slog.New(slog.DiscardHandler)), cmp.Or(o.Counters, &telemetry.VerifyCounters{})
	return &Checker{policy: o.Policy, log: log, n: n, results: results}
}

// Check returns a copy of found with only the packages that may be served, without h1: hashes, and with the
// names that the signed document lists. Check reads from store only if it has no cached result, and then at
// most five times. An error that wraps [ErrRefused] is final for that index. Any other error comes from the
// store and may be temporary.
func (c *Checker) Check(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
	s := subject{a, v, found.Index.Digest, contentOf(found)}
	o, ok := c.results.Get(s)
	if !ok {
		var err error
		ctx, end := telemetry.Start(ctx, "verify")
		if o, err = c.decide(ctx, store, a, v, found); err != nil {
			c.n.Undecided.Add(1)
			end(err)
			return nil, err
		}
		end(o.err)
		// Two requests may check an index concurrently. Only the first result is reported.
		if known, _ := c.results.ContainsOrAdd(s, o); !known {
			c.report(ctx, s, o, found)
		}
	}
	if o.err != nil {
		return nil, o.err
	}
	out := *found
	out.Packages = nil
	for _, p := range found.Packages {
		if vouched, ok := o.find(p.Platform); ok {
			p.H1, p.Filename = provider.Hash{}, cmp.Or(vouched.filename, provider.PackageFilename(a, v, p.Platform))
			out.Packages = append(out.Packages, p)
		}
	}
	return &out, nil
}

// contentOf returns a hash of the evidence and packages that a check would read.
func contentOf(found *artifact.Version) [sha256.Size]byte {
	hash := sha256.New()
	if found.Evidence != nil {
		fmt.Fprintf(hash, "evidence %s\n", found.Evidence.Digest)
	}
	for _, p := range found.Packages {
		fmt.Fprintf(hash, "%q %s %q\n", p.Platform, p.Digest, p.Filename)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// decide checks a version. An error means that the check could not be completed.
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
	case !verified.Pinned: // cannot happen, because a policy with pinned keys accepts no other signatures
		return refuse(fmt.Errorf("%s %s: %w by a pinned key", a, v, trust.ErrUnsigned)), nil
	}
	// A platform that the signed document does not list is omitted. A package that differs from the signed one
	// means an attack or damage, so the whole version is refused. If only its platform were omitted, clients
	// might look for the platform elsewhere.
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
		vouched := vouchedPackage{platform: p.Platform}
		if p.Filename != provider.PackageFilename(a, v, p.Platform) {
			vouched.filename = p.Filename
		}
		o.packages = append(o.packages, vouched)
	}
	return o, nil
}

func refuse(err error) *outcome {
	return &outcome{err: artifact.Brief(fmt.Errorf("%w: %w", ErrRefused, err), ErrRefused)}
}

// report counts and logs a new result.
func (c *Checker) report(ctx context.Context, s subject, o *outcome, found *artifact.Version) {
	about := []any{"provider", s.provider.String(), "version", s.version.String(), "index", s.index.String()}
	if o.err != nil {
		if help := hint.Of(o.err); help != "" {
			about = append(about, "hint", help)
		}
		c.log.ErrorContext(ctx, "version refused", append(about, "err", o.err, "refused_so_far", c.n.Refused.Add(1))...)
		return
	}
	c.n.Verified.Add(1)
	for _, p := range found.Packages {
		if _, vouched := o.find(p.Platform); !vouched {
			c.n.Withheld.Add(1)
			c.log.WarnContext(ctx, "package withheld: the signed SHA256SUMS in its evidence does not list it", append(about, "platform", p.Platform.String())...)
		}
	}
}
