package reconcile_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

func TestPrune(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
	b.mustSync("+1.2.0 +1.1.0 +1.0.0")
	b.constraint(">= 1.1")
	_, plan := b.plan()
	if plan.Unasked != 1 || steps(plan) != "=1.2.0 =1.1.0" {
		t.Errorf("without prune: %d unasked, plan %q", plan.Unasked, steps(plan))
	}
	b.options.Prune = true
	b.Registry.Reset()
	out := b.mustSync("=1.2.0 =1.1.0 -1.0.0")
	if got := b.tags(); got != "1.1.0 1.2.0" || len(out.Pruned) != 1 || len(out.Warnings) != 0 {
		t.Errorf("tags %q, pruned %v, warnings %v", got, out.Pruned, out.Warnings)
	}
	deletes := b.Registry.Requests(recorder.Method(http.MethodDelete))
	if len(deletes) != 7 || !strings.HasSuffix(deletes[0].Path, "/manifests/1.0.0") || !strings.Contains(deletes[1].Path, "sha256:") {
		t.Errorf("deletes %+v, want the tag, then the index, then three packages, the evidence and a probe", deletes)
	}
	b.mustSync("=1.2.0 =1.1.0")
	for _, v := range []string{"1.1.0", "1.2.0"} {
		if missing := b.missing(v); missing != "" {
			t.Errorf("%s lost %s", v, missing)
		}
	}
}

// missing returns the digest of a part of a version that no longer exists, or "" if the version is complete.
func (b *syncBench) missing(version string) string {
	b.T.Helper()
	v, err := artifact.Read(b.T.Context(), b.Repo, pushbench.Widget, provider.MustParseVersion(version))
	if err != nil {
		return err.Error()
	}
	parts := []ocispec.Descriptor{*v.Evidence}
	for _, p := range v.Packages {
		parts = append(parts, p.Manifest, p.Layer())
	}
	for _, d := range parts {
		if ok, err := b.Repo.Exists(b.T.Context(), d); err != nil || !ok {
			return d.Digest.String()
		}
	}
	return ""
}

// TestSourceCausesNoPrune shows that a prune removes no version if the source fails, or if it lists fewer versions
// than before.
func TestSourceCausesNoPrune(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.options.Prune = true
	b.mustSync("+1.1.0 +1.0.0")
	b.Origin.Remove("acme", "widget", "1.0.0")
	b.mustSync("=1.1.0 =1.0.0")
	b.constraint(">= 1.1")
	b.Origin.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	if got, out, err := b.sync(); err != nil || len(out.Failures) != 1 || got != "" {
		t.Errorf("plan %q, %+v, %v", got, out, err)
	}
	if got := b.tags(); got != "1.0.0 1.1.0" {
		t.Errorf("tags %q", got)
	}
	b.Origin.Intercept(nil)
	b.want.Keep = true
	b.mustSync("=1.1.0")
	if got := b.tags(); got != "1.0.0 1.1.0" {
		t.Errorf("the prune removed versions although pull-through writes the repository: tags %q", got)
	}
}

func TestPruneLimit(t *testing.T) {
	var versions []string
	for i := range 12 {
		versions = append(versions, fmt.Sprintf("1.%d.0", i))
	}
	b := newSyncBench(t, versions...)
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	if _, out, err := b.sync(); err != nil || len(out.Failures) > 0 {
		t.Fatal(err, out)
	}
	b.options.Prune = true
	for _, tt := range []struct {
		constraint string
		limit      int
		left       int
		hint       string
	}{
		{">= 1.11", 0, 12, "--prune-limit 11"},
		{">= 1.11", 10, 12, "--prune-limit 11"},
		{"< 0.0.0", 0, 12, "--prune-limit 12"},
		{">= 1.10", 0, 2, ""},
		{"< 0.0.0", 0, 2, "--prune-limit 2"},
		{"< 0.0.0", 1, 2, "--prune-limit 2"},
		{"< 0.0.0", 2, 0, ""},
	} {
		b.constraint(tt.constraint)
		b.options.PruneLimit = tt.limit
		_, _, err := b.sync()
		if tt.hint != "" && (!errors.Is(err, reconcile.ErrPruneLimit) || !strings.Contains(hint.Of(err), tt.hint)) || tt.hint == "" && err != nil {
			t.Errorf("%s with limit %d: %v, hint %q", tt.constraint, tt.limit, err, hint.Of(err))
		}
		if n := b.versions(); n != tt.left {
			t.Errorf("%s with limit %d: %d versions left, want %d", tt.constraint, tt.limit, n, tt.left)
		}
	}
}

// TestPruneLeavesWhatIsNamed shows that a prune does not delete manifests that other tags name, directly or through an
// index.
func TestPruneLeavesWhatIsNamed(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	desc, err := b.Repo.Resolve(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Repo.Tag(t.Context(), desc, "stable"); err != nil {
		t.Fatal(err)
	}
	b.options.Prune = true
	b.constraint(">= 1.1")
	b.Registry.Reset()
	b.mustSync("=1.1.0 -1.0.0")
	if n := b.Registry.Count(recorder.Method(http.MethodDelete)); n != 1 || b.tags() != "1.1.0 stable" {
		t.Errorf("%d deletes, tags %q", n, b.tags())
	}
}

// TestPruneByDigest shows that, if a registry deletes only by digest, a prune deletes a tag together with its index.
// If another tag names the index, the prune deletes neither.
func TestPruneByDigest(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || strings.Contains(r.URL.Path, "sha256:") {
			return false
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	})
	b.options.Prune = true
	b.constraint(">= 1.1")
	desc, err := b.Repo.Resolve(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Repo.Tag(t.Context(), desc, "stable"); err != nil {
		t.Fatal(err)
	}
	if _, out, err := b.sync(); err != nil || len(out.Failures) != 1 || b.tags() != "1.0.0 1.1.0 stable" {
		t.Fatalf("%v, %+v, tags %q", err, out, b.tags())
	}
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || strings.Contains(r.URL.Path, "sha256:") || strings.HasSuffix(r.URL.Path, "/stable") {
			return false
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	})
	if err := (registry.Repository{Repository: b.Repo}).Untag(t.Context(), "stable"); err != nil {
		t.Fatal(err)
	}
	if got, out, err := b.sync(); err != nil || len(out.Failures) != 0 || b.tags() != "1.1.0" {
		t.Errorf("%v, plan %q, %+v, tags %q", err, got, out, b.tags())
	}
}

// TestPruneRefused shows that a prune changes nothing and fails with a clear error if the registry allows no deletes.
func TestPruneRefused(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return r.Method == http.MethodDelete
	})
	b.options.Prune = true
	b.constraint(">= 1.1")
	_, out, err := b.sync()
	if err != nil || len(out.Failures) != 1 || len(out.Pruned) > 0 || !strings.Contains(hint.Of(out.Failures[0].Err), "allow deletes") || b.tags() != "1.0.0 1.1.0" {
		t.Errorf("%v, %+v, tags %q", err, out, b.tags())
	}
}
