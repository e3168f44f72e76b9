package artifact_test

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

func TestEvidenceRoundTrip(t *testing.T) {
	b := newBench(t)
	e := encode(t, linux)
	b.push(e)
	v, err := b.read()
	if err != nil {
		t.Fatal(err)
	}
	got, err := artifact.ReadEvidence(t.Context(), b.repo, *v.Evidence)
	if err != nil || !reflect.DeepEqual(got, &evidence) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestEvidenceSaysWhatWasAccepted shows that the evidence of a signed release records the
// release's verdict and signer, and that the policy accepts the stored evidence again.
func TestEvidenceSaysWhatWasAccepted(t *testing.T) {
	signer := pgp.For(t, "Acme")
	r := release.For(t, release.Spec{Host: "registry.acme.example", Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"x": nil}}}})
	claims := trust.Claims{Provider: widget, Version: v100, SHA256SUMS: r.SHA256SUMS, Signature: r.Signature,
		Keys: []string{signer.ArmoredPublicKey()}, SigningKeys: []byte(`{"gpg_public_keys":[]}`)}
	sums, err := trust.Policy{}.Accept(t.Context(), claims)
	if err != nil {
		t.Fatal(err)
	}
	about := provider.About{Source: "https://git.example/acme/widget", PublishedAt: "2026-01-02T03:04:05Z"}
	e := artifact.NewEvidence(sums, "registry.acme.example", []string{"5.0"}, about)
	want := artifact.Record{Origin: "registry.acme.example", Verdict: trust.Signed, Fingerprint: signer.Fingerprint(), Protocols: []string{"5.0"}, About: about}
	if !reflect.DeepEqual(e.Record, want) {
		t.Errorf("record %+v, want %+v", e.Record, want)
	}
	b := newBench(t)
	manifest, parts, err := artifact.EncodeEvidence(e)
	if err != nil {
		t.Fatal(err)
	}
	b.send(append(append([]artifact.Blob{artifact.Config()}, parts...), manifest)...)
	back, err := artifact.ReadEvidence(t.Context(), b.repo, manifest.Descriptor)
	if err != nil {
		t.Fatal(err)
	}
	claims.SHA256SUMS, claims.Signature = back.SHA256SUMS, back.Signature
	if _, err := (trust.Policy{}).Accept(t.Context(), claims); err != nil {
		t.Errorf("what was stored is not accepted again: %v", err)
	}
}

