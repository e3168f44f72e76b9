package pusher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/internal/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

const host = "registry.acme.example"

var widget = provider.MustParseAddress(host + "/acme/widget")

// bench is an origin with one signed release and a real registry that keeps a
// record of what it is asked.
type bench struct {
	t        *testing.T
	signer   *pgp.Signer
	release  *release.Release
	origin   *origin.Origin
	client   *realorigin.Registry
	registry *recorder.Recorder
	repo     *remote.Repository
	options  pusher.Options
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, signer: pgp.For(t, "Acme")}
	b.release = b.build("1.0.0", "content")
	b.origin = origin.New(origin.Options{}, b.release)
	server := httptest.NewServer(b.origin)
	t.Cleanup(server.Close)
	services := disco.New()
	services.ForceHostServices(svchost.Hostname(host), map[string]any{"providers.v1": server.URL + origin.ServicePath})
	b.client = realorigin.NewRegistry(realorigin.RegistryOptions{Services: services})
	b.newRegistry()
	b.options = pusher.Options{RetryPause: time.Millisecond, Destination: func(context.Context, provider.Address) (pusher.Destination, error) {
		return pusher.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: registry.Repository{Repository: b.repo}}, nil
	}}
	return b
}

// newRegistry gives the bench another, empty registry.
func (b *bench) newRegistry() {
	e, err := embedded.Open(b.t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { e.Close() })
	b.registry = recorder.New(e.Handler())
	server := httptest.NewServer(b.registry)
	b.t.Cleanup(server.Close)
	if b.repo, err = remote.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/acme/widget"); err != nil {
		b.t.Fatal(err)
	}
	b.repo.PlainHTTP = true
	b.repo.Client = server.Client() // the default one waits and tries again
}

func (b *bench) build(version, content string) *release.Release {
	spec := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: version, Signer: b.signer}
	for _, p := range []string{"linux_amd64", "darwin_arm64", "windows_amd64"} {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(content + " for " + p)}})
	}
	return release.For(b.t, spec)
}

// get asks the origin for the version of b.release.
func (b *bench) get(platforms ...string) (*realorigin.Release, error) {
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	listing, err := b.client.Versions(b.t.Context(), widget)
	if err != nil {
		return nil, err
	}
	return b.client.Release(b.t.Context(), widget, listing, provider.MustParseVersion(b.release.Version), want)
}

func (b *bench) push(platforms ...string) (*pusher.Result, error) {
	r, err := b.get(platforms...)
	if err != nil {
		return nil, err
	}
	return pusher.New(b.options).Push(b.t.Context(), r)
}

func (b *bench) mustPush(platforms ...string) *pusher.Result {
	b.t.Helper()
	r, err := b.push(platforms...)
	if err != nil {
		b.t.Fatalf("push: %v", err)
	}
	return r
}

// tagged reads what the tag names; nil for nothing.
func (b *bench) tagged() *artifact.Version {
	b.t.Helper()
	v, err := artifact.Read(b.t.Context(), b.repo, widget, provider.MustParseVersion("1.0.0"))
	if errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bench) taggedPlatforms() string {
	b.t.Helper()
	var out []string
	if v := b.tagged(); v != nil {
		for _, p := range v.Packages {
			out = append(out, p.Platform.String())
		}
	}
	return strings.Join(out, " ")
}

const allPlatforms = "darwin_arm64 linux_amd64 windows_amd64"

func TestPush(t *testing.T) {
	b := newBench(t)
	r := b.mustPush()
	if r.Status != pusher.Pushed || r.Verdict != trust.Signed || r.Fingerprint != b.signer.Fingerprint() || len(r.Packages) != 3 {
		t.Errorf("result %+v", r)
	}
	v := b.tagged()
	if v.Provider != widget || v.Version.String() != "1.0.0" || !slices.Equal(v.Protocols, []string{"5.0"}) || v.Index.Digest.String() != r.Digest {
		t.Errorf("tagged %+v", v)
	}
	for _, p := range v.Packages {
		want := b.release.Package(p.Platform.OS, p.Platform.Arch)
		if p.Digest.Encoded() != want.SHA256 || p.Size != want.Size || p.Filename != want.Filename || p.H1.IsZero() {
			t.Errorf("package %+v, want %+v", p, want)
		}
		body, err := b.repo.Fetch(t.Context(), p.Layer())
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil || release.Sum(data) != want.SHA256 {
			t.Errorf("%s: stored %d bytes, %v", p.Platform, len(data), err)
		}
	}
	e, err := artifact.ReadEvidence(t.Context(), b.repo, *v.Evidence)
	if err != nil {
		t.Fatal(err)
	}
	if string(e.SHA256SUMS) != string(b.release.SHA256SUMS) || string(e.Signature) != string(b.release.Signature) ||
		!strings.Contains(string(e.SigningKeys), b.signer.KeyID()) || e.Record.Origin != host || e.Record.Fingerprint != b.signer.Fingerprint() || e.Record.Verdict != trust.Signed {
		t.Errorf("evidence %+v", e.Record)
	}
}

