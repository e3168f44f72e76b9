package reconcile_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// removeModule plans and carries out the removal of version 1.0.0 of the module.
func (b *bench) removeModule(referrers bool) (*reconcile.RemovePlan, *reconcile.RemoveOutcome) {
	b.T.Helper()
	r := reconcile.NewRemover(b.Options, referrers)
	b.Registry.Reset()
	plan, err := r.Plan(b.T.Context(), []reconcile.RemoveRequest{{Subject: pushbench.VPC, Version: provider.MustParseVersion("1.0.0")}})
	if err != nil {
		b.T.Fatal(err)
	}
	if n := b.Registry.Count(recorder.Writes()); n != 0 {
		b.T.Errorf("the plan has sent %d writes", n)
	}
	out, err := r.Apply(b.T.Context(), plan)
	if err != nil {
		b.T.Fatal(err)
	}
	return plan, out
}

func (b *bench) moduleTags() (out []string) {
	b.T.Helper()
	if err := b.Repo.Tags(b.T.Context(), "", func(tags []string) error { out = append(out, tags...); return nil }); err != nil && !errors.Is(err, errdef.ErrNotFound) {
		b.T.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// TestRemoveModule shows that both tags of a version are removed, with its manifest and, on
// request, its referrers. Content that another tag names stays.
func TestRemoveModule(t *testing.T) {
	for name, tc := range map[string]struct {
		referrers, latest bool
	}{
		"with referrers": {referrers: true}, "without referrers": {}, "another tag": {referrers: true, latest: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "one"), pusher.Pushed)
			b.MustPushModule(pushbench.ModulePackage(t, "2.0.0", "two"), pusher.Pushed)
			m := b.StoredModule("1.0.0")
			sbom := b.AttachTo(m.Index, "sbom")
			want := []string{"2.0.0"}
			tags := []string{"v1.0.0"}
			if tc.latest {
				tags, want = append(tags, "latest"), append(want, "latest")
			}
			for _, tag := range tags {
				if err := b.Repo.Tag(t.Context(), m.Index, tag); err != nil {
					t.Fatal(err)
				}
			}
			plan, out := b.removeModule(tc.referrers)
			if len(out.Failures) > 0 || len(plan.Removals) != 1 || len(out.Removed) != 1 {
				t.Fatalf("%+v, %+v", plan, out)
			}
			r := plan.Removals[0]
			if !slices.Equal(r.Tags, []ociaddr.Tag{"1.0.0", "v1.0.0"}) || r.Digest != m.Index.Digest || len(r.Referrers) != 1 || r.Referrers[0].Digest != sbom.Digest || r.Size != m.Zip().Size {
				t.Errorf("%+v", r)
			}
			free := m.Zip().Size
			if tc.latest {
				free = 0
			}
			if plan.Freeable() != free || out.Freeable != free {
				t.Errorf("freeable: planned %d, then %d, want %d", plan.Freeable(), out.Freeable, free)
			}
			slices.Sort(want)
			got := slices.DeleteFunc(b.moduleTags(), func(tag string) bool { _, ok := ociaddr.Tag(tag).Subject(); return ok })
			if !slices.Equal(got, want) {
				t.Errorf("tags %q, want %q", got, want)
			}
			if there, err := b.Repo.Exists(t.Context(), m.Index); err != nil || there != tc.latest {
				t.Errorf("the manifest is there: %v, %v", there, err)
			}
			if there, err := b.Repo.Exists(t.Context(), sbom); err != nil || there != (tc.latest || !tc.referrers) {
				t.Errorf("the referrer is there: %v, %v", there, err)
			}
		})
	}
}

// TestRemoveLastModule shows that the state of a repository goes with the last version of a module, and with the manifests that it
// notes, unless a sync with a cooldown needs it.
func TestRemoveLastModule(t *testing.T) {
	for _, cooldown := range []bool{false, true} {
		b, o := newModuleBench(t, "1.0.0")
		if cooldown {
			b.want.Cooldown = time.Hour
		}
		b.mustSync("+1.0.0")
		first := b.StoredModule("1.0.0").Index
		b.Options.Force = true
		o.commits["1.0.0"] = "2"
		b.MustPushModule(o.fetched(provider.MustParseVersion("1.0.0")), pusher.Replaced)
		if _, out := b.removeModule(false); len(out.Failures) > 0 || len(out.Removed) != 1 || len(out.Warnings) > 0 {
			t.Fatalf("%+v", out)
		}
		want := []string(nil)
		if cooldown {
			want = []string{string(ociaddr.StateTag)}
		}
		if got := b.moduleTags(); !slices.Equal(got, want) {
			t.Errorf("tags %q, want %q", got, want)
		}
		if there, err := b.Repo.Exists(t.Context(), first); err != nil || there != cooldown {
			t.Errorf("the replaced manifest is there: %v, %v", there, err)
		}
	}
}

// TestRemoveModuleRefused shows that a registry that keeps an immutable tag makes the removal
// fail, and that the version stays.
func TestRemoveModuleRefused(t *testing.T) {
	b := newBench(t)
	b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "one"), pusher.Pushed)
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		w.Write([]byte(`{"errors":[{"code":"PRECONDITION","message":"configured as immutable"}]}`))
		return true
	})
	_, out := b.removeModule(false)
	if len(out.Failures) != 1 || out.Failures[0].Subject != pushbench.VPC || !errors.As(out.Failures[0].Err, new(*repo.RegistryError)) {
		t.Fatalf("%+v", out)
	}
	b.StoredModule("1.0.0")
}
