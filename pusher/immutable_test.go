package pusher_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// immutable makes the registry refuse to move tags. pushed lists the tags that exist already.
func (b *bench) immutable(status int, answer string, pushed ...string) {
	tags := map[string]bool{}
	for _, tag := range pushed {
		tags[tag] = true
	}
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		tag := path.Base(r.URL.Path)
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") || strings.HasPrefix(tag, "sha256:") {
			return false
		}
		if !tags[tag] {
			tags[tag] = true
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, answer)
		return true
	})
}

// refusals are the responses of registries to a request that would move an immutable tag.
var refusals = map[string]struct {
	status int
	answer string
	words  string
}{
	"harbor": {http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"Failed to process request due to 'widget:1.0.0' configured as immutable."}]}`, "configured as immutable"},
	"ecr":    {http.StatusBadRequest, `{"errors":[{"code":"TAG_INVALID","message":"The image tag '1.0.0' already exists in the 'widget' repository and cannot be overwritten because the tag is immutable."}]}`, "cannot be overwritten"},
	"acr":    {http.StatusMethodNotAllowed, `{"errors":[{"code":"UNSUPPORTED","message":"The operation is disallowed on this registry, repository or image."}]}`, "disallowed"},
	"hub":    {http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"Immutable tag cannot be updated"}]}`, "Immutable tag"},
}

// TestQuotaIsNoRuleAboutTags shows that, if the quota is full, a push does not report an immutable tag. Harbor
// checks the quota when a version's tag is pushed, and older releases of Harbor then return the same status as for
// an immutable tag.
func TestQuotaIsNoRuleAboutTags(t *testing.T) {
	b := newBench(t)
	b.immutable(http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"Quota exceeded when processing the request of adding 5.7 MiB of storage resource"}]}`)
	b.mustPush("linux_amd64")
	_, err := b.push("darwin_arm64")
	var refused *pusher.RegistryError
	if !errors.As(err, &refused) || errors.Is(err, pusher.ErrImmutable) || hint.Of(err) != "" {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
}

func TestImmutableTags(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.immutable(refusal.status, refusal.answer)
			first := b.mustPush("linux_amd64")
			if r := b.mustPush("linux_amd64"); r.Status != pusher.Unchanged {
				t.Errorf("again: %s", r.Status)
			}
			_, err := b.push("darwin_arm64")
			var refused *pusher.RegistryError
			if !errors.Is(err, pusher.ErrImmutable) || !errors.As(err, &refused) || !strings.Contains(err.Error(), refusal.words) || !strings.Contains(hint.Of(err), "be moved") {
				t.Errorf("error %v (hint %q)", err, hint.Of(err))
			}
			if got := b.tagged().Index.Digest.String(); got != first.Digest {
				t.Errorf("the tag names %s", got)
			}
			// The refused push has left no announcement.
			if r := b.mustPush("linux_amd64"); r.Status != pusher.Unchanged || len(r.Warnings) != 0 || b.leftTags() != 0 {
				t.Errorf("after it: %s, warnings %q", r.Status, r.Warnings)
			}
			// Once the registry allows the tag to move, the packages need not be sent again.
			b.registry.Intercept(nil)
			if r := b.mustPush("darwin_arm64"); r.Status != pusher.Completed || r.Packages[0].Sent || b.taggedPlatforms() != "darwin_arm64 linux_amd64" {
				t.Errorf("once the tag may be moved: %+v", r)
			}
		})
	}
}

// TestImmutableTagWithoutEvidence shows that, if a version is stored without evidence under an immutable tag, a push
// of the version succeeds and warns that the evidence is missing.
func TestImmutableTagWithoutEvidence(t *testing.T) {
	b := newBench(t)
	b.refuseEvidence()
	b.mustPush()
	b.immutable(http.StatusPreconditionFailed, refusals["harbor"].answer, "1.0.0")
	r := b.mustPush()
	if r.Status != pusher.Unchanged || r.Verdict != artifact.NoEvidence || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "does not name the evidence of this release") {
		t.Errorf("%+v", r)
	}
}

// TestRefusalThatIsNoRule shows that, if the login lacks the right to push, a push does not report an immutable tag.
func TestRefusalThatIsNoRule(t *testing.T) {
	b := newBench(t)
	b.immutable(http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}`)
	b.mustPush("linux_amd64")
	if _, err := b.push("darwin_arm64"); err == nil || errors.Is(err, pusher.ErrImmutable) || !strings.Contains(err.Error(), "requested access") {
		t.Errorf("error %v", err)
	}
}

