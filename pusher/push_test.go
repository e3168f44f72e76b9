package pusher_test

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

func TestPush(t *testing.T) {
	b := newBench(t)
	r := b.MustPush()
	if r.Status != pusher.Pushed || r.Verdict != trust.Signed || r.Fingerprint != b.Signer.Fingerprint() || len(r.Packages) != 3 {
		t.Errorf("result %+v", r)
	}
	v := b.Tagged()
	if v.Owner != pushbench.Widget || v.Version.String() != "1.0.0" || !slices.Equal(v.Protocols, []string{"5.0"}) || v.Index.Digest.String() != r.Digest {
		t.Errorf("tagged %+v", v)
	}
	for _, p := range v.Packages {
		want := b.Release.Package(p.Platform.OS, p.Platform.Arch)
		if p.Digest.Encoded() != want.SHA256 || p.Size != want.Size || p.Filename != want.Filename || p.H1.IsZero() {
			t.Errorf("package %+v, want %+v", p, want)
		}
		body, err := b.Repo.Fetch(t.Context(), p.Layer())
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil || release.Sum(data) != want.SHA256 {
			t.Errorf("%s: stored %d bytes, %v", p.Platform, len(data), err)
		}
	}
	e, err := artifact.ReadEvidence(t.Context(), b.Repo, *v.Evidence)
	if err != nil {
		t.Fatal(err)
	}
	if string(e.SHA256SUMS) != string(b.Release.SHA256SUMS) || string(e.Signature) != string(b.Release.Signature) ||
		!strings.Contains(string(e.SigningKeys), b.Signer.KeyID()) || e.Record.Origin != pushbench.Host || e.Record.Fingerprint != b.Signer.Fingerprint() || e.Record.Verdict != trust.Signed {
		t.Errorf("evidence %+v", e.Record)
	}
}

func TestSecondPushSendsNothing(t *testing.T) {
	b := newBench(t)
	first := b.MustPush()
	b.Registry.Reset()
	b.Origin.Reset()
	second := b.MustPush()
	if second.Status != pusher.Unchanged || second.Digest != first.Digest {
		t.Errorf("result %+v", second)
	}
	if n := b.Registry.Count(recorder.Writes()); n != 0 {
		t.Errorf("%d requests that write: %v", n, b.Registry.Requests(recorder.Writes()))
	}
	if n := b.Registry.Count(); n != 2 {
		t.Errorf("%d requests, want the index and a list of tags: %v", n, b.Registry.Requests())
	}
	if n := b.Origin.Count(recorder.PathSuffix(".zip")); n != 0 {
		t.Errorf("%d packages downloaded", n)
	}
}

func TestSameReleaseGivesSameDigest(t *testing.T) {
	b := newBench(t)
	first := b.MustPush()
	b.NewRegistry()
	if second := b.MustPush(); second.Digest != first.Digest {
		t.Errorf("index %s, then %s", first.Digest, second.Digest)
	}
}

func TestPlatformsAreAdded(t *testing.T) {
	b := newBench(t)
	if r := b.MustPush("linux_amd64"); r.Status != pusher.Pushed || b.TaggedPlatforms() != "linux_amd64" {
		t.Errorf("%s: %s", r.Status, b.TaggedPlatforms())
	}
	if r := b.MustPush("darwin_arm64"); r.Status != pusher.Completed || b.TaggedPlatforms() != "darwin_arm64 linux_amd64" {
		t.Errorf("%s: %s", r.Status, b.TaggedPlatforms())
	}
	if r := b.MustPush("linux_amd64"); r.Status != pusher.Unchanged {
		t.Errorf("%s", r.Status)
	}
	partwise := b.MustPush()
	if partwise.Status != pusher.Completed || b.TaggedPlatforms() != pushbench.AllPlatforms {
		t.Errorf("%s: %s", partwise.Status, b.TaggedPlatforms())
	}
	b.NewRegistry()
	if whole := b.MustPush(); whole.Digest != partwise.Digest {
		t.Errorf("pushed in parts the index is %s, whole it is %s", partwise.Digest, whole.Digest)
	}
	for _, p := range b.Tagged().Packages {
		if p.H1.IsZero() {
			t.Errorf("%s has no h1", p.Platform)
		}
	}
}