func TestDamagedEvidence(t *testing.T) {
	type manifest = ocispec.Manifest
	sums, signature, record := 0, 1, 3 // the indexes of the layers
	for name, tc := range map[string]struct {
		spoil func(*bench, *manifest)
		err   error
	}{
		"of another type":          {func(_ *bench, m *manifest) { m.ArtifactType = artifact.TypeTarget }, artifact.ErrNotProvider},
		"no record":                {func(_ *bench, m *manifest) { m.Layers = m.Layers[:record] }, artifact.ErrNotProvider},
		"no layers":                {func(_ *bench, m *manifest) { m.Layers = nil }, artifact.ErrNotProvider},
		"record twice":             {func(_ *bench, m *manifest) { m.Layers = append(m.Layers, m.Layers[record]) }, artifact.ErrAmbiguous},
		"SHA256SUMS twice":         {func(_ *bench, m *manifest) { m.Layers = append(m.Layers, m.Layers[sums]) }, artifact.ErrAmbiguous},
		"record is no JSON":        {func(b *bench, m *manifest) { m.Layers[record] = b.sendLayer(artifact.MediaTypeRecord, "no JSON") }, artifact.ErrNotProvider},
		"record is a list":         {func(b *bench, m *manifest) { m.Layers[record] = b.sendLayer(artifact.MediaTypeRecord, "[]") }, artifact.ErrNotProvider},
		"record without a verdict": {func(b *bench, m *manifest) { m.Layers[record] = b.sendLayer(artifact.MediaTypeRecord, "{}") }, artifact.ErrNotProvider},
		"verdict of its own": {func(b *bench, m *manifest) {
			m.Layers[record] = b.sendLayer(artifact.MediaTypeRecord, `{"verdict":"trust me"}`)
		}, artifact.ErrNotProvider},
		"layer without a digest":     {func(_ *bench, m *manifest) { m.Layers[sums].Digest = "" }, artifact.ErrNotProvider},
		"layer of size 0":            {func(_ *bench, m *manifest) { m.Layers[sums].Size = 0 }, artifact.ErrNotProvider},
		"layer too large":            {func(_ *bench, m *manifest) { m.Layers[sums].Size = artifact.MaxEvidenceBytes + 1 }, artifact.ErrTooLarge},
		"record too large":           {func(_ *bench, m *manifest) { m.Layers[record].Size = artifact.MaxRecordBytes + 1 }, artifact.ErrTooLarge},
		"layer that is not there":    {func(_ *bench, m *manifest) { m.Layers[sums].Digest = digest.FromString("nobody has this") }, artifact.ErrNotProvider},
		"layer with other bytes":     {func(b *bench, m *manifest) { b.lie(m.Layers[signature], func(d []byte) []byte { d[0]++; return d }) }, artifact.ErrDamaged},
		"layer cut off":              {func(b *bench, m *manifest) { b.lie(m.Layers[signature], func(d []byte) []byte { return d[:2] }) }, artifact.ErrDamaged},
		"layer longer":               {func(b *bench, m *manifest) { b.lie(m.Layers[signature], func(d []byte) []byte { return append(d, 0) }) }, artifact.ErrDamaged},
		"layer is a page for people": {func(b *bench, m *manifest) { b.lie(m.Layers[record], func([]byte) []byte { return []byte("<html>") }) }, artifact.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux)
			b.push(e)
			m := unmarshal[manifest](t, e.evidence.Data)
			tc.spoil(b, &m)
			got, err := artifact.ReadEvidence(t.Context(), b.repo, b.answerManifest(m))
			if !errors.Is(err, tc.err) {
				t.Fatalf("%+v, %v; want %v", got, err, tc.err)
			}
			if errors.Is(err, errdef.ErrNotFound) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "evidence: ") {
				t.Errorf("error %q", err)
			}
		})
	}
	t.Run("manifest that is not there", func(t *testing.T) {
		b := newBench(t)
		_, err := artifact.ReadEvidence(t.Context(), b.repo, encode(t, linux).evidence.Descriptor)
		if !errors.Is(err, artifact.ErrNotProvider) || errors.Is(err, errdef.ErrNotFound) {
			t.Errorf("error %v", err)
		}
	})
}

func TestEvidenceWithMoreInItIsRead(t *testing.T) {
	b := newBench(t)
	e := encode(t, linux)
	b.push(e)
	m := unmarshal[ocispec.Manifest](t, e.evidence.Data)
	m.Layers = append(m.Layers, b.sendLayer("application/vnd.acme.sbom", "of a later version"))
	m.Layers[3] = b.sendLayer(artifact.MediaTypeRecord, `{"origin":"o","verdict":"checksum only","later":[1]}`)
	got, err := artifact.ReadEvidence(t.Context(), b.repo, b.answerManifest(m))
	if err != nil || got.Record.Verdict != trust.ChecksumOnly || string(got.SHA256SUMS) != string(evidence.SHA256SUMS) {
		t.Errorf("%+v, %v", got, err)
	}
}

func (b *bench) sendLayer(mediaType, data string) ocispec.Descriptor {
	b.t.Helper()
	blob := blobOf(mediaType, []byte(data))
	b.send(blob)
	return blob.Descriptor
}

// lie makes the registry serve a layer with changed bytes and without a Content-Length.
func (b *bench) lie(layer ocispec.Descriptor, change func([]byte) []byte) {
	b.t.Helper()
	data := change(b.fetchAll(layer))
	b.lies["/blobs/"+layer.Digest.String()] = func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).Flush()
		w.Write(data)
	}
}