// TestImmutableTagsAndAPushThatWasEnded uses a registry with immutable tags. It shows that, if a push of some
// platforms is interrupted after it announced itself, the next push completes the version.
func TestImmutableTagsAndAPushThatWasEnded(t *testing.T) {
	b := newBench(t)
	b.immutable(http.StatusPreconditionFailed, refusals["harbor"].answer)
	r, err := b.get("linux_amd64")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := &endedAt{Store: registry.Repository{Repository: b.repo}, tag: "1.0.0", cancel: cancel}
	o := b.options
	o.Destination = func(context.Context, provider.Address) (pusher.Destination, error) {
		return pusher.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: ended}, nil
	}
	if _, err := pusher.New(o).Push(ctx, r); err == nil || b.tagged() != nil {
		t.Fatalf("error %v", err)
	}
	if r := b.mustPush("linux_amd64"); r.Status != pusher.Pushed || b.taggedPlatforms() != "linux_amd64" {
		t.Errorf("%s: %s", r.Status, b.taggedPlatforms())
	}
}

// endedAt is a store that interrupts a push when the push is about to write the given tag.
type endedAt struct {
	pusher.Store
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
	b.t.Helper()
	e, err := artifact.ReadEvidence(b.t.Context(), b.repo, *b.tagged().Evidence)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func TestRefreshEvidence(t *testing.T) {
	b := newBench(t)
	first := b.mustPush()
	b.options.RefreshEvidence = true
	if r := b.mustPush(); r.Status != pusher.Unchanged || r.Digest != first.Digest {
		t.Errorf("the same: %s", r.Status)
	}

	// The publisher signs the same document with a new key.
	next := pgp.For(t, "Acme, next year")
	if err := b.release.Sign(next); err != nil {
		t.Fatal(err)
	}
	b.options.RefreshEvidence = false
	if r := b.mustPush(); r.Status != pusher.Unchanged || !r.EvidenceKept || len(r.Warnings) != 0 || b.evidence().Record.Fingerprint != b.signer.Fingerprint() {
		t.Errorf("without RefreshEvidence: %+v", r)
	}
	b.options.RefreshEvidence = true
	if r := b.mustPush(); r.Status != pusher.Refreshed || r.EvidenceKept || b.evidence().Record.Fingerprint != next.Fingerprint() {
		t.Errorf("refreshed: %+v", r)
	}
	if got := b.taggedPlatforms(); got != allPlatforms {
		t.Errorf("the tag names %s", got)
	}

	// Weaker evidence does not replace the stored evidence.
	b.options.Policy = allowUnsigned
	r, err := pusher.New(b.options).Push(t.Context(), b.unsigned())
	if err != nil || r.Status != pusher.Unchanged || !r.EvidenceKept || len(r.Warnings) != 1 || b.evidence().Record.Fingerprint != next.Fingerprint() {
		t.Errorf("weaker: %+v, %v", r, err)
	}

	// A signed SHA256SUMS that does not list every package counts as weaker, too.
	b.release.SHA256SUMS = bytes.Join(without(bytes.Split(b.release.SHA256SUMS, []byte("\n")), "windows"), []byte("\n"))
	if err := b.release.Sign(b.signer); err != nil {
		t.Fatal(err)
	}
	if r := b.mustPush("linux_amd64"); r.Status != pusher.Unchanged || !r.EvidenceKept || b.evidence().Record.Fingerprint != next.Fingerprint() {
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
	o := b.options
	o.Policy = allowUnsigned
	if _, err := pusher.New(o).Push(t.Context(), b.unsigned()); err != nil {
		t.Fatal(err)
	}
	b.options.RefreshEvidence = true
	if r := b.mustPush(); r.Status != pusher.Refreshed || b.evidence().Record.Verdict != trust.Signed {
		t.Errorf("%+v", r)
	}
}
