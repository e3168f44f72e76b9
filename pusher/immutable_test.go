package pusher_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// TestQuotaIsNoRuleAboutTags shows that, if the quota is full, a push does not report an immutable tag. Harbor
// checks the quota when a version's tag is pushed, and older releases of Harbor then return the same status as for
// an immutable tag.
func TestQuotaIsNoRuleAboutTags(t *testing.T) {
	b := newBench(t)
	b.Immutable(http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"Quota exceeded when processing the request of adding 5.7 MiB of storage resource"}]}`)
	b.MustPush("linux_amd64")
	_, err := b.Push("darwin_arm64")
	var refused *repo.RegistryError
	if !errors.As(err, &refused) || errors.Is(err, repo.ErrImmutable) || hint.Of(err) != "" {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
}

func TestImmutableTags(t *testing.T) {
	for name, refusal := range pushbench.Refusals {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Immutable(refusal.Status, refusal.Answer)
			first := b.MustPush("linux_amd64")
			if r := b.MustPush("linux_amd64"); r.Status != pusher.Unchanged {
				t.Errorf("again: %s", r.Status)
			}
			_, err := b.Push("darwin_arm64")
			var refused *repo.RegistryError
			if !errors.Is(err, repo.ErrImmutable) || !errors.As(err, &refused) || !strings.Contains(err.Error(), refusal.Words) || !strings.Contains(hint.Of(err), "be moved") {
				t.Errorf("error %v (hint %q)", err, hint.Of(err))
			}
			if got := b.Tagged().Index.Digest.String(); got != first.Digest {
				t.Errorf("the tag names %s", got)
			}
			// The refused push has left no announcement.
			if r := b.MustPush("linux_amd64"); r.Status != pusher.Unchanged || len(r.Warnings) != 0 || b.LeftTags() != 0 {
				t.Errorf("after it: %s, warnings %q", r.Status, r.Warnings)
			}
			// Once the registry allows the tag to move, the packages need not be sent again.
			b.Registry.Intercept(nil)
			if r := b.MustPush("darwin_arm64"); r.Status != pusher.Completed || r.Packages[0].Sent || b.TaggedPlatforms() != "darwin_arm64 linux_amd64" {
				t.Errorf("once the tag may be moved: %+v", r)
			}
		})
	}
}

// TestImmutableTagWithoutEvidence shows that, if a version is stored without evidence under an immutable tag, a push
// of the version succeeds and warns that the evidence is missing.
func TestImmutableTagWithoutEvidence(t *testing.T) {
	b := newBench(t)
	b.RefuseEvidence()
	b.MustPush()
	b.Immutable(http.StatusPreconditionFailed, pushbench.Refusals["harbor"].Answer, "1.0.0")
	r := b.MustPush()
	if r.Status != pusher.Unchanged || r.Verdict != artifact.NoEvidence || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "does not name the evidence of this release") {
		t.Errorf("%+v", r)
	}
}

// TestRefusalThatIsNoRule shows that, if the login lacks the right to push, a push does not report an immutable tag.
func TestRefusalThatIsNoRule(t *testing.T) {
	b := newBench(t)
	b.Immutable(http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}`)
	b.MustPush("linux_amd64")
	if _, err := b.Push("darwin_arm64"); err == nil || errors.Is(err, repo.ErrImmutable) || !strings.Contains(err.Error(), "requested access") {
		t.Errorf("error %v", err)
	}
}

// TestImmutableTagsAndAPushThatWasEnded uses a registry with immutable tags. It shows that, if a push of some
// platforms is interrupted after it announced itself, the next push completes the version.
func TestImmutableTagsAndAPushThatWasEnded(t *testing.T) {
	b := newBench(t)
	b.Immutable(http.StatusPreconditionFailed, pushbench.Refusals["harbor"].Answer)
	r, err := b.Get("linux_amd64")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := &endedAt{Store: registry.Repository{Repository: b.Repo}, tag: "1.0.0", cancel: cancel}
	o := b.Options
	o.Destination = func(context.Context, subject.Address) (repo.Destination, error) {
		return repo.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: ended}, nil
	}
	if _, err := pusher.New(o).Push(ctx, r); err == nil || b.Tagged() != nil {
		t.Fatalf("error %v", err)
	}
	if r := b.MustPush("linux_amd64"); r.Status != pusher.Pushed || b.TaggedPlatforms() != "linux_amd64" {
		t.Errorf("%s: %s", r.Status, b.TaggedPlatforms())
	}
}

