package reconcile_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// removal is a request to remove a version of the widget, or some of its platforms.
func removal(version string, platforms ...string) reconcile.RemoveRequest {
	q := reconcile.RemoveRequest{Subject: pushbench.Widget, Version: provider.MustParseVersion(version)}
	for _, p := range platforms {
		q.Platforms = append(q.Platforms, provider.MustParsePlatform(p))
	}
	return q
}

// remove plans removals and applies the plan.
func (b *syncBench) remove(referrers bool, requests ...reconcile.RemoveRequest) (*reconcile.RemovePlan, *reconcile.RemoveOutcome) {
	b.T.Helper()
	r := reconcile.NewRemover(b.options.Push, referrers)
	plan, err := r.Plan(b.T.Context(), requests)
	if err != nil {
		b.T.Fatal(err)
	}
	out, err := r.Apply(b.T.Context(), plan)
	if err != nil {
		b.T.Fatal(err)
	}
	return plan, out
}

// mustRemove removes versions. It fails the test unless everything is removed without a warning.
func (b *syncBench) mustRemove(referrers bool, requests ...reconcile.RemoveRequest) *reconcile.RemoveOutcome {
	b.T.Helper()
	plan, out := b.remove(referrers, requests...)
	if len(out.Failures) > 0 || len(out.Warnings) > 0 || len(out.Removed) != len(requests) {
		b.T.Fatalf("%d removed, warnings %q, failures %v", len(out.Removed), out.Warnings, out.Failures)
	}
	if plan.Freeable() != out.Freeable {
		b.T.Errorf("the plan says that %d bytes can be freed, and %d can", plan.Freeable(), out.Freeable)
	}
	return out
}

// manifests returns the digests of a version's index, of its platforms and of its evidence.
func (b *syncBench) manifests(version string) (out []digest.Digest) {
	b.T.Helper()
	v, err := artifact.Read(b.T.Context(), b.Repo, pushbench.Widget, provider.MustParseVersion(version))
	if err != nil {
		b.T.Fatal(err)
	}
	out = append(out, v.Index.Digest, v.Evidence.Digest)
	for _, p := range v.Packages {
		out = append(out, p.Manifest.Digest)
	}
	return out
}

// stored returns those digests of manifests that the registry has.
func (b *syncBench) stored(manifests []digest.Digest) (out []digest.Digest) {
	b.T.Helper()
	for _, d := range manifests {
		desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: d, Size: 1}
		if ok, err := b.Repo.Manifests().Exists(b.T.Context(), desc); err != nil {
			b.T.Fatal(err)
		} else if ok {
			out = append(out, d)
		}
	}
	return out
}

func TestRemove(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
	b.mustSync("+1.2.0 +1.1.0 +1.0.0")
	first, second := b.manifests("1.0.0"), b.manifests("1.1.0")
	out := b.mustRemove(false, removal("1.0.0"), removal("1.1.0"))
	if left := b.stored(slices.Concat(first, second)); len(left) > 0 || b.tags() != "1.2.0" {
		t.Errorf("manifests %v, tags %q are left", left, b.tags())
	}
	size := out.Removed[0].Size + out.Removed[1].Size
	if out.Freeable != size || size == 0 || len(out.Removed[0].Platforms) != 3 {
		t.Errorf("%d of %d bytes can be freed: %+v", out.Freeable, size, out.Removed[0])
	}
	if s := b.State(); len(s.Summary) != 1 || slices.ContainsFunc(s.Replaced, func(r artifact.Replaced) bool { return !r.Version.IsZero() }) {
		t.Errorf("the state is %+v", s)
	}
	if b.missing("1.2.0") != "" {
		t.Errorf("1.2.0 lacks %q", b.missing("1.2.0"))
	}
	b.mustRemove(false, removal("1.2.0"))
	if b.tags() != "" {
		t.Errorf("tags %q are left", b.tags())
	}
	if b.State() != nil {
		t.Error("the state of an empty repository is left")
	}
	// Another removal finds nothing.
	_, again := b.remove(false, removal("1.2.0"))
	if len(again.Failures) != 1 || !errors.Is(again.Failures[0].Err, origin.ErrVersionNotFound) || hint.Of(again.Failures[0].Err) == "" {
		t.Errorf("%+v", again)
	}
}

