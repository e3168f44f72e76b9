package transfer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// called returns the address of the module called/NAME/aws.
func (b *moduleBench) called(name string) module.Address {
	return module.MustParseAddress(b.at + "/called/" + name + "/aws")
}

// callOf returns a module block that calls the module called/NAME/aws.
func (b *moduleBench) callOf(name, version string) string {
	return fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n}\n", name, b.called(name), version)
}

// synced is what a sync with --prune planned and did. Steps has the steps of the plan, such as "+called 1.0.0".
type synced struct {
	steps    string
	missing  []closure.Missing
	failures []reconcile.Failure
	warnings []string
}

// syncBlocks syncs module blocks.
func (b *moduleBench) syncBlocks(to *registry.Repositories, blocks ...config.Module) synced {
	b.t.Helper()
	return b.syncBlocksAnd(to, func() {}, blocks...)
}

// syncBlocksAnd syncs module blocks, and calls meanwhile between the plan and its execution.
func (b *moduleBench) syncBlocksAnd(to *registry.Repositories, meanwhile func(), blocks ...config.Module) (out synced) {
	b.t.Helper()
	c := &config.Config{Jobs: 2, Modules: blocks}
	wants := transfer.OpenWants(c, transfer.AllBlocks(c), b.registry, b.t.TempDir())
	defer wants.Close()
	syncer := reconcile.NewSyncer(reconcile.Options{
		Push: pusher.Options{Destination: transfer.Destination(to), Jobs: 2}, Prune: true, PruneLimit: 10, Closure: wants.Closure, KeepModules: wants.KeepModules,
	})
	plan, err := syncer.Plan(b.t.Context(), wants.Wants)
	if err != nil {
		b.t.Fatal(err)
	}
	var steps []string
	for _, s := range plan.Steps {
		mark := map[pusher.Action]string{pusher.ActionPush: "+", pusher.ActionKeep: "=", pusher.ActionPrune: "-"}[s.Action]
		steps = append(steps, mark+s.Subject.(module.Address).Name()+" "+s.Version.String())
	}
	meanwhile()
	done, err := syncer.Apply(b.t.Context(), plan, func(*pusher.Result) {})
	if err != nil {
		b.t.Fatal(err)
	}
	return synced{strings.Join(steps, ", "), wants.Closure.Missing, done.Failures, done.Warnings}
}

// TestClosureWithARefusedVersion shows that a version of a called module that is not stored and cannot be brought neither makes a
// prune remove the stored version that clients use, nor keeps an older one out of a new mirror.
func TestClosureWithARefusedVersion(t *testing.T) {
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12\n"
	for _, tt := range []struct {
		about    string
		location string // of the newest version
		twin     string
		err      error
		failed   bool // of the origin, and not refused
	}{
		{"denied", "git::https://HOST/denied/x", "", gitfiles.ErrDenied, true},
		{"no repository", "git::https://HOST/git/none", "", gitfiles.ErrNoRepository, true},
		{"a pointer of Git LFS", "git::https://HOST/git/lfs?ref=main", "", gitfiles.ErrRefused, false},
		{"an archive in a bucket", "s3::https://s3.amazonaws.com/acme/x.zip", "", moduleorigin.ErrLocation, false},
		{"twins", "git::https://HOST/git/called?ref=main", "git::https://HOST/git/lfs?ref=main", moduleorigin.ErrTwins, false},
		{"no tag", "git::https://HOST/git/called?ref=none", "", gitfiles.ErrNoRef, false},
	} {
		t.Run(tt.about, func(t *testing.T) {
			b := newModuleBench(t)
			b.git.Commit(t, "top", gitserver.Tree{"main.tf": b.callOf("called", "~> 1.0")})
			b.git.Commit(t, "called", gitserver.Tree{"main.tf": b.callOf("deep", "1.0.0")})
			b.git.Commit(t, "deep", gitserver.Tree{"main.tf": "# deep\n"})
			b.git.Commit(t, "lfs", gitserver.Tree{"main.tf": "# x\n", "x.bin": pointer, ".gitattributes": "*.bin filter=lfs\n"})
			for _, name := range []string{"top", "called", "deep"} {
				b.locations[name] = "git::https://HOST/git/" + name + "?ref=main"
			}
			b.locations["called 1.1.0"], b.locations["called 2.0.0"] = b.locations["called"], b.locations["called"]
			none, err := provider.ParseConstraint("< 0.0.0")
			if err != nil {
				t.Fatal(err)
			}
			two, err := provider.ParseConstraint("2.0.0")
			if err != nil {
				t.Fatal(err)
			}
			blocks := []config.Module{{Address: b.called("top"), Closure: true}, {Address: b.called("called"), Versions: two}, {Address: b.called("deep"), Versions: none}}
			to := b.repositories()
			if got := b.syncBlocks(to, blocks...); got.steps != "+top 1.0.0, +called 2.0.0, +called 1.1.0, +deep 1.0.0" || len(got.failures)+len(got.missing) > 0 {
				t.Fatalf("%+v", got)
			}

			b.locations["called 1.2.0"] = tt.location
			if tt.twin != "" {
				b.locations["called v1.2.0"] = tt.twin
			}
			check := func(about, steps, instead string, got synced) {
				t.Helper()
				if got.steps != steps {
					t.Errorf("%s: %s, want %s", about, got.steps, steps)
				}
				if len(got.missing) != 1 || !strings.Contains(got.missing[0].Reason, tt.err.Error()) || !strings.HasPrefix(got.missing[0].Reason, "1.2.0: ") || strings.HasSuffix(got.missing[0].Reason, "; clients get 1.1.0 instead") != (instead != "") {
					t.Errorf("%s: missing are %v", about, got.missing)
				}
				if tt.failed != (len(got.failures) == 1) || tt.failed && !errors.Is(got.failures[0].Err, tt.err) {
					t.Errorf("%s: failures %v", about, got.failures)
				}
			}
			check("stored", "=top 1.0.0, =called 2.0.0, =called 1.1.0, =deep 1.0.0", "1.1.0", b.syncBlocks(to, blocks...))
			if tt.failed {
				check("new", "+top 1.0.0, +called 2.0.0", "", b.syncBlocks(b.repositories(), blocks...))
				return
			}
			check("new", "+top 1.0.0, +called 2.0.0, +called 1.1.0, +deep 1.0.0", "1.1.0", b.syncBlocks(b.repositories(), blocks...))

			m := transfer.Modules{Origin: &moduleorigin.Origin{Registry: b.registry}, Requests: []query.Query[module.Address]{{Address: b.called("top")}}, Closure: true}
			progress := &missingOf{}
			results, err := m.Push(t.Context(), b.repositories(), pusher.Options{}, progress)
			if err != nil || len(results) != 3 || len(progress.missing) != 1 || !slices.ContainsFunc(results, func(r *transfer.PushedModule) bool {
				return r.Subject == b.called("called") && r.Version.String() == "1.1.0" && r.Status == pusher.Pushed
			}) {
				t.Errorf("push: %v, %+v, %v", err, results, progress.missing)
			}
		})
	}
}

