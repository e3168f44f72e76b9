package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// moduleOrigin is the origin of a module. It maps versions to commits of 40 equal digits.
type moduleOrigin struct {
	t       *testing.T
	commits map[string]string
	gone    bool
}

func (o *moduleOrigin) Versions(context.Context, module.Address) (*origin.ModuleListing, error) {
	if o.gone {
		return nil, errors.New("the origin is gone")
	}
	l := &origin.ModuleListing{}
	for _, v := range slices.Sorted(maps.Keys(o.commits)) {
		l.Versions = append(l.Versions, provider.MustParseVersion(v))
	}
	return l, nil
}

func (o *moduleOrigin) fetched(v provider.Version) pushbench.Module {
	out := pushbench.ModulePackage(o.t, v.String(), v.String()+o.commits[v.String()])
	out.Revision = strings.Repeat(o.commits[v.String()], 40)
	out.Source = artifact.Provenance{Location: "git::https://git.acme.example/vpc?ref=v" + v.String()}
	return out
}

func (o *moduleOrigin) Check(ctx context.Context, v reconcile.ModuleVersion, stored *artifact.Version) error {
	m := o.fetched(v.Version)
	if stored == nil {
		return nil
	}
	_, err := v.Pusher.PlanZip(ctx, v.Destination, m.Stored(), m.Open)
	return err
}

func (o *moduleOrigin) Push(ctx context.Context, v reconcile.ModuleVersion) (*pusher.Result, error) {
	m := o.fetched(v.Version)
	return v.Pusher.PushZip(ctx, v.Destination, m.Stored(), m.Open)
}

// newModuleBench returns a bench whose want is a module with versions at the commit 1.
func newModuleBench(t *testing.T, versions ...string) (*syncBench, *moduleOrigin) {
	b := newSyncBench(t)
	o := &moduleOrigin{t: t, commits: map[string]string{}}
	for _, v := range versions {
		o.commits[v] = "1"
	}
	b.want = reconcile.Want{Subject: pushbench.VPC, Modules: o}
	return b, o
}

// TestSyncModules shows that a sync stores, keeps and prunes versions of a module, and that a second sync writes nothing.
func TestSyncModules(t *testing.T) {
	b, o := newModuleBench(t, "1.0.0", "1.1.0", "2.0.0-rc1", "2.0.0")
	b.want.Latest = 2
	out := b.mustSync("+2.0.0 +1.1.0")
	if len(out.Results) != 2 || out.Results[0].Revision != strings.Repeat("1", 40) {
		t.Errorf("%+v", out.Results)
	}
	b.Registry.Reset()
	b.mustSync("=2.0.0 =1.1.0")
	if n := b.Registry.Count(recorder.Writes()); n > 0 {
		t.Errorf("a second sync made %d writes", n)
	}
	b.want.Prereleases = true
	b.mustSync("=2.0.0 +2.0.0-rc1")
	b.options.Prune = true
	if out = b.mustSync("=2.0.0 =2.0.0-rc1 -1.1.0"); len(out.Pruned) != 1 || out.Freeable == 0 || b.tags() != "2.0.0 2.0.0-rc1" {
		t.Errorf("pruned %v, %d bytes, left %s", out.Pruned, out.Freeable, b.tags())
	}
	// A version that the origin no longer lists stays. An origin that fails prunes nothing.
	delete(o.commits, "2.0.0-rc1")
	b.mustSync("=2.0.0 =2.0.0-rc1")
	b.constraint("< 1.1")
	o.gone = true
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || b.tags() != "2.0.0 2.0.0-rc1" {
		t.Errorf("%v, %v, left %s", out.Failures, err, b.tags())
	}
	o.gone = false
	b.constraint("> 3.0")
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || !strings.Contains(out.Failures[0].Err.Error(), `nothing matches versions = "> 3.0" of its module block`) {
		t.Errorf("%v, %v", out.Failures, err)
	}
}