// TestLongVersion shows that, if the announcement tags of a version would exceed 128 characters, the version can be
// pushed whole but not in parts. This holds for signed and for unsigned releases.
func TestLongVersion(t *testing.T) {
	b := newBench(t)
	b.Release = b.Build("1.0.0-"+strings.Repeat("a", 122), "content")
	b.Origin.Add(b.Release)
	if _, err := b.Push("linux_amd64"); !strings.Contains(hint.Of(err), "push all its platforms at once") {
		t.Errorf("a part: %v (hint %q)", err, hint.Of(err))
	}
	if r := b.MustPush(); r.Status != pusher.Pushed {
		t.Errorf("whole: %s", r.Status)
	}
	b.NewRegistry()
	b.Options.Policy = pushbench.AllowUnsigned
	whole := b.unsigned()
	whole.Partial = false
	if r, err := pusher.New(b.Options).Push(t.Context(), whole); err != nil || r.Status != pusher.Pushed {
		t.Errorf("whole, not signed: %+v, %v", r, err)
	}
}

// TestTwoPartialPushesAtOnce runs a push of one other platform or of all platforms from start to end, before each
// request of a push in turn. It shows that neither push loses a platform or leaves an announcement.
func TestTwoPartialPushesAtOnce(t *testing.T) {
	testkit.LeaveToAll(t)
	for _, other := range [][]string{{"darwin_arm64"}, nil} {
		want := "darwin_arm64 linux_amd64"
		if other == nil {
			want = pushbench.AllPlatforms
		}
		for pause, reached := 1, true; reached; pause++ {
			b := newBench(t)
			reached = false
			requests := 0
			b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
				if requests++; requests == pause {
					reached = true
					if _, err := b.Push(other...); err != nil {
						t.Errorf("the other push, before request %d: %v", pause, err)
					}
				}
				return false
			})
			b.Options.Jobs = 1
			if _, err := b.Push("linux_amd64"); err != nil {
				t.Fatalf("paused before request %d: %v", pause, err)
			}
			b.Registry.Intercept(nil)
			if reached && b.TaggedPlatforms() != want {
				t.Fatalf("paused before request %d while %v was pushed: the index has %s", pause, other, b.TaggedPlatforms())
			}
			if n := b.LeftTags(); n != 0 {
				t.Fatalf("paused before request %d while %v was pushed: %d announcements are left", pause, other, n)
			}
		}
	}
}

func TestConflict(t *testing.T) {
	b := newBench(t)
	before := b.MustPush()
	other := b.Build("1.0.0", "other content")
	b.Origin.Add(other)
	_, err := b.Push()
	if !errors.Is(err, pusher.ErrConflict) || hint.Of(err) == "" {
		t.Fatalf("error %v (hint %q)", err, hint.Of(err))
	}
	for _, named := range []string{b.Release.Package("darwin", "arm64").SHA256, other.Package("darwin", "arm64").SHA256} {
		if !strings.Contains(err.Error(), named) {
			t.Errorf("%v does not name %s", err, named)
		}
	}
	if got := b.Tagged().Index.Digest.String(); got != before.Digest {
		t.Errorf("the tag names %s now", got)
	}
	b.Options.Force = true
	if r := b.MustPush(); r.Status != pusher.Replaced || b.Tagged().Packages[0].Digest.Encoded() != other.Package("darwin", "arm64").SHA256 {
		t.Errorf("forced: %s", r.Status)
	}
}