func TestSecondPushSendsNothing(t *testing.T) {
	b := newBench(t)
	first := b.mustPush()
	b.registry.Reset()
	b.origin.Reset()
	second := b.mustPush()
	if second.Status != pusher.Unchanged || second.Digest != first.Digest {
		t.Errorf("result %+v", second)
	}
	if n := b.registry.Count(recorder.Writes()); n != 0 {
		t.Errorf("%d requests that write: %v", n, b.registry.Requests(recorder.Writes()))
	}
	if n := b.registry.Count(); n != 2 {
		t.Errorf("%d requests, want the index and a list of tags: %v", n, b.registry.Requests())
	}
	if n := b.origin.Count(recorder.PathSuffix(".zip")); n != 0 {
		t.Errorf("%d packages downloaded", n)
	}
}

func TestSameReleaseGivesSameDigest(t *testing.T) {
	b := newBench(t)
	first := b.mustPush()
	b.newRegistry()
	if second := b.mustPush(); second.Digest != first.Digest {
		t.Errorf("index %s, then %s", first.Digest, second.Digest)
	}
}

func TestPlatformsAreAdded(t *testing.T) {
	b := newBench(t)
	if r := b.mustPush("linux_amd64"); r.Status != pusher.Pushed || b.taggedPlatforms() != "linux_amd64" {
		t.Errorf("%s: %s", r.Status, b.taggedPlatforms())
	}
	if r := b.mustPush("darwin_arm64"); r.Status != pusher.Completed || b.taggedPlatforms() != "darwin_arm64 linux_amd64" {
		t.Errorf("%s: %s", r.Status, b.taggedPlatforms())
	}
	if r := b.mustPush("linux_amd64"); r.Status != pusher.Unchanged {
		t.Errorf("%s", r.Status)
	}
	partwise := b.mustPush()
	if partwise.Status != pusher.Completed || b.taggedPlatforms() != allPlatforms {
		t.Errorf("%s: %s", partwise.Status, b.taggedPlatforms())
	}
	b.newRegistry()
	if whole := b.mustPush(); whole.Digest != partwise.Digest {
		t.Errorf("pushed in parts the index is %s, whole it is %s", partwise.Digest, whole.Digest)
	}
	for _, p := range b.tagged().Packages {
		if p.H1.IsZero() {
			t.Errorf("%s has no h1", p.Platform)
		}
	}
}

// TestLongVersion: a version may be so long that only its own tag has no more than
// 128 characters. It is pushed whole, signed or not.
func TestLongVersion(t *testing.T) {
	b := newBench(t)
	b.release = b.build("1.0.0-"+strings.Repeat("a", 122), "content")
	b.origin.Add(b.release)
	if _, err := b.push("linux_amd64"); !strings.Contains(hint.Of(err), "push all its platforms at once") {
		t.Errorf("a part: %v (hint %q)", err, hint.Of(err))
	}
	if r := b.mustPush(); r.Status != pusher.Pushed {
		t.Errorf("whole: %s", r.Status)
	}
	b.newRegistry()
	b.options.Policy = allowUnsigned
	whole := b.unsigned()
	whole.Partial = false
	if r, err := pusher.New(b.options).Push(t.Context(), whole); err != nil || r.Status != pusher.Pushed {
		t.Errorf("whole, not signed: %+v, %v", r, err)
	}
}

