package reconcile_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// approve approves what the tag 1.0.0 names, and returns the digest of the manifest with the signature.
func (b *syncBench) approve(key *signing.Key) digest.Digest {
	b.T.Helper()
	w := repo.NewSession(time.Millisecond, 1).Writer(pushbench.Destination(registry.Repository{Repository: b.Repo}))
	sigs, signed, err := w.Sign(b.T.Context(), b.Tagged().Index, key)
	if err != nil || !signed {
		b.T.Fatalf("signed: %v, %v", signed, err)
	}
	return sigs[len(sigs)-1].Manifest
}

// TestApprovalsGoWithTheirVersions shows that a prune and a removal delete the approvals of the versions that they delete, and of indexes
// that a tag no longer names, and keep those of other versions.
func TestApprovalsGoWithTheirVersions(t *testing.T) {
	for name, api := range map[string]bool{"API": true, "fallback tags": false} {
		t.Run(name, func(t *testing.T) {
			b, key := newSyncBench(t, "1.0.0", "1.1.0"), approvals.NewSigningKey(t)
			if !api {
				pushbench.WithoutAPI(b.Registry.Recorder)
			}
			b.mustSync("+1.1.0 +1.0.0")
			first := b.approve(key)
			_, refused := b.remove(false, removal("1.0.0", "linux_amd64"))
			if len(refused.Failures) != 1 || !strings.Contains(refused.Failures[0].Err.Error(), "it is approved") || b.TaggedPlatforms() != pushbench.AllPlatforms {
				t.Errorf("the removal of a platform: %+v", refused)
			}
			b.mustRemove(false, removal("1.0.0"))
			if left := b.stored([]digest.Digest{first}); len(left) > 0 || strings.Contains(b.tags(), "sha256-") {
				t.Errorf("after a removal, %v is left, tags %q", left, b.tags())
			}
			b.mustSync("=1.1.0 +1.0.0")
			second := b.approve(key)
			b.constraint(">= 1.1")
			b.options.Prune = true
			b.mustSync("=1.1.0 -1.0.0")
			if left := b.stored([]digest.Digest{second}); len(left) > 0 || strings.Contains(b.tags(), "sha256-") {
				t.Errorf("after a prune, %v is left, tags %q", left, b.tags())
			}
		})
	}
}

// TestSyncOfApprovedVersions shows that a sync keeps the index of an approved version, and brings the other versions: also if the origin has
// another platform, or if the gateway needs other evidence. It changes the version if it can approve it again with all platforms.
func TestSyncOfApprovedVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *syncBench)
		plan   string
	}{
		"nothing changes":  {func(*syncBench) {}, "+1.1.0 =1.0.0"},
		"another platform": {func(b *syncBench) { b.want.Platforms = nil }, "+1.1.0 ~1.0.0"},
		"other evidence": {func(b *syncBench) {
			b.Signer = pgp.For(b.T, "Acme, next year")
			b.offer("1.0.0")
			b.verifying(b.Signer.Fingerprint())
		}, "+1.1.0 !1.0.0"},
	} {
		for signs, wanted := range map[string]bool{"without a key": false, "with the key": true} {
			t.Run(name+" "+signs, func(t *testing.T) {
				b, key := newSyncBench(t, "1.0.0"), approvals.NewSigningKey(t)
				b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
				b.mustSync("+1.0.0")
				b.approve(key)
				before := b.Tagged().Index
				tc.change(b)
				b.offer("1.1.0")
				if wanted {
					b.options.Push.Sign = key
				}
				plan, out, err := b.sync()
				if err != nil || plan != tc.plan || !strings.Contains(b.versionTags(), "1.1.0") {
					t.Fatalf("%v, plan %q, tags %s", err, plan, b.versionTags())
				}
				changes := !strings.Contains(tc.plan, "=1.0.0")
				switch after := b.Tagged().Index; {
				case changes && !wanted:
					if len(out.Failures) != 1 || !errors.Is(out.Failures[0].Err, pusher.ErrApproved) || after.Digest != before.Digest {
						t.Errorf("%+v, the tag names %s", out.Failures, after.Digest)
					}
				case len(out.Failures) > 0 || (after.Digest != before.Digest) != changes:
					t.Errorf("%+v, the tag names %s", out.Failures, after.Digest)
				}
				v, err := artifact.CheckApprovals(t.Context(), b.Repo, key.Policy(), b.Tagged(), pushbench.Widget, pushbench.One)
				if err != nil || v.Err() != nil {
					t.Errorf("what the tag names is not approved: %v, %v", err, v.Err())
				}
			})
		}
	}
}

