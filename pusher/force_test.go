package pusher_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/pusher"
)

// TestForceSendsWhatWasDeleted shows that a forced push sends a platform's manifest again if a clean-up job has
// deleted the manifest.
func TestForceSendsWhatWasDeleted(t *testing.T) {
	b := newBench(t)
	first := b.MustPush()
	lost := b.Tagged().Packages[1].Manifest
	if err := b.Repo.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	b.Options.Force = true
	if r := b.MustPush(); r.Status != pusher.Unchanged || r.Digest != first.Digest {
		t.Errorf("forced: %+v", r)
	}
	if exists, err := b.Repo.Exists(t.Context(), lost); err != nil || !exists {
		t.Errorf("the manifest is there: %v, %v", exists, err)
	}
}

// TestForceAndAContradictoryRelease shows that even a forced push refuses a release whose SHA256SUMS lists two
// checksums for one platform. One checksum is listed under the published name, and one under the name that the origin
// offers.
func TestForceAndAContradictoryRelease(t *testing.T) {
	b := newBench(t)
	b.Options.Force = true
	r := b.mirrorRelease("linux_amd64", "content")
	published := r.Packages[0].Filename
	sum := strings.TrimPrefix(r.Claims.Hashes[published][0].String(), "zh:")
	for name, tc := range map[string]struct {
		other string
		err   error
	}{
		"another checksum":  {strings.Repeat("0", 64), pusher.ErrMisnamed},
		"the same checksum": {sum, nil},
	} {
		r.Packages[0].Filename, r.Claims.Hashes = "widget.zip", nil
		r.Claims.SHA256SUMS = []byte(tc.other + "  " + published + "\n" + sum + "  widget.zip\n")
		if _, err := b.pushRelease(r); !errors.Is(err, tc.err) || err != nil && hint.Of(err) == "" {
			t.Errorf("%s: %v (hint %q)", name, err, hint.Of(err))
		}
	}
}

// TestForceRecordsH1 shows that a forced push records the h1: hashes that the index of another tool lacks.
func TestForceRecordsH1(t *testing.T) {
	isEvidence := func(d ocispec.Descriptor) bool { return d.Platform == nil }
	drop := func(d *ocispec.Descriptor) { delete(d.Annotations, pushbench.AnnotationH1) }
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
			i.Manifests[0].Annotations[pushbench.AnnotationH1] = i.Manifests[1].Annotations[pushbench.AnnotationH1]
		}, "darwin_arm64"},
		"as the ORAS CLI pushes it": {func(b *bench, i *ocispec.Index) {
			i.Annotations = nil
			i.Manifests = slices.DeleteFunc(i.Manifests, isEvidence)
			for n := range i.Manifests {
				i.Manifests[n] = b.WithoutAnnotations(i.Manifests[n])
			}
		}, "darwin_arm64 linux_amd64 windows_amd64"},
		"all are there": {func(*bench, *ocispec.Index) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			want := b.MustPush()
			b.Reindex(func(i *ocispec.Index) { tc.change(b, i) })
			before := b.Tagged().Index.Digest
			if r := b.MustPush(); tc.recorded != "" && recorded(r) != "" {
				t.Errorf("without --force, recorded is %q", recorded(r))
			}
			b.Options.Force = true
			r := b.MustPush()
			if recorded(r) != tc.recorded || r.Digest != want.Digest {
				t.Errorf("recorded %q, %s; the tag named %s and now names %s, want %s", recorded(r), r.Status, before, r.Digest, want.Digest)
			}
			if status := map[bool]pusher.Status{true: pusher.Unchanged, false: pusher.Rehashed}[tc.recorded == ""]; r.Status != status {
				t.Errorf("status %s, want %s", r.Status, status)
			}
			for i, p := range b.Tagged().Packages {
				if p.H1.IsZero() || p.H1 != want.Packages[i].H1 || r.Packages[i].H1 != p.H1 {
					t.Errorf("%s has %q, want %s", p.Platform, p.H1, want.Packages[i].H1)
				}
			}
			if again := b.MustPush(); again.Status != pusher.Unchanged || recorded(again) != "" {
				t.Errorf("again: %s, recorded %q", again.Status, recorded(again))
			}
		})
	}
}

