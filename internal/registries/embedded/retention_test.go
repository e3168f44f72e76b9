package embedded_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/ociaddr"
)

const day = 24 * time.Hour

// retained is a registry with versions of the repository host/acme/a.
type retained struct {
	*testing.T
	*embedded.Registry
	dir  string
	repo gcRepo
}

func newRetained(t *testing.T) *retained {
	dir := t.TempDir()
	r := open(t, dir)
	return &retained{t, r, dir, gcRepository(t, r, "host/acme/a")}
}

// pull stores a version as pull-through does. The version was last used some days ago.
func (r *retained) pull(tag ociaddr.Tag, days int, layers ...string) digest.Digest {
	r.Helper()
	index := r.repo.index("", r.repo.manifest("", nil, layers...))
	if err := r.MarkPulled("host/acme/a", tag, "", index.Digest); err != nil {
		r.Fatal(err)
	}
	if err := r.repo.Tag(r.Context(), index, string(tag)); err != nil {
		r.Fatal(err)
	}
	r.age(tag, days)
	return index.Digest
}

func (r *retained) mark(tag ociaddr.Tag) string {
	return filepath.Join(r.dir, "pulled", "host", "acme", "a", string(tag))
}

func (r *retained) age(tag ociaddr.Tag, days int) {
	r.Helper()
	then := time.Now().Add(-time.Duration(days) * day)
	if err := os.Chtimes(r.mark(tag), then, then); err != nil {
		r.Fatal(err)
	}
}

func (r *retained) lastUsed(tag ociaddr.Tag) time.Time {
	r.Helper()
	info, err := os.Stat(r.mark(tag))
	if err != nil {
		r.Fatal(err)
	}
	return info.ModTime()
}

// remove removes the tag of an expired version.
func (r *retained) remove(_ context.Context, e embedded.Expired) error {
	return os.RemoveAll(storage(r.dir, "repositories", "host", "acme", "a", "_manifests", "tags", string(e.Tag)))
}

// collect runs GC and returns the tags that it has removed, and how many bytes that freed.
func (r *retained) collect(o embedded.Retention) (tags []ociaddr.Tag, bytes int64) {
	r.Helper()
	freed, err := r.GC(r.Context(), embedded.GCOptions{Retention: o, Remove: func(ctx context.Context, e embedded.Expired) error {
		tags = append(tags, e.Tag)
		return r.remove(ctx, e)
	}})
	if err != nil {
		r.Fatal(err)
	}
	return tags, freed.Bytes
}

// TestRetention shows which versions a retention removes, and that Garbage predicts them with their
// bytes.
func TestRetention(t *testing.T) {
	r := newRetained(t)
	r.pull("1.0.0", 100, "unused", "shared")
	r.pull("1.1.0", 10, "used", "shared")
	r.repo.index("2.0.0", r.repo.manifest("", nil, "pushed"))
	r.pull("2.1.0", 100, "pulled, and found in place by a sync")
	if err := r.MarkKept("host/acme/a", "2.1.0"); err != nil {
		t.Fatal(err)
	}
	r.pull("2.2.0", 100, "pulled, and completed by a push of an earlier release")
	r.repo.index("2.2.0", r.repo.manifest("", nil, "another"))
	r.age("2.2.0", 100)
	collect(t, r.Registry) // the index that 2.2.0 named before

	o := embedded.Retention{Unused: 90 * day}
	predicted, expired, err := r.Garbage(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(expired) != 1 || expired[0].Tag != "1.0.0" || expired[0].Reason != embedded.ReasonUnused || expired[0].Bytes != predicted.Bytes {
		t.Errorf("Garbage predicts %+v and %d B, want 1.0.0", expired, predicted.Bytes)
	}
	removed, freed := r.collect(o)
	if !slices.Equal(removed, []ociaddr.Tag{"1.0.0"}) || freed != predicted.Bytes || freed < int64(len("unused")) {
		t.Errorf("GC removes %v and frees %d B, want 1.0.0 and %d B", removed, freed, predicted.Bytes)
	}
	if _, err := os.Stat(r.mark("1.0.0")); err == nil {
		t.Error("the mark of a removed version stays")
	}
	if removed, freed := r.collect(embedded.Retention{Unused: 90 * day, MaxSize: 1}); !slices.Equal(removed, []ociaddr.Tag{"1.1.0"}) || freed == 0 {
		t.Errorf("with max_size, GC removes %v and frees %d B, want 1.1.0", removed, freed)
	}
	if removed, _ := r.collect(embedded.Retention{Unused: 1, MaxSize: 1}); len(removed) > 0 {
		t.Errorf("GC removes %v, which do not belong to pull-through", removed)
	}
}

// TestRetentionLooksAgain shows that GC keeps a version that is used, or found in place by a sync,
// after GC has selected it.
func TestRetentionLooksAgain(t *testing.T) {
	for name, event := range map[string]func(*retained) error{
		"used": func(r *retained) error { now := time.Now(); return os.Chtimes(r.mark("1.0.0"), now, now) },
		"kept": func(r *retained) error { return r.MarkKept("host/acme/a", "1.0.0") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetained(t)
			r.pull("1.0.0", 100, "package")
			r.SetBeforeFile(func(operation, _ string) {
				if operation == "expire" {
					if err := event(r); err != nil {
						t.Error(err)
					}
				}
			})
			if removed, freed := r.collect(embedded.Retention{Unused: 90 * day}); len(removed) > 0 || freed > 0 {
				t.Errorf("GC removes %v and frees %d B", removed, freed)
			}
		})
	}
}