// TestClosureOfARefusedCaller shows that a prune keeps what the stored version of a module calls if the version that its block
// selects cannot be stored, or was not.
func TestClosureOfARefusedCaller(t *testing.T) {
	b := newModuleBench(t)
	b.git.Commit(t, "top", gitserver.Tree{"main.tf": b.callOf("called", "1.0.0")})
	b.git.Commit(t, "called", gitserver.Tree{"main.tf": "# called\n"})
	for _, name := range []string{"top", "called"} {
		b.locations[name] = "git::https://HOST/git/" + name + "?ref=main"
	}
	b.locations["called 2.0.0"] = b.locations["called"]
	blocks := []config.Module{{Address: b.called("top"), Latest: 1, Closure: true}, {Address: b.called("called"), Latest: 1}}
	to := b.repositories()
	if got := b.syncBlocks(to, blocks...); got.steps != "+top 1.0.0, +called 2.0.0, +called 1.0.0" || len(got.failures) > 0 {
		t.Fatalf("%+v", got)
	}
	b.locations["top 1.1.0"] = "s3::https://s3.amazonaws.com/acme/x.zip"
	if got := b.syncBlocks(to, blocks...); strings.Contains(got.steps, "-") || len(got.failures) != 1 || !errors.Is(got.failures[0].Err, moduleorigin.ErrLocation) {
		t.Errorf("%+v", got)
	}
	b.locations["top 1.1.0"] = b.locations["called"]
	got := b.syncBlocksAnd(to, func() {
		b.locations["top 1.1.0"] = b.locations["top"]
		m := transfer.Modules{Origin: &moduleorigin.Origin{Registry: b.registry}, Requests: []query.Query[module.Address]{{Address: b.called("top")}}}
		if _, err := m.Push(t.Context(), to, pusher.Options{}, &missingOf{}); err != nil {
			t.Fatal(err)
		}
	}, blocks...)
	if got.steps != "+top 1.1.0, -top 1.0.0, =called 2.0.0, -called 1.0.0" || len(got.failures) != 1 || len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "not known") {
		t.Errorf("%+v", got)
	}
	if got = b.syncBlocks(to, config.Module{Address: b.called("called")}); got.steps != "=called 2.0.0, =called 1.0.0" {
		t.Errorf("left: %s", got.steps)
	}
}

// TestBlockClosureTooLarge shows that a closure that is too large is a failure of no single block: the versions that the blocks
// select are stored, and nothing is pruned.
func TestBlockClosureTooLarge(t *testing.T) {
	const deep = 34
	b := newModuleBench(t)
	tree := gitserver.Tree{}
	for i := range deep {
		name := fmt.Sprintf("m%d", i)
		tree[name+"/main.tf"] = b.callOf(fmt.Sprintf("m%d", i+1), "1.0.0")
		b.locations[name] = "git::https://HOST/git/all//" + name + "?ref=main"
	}
	b.git.Commit(t, "all", tree)
	b.locations["other"], b.locations["other 2.0.0"] = "git::https://HOST/git/all//m1?ref=main", "git::https://HOST/git/all//m1?ref=main"
	to := b.repositories()
	if got := b.syncBlocks(to, config.Module{Address: b.called("other")}); got.steps != "+other 2.0.0, +other 1.0.0" || len(got.failures) > 0 {
		t.Fatalf("%+v", got)
	}
	got := b.syncBlocks(to, config.Module{Address: b.called("m0"), Closure: true}, config.Module{Address: b.called("other"), Latest: 1})
	if got.steps != "+m0 1.0.0, =other 2.0.0" {
		t.Errorf("planned: %s", got.steps)
	}
	if len(got.failures) != 1 || got.failures[0].Subject != nil || !errors.Is(got.failures[0].Err, closure.ErrTooLarge) || !strings.Contains(hint.Of(got.failures[0].Err), "blocks") {
		t.Errorf("%v", got.failures)
	}
	if got = b.syncBlocks(to, config.Module{Address: b.called("m0")}); got.steps != "=m0 1.0.0" {
		t.Errorf("stored: %s", got.steps)
	}
}