// TestTwoPartialPushesAtOnce pauses one push before each of its requests in turn
// while another one, of other platforms or of all, completes.
func TestTwoPartialPushesAtOnce(t *testing.T) {
	for _, other := range [][]string{{"darwin_arm64"}, nil} {
		want := "darwin_arm64 linux_amd64"
		if other == nil {
			want = allPlatforms
		}
		for pause, reached := 1, true; reached; pause++ {
			b := newBench(t)
			reached = false
			requests := 0
			b.registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
				if requests++; requests == pause {
					reached = true
					if _, err := b.push(other...); err != nil {
						t.Errorf("the other push, before request %d: %v", pause, err)
					}
				}
				return false
			})
			b.options.Jobs = 1
			if _, err := b.push("linux_amd64"); err != nil {
				t.Fatalf("paused before request %d: %v", pause, err)
			}
			b.registry.Intercept(nil)
			if reached && b.taggedPlatforms() != want {
				t.Fatalf("paused before request %d while %v was pushed: the index has %s", pause, other, b.taggedPlatforms())
			}
			if n := b.leftTags(); n != 0 {
				t.Fatalf("paused before request %d while %v was pushed: %d announcements are left", pause, other, n)
			}
		}
	}
}

func TestConflict(t *testing.T) {
	b := newBench(t)
	before := b.mustPush()
	other := b.build("1.0.0", "other content")
	b.origin.Add(other)
	_, err := b.push()
	if !errors.Is(err, pusher.ErrConflict) || hint.Of(err) == "" {
		t.Fatalf("error %v (hint %q)", err, hint.Of(err))
	}
	for _, named := range []string{b.release.Package("darwin", "arm64").SHA256, other.Package("darwin", "arm64").SHA256} {
		if !strings.Contains(err.Error(), named) {
			t.Errorf("%v does not name %s", err, named)
		}
	}
	if got := b.tagged().Index.Digest.String(); got != before.Digest {
		t.Errorf("the tag names %s now", got)
	}
	b.options.Force = true
	if r := b.mustPush(); r.Status != pusher.Replaced || b.tagged().Packages[0].Digest.Encoded() != other.Package("darwin", "arm64").SHA256 {
		t.Errorf("forced: %s", r.Status)
	}
}

// TestForceSendsWhatWasDeleted has a clean-up job that deleted a platform's
// manifest, which it took for untagged.
func TestForceSendsWhatWasDeleted(t *testing.T) {
	b := newBench(t)
	first := b.mustPush()
	lost := b.tagged().Packages[1].Manifest
	if err := b.repo.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	b.options.Force = true
	if r := b.mustPush(); r.Status != pusher.Unchanged || r.Digest != first.Digest {
		t.Errorf("forced: %+v", r)
	}
	if exists, err := b.repo.Exists(t.Context(), lost); err != nil || !exists {
		t.Errorf("the manifest is there: %v, %v", exists, err)
	}
}

func TestRepositoryOfAnotherProvider(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	other := provider.MustParseAddress(host + "/other/widget")
	b.origin.Add(release.For(t, release.Spec{Host: host, Namespace: "other", Type: "widget", Version: "2.0.0", Signer: b.signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"x": nil}}}}))
	listing, err := b.client.Versions(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.client.Release(t.Context(), other, listing, listing.Versions[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	b.registry.Reset()
	_, err = pusher.New(b.options).Push(t.Context(), r)
	if !errors.Is(err, pusher.ErrOccupied) || hint.Of(err) == "" {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
	if n := b.registry.Count(recorder.Writes()); n != 0 {
		t.Errorf("%d requests that write", n)
	}
}

// refuseEvidence makes the registry refuse manifests of evidence, as one with a list
// of allowed types does.
func (b *bench) refuseEvidence() {
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			b.t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), `"artifactType":"`+artifact.TypeEvidence+`","config"`) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_INVALID","message":"unknown media type"}]}`)
		return true
	})
}

func TestEvidenceRefused(t *testing.T) {
	b := newBench(t)
	b.refuseEvidence()
	r := b.mustPush()
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "evidence") {
		t.Errorf("warnings %q", r.Warnings)
	}
	if v := b.tagged(); v.Evidence != nil || len(v.Packages) != 3 {
		t.Errorf("tagged %+v", v)
	}
	if r.Verdict != artifact.NoEvidence || r.Fingerprint != "" || r.EvidenceKept {
		t.Errorf("%+v, and no evidence is stored", r)
	}
	// A second push is told the same, and tags nothing, not even of one platform.
	for _, platforms := range [][]string{nil, {"linux_amd64"}} {
		b.registry.Reset()
		again := b.mustPush(platforms...)
		if again.Status != pusher.Unchanged || again.Verdict != artifact.NoEvidence || len(again.Warnings) != 1 || again.Digest != r.Digest {
			t.Errorf("again: %+v", again)
		}
		tagged := func(q recorder.Request) bool {
			return q.Method == http.MethodPut && strings.Contains(q.Path, "/manifests/") && !strings.Contains(q.Path, "sha256:")
		}
		if n := b.registry.Count(tagged); n != 0 {
			t.Errorf("again: %d tags were pushed: %v", n, b.registry.Requests())
		}
	}
}

