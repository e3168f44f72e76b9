package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

func TestSyncSelection(t *testing.T) {
	all := []string{"1.0.0", "1.1.0", "2.0.0-beta1", "2.0.0", "2.1.0", "3.0.0-rc1"}
	for _, tt := range []struct {
		name, constraint string
		latest           int
		prereleases      bool
		want             string
	}{
		{"constraint", "~> 1.0", 0, false, "+1.1.0 +1.0.0"},
		{"latest of all releases", "", 2, false, "+2.1.0 +2.0.0"},
		{"latest of the constraint", "< 2.1.0", 1, false, "+2.0.0"},
		{"prerelease by name", "2.0.0-beta1", 0, false, "+2.0.0-beta1"},
		{"prereleases", ">= 2.0.0-beta1", 0, true, "+3.0.0-rc1 +2.1.0 +2.0.0 +2.0.0-beta1"},
		{"prereleases below a bound are those of releases below it", "< 3.0.0", 0, true, "+2.1.0 +2.0.0 +2.0.0-beta1 +1.1.0 +1.0.0"},
		{"latest of all with prereleases", "", 1, true, "+3.0.0-rc1"},
		{"no version, as written", "< 0.0.0", 0, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newSyncBench(t, all...)
			b.want.Latest, b.want.Prereleases = tt.latest, tt.prereleases
			if tt.constraint != "" {
				b.constraint(tt.constraint)
			}
			b.Registry.Reset()
			_, plan := b.plan()
			if got := steps(plan); got != tt.want {
				t.Errorf("plan %q, want %q", got, tt.want)
			}
			if n := b.Registry.Count(recorder.Writes()); n > 0 {
				t.Errorf("a plan made %d writes", n)
			}
		})
	}
}

// TestSyncKeepsTheNewestPrerelease syncs prereleases that go-versions orders in another way than Semantic Versioning.
func TestSyncKeepsTheNewestPrerelease(t *testing.T) {
	b := newSyncBench(t, "1.0.0-alpha.1", "1.0.0-beta", "1.0.0-dev.20260101", "1.0.0-rc1")
	b.want.Prereleases = true
	b.mustSync("+1.0.0-rc1 +1.0.0-dev.20260101 +1.0.0-beta +1.0.0-alpha.1")
	b.want.Latest, b.options.Prune = 1, true
	b.mustSync("=1.0.0-rc1 -1.0.0-dev.20260101 -1.0.0-beta -1.0.0-alpha.1")
}

func TestSyncPlatforms(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	linux, darwin := provider.MustParsePlatform("linux_amd64"), provider.MustParsePlatform("darwin_arm64")
	b.want.Platforms = []provider.Platform{linux}
	b.mustSync("+1.0.0")
	b.want.Platforms = []provider.Platform{linux, darwin, provider.MustParsePlatform("plan9_amd64")}
	_, plan := b.plan()
	if s := plan.Steps[0]; s.Action != pusher.ActionAdd || !slices.Equal(s.Platforms, []provider.Platform{darwin}) || s.Size <= 0 {
		t.Errorf("step %+v", s)
	}
	b.mustSync("~1.0.0")
	b.mustSync("=1.0.0") // the origin offers nothing for plan9
	if got := b.TaggedPlatforms(); got != "darwin_arm64 linux_amd64" {
		t.Errorf("tagged: %s", got)
	}
	b.want.Platforms = nil
	b.mustSync("~1.0.0")
	b.mustSync("=1.0.0")
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("plan9_amd64")}
	b.offer("1.1.0")
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || len(out.Results) > 0 {
		t.Errorf("pushed %v, failures %v, %v", out.Results, out.Failures, err)
	}
}