// TestPruneOfSignedReplacedIndexes shows that a prune deletes a replaced index together with cosign's signatures, and keeps it if
// anything else is attached, such as provenance. A list of referrers under a fallback tag can name the approval of another version:
// it stays.
func TestPruneOfSignedReplacedIndexes(t *testing.T) {
	for name, tc := range map[string]struct {
		attach func(b *syncBench, lost ocispec.Descriptor) ocispec.Descriptor
		gone   bool
	}{
		"cosign's signature": {func(b *syncBench, lost ocispec.Descriptor) ocispec.Descriptor {
			key := approvals.NewKey(t, approvals.P256)
			return approvals.Attach(t, b.Repo, lost, key.Attest(approvals.Statement(t, lost.Digest, approvals.CosignSign)))
		}, true},
		"a message signature": {func(b *syncBench, lost ocispec.Descriptor) ocispec.Descriptor {
			data, err := artifact.FetchManifest(t.Context(), b.Repo, lost)
			if err != nil {
				t.Fatal(err)
			}
			return approvals.Attach(t, b.Repo, lost, approvals.NewKey(t, approvals.P256).Message(data))
		}, true},
		"an older signature": {func(b *syncBench, lost ocispec.Descriptor) ocispec.Descriptor {
			payload := approvals.Payload(t, lost.Digest)
			return approvals.Tag(t, b.Repo, lost.Digest, approvals.Layer{Payload: payload, Annotations: approvals.NewKey(t, approvals.P256).Simple(payload)})
		}, true},
		"provenance": {func(b *syncBench, lost ocispec.Descriptor) ocispec.Descriptor {
			key := approvals.NewKey(t, approvals.P256)
			return approvals.Attach(t, b.Repo, lost, key.Attest(approvals.Statement(t, lost.Digest, approvals.Provenance)))
		}, false},
		"the approval of another version": {func(b *syncBench, lost ocispec.Descriptor) ocispec.Descriptor {
			key, other := approvals.NewKey(t, approvals.P256), b.Tagged().Index
			approval := approvals.Attach(t, b.Repo, other, key.Attest(approvals.Statement(t, other.Digest, approvals.CosignSign)))
			pushbench.WithoutAPI(b.Registry.Recorder)
			list, err := json.Marshal(ocispec.Index{
				Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{approval},
			})
			if err != nil {
				t.Fatal(err)
			}
			b.PushManifest(ocispec.MediaTypeImageIndex, list, string(ociaddr.ReferrersTag(lost.Digest)))
			return approval
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, lost := newReplaced(t)
			attached := tc.attach(b, lost)
			b.mustSync("=1.0.0")
			if b.has(lost) == tc.gone || b.has(attached) == tc.gone {
				t.Errorf("the index is there: %t, what is attached: %t", b.has(lost), b.has(attached))
			}
		})
	}
}

// TestTagThatMovesBackKeepsApprovals shows that an approved index keeps its approvals if a prune deletes it, and puts it back because
// a push gave it the tag in the meantime.
func TestTagThatMovesBackKeepsApprovals(t *testing.T) {
	b, lost := newReplaced(t)
	key := approvals.NewKey(t, approvals.P256)
	signature := approvals.Attach(t, b.Repo, lost, key.Attest(approvals.Statement(t, lost.Digest, approvals.CosignSign)))
	b.beforeDelete(1, func() { b.tag(lost, "1.0.0") })
	b.mustSync("=1.0.0")
	if got := b.Tagged(); got == nil || got.Index.Digest != lost.Digest || !b.has(signature) {
		t.Errorf("the tag names %+v, the signature is there: %t", got, b.has(signature))
	}
}