// TestEvidenceIsAdded pushes what is in place without evidence: packages stay, and the
// evidence is there afterwards.
func TestEvidenceIsAdded(t *testing.T) {
	for name, tc := range map[string]struct {
		push    func(*bench) (*pusher.Result, error)
		verdict trust.Verdict
	}{
		"whole":       {func(b *bench) (*pusher.Result, error) { return b.push() }, trust.Signed},
		"a platform":  {func(b *bench) (*pusher.Result, error) { return b.push("linux_amd64") }, trust.Signed},
		"from hashes": {func(b *bench) (*pusher.Result, error) { return b.pushRelease(b.unsigned()) }, trust.ChecksumOnly},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.refuseEvidence()
			b.mustPush()
			before := b.tagged()
			b.registry.Intercept(nil)
			b.origin.Reset()
			r, err := tc.push(b)
			if err != nil {
				t.Fatal(err)
			}
			after := b.tagged()
			if r.Status != pusher.Completed || r.Verdict != tc.verdict || r.EvidenceKept || len(r.Warnings) != 0 || r.Digest != after.Index.Digest.String() {
				t.Errorf("%+v", r)
			}
			if n := b.origin.Count(recorder.PathSuffix(".zip")); n != 0 && tc.verdict == trust.Signed { // otherwise only the bytes tell
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

// TestResultSaysWhatIsStored pushes over evidence of another push: the result is about
// the evidence that is stored, not about the release.
func TestResultSaysWhatIsStored(t *testing.T) {
	b := newBench(t)
	if _, err := b.pushRelease(b.unsigned()); err != nil {
		t.Fatal(err)
	}
	if r := b.mustPush(); r.Status != pusher.Unchanged || !r.EvidenceKept || r.Verdict != trust.ChecksumOnly || r.Fingerprint != "" {
		t.Errorf("a signed release over checksums: %+v", r)
	}
	b.options.RefreshEvidence = true
	b.mustPush()
	b.options.RefreshEvidence = false
	if r, err := b.pushRelease(b.unsigned()); err != nil || !r.EvidenceKept || r.Verdict != trust.Signed || r.Fingerprint != b.signer.Fingerprint() {
		t.Errorf("checksums over a signed release: %+v, %v", r, err)
	}
	// Evidence by a key that is not pinned any more does not count.
	next := pgp.For(t, "Acme, next year")
	if err := b.release.Sign(next); err != nil {
		t.Fatal(err)
	}
	b.options.Policy = func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{next.Fingerprint()}} }
	r := b.mustPush()
	if r.Status != pusher.Unchanged || !r.EvidenceKept || r.Verdict != artifact.NoEvidence || r.Pinned || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "--refresh-evidence") {
		t.Errorf("another key is pinned: %+v", r)
	}
}

// pushManifest tags a manifest of any kind.
func (b *bench) pushManifest(mediaType string, data []byte, tag string) ocispec.Descriptor {
	b.t.Helper()
	desc := content.NewDescriptorFromBytes(mediaType, data)
	if err := b.repo.PushReference(b.t.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.t.Fatal(err)
	}
	return desc
}

// annotationH1 is on index entries.
const annotationH1 = "io.github.ocibridge.h1"