// TestRemoveSharedPackages shows that a removal keeps manifests that another tag names, and that it does not count
// their packages as bytes that can be freed.
func TestRemoveSharedPackages(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	_, index, err := b.Repo.FetchReference(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	index.Close()
	desc, err := b.Repo.Resolve(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Repo.Tag(t.Context(), desc, "stable"); err != nil {
		t.Fatal(err)
	}
	manifests := b.manifests("1.0.0")
	if out := b.mustRemove(false, removal("1.0.0")); out.Freeable != 0 {
		t.Errorf("%d bytes can be freed", out.Freeable)
	}
	if b.tags() != "1.1.0 stable" || len(b.stored(manifests)) != len(manifests) {
		t.Errorf("tags %q, manifests %v", b.tags(), b.stored(manifests))
	}
}

func TestRemovePlatform(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	before := b.Tagged()
	out := b.mustRemove(false, removal("1.0.0", "linux_amd64"))
	after := b.Tagged()
	if b.TaggedPlatforms() != "darwin_arm64 windows_amd64" || b.missing("1.0.0") != "" || after.Evidence == nil || after.Evidence.Digest != before.Evidence.Digest {
		t.Fatalf("the tag names %s, and lacks %q", b.TaggedPlatforms(), b.missing("1.0.0"))
	}
	gone := find(t, before, "linux_amd64")
	if left := b.stored([]digest.Digest{before.Index.Digest, gone.Manifest.Digest}); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if out.Freeable != gone.Size || len(out.Removed[0].Left) != 2 {
		t.Errorf("%d bytes can be freed, want %d: %+v", out.Freeable, gone.Size, out.Removed[0])
	}
	if s := b.State(); s.Summary[pushbench.One].Index != after.Index.Digest || len(s.Summary[pushbench.One].Platforms) != 2 || slices.ContainsFunc(s.Replaced, func(r artifact.Replaced) bool { return r.Version == pushbench.One }) {
		t.Errorf("the state is %+v", s)
	}
	for _, q := range []reconcile.RemoveRequest{removal("1.0.0", "linux_amd64"), removal("1.0.0", "darwin_arm64", "windows_amd64")} {
		if _, out := b.remove(false, q); len(out.Failures) != 1 || hint.Of(out.Failures[0].Err) == "" || b.Tagged().Index.Digest != after.Index.Digest {
			t.Errorf("%v: %+v", q.Platforms, out)
		}
	}
	// The whole version goes with its replaced indexes, and a push completes a version that lacks a platform.
	b.mustSync("=1.1.0 ~1.0.0")
	manifests := b.manifests("1.0.0")
	b.mustRemove(false, removal("1.0.0"))
	if left := b.stored(append(manifests, after.Index.Digest)); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestRemoveReferrers shows that a removal names referrers, and keeps them unless it is told to remove them. It always removes
// signatures of cosign.
func TestRemoveReferrers(t *testing.T) {
	for name, api := range map[string]bool{"API": true, "fallback tags": false} {
		t.Run(name, func(t *testing.T) {
			b := newSyncBench(t, "1.0.0", "1.1.0")
			if !api {
				pushbench.WithoutAPI(b.Registry.Recorder)
			}
			b.mustSync("+1.1.0 +1.0.0")
			v := b.Tagged()
			signature := b.Store(b.Repo, "signature", v.Index.Digest, "")
			ofSignature := b.Store(b.Repo, "signature of the signature", signature.Digest, "")
			sbom := b.Store(b.Repo, "sbom", v.Packages[0].Manifest.Digest, "")
			payload := approvals.Payload(t, v.Index.Digest)
			cosign := approvals.Tag(t, b.Repo, v.Index.Digest, approvals.Layer{Payload: payload, Annotations: approvals.NewKey(t, approvals.P256).Simple(payload)})
			all := []digest.Digest{signature.Digest, ofSignature.Digest, sbom.Digest, cosign.Digest}
			slices.Sort(all)

			out := b.mustRemove(false, removal("1.0.0"))
			var listed []digest.Digest
			for _, r := range out.Removed[0].Referrers {
				listed = append(listed, r.Digest)
			}
			slices.Sort(listed)
			if !slices.Equal(listed, all) || len(b.stored(all)) != 3 || len(b.stored([]digest.Digest{cosign.Digest})) != 0 || len(b.stored([]digest.Digest{v.Index.Digest})) != 0 {
				t.Fatalf("listed %v, want %v, stored %v", listed, all, b.stored(all))
			}

			b.mustSync("=1.1.0 +1.0.0")
			if err := b.Repo.Tag(t.Context(), sbom, "keep"); err != nil {
				t.Fatal(err)
			}
			_, again := b.remove(true, removal("1.0.0"))
			if len(again.Warnings) != 1 || !strings.Contains(again.Warnings[0], sbom.Digest.String()+" is left: another tag names it") || len(again.Failures) > 0 {
				t.Errorf("%+v", again)
			}
			if left := b.stored(all); len(left) != 1 || left[0] != sbom.Digest || !strings.HasPrefix(b.tags(), "1.1.0 keep") || strings.Contains(b.tags(), ".sig") {
				t.Errorf("%v are left, tags %q", left, b.tags())
			}
		})
	}
}

// TestRemoveRefused shows that a removal changes no version if the registry refuses it, and says why.
func TestRemoveRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		answer string
		want   string // in the error and its hint
	}{
		"no deletes": {http.StatusMethodNotAllowed, `{"errors":[{"code":"UNSUPPORTED","message":"The operation is unsupported."}]}`, "must allow deletes"},
		"immutable":  {http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"the tag is configured as immutable, cannot be deleted"}]}`, "configured as immutable"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSyncBench(t, "1.0.0")
			b.mustSync("+1.0.0")
			refuse := func(w http.ResponseWriter, r *http.Request) bool {
				tag := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
				if r.Method != http.MethodDelete && (r.Method != http.MethodPut || tag != "1.0.0") {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				w.Write([]byte(tc.answer))
				return true
			}
			signature := b.Store(b.Repo, "signature", b.Tagged().Index.Digest, "")
			b.Registry.Intercept(refuse)
			for _, q := range []reconcile.RemoveRequest{removal("1.0.0"), removal("1.0.0", "linux_amd64")} {
				_, out := b.remove(true, q)
				if len(b.stored([]digest.Digest{signature.Digest})) == 0 {
					t.Errorf("%v: the referrer is gone", q.Platforms)
				}
				if len(out.Removed) > 0 || len(out.Failures) == 0 {
					t.Fatalf("%v: %+v", q.Platforms, out)
				}
				if err := out.Failures[0].Err; len(q.Platforms) == 0 && !strings.Contains(err.Error()+hint.Of(err), tc.want) || len(q.Platforms) > 0 && !errors.Is(err, repo.ErrImmutable) {
					t.Errorf("%v: %v (%s)", q.Platforms, err, hint.Of(err))
				}
				if b.TaggedPlatforms() != pushbench.AllPlatforms || b.missing("1.0.0") != "" {
					t.Errorf("%v: the tag names %s, and lacks %q", q.Platforms, b.TaggedPlatforms(), b.missing("1.0.0"))
				}
			}
		})
	}
}

// TestRemoveBesideAPush shows that a version stays whole while a push of some of its platforms may still run.
func TestRemoveBesideAPush(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	index := b.Tagged().Index.Digest
	b.leave("aaaaaaaaaaaaaaaa", b.now, false, b.Tagged(), "linux_amd64", func(*artifact.Package) {})
	for _, q := range []reconcile.RemoveRequest{removal("1.0.0"), removal("1.0.0", "linux_amd64")} {
		_, out := b.remove(false, q)
		if len(out.Failures) != 1 || !strings.Contains(out.Failures[0].Err.Error(), "it is being pushed") || len(out.Removed) > 0 {
			t.Errorf("%v: %+v", q.Platforms, out)
		}
		if b.tags() != "1.0.0 ocibridge-part.1.0.0.aaaaaaaaaaaaaaaa" || b.Tagged().Index.Digest != index {
			t.Errorf("%v: tags %s", q.Platforms, b.tags())
		}
	}
	b.now = b.now.Add(time.Hour)
	b.mustRemove(false, removal("1.0.0", "linux_amd64"))
	if b.TaggedPlatforms() != "darwin_arm64 windows_amd64" || b.LeftTags() > 0 {
		t.Errorf("an hour later: the tag names %s, tags %s", b.TaggedPlatforms(), b.tags())
	}
}

// TestRemoveBesideAMovedTag shows that a removal of a platform does not overwrite an index that another push has tagged
// since the plan was made.
func TestRemoveBesideAMovedTag(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.mustSync("+1.0.0")
	puts := 0
	b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/sha256:") {
			puts++
			b.Registry.Intercept(nil)
			b.Reindex(func(i *ocispec.Index) { i.Annotations["example"] = "another push" })
		}
		return false
	})
	_, out := b.remove(false, removal("1.0.0", "linux_amd64"))
	if puts != 1 || len(out.Failures) != 1 || !strings.Contains(out.Failures[0].Err.Error(), "has changed since the plan was made") || b.TaggedPlatforms() != pushbench.AllPlatforms || b.missing("1.0.0") != "" {
		t.Errorf("%d puts, %+v, the tag names %s", puts, out, b.TaggedPlatforms())
	}
}

// TestRemoveInterrupted shows that a removal that ends before any of its changes leaves each version whole or without a
// tag, and that another removal completes it.
func TestRemoveInterrupted(t *testing.T) {
	for name, q := range map[string]reconcile.RemoveRequest{"version": removal("1.0.0"), "platform": removal("1.0.0", "linux_amd64")} {
		t.Run(name, func(t *testing.T) {
			b := newSyncBench(t, "1.0.0", "1.1.0")
			b.mustSync("+1.1.0 +1.0.0")
			for n := 1; ; n++ {
				index := b.Tagged().Index.Digest
				reached, err := b.interruptedRemoval(n, q)
				if !reached {
					if err != nil || n < 6 {
						t.Errorf("%v after %d changes", err, n-1)
					}
					return
				}
				if b.Tagged() != nil && b.missing("1.0.0") != "" || b.missing("1.1.0") != "" {
					t.Fatalf("change %d: 1.0.0 lacks %q, 1.1.0 lacks %q", n, b.missing("1.0.0"), b.missing("1.1.0"))
				}
				_, out := b.remove(false, q)
				for _, f := range out.Failures {
					if errors.Is(f.Err, origin.ErrVersionNotFound) && !strings.Contains(hint.Of(f.Err), "garbage collection frees what it has left") {
						t.Errorf("change %d: %v, hint %q", n, f.Err, hint.Of(f.Err))
					}
					if !errors.Is(f.Err, origin.ErrVersionNotFound) && !errors.Is(f.Err, origin.ErrPlatformNotFound) {
						t.Fatalf("change %d: %v", n, f.Err)
					}
				}
				if v := b.Tagged(); v != nil && (name == "version" || len(v.Packages) != 2 || b.missing("1.0.0") != "") || b.missing("1.1.0") != "" {
					t.Fatalf("change %d: tags %q, 1.1.0 lacks %q", n, b.tags(), b.missing("1.1.0"))
				}
				if len(b.stored([]digest.Digest{index})) > 0 {
					t.Fatalf("change %d: the index is left", n)
				}
				if _, _, err := b.sync(); err != nil || b.TaggedPlatforms() != pushbench.AllPlatforms {
					t.Fatalf("change %d: %v, the tag names %s", n, err, b.TaggedPlatforms())
				}
			}
		})
	}
}

// interruptedRemoval removes a version. It cuts the connection and cancels the removal before the nth change of the
// registry. reached reports whether there were as many changes.
func (b *syncBench) interruptedRemoval(n int, q reconcile.RemoveRequest) (reached bool, err error) {
	b.T.Helper()
	r := reconcile.NewRemover(b.options.Push, false)
	plan, err := r.Plan(b.T.Context(), []reconcile.RemoveRequest{q})
	if err != nil {
		b.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.T.Context())
	defer cancel()
	var count atomic.Int64
	b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return false
		}
		if count.Add(1) >= int64(n) {
			cancel()
			panic(http.ErrAbortHandler)
		}
		return false
	})
	defer b.Registry.Intercept(nil)
	_, err = r.Apply(ctx, plan)
	return count.Load() >= int64(n), err
}

// TestRemoveAfterACopyByCosign shows that manifests whose own fallback tags name them, as "cosign copy" of cosign 3
// leaves them, are not taken for referrers of each other, and that a removal removes all of them.
func TestRemoveAfterACopyByCosign(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	pushbench.WithoutAPI(b.Registry.Recorder)
	b.mustSync("+1.1.0 +1.0.0")
	v := b.Tagged()
	all := []ocispec.Descriptor{v.Index}
	for _, pkg := range v.Packages {
		all = append(all, pkg.Manifest)
	}
	var digests []digest.Digest
	for _, desc := range all {
		if err := b.Repo.Tag(t.Context(), desc, string(ociaddr.ReferrersTag(desc.Digest))); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, desc.Digest)
	}
	out := b.mustRemove(true, removal("1.0.0"))
	if got := out.Removed[0].Referrers; len(got) != 0 {
		t.Errorf("referrers: %+v", got)
	}
	if left := b.stored(digests); len(left) != 0 {
		t.Errorf("%v are left, tags %q", left, b.tags())
	}
}

// TestRemoveTagOfAnotherVersion shows that the hint about a tag that names another version, provider or module fits: a template cannot help
// if the repository is right.
func TestRemoveTagOfAnotherVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		request  reconcile.RemoveRequest
		store    func(b *bench) *artifact.Version
		template bool
	}{
		"another version": {removal("9.0.0"), func(b *bench) *artifact.Version { b.MustPush(); return b.Tagged() }, false},
		"another version of a module": {reconcile.RemoveRequest{Subject: pushbench.VPC, Version: provider.MustParseVersion("9.0.0")}, func(b *bench) *artifact.Version {
			b.MustPushModule(pushbench.ModulePackage(t, "2.0.0", "two"), pusher.Pushed)
			return b.StoredModule("2.0.0")
		}, false},
		"another kind": {reconcile.RemoveRequest{Subject: pushbench.VPC, Version: provider.MustParseVersion("9.0.0")}, func(b *bench) *artifact.Version { b.MustPush(); return b.Tagged() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if err := b.Repo.Tag(t.Context(), tc.store(b).Index, "9.0.0"); err != nil {
				t.Fatal(err)
			}
			plan, err := reconcile.NewRemover(b.Options, false).Plan(t.Context(), []reconcile.RemoveRequest{tc.request})
			if err != nil || len(plan.Failures) != 1 {
				t.Fatalf("%v, %+v", err, plan)
			}
			err = plan.Failures[0].Err
			help := hint.Of(err)
			if !errors.Is(err, repo.ErrOccupied) || errors.Is(err, artifact.ErrOtherVersion) == tc.template || strings.Contains(help, "template") != tc.template || !strings.Contains(help, "delete that tag with the registry's own tools") {
				t.Errorf("%v (%s)", err, help)
			}
		})
	}
}