// TestForceRemovesH1 shows that a forced push removes the stored h1: hash of a zip if not all clients compute the same
// h1: hash for the zip.
func TestForceRemovesH1(t *testing.T) {
	b := newBench(t)
	b.Release = release.For(t, release.Spec{Host: pushbench.Host, Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: b.Signer, Contents: []release.Content{
		{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-widget_v1.0.0": []byte("widget"), "docs/": nil}},
	}})
	b.Origin.Add(b.Release)
	first := b.MustPush()
	if !first.Packages[0].H1.IsZero() {
		t.Fatalf("h1 %s", first.Packages[0].H1)
	}
	b.Reindex(func(i *ocispec.Index) {
		i.Manifests[0].Annotations[pushbench.AnnotationH1] = "h1:" + strings.Repeat("A", 43) + "="
	})
	if b.Tagged().Packages[0].H1.IsZero() {
		t.Fatal("no h1 to remove")
	}
	b.Options.Force = true
	r := b.MustPush()
	if p := r.Packages[0]; !p.H1Removed || p.H1Recorded || p.Repaired || !p.H1.IsZero() || r.Status != pusher.Rehashed || r.Digest != first.Digest {
		t.Errorf("%s, %+v, names %s, want %s", r.Status, p, r.Digest, first.Digest)
	}
	if r := b.MustPush(); r.Packages[0].H1Removed || r.Status != pusher.Unchanged {
		t.Errorf("again: %+v", r)
	}
}

// TestForceRepairsIndex shows that a forced push repairs each defect of an index that verify reports. For these
// defects, verify recommends a forced push.
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
			delete(i.Manifests[1].Annotations, pushbench.AnnotationH1)
		}, linux, "the index gives the size 7", linux, linux},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			want := b.MustPush()
			b.Reindex(func(i *ocispec.Index) { tc.change(b, i) })
			if name == deletedForeign {
				if err := b.Repo.Delete(t.Context(), b.Tagged().Packages[1].Manifest); err != nil {
					t.Fatal(err)
				}
			}
			b.wantFinding(tc.where, tc.finding)
			b.Options.Force = true
			r := b.MustPush()
			if r.Status != pusher.Repaired || r.Digest != want.Digest || repaired(r) != tc.repaired || recorded(r) != tc.recorded {
				t.Errorf("%s, repaired %q, recorded %q, names %s, want %s", r.Status, repaired(r), recorded(r), r.Digest, want.Digest)
			}
			b.wantFinding("", "")
			if again := b.MustPush(); again.Status != pusher.Unchanged || repaired(again) != "" {
				t.Errorf("again: %s, repaired %q", again.Status, repaired(again))
			}
		})
	}
}

// wantFinding fails the test unless verify has the finding. If where is "", it fails the test if verify has any
// finding.
func (b *bench) wantFinding(where, what string) {
	b.T.Helper()
	l, err := artifact.Lint(b.T.Context(), b.Repo, pushbench.Widget, pushbench.One)
	if err != nil {
		b.T.Fatal(err)
	}
	found := slices.ContainsFunc(l.Findings, func(f artifact.Finding) bool { return f.Where == where && strings.Contains(f.What, what) })
	if where == "" && len(l.Findings) > 0 || where != "" && !found {
		b.T.Errorf("findings %+v, want %q: %q", l.Findings, where, what)
	}
}

// otherManifest makes an index entry name another manifest, as if another tool had stored the manifest.
func (b *bench) otherManifest(entry *ocispec.Descriptor) {
	b.T.Helper()
	foreign := b.WithoutAnnotations(*entry)
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
