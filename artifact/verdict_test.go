package artifact_test

import (
	"errors"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/trust"
)

// TestVerdictOfAnIndex shows that ReadVerdict fetches nothing if the index contains the
// verdict. Otherwise, it fetches only the evidence manifest.
func TestVerdictOfAnIndex(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil   func(*ocispec.Descriptor)                       // changes the index entry of the evidence
		change  func([]ocispec.Descriptor) []ocispec.Descriptor // changes the evidence's layers
		fetches int
		want    trust.Verdict
	}{
		"said":              {spoil: func(*ocispec.Descriptor) {}, want: trust.Signed},
		"said to be weaker": {spoil: func(d *ocispec.Descriptor) { d.Annotations[artifact.AnnotationVerdict] = "checksum only" }, want: trust.ChecksumOnly},
		"not said":          {spoil: func(d *ocispec.Descriptor) { d.Annotations = nil }, fetches: 1, want: trust.Signed},
		"said in words that nobody knows": {
			spoil: func(d *ocispec.Descriptor) { d.Annotations[artifact.AnnotationVerdict] = "very signed" }, fetches: 1, want: trust.Signed,
		},
		"not said, without sums":      {change: func(l []ocispec.Descriptor) []ocispec.Descriptor { return l[1:] }, fetches: 1, want: trust.ChecksumOnly},
		"not said, without keys":      {change: func(l []ocispec.Descriptor) []ocispec.Descriptor { return append(l[:2], l[3:]...) }, fetches: 1, want: trust.ChecksumOnly},
		"not said, without signature": {change: func(l []ocispec.Descriptor) []ocispec.Descriptor { return append(l[:1], l[2:]...) }, fetches: 1, want: trust.ChecksumOnly},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux)
			b.push(e)
			index := unmarshal[ocispec.Index](t, e.index.Data)
			entry := &index.Manifests[1]
			if tc.change != nil {
				m := unmarshal[ocispec.Manifest](t, e.evidence.Data)
				m.Layers = tc.change(m.Layers)
				desc := b.answerManifest(m)
				entry.Digest, entry.Size, entry.Annotations = desc.Digest, desc.Size, nil
			} else {
				tc.spoil(entry)
			}
			b.answerIndex(index)
			v, err := b.read()
			if err != nil {
				t.Fatal(err)
			}
			b.registry.Reset()
			got, err := artifact.ReadVerdict(t.Context(), b.repo, v)
			if err != nil || got != tc.want {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
			if n := b.registry.Count(); n != tc.fetches || n != b.registry.Count(recorder.PathContains(v.Evidence.Digest.String())) {
				t.Errorf("requests %v", b.registry.Requests())
			}
		})
	}
}

func TestVerdictWithoutEvidence(t *testing.T) {
	b := newBench(t)
	if got, err := artifact.ReadVerdict(t.Context(), b.repo, &artifact.Version{}); err != nil || got != trust.ChecksumOnly {
		t.Errorf("%q, %v", got, err)
	}
	lost := encode(t, linux).evidence.Descriptor
	lost.Annotations = nil
	if _, err := artifact.ReadVerdict(t.Context(), b.repo, &artifact.Version{Evidence: &lost}); !errors.Is(err, artifact.ErrNotProvider) {
		t.Errorf("of evidence that the registry lost: %v", err)
	}
}

func TestSigned(t *testing.T) {
	if !evidence.Signed() {
		t.Error("complete evidence does not count as signed")
	}
	for name, spoil := range map[string]func(*artifact.Evidence){
		"checksum only": func(e *artifact.Evidence) { e.Record.Verdict = trust.ChecksumOnly },
		"no sums":       func(e *artifact.Evidence) { e.SHA256SUMS = nil },
		"no signature":  func(e *artifact.Evidence) { e.Signature = nil },
		"no keys":       func(e *artifact.Evidence) { e.SigningKeys = nil },
	} {
		e := evidence
		if spoil(&e); e.Signed() {
			t.Errorf("%s: signed", name)
		}
	}
}
