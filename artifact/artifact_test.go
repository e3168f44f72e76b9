package artifact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	widget  = provider.MustParseAddress("registry.acme.example/acme/widget")
	v100    = provider.MustParseVersion("1.0.0")
	linux   = provider.MustParsePlatform("linux_amd64")
	darwin  = provider.MustParsePlatform("darwin_arm64")
	windows = provider.MustParsePlatform("windows_amd64")
)

// contents returns the packages of widget 1.0.0. The package for linux has an h1: hash. The
// other packages have none, because they contain directory entries.
func contents(t testing.TB) map[provider.Platform][]byte {
	t.Helper()
	out := map[provider.Platform][]byte{}
	for _, p := range []provider.Platform{linux, darwin, windows} {
		zip, err := os.ReadFile(filepath.Join("testdata", p.String()+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		out[p] = zip
	}
	return out
}

// encoded is an encoded version with all its parts.
type encoded struct {
	version   artifact.Version // the version from which the index was encoded
	manifests map[provider.Platform]artifact.Blob
	evidence  artifact.Blob
	parts     []artifact.Blob // the blobs of the evidence
	index     artifact.Blob
}

// encode encodes widget 1.0.0 for the given platforms, in the given order.
func encode(t testing.TB, platforms ...provider.Platform) encoded {
	t.Helper()
	out := encoded{
		version:   artifact.Version{Owner: widget, Version: v100, Protocols: []string{"5.0", "6.1"}},
		manifests: map[provider.Platform]artifact.Blob{},
	}
	for _, platform := range platforms {
		pkg, _ := accepted.Package(t, widget, v100, platform, contents(t)[platform])
		p, manifest, err := artifact.EncodePackage(pkg)
		if err != nil {
			t.Fatal(err)
		}
		out.version.Packages = append(out.version.Packages, p)
		out.manifests[platform] = manifest
	}
	var err error
	if out.evidence, out.parts, err = artifact.EncodeEvidence(evidence); err != nil {
		t.Fatal(err)
	}
	out.version.Evidence = &out.evidence.Descriptor
	if out.index, err = artifact.EncodeIndex(out.version); err != nil {
		t.Fatal(err)
	}
	return out
}

// evidence has no real signature. A real signature would have different bytes in each run.
var evidence = artifact.Evidence{
	SHA256SUMS:  []byte("the document\n"),
	Signature:   []byte{0xc2, 0x75, 0x04, 0x00},
	SigningKeys: json.RawMessage(`{"gpg_public_keys":[{"key_id":"34365D9472D7468F","trust_signature":"<&>"}]}`),
	Record: artifact.Record{
		Origin: "registry.acme.example", Verdict: trust.Signed, Fingerprint: "C874011F0AB405110D02105534365D9472D7468F", Protocols: []string{"5.0", "6.1"},
	},
}

// bench is a real registry that records its requests. A test can replace its responses.
type bench struct {
	t        *testing.T
	registry *loopback.Registry
	repo     *remote.Repository
	lies     map[string]http.HandlerFunc // the handlers for GET and HEAD requests whose paths end in the key
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, registry: loopback.For(t), lies: map[string]http.HandlerFunc{}}
	b.repo = b.registry.Repository(widget.Path())
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		for suffix, lie := range b.lies {
			if (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.HasSuffix(r.URL.Path, suffix) {
				lie(w, r)
				return true
			}
		}
		return false
	})
	return b
}

func (b *bench) send(blobs ...artifact.Blob) {
	b.t.Helper()
	for _, blob := range blobs {
		if err := b.repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// push uploads the parts of a version in the same order as a real push, and tags it 1.0.0.
func (b *bench) push(e encoded) {
	b.t.Helper()
	all := contents(b.t)
	b.send(artifact.Config())
	for _, p := range e.version.Packages {
		b.send(artifact.Blob{Descriptor: p.Layer(), Data: all[p.Platform]}, e.manifests[p.Platform])
	}
	b.send(e.parts...)
	b.send(e.evidence)
	b.tag(e.index, "1.0.0")
	b.registry.Reset()
}

func (b *bench) tag(blob artifact.Blob, tag string) {
	b.t.Helper()
	if err := b.repo.PushReference(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data), tag); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read() (*artifact.Version, error) {
	return artifact.Read(b.t.Context(), b.repo, widget, v100)
}

// answer returns a handler that serves data as a manifest, with the headers that a registry
// sends.
func answer(mediaType string, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
		w.Write(data)
	}
}

// answerIndex makes the registry serve another index under the tag 1.0.0.
func (b *bench) answerIndex(index any) {
	b.t.Helper()
	b.lies["/manifests/1.0.0"] = answer(ocispec.MediaTypeImageIndex, marshal(b.t, index))
}

// answerManifest makes the registry serve a manifest that it does not store. It returns the
// descriptor of the manifest.
func (b *bench) answerManifest(manifest any) ocispec.Descriptor {
	b.t.Helper()
	data := marshal(b.t, manifest)
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(data), Size: int64(len(data))}
	b.lies["/manifests/"+desc.Digest.String()] = answer(desc.MediaType, data)
	return desc
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func unmarshal[T any](t testing.TB, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// tamper changes the registry's responses to requests whose paths end in suffix. change
// returns the new body, and announce changes the headers.
func (b *bench) tamper(suffix string, change func(data []byte) []byte, announce func(http.Header)) {
	b.lies[suffix] = func(w http.ResponseWriter, r *http.Request) {
		truth := httptest.NewRecorder()
		b.registry.Truth.ServeHTTP(truth, r)
		data := change(truth.Body.Bytes())
		for k, v := range truth.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		announce(w.Header())
		if w.Header().Get("Content-Length") == "" {
			http.NewResponseController(w).Flush()
		}
		w.Write(data)
	}
}

func same(data []byte) []byte { return data }

// fetchAll fetches a whole blob.
func (b *bench) fetchAll(desc ocispec.Descriptor) []byte {
	b.t.Helper()
	body, err := b.repo.Fetch(context.Background(), desc)
	if err != nil {
		b.t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}