func TestRepositoryOfAnotherProvider(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	other := provider.MustParseAddress(pushbench.Host + "/other/widget")
	b.Origin.Add(release.For(t, release.Spec{Host: pushbench.Host, Namespace: "other", Type: "widget", Version: "2.0.0", Signer: b.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"x": nil}}}}))
	listing, err := b.Client.Versions(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Client.Release(t.Context(), other, listing, listing.Versions[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Registry.Reset()
	_, err = pusher.New(b.Options).Push(t.Context(), r)
	if !errors.Is(err, repo.ErrOccupied) || hint.Of(err) == "" {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
	if n := b.Registry.Count(recorder.Writes()); n != 0 {
		t.Errorf("%d requests that write", n)
	}
}

func TestEvidenceRefused(t *testing.T) {
	b := newBench(t)
	b.RefuseEvidence()
	r := b.MustPush()
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "evidence") {
		t.Errorf("warnings %q", r.Warnings)
	}
	if v := b.Tagged(); v.Evidence != nil || len(v.Packages) != 3 {
		t.Errorf("tagged %+v", v)
	}
	if r.Verdict != artifact.NoEvidence || r.Fingerprint != "" || r.EvidenceKept {
		t.Errorf("%+v, and no evidence is stored", r)
	}
	// The registry refuses the evidence of a second push, too. That push tags nothing, even if it pushes only one
	// platform.
	for _, platforms := range [][]string{nil, {"linux_amd64"}} {
		b.Registry.Reset()
		again := b.MustPush(platforms...)
		if again.Status != pusher.Unchanged || again.Verdict != artifact.NoEvidence || len(again.Warnings) != 1 || again.Digest != r.Digest {
			t.Errorf("again: %+v", again)
		}
		tagged := func(q recorder.Request) bool {
			return q.Method == http.MethodPut && strings.Contains(q.Path, "/manifests/") && !strings.Contains(q.Path, "sha256:")
		}
		if n := b.Registry.Count(tagged); n != 0 {
			t.Errorf("again: %d tags were pushed: %v", n, b.Registry.Requests())
		}
	}
}

// TestEvidenceIsAdded shows that a push of a version that is stored without evidence adds the evidence, and changes no
// package.
func TestEvidenceIsAdded(t *testing.T) {
	for name, tc := range map[string]struct {
		push    func(*bench) (*pusher.Result, error)
		verdict trust.Verdict
	}{
		"whole":       {func(b *bench) (*pusher.Result, error) { return b.Push() }, trust.Signed},
		"a platform":  {func(b *bench) (*pusher.Result, error) { return b.Push("linux_amd64") }, trust.Signed},
		"from hashes": {func(b *bench) (*pusher.Result, error) { return b.pushRelease(b.unsigned()) }, trust.ChecksumOnly},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.RefuseEvidence()
			b.MustPush()
			before := b.Tagged()
			b.Registry.Intercept(nil)
			b.Origin.Reset()
			r, err := tc.push(b)
			if err != nil {
				t.Fatal(err)
			}
			after := b.Tagged()
			if r.Status != pusher.Completed || r.Verdict != tc.verdict || r.EvidenceKept || len(r.Warnings) != 0 || r.Digest != after.Index.Digest.String() {
				t.Errorf("%+v", r)
			}
			if n := b.Origin.Count(recorder.PathSuffix(".zip")); n != 0 && tc.verdict == trust.Signed { // unsigned packages must be read to compare their bytes
				t.Errorf("%d packages downloaded", n)
			}
			if !reflect.DeepEqual(after.Packages, before.Packages) {
				t.Errorf("packages %+v, before %+v", after.Packages, before.Packages)
			}
			b.wantVouched(tc.verdict)
			if r, err := tc.push(b); err != nil || r.Status != pusher.Unchanged || r.Verdict != tc.verdict {
				t.Errorf("again: %+v, %v", r, err)
			}
		})
	}
}

// TestResultSaysWhatIsStored shows that the result of a push describes the stored evidence, even if another push
// stored the evidence.
func TestResultSaysWhatIsStored(t *testing.T) {
	b := newBench(t)
	if _, err := b.pushRelease(b.unsigned()); err != nil {
		t.Fatal(err)
	}
	if r := b.MustPush(); r.Status != pusher.Unchanged || !r.EvidenceKept || r.Verdict != trust.ChecksumOnly || r.Fingerprint != "" ||
		len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "--refresh-evidence") {
		t.Errorf("a signed release over checksums: %+v", r)
	}
	b.Options.RefreshEvidence = true
	b.MustPush()
	b.Options.RefreshEvidence = false
	if r, err := b.pushRelease(b.unsigned()); err != nil || !r.EvidenceKept || r.Verdict != trust.Signed || r.Fingerprint != b.Signer.Fingerprint() {
		t.Errorf("checksums over a signed release: %+v, %v", r, err)
	}
	// Evidence signed by a key that is no longer pinned does not count.
	next := pgp.For(t, "Acme, next year")
	if err := b.Release.Sign(next); err != nil {
		t.Fatal(err)
	}
	b.Options.Policy = func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{next.Fingerprint()}} }
	r := b.MustPush()
	if r.Status != pusher.Unchanged || !r.EvidenceKept || r.Verdict != artifact.NoEvidence || r.Pinned || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "--refresh-evidence") {
		t.Errorf("another key is pinned: %+v", r)
	}
}
