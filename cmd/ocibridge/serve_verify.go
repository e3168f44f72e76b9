package main

import (
	"context"
	"log/slog"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/provider"
)

// checkVersion decides whether a version may be served; see [gateway.Options].
type checkVersion = func(context.Context, gateway.Store, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error)

// check returns what decides about versions, nil where all are served, and what
// tells the log in the end how many it refused.
func (s settings) check(log *slog.Logger) (check checkVersion, tell func()) {
	if !s.file.Gateway.VerifyRequired {
		return nil, func() {}
	}
	checker := verify.New(verify.Options{Policy: s.trustRules().For, Counters: s.ops.verifyCounters(), Log: log})
	check = func(ctx context.Context, store gateway.Store, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		return checker.Check(ctx, store, a, v, found)
	}
	return check, func() {
		n := checker.Counts()
		log.Info("evidence was required: versions since the start", "verified", n.Verified, "refused", n.Refused, "packages_withheld", n.Withheld)
	}
}