// TestSyncThatSelectsNothing shows that a provider block that selects no version is a failure, and that a prune then
// removes nothing.
func TestSyncThatSelectsNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		offered, constraint string
		prereleases         bool
		platform            string
		want, hint          string // the failure; "": none
	}{
		"constraint":               {"1.0.0 1.1.0", "~> 11.0", false, "", `version not found: nothing matches versions = "~> 11.0"`, `the newest version is 1.1.0; a prerelease must be named exactly, unless prereleases = true is set. To want no version at all, write versions = "< 0.0.0"`},
		"conditions that conflict": {"1.0.0 1.1.0", "> 2, < 1", false, "", `nothing matches versions = "> 2, < 1"`, "the newest version is 1.1.0"},
		"prereleases wanted":       {"1.0.0 1.1.0", "> 2", true, "", `nothing matches versions = "> 2"`, "the newest version is 1.1.0. To want"},
		"only a prerelease":        {"1.0.0 2.0.0-rc1", "~> 2.0", false, "", `nothing matches versions = "~> 2.0"`, "the newest version is 2.0.0-rc1; a prerelease must be named exactly"},
		"prereleases alone":        {"1.0.0-rc1 1.0.0-rc2", "", false, "", "version not found: there are only prereleases", "prereleases = true in its provider block selects them; the newest is 1.0.0-rc2"},
		"platform":                 {"1.0.0 1.1.0", "", false, "linux_amd46", "platform not found: no selected version has a package for a platform of its provider block", "the newest selected version, 1.1.0, is offered for darwin_arm64, linux_amd64, windows_amd64"},
		"none offered":             {"", "", false, "", "version not found: its source offers none", "check the address, and from, of its provider block"},
		"no version, as written":   {"1.0.0 1.1.0", "< 0.0.0", false, "", "", ""},
		"no platform in some":      {"1.0.0 1.1.0", "", false, "linux_amd64", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSyncBench(t, strings.Fields(tt.offered)...)
			if b.want.Prereleases = true; tt.offered == "" {
				b.want.Source = offersNothing{b.want.Source}
			} else {
				b.sync() // all versions are stored
			}
			stored := len(strings.Fields(tt.offered))
			b.want.Prereleases, b.options.Prune, b.options.PruneLimit = tt.prereleases, true, 10
			if tt.constraint != "" {
				b.constraint(tt.constraint)
			}
			if tt.platform != "" {
				b.want.Platforms = []provider.Platform{provider.MustParsePlatform(tt.platform)}
			}
			_, out, err := b.sync()
			switch {
			case err != nil:
				t.Fatal(err)
			case tt.want == "" && len(out.Failures) > 0:
				t.Error(out.Failures)
			case tt.want == "":
			case len(out.Failures) != 1 || !strings.Contains(out.Failures[0].Err.Error(), tt.want) || !strings.Contains(hint.Of(out.Failures[0].Err), tt.hint):
				t.Errorf("failures %v, hint %q, want %s, hint %s", out.Failures, hint.Of(out.Failures[0].Err), tt.want, tt.hint)
			case stored > 0 && b.versions() != stored || len(out.Pruned) > 0:
				t.Errorf("%d of %d versions are left", b.versions(), stored)
			}
		})
	}
}

// offersNothing is a source with an empty list of versions.
type offersNothing struct{ origin.Source }

func (offersNothing) Versions(context.Context, provider.Address) (*origin.Listing, error) {
	return &origin.Listing{}, nil
}