// reindex tags the version anew with its index changed.
func (b *bench) reindex(change func(*ocispec.Index)) {
	b.t.Helper()
	data, err := content.FetchAll(b.t.Context(), b.repo, b.tagged().Index)
	if err != nil {
		b.t.Fatal(err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		b.t.Fatal(err)
	}
	change(&index)
	if data, err = json.Marshal(index); err != nil {
		b.t.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data)
	if err := b.repo.PushReference(b.t.Context(), desc, bytes.NewReader(data), "1.0.0"); err != nil {
		b.t.Fatal(err)
	}
}

// withoutAnnotations stores a platform's manifest without its annotations and those of
// its layer, and returns an index entry for it.
func (b *bench) withoutAnnotations(entry ocispec.Descriptor) ocispec.Descriptor {
	b.t.Helper()
	data, err := content.FetchAll(b.t.Context(), b.repo, entry)
	if err != nil {
		b.t.Fatal(err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		b.t.Fatal(err)
	}
	m.Annotations, m.Layers[0].Annotations = nil, nil
	if data, err = json.Marshal(m); err != nil {
		b.t.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err := b.repo.Push(b.t.Context(), desc, bytes.NewReader(data)); err != nil {
		b.t.Fatal(err)
	}
	desc.ArtifactType, desc.Platform = entry.ArtifactType, entry.Platform
	return desc
}

// TestForceRecordsH1 has an index without h1: hashes, as other tools write it.
func TestForceRecordsH1(t *testing.T) {
	isEvidence := func(d ocispec.Descriptor) bool { return d.Platform == nil }
	drop := func(d *ocispec.Descriptor) { delete(d.Annotations, annotationH1) }
	for name, tc := range map[string]struct {
		change   func(*bench, *ocispec.Index)
		recorded string
	}{
		"none is given": {func(_ *bench, i *ocispec.Index) {
			for n := range i.Manifests {
				drop(&i.Manifests[n])
			}
		}, "darwin_arm64 linux_amd64 windows_amd64"},
		"one is missing": {func(_ *bench, i *ocispec.Index) { drop(&i.Manifests[1]) }, "linux_amd64"},
		"one is wrong": {func(_ *bench, i *ocispec.Index) {
			i.Manifests[0].Annotations[annotationH1] = i.Manifests[1].Annotations[annotationH1]
		}, "darwin_arm64"},
		"as the ORAS CLI pushes it": {func(b *bench, i *ocispec.Index) {
			i.Annotations = nil
			i.Manifests = slices.DeleteFunc(i.Manifests, isEvidence)
			for n := range i.Manifests {
				i.Manifests[n] = b.withoutAnnotations(i.Manifests[n])
			}
		}, "darwin_arm64 linux_amd64 windows_amd64"},
		"all are there": {func(*bench, *ocispec.Index) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			want := b.mustPush()
			b.reindex(func(i *ocispec.Index) { tc.change(b, i) })
			before := b.tagged().Index.Digest
			if r := b.mustPush(); tc.recorded != "" && recorded(r) != "" {
				t.Errorf("without --force, recorded is %q", recorded(r))
			}
			b.options.Force = true
			r := b.mustPush()
			if recorded(r) != tc.recorded || r.Digest != want.Digest {
				t.Errorf("recorded is %q, %s; the tag named %s and names %s, want %s", recorded(r), r.Status, before, r.Digest, want.Digest)
			}
			if status := map[bool]pusher.Status{true: pusher.Unchanged, false: pusher.Rehashed}[tc.recorded == ""]; r.Status != status {
				t.Errorf("status %s, want %s", r.Status, status)
			}
			for i, p := range b.tagged().Packages {
				if p.H1.IsZero() || p.H1 != want.Packages[i].H1 || r.Packages[i].H1 != p.H1 {
					t.Errorf("%s has %q, want %s", p.Platform, p.H1, want.Packages[i].H1)
				}
			}
			if again := b.mustPush(); again.Status != pusher.Unchanged || recorded(again) != "" {
				t.Errorf("again: %s, recorded %q", again.Status, recorded(again))
			}
		})
	}
}

// TestForceRemovesH1 has an index that gives an h1: hash for a zip on which clients
// disagree.
func TestForceRemovesH1(t *testing.T) {
	b := newBench(t)
	b.release = release.For(t, release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: b.signer, Contents: []release.Content{
		{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-widget_v1.0.0": []byte("widget"), "docs/": nil}},
	}})
	b.origin.Add(b.release)
	first := b.mustPush()
	if !first.Packages[0].H1.IsZero() {
		t.Fatalf("h1 %s", first.Packages[0].H1)
	}
	b.reindex(func(i *ocispec.Index) {
		i.Manifests[0].Annotations[annotationH1] = "h1:" + strings.Repeat("A", 43) + "="
	})
	if b.tagged().Packages[0].H1.IsZero() {
		t.Fatal("no h1 to remove")
	}
	b.options.Force = true
	r := b.mustPush()
	if p := r.Packages[0]; !p.H1Removed || p.H1Recorded || p.Repaired || !p.H1.IsZero() || r.Status != pusher.Rehashed || r.Digest != first.Digest {
		t.Errorf("%s, %+v, names %s, want %s", r.Status, p, r.Digest, first.Digest)
	}
	if r := b.mustPush(); r.Packages[0].H1Removed || r.Status != pusher.Unchanged {
		t.Errorf("again: %+v", r)
	}
}

// TestForceRepairsIndex has indexes for which verify says to push by force.
func TestForceRepairsIndex(t *testing.T) {
	annotated := func(key, value string) func(*bench, *ocispec.Index) {
		return func(_ *bench, i *ocispec.Index) { i.Manifests[1].Annotations["io.github.ocibridge."+key] = value }
	}
	const linux = "linux_amd64"
	const deletedForeign = "manifest of another tool, deleted"
	for name, tc := range map[string]struct {
		change   func(*bench, *ocispec.Index)
		where    string
		finding  string
		repaired string
		recorded string
	}{
		"size":                   {annotated("layer.size", "7"), linux, "the index gives the size 7", linux, ""},
		"file name":              {annotated("filename", "terraform-provider-widget_1.0.0_darwin_arm64.zip"), linux, "of another version or platform", linux, ""},
		"size that is no number": {annotated("layer.size", "seven"), linux, "are not used", linux, ""},
		"manifest size": {func(_ *bench, i *ocispec.Index) { i.Manifests[1].Size++ }, linux,
			"its index entry gives the manifest", linux, ""},
		deletedForeign: {func(b *bench, i *ocispec.Index) { b.otherManifest(&i.Manifests[1]) }, linux,
			"the registry lacks content that it refers to", linux, ""},
		"size of the evidence": {func(_ *bench, i *ocispec.Index) { i.Manifests[3].Size++ }, "evidence",
			"its index entry gives the manifest", "", ""},
		"verdict": {func(_ *bench, i *ocispec.Index) {
			i.Manifests[3].Annotations["io.github.ocibridge.verdict"] = "checksum only"
		}, "evidence",
			"the index gives the verdict", "", ""},
		"size, without a hash": {func(b *bench, i *ocispec.Index) {
			annotated("layer.size", "7")(b, i)
			delete(i.Manifests[1].Annotations, annotationH1)
		}, linux, "the index gives the size 7", linux, linux},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			want := b.mustPush()
			b.reindex(func(i *ocispec.Index) { tc.change(b, i) })
			if name == deletedForeign {
				if err := b.repo.Delete(t.Context(), b.tagged().Packages[1].Manifest); err != nil {
					t.Fatal(err)
				}
			}
			b.wantFinding(tc.where, tc.finding)
			b.options.Force = true
			r := b.mustPush()
			if r.Status != pusher.Repaired || r.Digest != want.Digest || repaired(r) != tc.repaired || recorded(r) != tc.recorded {
				t.Errorf("%s, repaired %q, recorded %q, names %s, want %s", r.Status, repaired(r), recorded(r), r.Digest, want.Digest)
			}
			b.wantFinding("", "")
			if again := b.mustPush(); again.Status != pusher.Unchanged || repaired(again) != "" {
				t.Errorf("again: %s, repaired %q", again.Status, repaired(again))
			}
		})
	}
}