// TestSyncOfAMovedModule shows that a version whose commit has changed is a failure, and that the stored version stays. No version
// of its module is then pruned. After a forced push, a prune deletes the replaced manifest.
func TestSyncOfAMovedModule(t *testing.T) {
	b, o := newModuleBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	first := b.StoredModule("1.1.0").Index
	o.commits["1.1.0"] = "2"
	b.options.Prune, b.options.PruneLimit = true, 5
	b.constraint("~> 1.1")
	b.Registry.Reset()
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || !errors.Is(out.Failures[0].Err, pusher.ErrMoved) || out.Failures[0].Version.String() != "1.1.0" || hint.Of(out.Failures[0].Err) == "" {
		t.Errorf("%v, %v", out.Failures, err)
	}
	if n := b.Registry.Count(recorder.Writes()); n > 0 || b.tags() != "1.0.0 1.1.0" || b.StoredModule("1.1.0").Index.Digest != first.Digest {
		t.Errorf("%d writes, tags %s", n, b.tags())
	}
	b.Options.Force = true
	b.MustPushModule(o.fetched(provider.MustParseVersion("1.1.0")), pusher.Replaced)
	b.mustSync("=1.1.0 -1.0.0")
	if ok, err := b.Repo.Exists(t.Context(), first); ok || err != nil || b.tags() != "1.1.0" {
		t.Errorf("the replaced manifest exists: %v, %v; tags %s", ok, err, b.tags())
	}
}

// TestPruneOfTagsWithAV shows that a prune removes both tags of a version, that the tag of another version may begin with a v, and
// that the state with the times of the first fetches stays.
func TestPruneOfTagsWithAV(t *testing.T) {
	for _, deletesTags := range []bool{true, false} {
		t.Run(fmt.Sprintf("deletes tags %v", deletesTags), func(t *testing.T) {
			b, _ := newModuleBench(t, "1.0.0", "1.1.0")
			b.mustSync("+1.1.0 +1.0.0")
			for v, tag := range map[string]string{"1.0.0": "v1.0.0", "1.1.0": "v1.1.0"} {
				if err := b.Repo.Tag(t.Context(), b.StoredModule(v).Index, tag); err != nil {
					t.Fatal(err)
				}
			}
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if deletesTags || r.Method != http.MethodDelete || strings.Contains(r.URL.Path, "sha256:") {
					return false
				}
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"errors":[{"code":"UNSUPPORTED"}]}`)
				return true
			})
			b.options.Prune, b.options.PruneLimit = true, 5
			b.constraint("1.1.0")
			if out := b.mustSync("=1.1.0 -1.0.0"); len(out.Pruned) != 1 || b.tags() != "1.1.0 v1.1.0" {
				t.Errorf("pruned %v, left %s", out.Pruned, b.tags())
			}
			b.constraint("< 0.0.0")
			if out := b.mustSync("-1.1.0"); len(out.Pruned) != 1 || b.tags() != "" {
				t.Errorf("pruned %v, left %s", out.Pruned, b.tags())
			}
			state, _, err := artifact.ReadState(t.Context(), b.Repo, pushbench.VPC)
			if err != nil || len(state.Seen) != 2 {
				t.Errorf("%+v, %v", state, err)
			}
		})
	}
}

// TestModuleCooldown shows that the age of a version counts from the first sync that saw it, or from the first fetch by a push, on
// every machine.
func TestModuleCooldown(t *testing.T) {
	b, o := newModuleBench(t, "1.0.0")
	b.want.Cooldown = time.Hour
	b.mustSync("+1.0.0")
	o.commits["1.1.0"], o.commits["1.2.0"] = "1", "1"
	b.mustSync(".1.2.0 .1.1.0 =1.0.0")
	// A push does not wait. Its version stays when it is wanted by sync.
	b.Options.Now = func() time.Time { return b.now }
	b.MustPushModule(o.fetched(provider.MustParseVersion("1.1.0")), pusher.Pushed)
	b.now = b.now.Add(30 * time.Minute)
	b.options.ManifestCache = t.TempDir() // another machine
	if _, plan := b.plan(); steps(plan) != ".1.2.0 =1.1.0 =1.0.0" || !plan.Steps[0].Until.Equal(b.now.Add(30*time.Minute)) {
		t.Errorf("%s, %+v", steps(plan), plan.Steps[0])
	}
	b.now = b.now.Add(30 * time.Minute)
	b.mustSync("+1.2.0 =1.1.0 =1.0.0")
	// A repository that a push has filled needs --first.
	b, o = newModuleBench(t, "1.0.0")
	b.MustPushModule(o.fetched(provider.MustParseVersion("1.0.0")), pusher.Pushed)
	b.want.Cooldown = time.Hour
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || !errors.Is(out.Failures[0].Err, reconcile.ErrNoAges) {
		t.Errorf("%v, %v", out.Failures, err)
	}
	b.options.First = true
	b.mustSync("=1.0.0")
}
