package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// described returns the versions in the stored summary, oldest first.
func (b *bench) described() string {
	b.T.Helper()
	s := b.State()
	if s == nil {
		return ""
	}
	var versions []provider.Version
	for v := range s.Summary {
		versions = append(versions, v)
	}
	provider.SortVersions(versions)
	var out []string
	for _, v := range versions {
		out = append(out, v.String())
	}
	return strings.Join(out, " ")
}

// run pushes versions with one Pusher, as one command does.
func (b *bench) run(versions ...string) error {
	b.T.Helper()
	p := pusher.New(b.Options)
	for _, v := range versions {
		b.Release = b.Build(v, "content")
		b.Origin.Add(b.Release)
		r, err := b.Get()
		if err == nil {
			_, err = p.Push(b.T.Context(), r)
		}
		if err != nil {
			b.T.Fatal(err)
		}
	}
	b.Registry.Reset()
	return p.Summarize(b.T.Context())
}

// TestSummarize shows that a run of pushes adds its versions to the summary in one document, and that a run that
// changes nothing sends one request.
func TestSummarize(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct {
		name     string
		versions []string
		requests int
		want     string
	}{
		{"the first run", []string{"1.0.0", "1.1.0"}, 7, "1.0.0 1.1.0"},
		{"a later run", []string{"1.2.0", "1.3.0", "1.4.0"}, 3, "1.0.0 1.1.0 1.2.0 1.3.0 1.4.0"},
		{"a run with nothing to do", []string{"1.0.0", "1.4.0"}, 1, "1.0.0 1.1.0 1.2.0 1.3.0 1.4.0"},
		{"a run without versions", nil, 0, "1.0.0 1.1.0 1.2.0 1.3.0 1.4.0"},
	} {
		if err := b.run(tc.versions...); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if n := b.Registry.Count(); n != tc.requests || b.described() != tc.want {
			t.Errorf("%s: %d requests, want %d; summary %q, want %q", tc.name, n, tc.requests, b.described(), tc.want)
		}
	}
	got := b.State().Summary[pushbench.One]
	if got.Index != b.Tagged().Index.Digest || fmt.Sprint(got.Platforms) != "["+pushbench.AllPlatforms+"]" || got.Verdict != trust.Signed {
		t.Errorf("the summary says %+v", got)
	}
}

// TestSummarizeAMovedTag shows that, if a state describes a version otherwise, the tag decides which description is
// right. A push that was overtaken does not overwrite the description of the other push.
func TestSummarizeAMovedTag(t *testing.T) {
	other := func(text string) artifact.VersionSummary {
		return artifact.VersionSummary{Index: digest.FromString(text), Verdict: trust.Signed}
	}
	for _, tc := range []struct {
		name         string
		stored, mine func(tagged digest.Digest) artifact.VersionSummary
		want         string
	}{
		{
			"the tag names mine",
			func(digest.Digest) artifact.VersionSummary { return other("old") },
			func(tagged digest.Digest) artifact.VersionSummary {
				return artifact.VersionSummary{Index: tagged, Verdict: trust.ChecksumOnly}
			},
			"checksum only",
		},
		{
			"the tag names the other",
			func(tagged digest.Digest) artifact.VersionSummary {
				return artifact.VersionSummary{Index: tagged, Verdict: trust.ChecksumOnly}
			},
			func(digest.Digest) artifact.VersionSummary { return other("mine") },
			"checksum only",
		},
		{
			"the tag names neither",
			func(digest.Digest) artifact.VersionSummary { return other("old") },
			func(digest.Digest) artifact.VersionSummary { return other("mine") },
			"",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.MustPush()
			tagged := b.Tagged().Index.Digest
			b.MustRemember(repo.StateChange{Summary: artifact.Summary{pushbench.One: tc.stored(tagged)}})
			b.MustRemember(repo.StateChange{Summary: artifact.Summary{pushbench.One: tc.mine(tagged)}})
			if got := b.State().Summary[pushbench.One].Verdict; string(got) != tc.want {
				t.Errorf("verdict %q, want %q: %+v", got, tc.want, b.State().Summary)
			}
		})
	}
}

