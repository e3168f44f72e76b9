// Package approve decides which stored versions have the approvals that the gateway's configuration requires.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// Package approval verifies signatures, and package catalog caches the verdicts. This package connects them. It chooses the
// requirements of a provider or a module, bounds the work on signatures, and reports each verdict once in the log and in
// the metrics.
//
// Invariants:
//
//   - A look-up of signatures that fails is an error. It is never a verdict.
//   - A verdict is about exactly one digest, and about the address and version for which the digest is tagged.
package approve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Options configure a [Checker].
type Options struct {
	// Rules are the requirements.
	Rules approval.Rules
	// Store returns the repository of a provider or a module, and its registry. The repository uses only the referrers API to
	// list referrers, and no fallback tags (see [artifact.ReferrersAPI]). An error means that the registry failed.
	Store func(context.Context, subject.Address) (ociaddr.Registry, artifact.ReferrerStore, error)
	// Signer is the key with which pull-through signs what it stores. It is nil if pull-through signs nothing.
	Signer   *approval.PublicKey
	Log      *slog.Logger               // receives each verdict that lacks an approval once; may be nil
	Counters *telemetry.ApproveCounters // counts verdicts; may be nil
}

const (
	// maxLookUps is the maximum number of concurrent look-ups of signatures.
	maxLookUps = 16
	// remembered is the maximum number of verdicts that are remembered as reported.
	remembered = 16 << 10
	// maxRegistries is the maximum number of registries that are remembered. A template can put the host of a provider into
	// the name of a registry.
	maxRegistries = 1 << 10
)

// Checker decides about versions. It is safe for concurrent use.
type Checker struct {
	o        Options
	lookUps  chan struct{} // holds an element for each look-up
	reported *lru.Cache[about, string]
	apis     *lru.Cache[ociaddr.Registry, *artifact.ReferrersAPI]
}

var _ catalog.Approvals = (*Checker)(nil)

// about identifies what a verdict is about.
type about struct {
	subject  subject.Address
	version  provider.Version
	manifest digest.Digest
}

// New returns a checker.
func New(o Options) *Checker {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Counters = cmp.Or(o.Counters, &telemetry.ApproveCounters{})
	reported, _ := lru.New[about, string](remembered) // fails only for a negative size
	apis, _ := lru.New[ociaddr.Registry, *artifact.ReferrersAPI](maxRegistries)
	return &Checker{o: o, lookUps: make(chan struct{}, maxLookUps), reported: reported, apis: apis}
}

// Policy implements [catalog.Approvals].
func (c *Checker) Policy(of subject.Address) *approval.Policy { return c.o.Rules.For(of) }

// Check implements [catalog.Approvals]. It reads no more signatures than the policy needs.
func (c *Checker) Check(ctx context.Context, of subject.Address, v provider.Version, manifest ocispec.Descriptor) (approval.Verdict, []approval.Signature, error) {
	ctx, end := telemetry.Start(ctx, "approvals", subject.Attr(of), slog.String("version", v.String()))
	verdict, signatures, err := c.lookUp(ctx, of, manifest)
	if end(err); err != nil {
		c.o.Counters.Undecided.Add(1)
		return approval.Verdict{}, nil, err
	}
	c.report(ctx, about{of, v, manifest.Digest}, verdict)
	return verdict, signatures, nil
}

func (c *Checker) lookUp(ctx context.Context, of subject.Address, manifest ocispec.Descriptor) (approval.Verdict, []approval.Signature, error) {
	select {
	case c.lookUps <- struct{}{}:
		defer func() { <-c.lookUps }()
	case <-ctx.Done():
		return approval.Verdict{}, nil, ctx.Err()
	}
	registry, store, err := c.o.Store(ctx, of)
	if err != nil {
		return approval.Verdict{}, nil, err
	}
	// Signatures does not call the function if there are no signatures.
	verdict, undecided := c.Policy(of).Check(ctx, manifest.Digest, nil)
	signatures, err := c.api(registry).Signatures(ctx, store, manifest, func(found []approval.Signature) bool {
		verdict, undecided = c.Policy(of).Check(ctx, manifest.Digest, found)
		return undecided != nil || len(verdict.Missing) == 0
	})
	return verdict, signatures, errors.Join(err, undecided)
}

// api returns what is known about the referrers API of a registry.
func (c *Checker) api(of ociaddr.Registry) *artifact.ReferrersAPI {
	fresh := &artifact.ReferrersAPI{}
	if known, ok, _ := c.apis.PeekOrAdd(of, fresh); ok {
		return known
	}
	return fresh
}

// Recheck implements [catalog.Approvals].
func (c *Checker) Recheck(ctx context.Context, of subject.Address, v provider.Version, manifest digest.Digest, signatures []approval.Signature) (approval.Verdict, error) {
	verdict, err := c.Policy(of).Check(ctx, manifest, signatures)
	if err == nil {
		c.report(ctx, about{of, v, manifest}, verdict)
	}
	return verdict, err
}

// Vouches implements [catalog.Approvals]. It is true if the key of pull-through meets all requirements.
func (c *Checker) Vouches(of subject.Address) bool {
	return c.o.Signer != nil && c.Policy(of).Expect([]approval.Signer{{Key: c.o.Signer.Fingerprint()}}).Err() == nil
}

// Unnamed implements [catalog.Approvals].
func (c *Checker) Unnamed(ctx context.Context, of subject.Address, v provider.Version, manifest digest.Digest, err error) approval.Verdict {
	verdict := c.Policy(of).Unnamed(err)
	if manifest != "" { // a version that is not stored needs no line in the log: only a request for it matters, and is logged
		c.report(ctx, about{of, v, manifest}, verdict)
	}
	return verdict
}

// report counts and logs a verdict that differs from the last one about the same manifest.
func (c *Checker) report(ctx context.Context, of about, verdict approval.Verdict) {
	text := textOf(verdict)
	if before, ok := c.reported.Get(of); ok && before == text {
		return
	}
	c.reported.Add(of, text)
	attrs := []slog.Attr{subject.Attr(of.subject), slog.String("version", of.version.String()), slog.String("manifest", of.manifest.String())}
	n := c.o.Counters
	if err := verdict.Err(); err != nil {
		n.NotApproved.Add(1)
		if help := hint.Of(err); help != "" {
			attrs = append(attrs, slog.String("hint", help))
		}
		c.o.Log.LogAttrs(ctx, slog.LevelWarn, "version not approved", append(attrs, slog.String("err", hint.OneLine(err.Error())))...)
		return
	}
	n.Approved.Add(1)
	for _, m := range verdict.Reported() {
		n.Reported.Add(1)
		c.o.Log.LogAttrs(ctx, slog.LevelWarn, "version served without an approval, because enforce = false in the require block",
			append(attrs, slog.String("requirement", m.Requirement), slog.String("reason", hint.OneLine(m.Reason)))...)
	}
	for _, a := range verdict.Approvals {
		c.o.Log.LogAttrs(ctx, slog.LevelDebug, "version approved", append(attrs, slog.String("requirement", a.Requirement), slog.String("signer", a.Signer.String()))...)
	}
}

// textOf returns a text that is equal for verdicts with the same approvals and the same reasons.
func textOf(v approval.Verdict) (out string) {
	for _, a := range v.Approvals {
		out += "+" + a.Requirement + "\n"
	}
	for _, m := range v.Missing {
		out += "-" + m.Requirement + ": " + m.Reason + "\n"
	}
	return out
}