// endedAt is a store that interrupts a push when the push is about to write the given tag.
type endedAt struct {
	repo.Store
	tag    string
	cancel func()
}

func (e *endedAt) PushReference(ctx context.Context, d ocispec.Descriptor, content io.Reader, reference string) error {
	if reference == e.tag {
		e.cancel()
		return context.Canceled
	}
	return e.Store.PushReference(ctx, d, content, reference)
}

// evidence returns the evidence of the tagged version.
func (b *bench) evidence() *artifact.Evidence {
	b.T.Helper()
	e, err := artifact.ReadEvidence(b.T.Context(), b.Repo, *b.Tagged().Evidence)
	if err != nil {
		b.T.Fatal(err)
	}
	return e
}

func TestRefreshEvidence(t *testing.T) {
	b := newBench(t)
	first := b.MustPush()
	b.Options.RefreshEvidence = true
	if r := b.MustPush(); r.Status != pusher.Unchanged || r.Digest != first.Digest {
		t.Errorf("the same: %s", r.Status)
	}

	// The publisher signs the same document with a new key.
	next := pgp.For(t, "Acme, next year")
	if err := b.Release.Sign(next); err != nil {
		t.Fatal(err)
	}
	b.Options.RefreshEvidence = false
	if r := b.MustPush(); r.Status != pusher.Unchanged || !r.EvidenceKept || len(r.Warnings) != 0 || b.evidence().Record.Fingerprint != b.Signer.Fingerprint() {
		t.Errorf("without RefreshEvidence: %+v", r)
	}
	b.Options.RefreshEvidence = true
	if r := b.MustPush(); r.Status != pusher.Refreshed || r.EvidenceKept || b.evidence().Record.Fingerprint != next.Fingerprint() {
		t.Errorf("refreshed: %+v", r)
	}
	if got := b.TaggedPlatforms(); got != pushbench.AllPlatforms {
		t.Errorf("the tag names %s", got)
	}

	// Weaker evidence does not replace the stored evidence.
	b.Options.Policy = pushbench.AllowUnsigned
	r, err := pusher.New(b.Options).Push(t.Context(), b.unsigned())
	if err != nil || r.Status != pusher.Unchanged || !r.EvidenceKept || len(r.Warnings) != 1 || b.evidence().Record.Fingerprint != next.Fingerprint() {
		t.Errorf("weaker: %+v, %v", r, err)
	}

	// A signed SHA256SUMS that does not list every package counts as weaker, too.
	b.Release.SHA256SUMS = bytes.Join(without(bytes.Split(b.Release.SHA256SUMS, []byte("\n")), "windows"), []byte("\n"))
	if err := b.Release.Sign(b.Signer); err != nil {
		t.Fatal(err)
	}
	if r := b.MustPush("linux_amd64"); r.Status != pusher.Unchanged || !r.EvidenceKept || b.evidence().Record.Fingerprint != next.Fingerprint() {
		t.Errorf("of fewer packages: %+v", r)
	}
}

func without(lines [][]byte, part string) (out [][]byte) {
	for _, l := range lines {
		if !bytes.Contains(l, []byte(part)) {
			out = append(out, l)
		}
	}
	return out
}

// TestRefreshEvidenceByStronger shows that a refresh replaces unsigned evidence with signed evidence.
func TestRefreshEvidenceByStronger(t *testing.T) {
	b := newBench(t)
	o := b.Options
	o.Policy = pushbench.AllowUnsigned
	if _, err := pusher.New(o).Push(t.Context(), b.unsigned()); err != nil {
		t.Fatal(err)
	}
	b.Options.RefreshEvidence = true
	if r := b.MustPush(); r.Status != pusher.Refreshed || b.evidence().Record.Verdict != trust.Signed {
		t.Errorf("%+v", r)
	}
}
