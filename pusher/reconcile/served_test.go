package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/trust"
)

// verifying makes the sync consult a gateway that verifies versions, and that pins the given keys.
func (b *syncBench) verifying(keys ...string) {
	policy := func(provider.Address) trust.Policy { return trust.Policy{Keys: keys} }
	b.options.Push.Policy = policy
	checker := verify.New(verify.Options{Policy: policy})
	b.options.Served = func(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		out, err := checker.Check(ctx, store, a, v, found)
		if errors.Is(err, verify.ErrRefused) {
			err = fmt.Errorf("%w: %w", reconcile.ErrNotServed, err)
		}
		return out, err
	}
}

// TestSyncOfWhatIsNotServed shows that a stored version does not count as in place if a gateway with verify =
// "required" refuses it. The sync repairs the versions that a push can repair.
func TestSyncOfWhatIsNotServed(t *testing.T) {
	t.Run("no evidence", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.RefuseEvidence()
		b.mustSync("+1.0.0")
		b.mustSync("=1.0.0") // without pinned keys, no evidence is needed
		b.verifying(b.Signer.Fingerprint())
		_, out, err := b.sync()
		if err != nil || len(out.Failures) != 1 || !errors.Is(out.Failures[0].Err, reconcile.ErrNotServed) || hint.Of(out.Failures[0].Err) == "" {
			t.Errorf("a registry that refuses evidence: %v, %+v", err, out)
		}
		b.Registry.Intercept(nil)
		if out := b.mustSync("!1.0.0"); len(out.Results) != 1 || out.Results[0].Verdict != trust.Signed {
			t.Errorf("%+v", out)
		}
		b.mustSync("=1.0.0")
	})
	t.Run("another key", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.mustSync("+1.0.0")
		next := pgp.For(t, "Acme, next year")
		b.Signer = next
		b.offer("1.0.0")
		b.verifying(next.Fingerprint())
		if out := b.mustSync("!1.0.0"); out.Results[0].Status != pusher.Refreshed || out.Results[0].Fingerprint != next.Fingerprint() {
			t.Errorf("%+v", out.Results[0])
		}
		b.mustSync("=1.0.0")
		b.Origin.Remove("acme", "widget", "1.0.0")
		b.offer("1.1.0")
		b.verifying(pgp.For(t, "Mallory").Fingerprint())
		if plan, out, _ := b.sync(); strings.Contains(plan, "=") || len(out.Failures) == 0 || !errors.Is(out.Failures[0].Err, reconcile.ErrNotServed) {
			t.Errorf("its origin has it no more: plan %q, %+v", plan, out)
		}
	})
	t.Run("no pinned key", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.mustSync("+1.0.0")
		b.verifying()
		if plan, out, _ := b.sync(); plan != "" || len(out.Failures) != 1 || !errors.Is(out.Failures[0].Err, reconcile.ErrNotServed) {
			t.Errorf("plan %q, %+v", plan, out)
		}
	})
	t.Run("evidence that is gone", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		b.mustSync("+1.0.0")
		if err := b.Repo.Delete(t.Context(), *b.Tagged().Evidence); err != nil {
			t.Fatal(err)
		}
		b.verifying(b.Signer.Fingerprint())
		b.mustSync("!1.0.0")
		b.mustSync("=1.0.0")
	})
	t.Run("a platform that nobody signed", func(t *testing.T) {
		b := newSyncBench(t, "1.0.0")
		whole := b.Build("1.0.0", "content")
		part := *whole
		part.SHA256SUMS = []byte(strings.Join(pushbench.WithoutLine(string(whole.SHA256SUMS), "windows"), "\n"))
		if err := part.Sign(b.Signer); err != nil {
			t.Fatal(err)
		}
		b.Origin.Add(&part)
		b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64"), provider.MustParsePlatform("darwin_arm64")}
		b.mustSync("+1.0.0")
		signed := b.Tagged()
		b.Origin.Add(whole)
		b.MustPush()
		forged := b.Tagged()
		forged.Evidence = signed.Evidence
		index, err := artifact.EncodeIndex(*forged)
		if err != nil {
			t.Fatal(err)
		}
		b.PushManifest(index.Descriptor.MediaType, index.Data, "1.0.0")
		b.verifying(b.Signer.Fingerprint())
		b.mustSync("=1.0.0") // no provider block requests the other platforms
		b.want.Platforms = nil
		b.mustSync("!1.0.0")
		b.mustSync("=1.0.0")
	})
}
