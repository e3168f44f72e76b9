package reconcile_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/trust"
)

// TestLatestAndPlatforms shows that a version does not count as one of the latest if it has no package for the wanted
// platforms.
func TestLatestAndPlatforms(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
	b.options.Prune = true
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	b.want.Latest = 2
	b.mustSync("+1.2.0 +1.1.0")
	without := b.Build("1.3.0", "content")
	without.Packages = slices.DeleteFunc(without.Packages, func(p release.Package) bool { return p.OS == "linux" })
	b.Origin.Add(without)
	b.mustSync("=1.2.0 =1.1.0")

	// If such a version is stored, the prune keeps the version.
	b.want.Platforms = nil
	b.mustSync("+1.3.0 ~1.2.0 -1.1.0")
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	b.mustSync("=1.3.0 =1.2.0 +1.1.0")
	b.mustSync("=1.3.0 =1.2.0 =1.1.0")
}

// beforeDelete makes the registry call do before the nth delete of a manifest by digest.
func (b *syncBench) beforeDelete(n int, do func()) {
	b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "sha256:") {
			if n--; n == 0 {
				b.Registry.Intercept(nil)
				do()
			}
		}
		return false
	})
}

// TestPruneHeldVersions shows that a prune continues if the registry refuses to remove the tag of one version for a
// reason that concerns only this version. The prune stops after any other refusal.
func TestPruneHeldVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		status         int
		body           string
		failed, pruned string
		hint           string
	}{
		"a conflict":                 {http.StatusConflict, `{"errors":[{"code":"DENIED","message":"kept"}]}`, "1.1.0", "1.2.0 1.0.0", "remove that reason and run it again"},
		"a lock":                     {http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"the tag is locked"}]}`, "1.1.0", "1.2.0 1.0.0", "remove that reason and run it again"},
		"no right":                   {http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}`, "0.0.0", "1.2.0", "must have that right"},
		"read-only mode, without it": {http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"The system is in read only mode."}]}`, "0.0.0", "1.2.0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0", "1.3.0")
			b.mustSync("+1.3.0 +1.2.0 +1.1.0 +1.0.0")
			b.constraint("1.3.0")
			b.options.Prune = true
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodDelete || !strings.HasSuffix(r.URL.Path, "/manifests/1.1.0") {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
				return true
			})
			_, out, err := b.sync()
			if err != nil || len(out.Failures) != 1 || len(out.Warnings) > 0 {
				t.Fatalf("%v, %+v", err, out)
			}
			failed := "0.0.0"
			if f := out.Failures[0]; !f.Version.IsZero() {
				failed = f.Version.String()
			}
			var pruned []string
			for _, step := range out.Pruned {
				pruned = append(pruned, step.Version.String())
			}
			if got := strings.Join(pruned, " "); failed != tc.failed || got != tc.pruned {
				t.Errorf("failed %s, pruned %s, want %s, %s", failed, got, tc.failed, tc.pruned)
			}
			if err := out.Failures[0].Err; !strings.Contains(err.Error(), "1.1.0") || !strings.Contains(hint.Of(err), tc.hint) || tc.hint == "" && hint.Of(err) != "" {
				t.Errorf("%v (%s)", err, hint.Of(err))
			}
			if b.missing("1.1.0") != "" || b.missing("1.3.0") != "" {
				t.Errorf("1.1.0 lacks %q, 1.3.0 lacks %q", b.missing("1.1.0"), b.missing("1.3.0"))
			}
		})
	}
}

// TestPruneBesidePush shows that, after a push and a prune of one version run concurrently, the tagged version lacks no
// manifest. The push relies on manifests that the prune might be about to delete.
func TestPruneBesidePush(t *testing.T) {
	for n := 1; ; n++ {
		b := newSyncBench(t, "1.0.0", "1.1.0")
		b.mustSync("+1.1.0 +1.0.0")
		b.constraint(">= 1.1")
		b.options.Prune = true
		reached, pushed := false, false
		b.beforeDelete(n, func() {
			reached = true
			_, err := b.Push()
			pushed = err == nil
		})
		_, out, err := b.sync()
		if err != nil || len(out.Failures) > 0 || len(out.Warnings) > 0 {
			t.Fatalf("delete %d: %v, %+v", n, err, out)
		}
		if !reached {
			if n < 5 {
				t.Errorf("%d deletes", n-1)
			}
			return
		}
		if tagged := strings.HasPrefix(b.tags(), "1.0.0 "); n == 2 && !pushed || tagged && b.missing("1.0.0") != "" {
			t.Errorf("delete %d: pushed %t, tags %q, 1.0.0 lacks %q", n, pushed, b.tags(), b.missing("1.0.0"))
		}
	}
}

// TestPruneBesidePushFails shows that, if a prune cannot restore the manifests that a concurrent push needs, the prune
// fails with a hint.
func TestPruneBesidePushFails(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	b.constraint(">= 1.1")
	b.options.Prune = true
	b.beforeDelete(2, func() {
		b.MustPush()
		b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				w.WriteHeader(http.StatusForbidden)
			}
			return r.Method == http.MethodPut
		})
	})
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || !strings.Contains(hint.Of(out.Failures[0].Err), "push --force") {
		t.Fatalf("%v, %+v", err, out)
	}
	b.Registry.Intercept(nil)
	b.bench.Options.Force = true
	if b.MustPush(); b.missing("1.0.0") != "" {
		t.Errorf("push --force leaves 1.0.0 without %s", b.missing("1.0.0"))
	}
}

// pushUnsigned pushes a version with unsigned checksums, like the push of a release from a mirror.
func (b *syncBench) pushUnsigned(version string) {
	b.T.Helper()
	listing, err := b.Client.Versions(b.T.Context(), pushbench.Widget)
	if err != nil {
		b.T.Fatal(err)
	}
	r, err := b.Client.Release(b.T.Context(), pushbench.Widget, listing, provider.MustParseVersion(version), nil)
	if err != nil {
		b.T.Fatal(err)
	}
	claims := trust.Claims{Provider: pushbench.Widget, Version: r.Version(), Hashes: map[string][]provider.Hash{}}
	for _, p := range b.Build(version, "content").Packages {
		h, err := provider.ParseHash("zh:" + p.SHA256)
		if err != nil {
			b.T.Fatal(err)
		}
		claims.Hashes[p.Filename] = []provider.Hash{h}
	}
	r.Claims, r.Origin = claims, "mirror folder"
	if _, err := pusher.New(b.options.Push).Push(b.T.Context(), r); err != nil {
		b.T.Fatal(err)
	}
}

// TestPruneLeavesSharedEvidence shows that a prune does not delete evidence that unsigned versions share, because a
// concurrent push might rely on it.
func TestPruneLeavesSharedEvidence(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.options.Push.Policy = pushbench.AllowUnsigned
	b.pushUnsigned("1.0.0")
	v, err := artifact.Read(t.Context(), b.Repo, pushbench.Widget, provider.MustParseVersion("1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	b.constraint(">= 1.1")
	b.options.Prune = true
	if out := b.mustSync("+1.1.0 -1.0.0"); len(out.Warnings) > 0 {
		t.Errorf("warnings %q", out.Warnings)
	}
	if ok, err := b.Repo.Exists(t.Context(), *v.Evidence); err != nil || !ok {
		t.Errorf("the evidence is gone: %v", err)
	}
	for _, p := range v.Packages {
		if ok, err := b.Repo.Exists(t.Context(), p.Manifest); err != nil || ok {
			t.Errorf("%s is left: %v", p.Platform, err)
		}
	}
}

// TestPruneWithoutAList shows that a prune deletes no manifest while the registry lists no tags.
func TestPruneWithoutAList(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	desc, err := b.Repo.Resolve(t.Context(), "1.0.0")
	if err == nil {
		err = b.Repo.Tag(t.Context(), desc, "stable")
	}
	if err != nil {
		t.Fatal(err)
	}
	b.constraint(">= 1.1")
	b.options.Prune = true
	s, plan := b.plan()
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	out, err := s.Apply(t.Context(), plan, func(*pusher.Result) {})
	if err != nil || len(out.Failures) > 0 || len(out.Pruned) != 1 || len(out.Warnings) != 1 {
		t.Errorf("%v, %+v", err, out)
	}
	b.Registry.Intercept(nil)
	if _, err := b.Repo.Resolve(t.Context(), "stable"); err != nil {
		t.Errorf("stable: %v", err)
	}
}

// TestMessagesNameTags shows that a message about a stored version with build metadata names the version's tag.
func TestMessagesNameTags(t *testing.T) {
	b := newSyncBench(t, "1.0.0+b")
	b.mustSync("+1.0.0+b")
	b.options.Served = func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error) {
		return nil, reconcile.ErrNotServed
	}
	_, plan := b.plan()
	if len(plan.Failures) != 1 || !strings.Contains(plan.Failures[0].Err.Error(), "registry.test/acme/widget:1.0.0_b: ") || !strings.Contains(hint.Of(plan.Failures[0].Err), "@1.0.0+b") {
		t.Errorf("failures %v", plan.Failures)
	}
}

// TestPruneTwice shows that, if another sync has pruned a version since the plan was made, a prune continues with the
// other versions.
func TestPruneTwice(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0", "1.3.0")
	b.mustSync("+1.3.0 +1.2.0 +1.1.0 +1.0.0")
	b.options.Prune = true
	b.constraint(">= 1.3")
	s, slow := b.plan()
	b.constraint(">= 1.0, != 1.1.0")
	b.mustSync("=1.3.0 =1.2.0 -1.1.0 =1.0.0")
	out, err := s.Apply(t.Context(), slow, func(*pusher.Result) {})
	if err != nil || len(out.Failures) > 0 || len(out.Pruned) != 2 || b.tags() != "1.3.0" {
		t.Errorf("%v, %+v, tags %q", err, out, b.tags())
	}
}

// TestPruneBrokenOff shows that, if a prune cannot remove the tag of a version, it still deletes the manifests of the
// versions whose tags it has removed. No later sync would find these manifests.
func TestPruneBrokenOff(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0", "1.3.0")
	b.mustSync("+1.3.0 +1.2.0 +1.1.0 +1.0.0")
	gone, err := artifact.Read(t.Context(), b.Repo, pushbench.Widget, provider.MustParseVersion("1.2.0"))
	if err != nil {
		t.Fatal(err)
	}
	b.constraint(">= 1.3")
	b.options.Prune = true
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/1.1.0") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || len(out.Pruned) != 1 || b.tags() != "1.0.0 1.1.0 1.3.0" {
		t.Errorf("%v, %+v, tags %q", err, out, b.tags())
	}
	if _, err := b.Repo.Resolve(t.Context(), gone.Index.Digest.String()); !errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("the index of 1.2.0: %v", err)
	}
	if n := b.Registry.Count(recorder.Method(http.MethodDelete)); n != 8 {
		t.Errorf("%d deletes, want those of two tags, an index, three packages, evidence and a probe", n)
	}
	if missing := b.missing("1.1.0") + b.missing("1.0.0"); missing != "" {
		t.Errorf("missing: %s", missing)
	}
}