// wantFinding fails unless verify finds this alone; nothing if where is "".
func (b *bench) wantFinding(where, what string) {
	b.t.Helper()
	l, err := artifact.Lint(b.t.Context(), b.repo, widget, one)
	if err != nil {
		b.t.Fatal(err)
	}
	found := slices.ContainsFunc(l.Findings, func(f artifact.Finding) bool { return f.Where == where && strings.Contains(f.What, what) })
	if where == "" && len(l.Findings) > 0 || where != "" && !found {
		b.t.Errorf("findings %+v, want %q: %q", l.Findings, where, what)
	}
}

// otherManifest has an index entry name a manifest by another tool.
func (b *bench) otherManifest(entry *ocispec.Descriptor) {
	b.t.Helper()
	foreign := b.withoutAnnotations(*entry)
	entry.Digest, entry.Size = foreign.Digest, foreign.Size
}

// repaired returns the platforms whose index entry a push has corrected.
func repaired(r *pusher.Result) string {
	var out []string
	for _, p := range r.Packages {
		if p.Repaired {
			out = append(out, p.Platform.String())
		}
	}
	return strings.Join(out, " ")
}

// recorded returns the platforms whose h1: hash a push has recorded.
func recorded(r *pusher.Result) string {
	var out []string
	for _, p := range r.Packages {
		if p.H1Recorded {
			out = append(out, p.Platform.String())
		}
	}
	return strings.Join(out, " ")
}