// TestMarks shows to whom a version belongs after writers have stored it in turn.
func TestMarks(t *testing.T) {
	const tag = "1.0.0"
	a, b, c := digest.FromString("a"), digest.FromString("b"), digest.FromString("c")
	pull := func(before, after digest.Digest) func(*embedded.Registry) error {
		return func(r *embedded.Registry) error { return r.MarkPulled("host/acme/a", tag, before, after) }
	}
	keep := func(r *embedded.Registry) error { return r.MarkKept("host/acme/a", tag) }
	for name, tc := range map[string]struct {
		writes []func(*embedded.Registry) error
		want   string // the mark; "": there is none
	}{
		"pulled":                          {[]func(*embedded.Registry) error{pull("", a)}, string(a) + "\n"},
		"pulled and completed":            {[]func(*embedded.Registry) error{pull("", a), pull(a, b)}, string(a) + "\n" + string(b) + "\n"},
		"pulled twice":                    {[]func(*embedded.Registry) error{pull("", a), pull("", a), pull(a, a)}, string(a) + "\n"},
		"completes a push":                {[]func(*embedded.Registry) error{pull(a, b)}, ""},
		"completes a push of a pull":      {[]func(*embedded.Registry) error{pull("", a), pull(b, c)}, string(a) + "\n"},
		"kept":                            {[]func(*embedded.Registry) error{keep, keep}, "kept\n"},
		"pulled, then kept":               {[]func(*embedded.Registry) error{pull("", a), keep, pull(a, b)}, "kept\n"},
		"kept before the first tag":       {[]func(*embedded.Registry) error{keep, pull("", a)}, "kept\n"},
		"removed, and pulled once again":  {[]func(*embedded.Registry) error{pull("", a), pull("", b)}, string(a) + "\n" + string(b) + "\n"},
		"in place, found by pull-through": {[]func(*embedded.Registry) error{pull(a, a)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := open(t, dir)
			for _, write := range tc.writes {
				if err := write(r); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(filepath.Join(dir, "pulled", "host", "acme", "a", tag))
			if (err != nil) != (tc.want == "") || string(got) != tc.want {
				t.Errorf("the mark is %q, %v, want %q", got, err, tc.want)
			}
			if used := r.LastUsed("host/acme/a", tag); used.IsZero() != (tc.want == "" || tc.want == "kept\n") || time.Since(used) < 0 {
				t.Errorf("the mark is %q, and the last use at %v", got, used)
			}
		})
	}
}

// TestUsed shows that a use sets the time of a mark, at most once a day, and that reading a manifest
// by its tag is a use.
func TestUsed(t *testing.T) {
	for name, use := range map[string]func(*embedded.Registry){
		"archive": func(r *embedded.Registry) {
			r.Used("key", func() (string, ociaddr.Tag, error) { return "host/acme/a", "1.0.0", nil })
		},
		"manifest": func(r *embedded.Registry) {
			r.ReadOnly().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v2/host/acme/a/manifests/1.0.0", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRetained(t)
			r.pull("1.0.0", 100, "package")
			used := func() {
				second, err := embedded.Open(r.dir, nil)
				if err != nil {
					t.Fatal(err)
				}
				use(second)
				second.Close()
			}
			used()
			first := r.lastUsed("1.0.0")
			if time.Since(first) > time.Hour {
				t.Fatalf("after a use, the version was last used at %s", first)
			}
			r.age("1.0.0", 0)
			again := r.lastUsed("1.0.0")
			if used(); !r.lastUsed("1.0.0").Equal(again) {
				t.Error("a second use on the same day is recorded, too")
			}
			os.Remove(r.mark("1.0.0"))
			if used(); fileExists(r.mark("1.0.0")) {
				t.Error("the use of a version without a mark marks it")
			}
		})
	}
}

func fileExists(name string) bool { _, err := os.Stat(name); return err == nil }
