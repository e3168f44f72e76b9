package approve_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/approve"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	widget = provider.MustParseAddress("registry.acme.example/acme/widget")
	v100   = provider.MustParseVersion("1.0.0")
	index  = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString("index"), Size: 5}
)

// rules returns rules that require a signature by the given key, and one by another key that is only reported.
func rules(t *testing.T, key *approvals.Key) (approval.Rules, *approval.PublicKey) {
	t.Helper()
	parse := func(k *approvals.Key) *approval.PublicKey {
		public, err := approval.ParsePublicKey(k.PEM())
		if err != nil {
			t.Fatal(err)
		}
		return public
	}
	public := parse(key)
	policy, err := approval.NewPolicy(approval.Requirement{Name: "platform team", Key: public},
		approval.Requirement{Name: "auditors", Key: parse(approvals.NewKey(t, approvals.P256)), ReportOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return approval.Rules{{Pattern: widget.Pattern(), Policy: policy}}, public
}

// TestVerdictsAreReportedOnce shows that the log and the metrics have a verdict once until it changes.
func TestVerdictsAreReportedOnce(t *testing.T) {
	team := approvals.NewKey(t, approvals.P256)
	all, _ := rules(t, team)
	log, n := &collected.Text{}, &telemetry.ApproveCounters{}
	c := approve.New(approve.Options{Rules: all, Log: slog.New(slog.NewTextHandler(log, nil)), Counters: n})
	signed := []approval.Signature{{Manifest: digest.FromString("m"), Bundle: team.Attest(approvals.Statement(t, index.Digest, approval.PredicateCosign))}}
	for _, found := range [][]approval.Signature{nil, nil, signed, signed, nil} {
		if _, err := c.Recheck(t.Context(), widget, v100, index.Digest, found); err != nil {
			t.Fatal(err)
		}
	}
	if n.NotApproved.Load() != 2 || n.Approved.Load() != 1 || n.Reported.Load() != 1 {
		t.Errorf("%d not approved, %d approved, %d reported", n.NotApproved.Load(), n.Approved.Load(), n.Reported.Load())
	}
	if text := log.String(); strings.Count(text, "version not approved") != 2 || strings.Count(text, "enforce = false") != 1 || !strings.Contains(text, index.Digest.String()) {
		t.Errorf("log:\n%s", text)
	}
}

// TestLookUpsAreBounded shows that at most 16 look-ups run at a time, and that a caller who gives up does not wait.
func TestLookUpsAreBounded(t *testing.T) {
	all, _ := rules(t, approvals.NewKey(t, approvals.P256))
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		end := make(chan struct{})
		c := approve.New(approve.Options{Rules: all, Store: func(context.Context, subject.Address) (ociaddr.Registry, artifact.ReferrerStore, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-end
			mu.Lock()
			running--
			mu.Unlock()
			return "", nil, errors.New("the repository cannot be opened")
		}})
		var tasks sync.WaitGroup
		for range 100 {
			tasks.Go(func() {
				if _, _, err := c.Check(t.Context(), widget, v100, index); err == nil {
					t.Error("no error")
				}
			})
		}
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.Check(ended, widget, v100, index); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who has given up: %v", err)
		}
		close(end)
		tasks.Wait()
		if most != 16 {
			t.Errorf("%d look-ups at a time", most)
		}
	})
}

// TestVouches shows that pull-through's key vouches only for providers whose enforced requirements it meets.
func TestVouches(t *testing.T) {
	all, public := rules(t, approvals.NewKey(t, approvals.P256))
	_, other := rules(t, approvals.NewKey(t, approvals.P256))
	for key, want := range map[*approval.PublicKey]bool{public: true, other: false, nil: false} {
		if got := approve.New(approve.Options{Rules: all, Signer: key}).Vouches(widget); got != want {
			t.Errorf("%v", got)
		}
	}
}
