package embedded

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestClassify(t *testing.T) {
	d := digest.FromString("x")
	hex := d.Encoded()
	const repo = "registry.example/acme/widget"
	for name, tc := range map[string]struct {
		path string
		want storedFile
	}{
		"blob":                {"blobs/sha256/" + hex[:2] + "/" + hex + "/data", storedFile{kind: blobFile, digest: d}},
		"blob being written":  {"blobs/sha256/" + hex[:2] + "/" + hex + "/data.1.tmp", storedFile{kind: temporaryFile, digest: d}},
		"other file":          {"blobs/sha256/" + hex[:2] + "/" + hex + "/.nfs0001", storedFile{}},
		"revision":            {"repositories/" + repo + "/_manifests/revisions/sha256/" + hex + "/link", storedFile{kind: revisionLink, repository: repo, digest: d}},
		"layer":               {"repositories/" + repo + "/_layers/sha256/" + hex + "/link", storedFile{kind: layerLink, repository: repo, digest: d}},
		"layer being linked":  {"repositories/" + repo + "/_layers/sha256/" + hex + "/link.1.tmp", storedFile{kind: temporaryFile, repository: repo, digest: d}},
		"tag":                 {"repositories/" + repo + "/_manifests/tags/1.0.0/current/link", storedFile{kind: tagLink, repository: repo, tag: "1.0.0"}},
		"tag being moved":     {"repositories/" + repo + "/_manifests/tags/1.0.0/current/link.1.tmp", storedFile{kind: temporaryFile, repository: repo, tag: "1.0.0"}},
		"tag that ends so":    {"repositories/" + repo + "/_manifests/tags/a.tmp/current/link", storedFile{kind: tagLink, repository: repo, tag: "a.tmp"}},
		"history of a tag":    {"repositories/" + repo + "/_manifests/tags/1.0.0/index/sha256/" + hex + "/link", storedFile{kind: tagIndexLink, repository: repo, tag: "1.0.0", digest: d}},
		"upload":              {"repositories/" + repo + "/_uploads/1/hashstates/sha256/0", storedFile{kind: uploadFile, repository: repo}},
		"repository of a tag": {"repositories/tags/current/_manifests/tags/current/current/link", storedFile{kind: tagLink, repository: "tags/current", tag: "current"}},
		"no repository":       {"repositories/_uploads/1/data", storedFile{}},
		"no folder of ours":   {"elsewhere/sha256/data", storedFile{}},
	} {
		tc.want.path = tc.path
		if got, err := classify(tc.path); got != tc.want || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, path := range map[string]string{
		"no digest":         "blobs/sha256/ab/abcd/data",
		"another algorithm": "repositories/" + repo + "/_layers/sha512/" + strings.Repeat("a", 128) + "/link",
		"no algorithm":      "repositories/" + repo + "/_manifests/revisions//" + hex + "/link",
	} {
		if got, err := classify(path); !errors.Is(err, errStorage) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzReferences shows that a garbage collection finds every digest that a client finds in a
// manifest or an index.
func FuzzReferences(f *testing.F) {
	for _, seed := range []string{
		`{"config":{"digest":"sha256:a"},"layers":[{"digest":"sha256:b"},{}],"subject":{"digest":"sha256:c"}}`,
		`{"manifests":[{"digest":"sha256:a"}],"Manifests":[{"digest":"sha256:b"}]}`, `{"layers":null}`, `[]`, `{`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeReferences(digest.FromBytes(data), data)
		if err != nil {
			return
		}
		var manifest ocispec.Manifest
		if json.Unmarshal(data, &manifest) == nil {
			for _, desc := range append(manifest.Layers, manifest.Config) {
				if desc.Digest != "" && !slices.Contains(got.blobs, desc.Digest) {
					t.Errorf("%q lacks %q", got.blobs, desc.Digest)
				}
			}
			if manifest.Subject != nil && got.subject != manifest.Subject.Digest {
				t.Errorf("subject %q", got.subject)
			}
		}
		var index ocispec.Index
		if json.Unmarshal(data, &index) == nil {
			for _, desc := range index.Manifests {
				if !slices.Contains(got.manifests, desc.Digest) {
					t.Errorf("%q lacks %q", got.manifests, desc.Digest)
				}
			}
		}
	})
}