// TestSummarizeTogether shows that runs that overlap end, and that each leaves a summary of versions that are stored.
func TestSummarizeTogether(t *testing.T) {
	b := newBench(t)
	b.MustPush("linux_amd64")
	before := b.Tagged()
	b.MustPush()
	errs := make(chan error)
	for range 4 {
		for _, version := range []*artifact.Version{before, b.Tagged()} {
			described, ok := version.Summary()
			if !ok {
				t.Fatal("the version cannot be summarized")
			}
			go func() {
				errs <- b.Remember(repo.StateChange{Summary: artifact.Summary{pushbench.One: described}})
			}()
		}
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// A run can still lose its update. The next run repairs that.
	current, _ := b.Tagged().Summary()
	b.MustRemember(repo.StateChange{Summary: artifact.Summary{pushbench.One: current}})
	if got := b.State().Summary[pushbench.One].Index; got != b.Tagged().Index.Digest {
		t.Errorf("the summary has %s, the tag %s", got, b.Tagged().Index.Digest)
	}
}

// TestSummarizeADamagedSummary shows that a run replaces a summary that cannot be read, and keeps the ages.
func TestSummarizeADamagedSummary(t *testing.T) {
	b := newBench(t)
	b.MustRemember(pushbench.SawAt(time.Unix(0, 0), "0.9.0"))
	b.PushManifest(ocispec.MediaTypeImageManifest, fmt.Appendf(nil,
		`{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[],`+
			`"annotations":{"io.github.ocibridge.provider":%q,"io.github.ocibridge.state":"{\"seen\":{\"0.9.0\":\"first sync\"}}","io.github.ocibridge.versions":"{\"format\":9}"}}`,
		ocispec.MediaTypeImageManifest, artifact.TypeState, pushbench.Widget.Path()), string(ociaddr.StateTag))
	if err := b.run("1.0.0"); err != nil || b.described() != "1.0.0" || len(b.State().Seen) != 1 {
		t.Errorf("%v, state %+v", err, b.State())
	}
}

// refuseStates makes the registry refuse states, as GitLab does.
func (b *bench) refuseStates() {
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/"+string(ociaddr.StateTag))
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	})
}

// TestSyncSummarizes shows that a sync summarizes the versions that it finds and pushes, and that a prune removes what
// it prunes from the summary.
func TestSyncSummarizes(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	b.removeState() // as if an earlier release had pushed the versions
	b.offer("1.2.0")
	b.mustSync("+1.2.0 =1.1.0 =1.0.0")
	if got := b.described(); got != "1.0.0 1.1.0 1.2.0" {
		t.Fatalf("the summary has %q", got)
	}
	state := b.Current()
	if b.mustSync("=1.2.0 =1.1.0 =1.0.0"); b.Current() != state {
		t.Error("a sync with nothing to do writes the state")
	}
	b.constraint("> 1.0.0")
	b.options.Prune = true
	b.mustSync("=1.2.0 =1.1.0 -1.0.0")
	if got := b.described(); got != "1.1.0 1.2.0" {
		t.Errorf("the summary has %q after a prune", got)
	}
	b.mustSync("=1.2.0 =1.1.0")
	state = b.Current()
	if b.mustSync("=1.2.0 =1.1.0"); b.Current() != state {
		t.Error("prunes of nothing write the state")
	}
	b.constraint("< 0.0.0")
	b.options.PruneLimit = 2
	if b.mustSync("-1.2.0 -1.1.0"); b.State() != nil {
		t.Errorf("a prune of all versions leaves the state %+v", b.State())
	}
}

// TestSyncWithoutSummary shows that a sync succeeds silently if the registry accepts no state.
func TestSyncWithoutSummary(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.refuseStates()
	if out := b.mustSync("+1.1.0 +1.0.0"); len(out.Warnings) > 0 || b.State() != nil {
		t.Errorf("warnings %q", out.Warnings)
	}
	if n := b.Registry.Count(recorder.Writes(), recorder.PathSuffix(string(ociaddr.StateTag))); n == 0 {
		t.Error("the sync did not try to write the state")
	}
	if err := b.run("1.2.0"); err == nil {
		t.Error("the error is lost")
	}
}

// TestSummaryWarning shows that a sync succeeds with a warning if the registry fails while it stores the state.
func TestSummaryWarning(t *testing.T) {
	b := newSyncBench(t, "1.0.0")
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		failing := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/"+string(ociaddr.StateTag))
		if failing {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return failing
	})
	out := b.mustSync("+1.0.0")
	if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "the summary of versions is outdated") || !strings.Contains(out.Warnings[0], "500") {
		t.Errorf("warnings %q", out.Warnings)
	}
}

// TestSyncLeavesRefusedVersionsOut shows that a sync does not summarize a version that the gateway would refuse.
func TestSyncLeavesRefusedVersionsOut(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0")
	b.mustSync("+1.1.0 +1.0.0")
	b.removeState()
	b.options.Served = func(_ context.Context, _ artifact.Fetcher, _ provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		if v == pushbench.One {
			return nil, reconcile.ErrNotServed
		}
		return found, nil
	}
	if _, out, err := b.sync(); err != nil || !slices.ContainsFunc(out.Failures, func(f reconcile.Failure) bool { return f.Version == pushbench.One }) {
		t.Fatalf("%v, %+v", err, out)
	}
	if got := b.described(); got != "1.1.0" {
		t.Errorf("the summary has %q", got)
	}
}