// TestSyncWithNothingToDo shows that a sync that has nothing to do lists the tags once, and sends one HEAD for each
// version. It sends one request for the summary in the state. With a cooldown, it sends one more HEAD, for the ages in the
// state.
func TestSyncWithNothingToDo(t *testing.T) {
	var versions []string
	for i := range 40 {
		versions = append(versions, fmt.Sprintf("1.%d.0", i))
	}
	b := newSyncBench(t, versions...)
	b.want.Cooldown, b.want.Platforms = time.Hour, []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 || len(out.Results) != 40 {
		t.Fatalf("first sync: %v, %+v", err, out)
	}
	b.Registry.Reset()
	got, _, err := b.sync()
	if err != nil || strings.Count(got, "=") != 40 {
		t.Fatalf("%v, plan %q", err, got)
	}
	listings, heads, all := b.Registry.Count(recorder.PathSuffix("/tags/list")), b.Registry.Count(recorder.Method(http.MethodHead)), b.Registry.Count()
	if listings != 1 || heads != 41 || all != 43 {
		t.Errorf("%d listings, %d HEAD, %d requests in all", listings, heads, all)
	}
	b.want.Cooldown = 0
	b.Registry.Reset()
	if b.sync(); b.Registry.Count(recorder.Method(http.MethodHead)) != 40 || b.Registry.Count() != 42 {
		t.Errorf("%d requests without a cooldown", b.Registry.Count())
	}
	b.options.Prune = true
	b.Registry.Reset()
	if b.sync(); b.Registry.Count(recorder.Method(http.MethodHead)) != 41 || b.Registry.Count() != 43 {
		t.Errorf("%d requests with --prune", b.Registry.Count())
	}
	b.options.Prune = false
	b.want.Cooldown = time.Hour

	// With an empty cache, only the first concurrent requests send a HEAD. After the first cache miss, further requests
	// skip the HEAD.
	b.options.ManifestCache = t.TempDir()
	b.Registry.Reset()
	if got, _, err = b.sync(); err != nil || strings.Count(got, "=") != 40 {
		t.Fatalf("%v, plan %q", err, got)
	}
	if all := b.Registry.Count(); all > 1+40+4+2+1 { // reading the ages takes a HEAD and a GET
		t.Errorf("%d requests with an empty cache", all)
	}
	b.Registry.Reset()
	if b.sync(); b.Registry.Count() != 43 {
		t.Errorf("%d requests after that", b.Registry.Count())
	}
}

// TestSyncGoesOn shows that, if a version fails, the sync still pushes the other versions and prunes.
func TestSyncGoesOn(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
	b.constraint("1.0.0")
	b.mustSync("+1.0.0")
	b.constraint(">= 1.1")
	b.options.Prune = true
	b.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "1.2.0") && strings.HasSuffix(r.URL.Path, ".zip") && r.Method == http.MethodGet {
			fmt.Fprint(w, "something else")
			return true
		}
		return false
	})
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || out.Failures[0].Version.String() != "1.2.0" || len(out.Results) != 1 {
		t.Errorf("%v, %+v", err, out)
	}
	if got := b.tags(); got != "1.0.0 1.1.0" {
		t.Errorf("tags %q", got)
	}
}

// TestSyncBrokenOff interrupts a sync before each of its requests in turn. It shows that no tag then names an
// incomplete version, and that the next sync completes the version.
func TestSyncBrokenOff(t *testing.T) {
	testkit.LeaveToAll(t)
	for n := 1; ; n++ {
		b := newSyncBench(t, "1.0.0", "1.1.0")
		b.options.Prune = true
		b.want.Cooldown = time.Hour
		b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
		b.options.Push.Jobs = 1 // so that the nth request is always the same
		b.constraint("1.0.0")
		b.mustSync("+1.0.0")
		b.constraint(">= 1.1")
		reached := b.cutBefore(n)
		s := reconcile.NewSyncer(b.options)
		if plan, err := s.Plan(t.Context(), []reconcile.Want{b.want}); err == nil {
			s.Apply(t.Context(), plan, func(*pusher.Result) {})
		}
		b.Registry.Intercept(nil)
		for _, tag := range strings.Fields(b.tags()) {
			if _, ok := ociaddr.Tag(tag).Version(); !ok {
				continue
			}
			if missing := b.missing(tag); missing != "" {
				t.Fatalf("broken off before request %d: %s lacks %s", n, tag, missing)
			}
		}
		if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 || b.versionTags() != "1.1.0" {
			t.Fatalf("broken off before request %d: the next sync: %v, %+v, tags %q", n, err, out, b.tags())
		}
		b.now = b.now.Add(time.Hour) // the interrupted push counts as crashed
		if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 || b.tags() != "1.1.0" {
			t.Fatalf("broken off before request %d: an hour later: %v, %+v, tags %q", n, err, out, b.tags())
		}
		if !reached() {
			break
		}
	}
}
