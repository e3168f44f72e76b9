// Package contents reads the content of a repository from the data folder of distribution. It also finds
// manifests without a tag, which the registry API does not list.
package contents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
)

// Contents lists the tags and manifests of a repository.
type Contents struct {
	// Tags maps each tag to the digest of its manifest.
	Tags map[string]digest.Digest
	// Manifests maps the digest of each manifest to the manifests that it refers to. Only an index refers to
	// manifests.
	Manifests map[digest.Digest][]digest.Digest
}

// Read returns the content of the repository with the given name. root is the storage folder of distribution. If
// the repository does not exist, the content is empty and there is no error.
func Read(root, name string) (*Contents, error) {
	c, err := read(filepath.Join(root, "docker", "registry", "v2"), name)
	if err != nil {
		return nil, fmt.Errorf("contents of %s in %s: %w", name, root, err)
	}
	return c, nil
}

func read(v2, name string) (*Contents, error) {
	c := &Contents{Tags: map[string]digest.Digest{}, Manifests: map[digest.Digest][]digest.Digest{}}
	manifests := filepath.Join(v2, "repositories", filepath.FromSlash(name), "_manifests")
	tags, err := links(filepath.Join(manifests, "tags"), "current/link")
	if err != nil {
		return nil, err
	}
	c.Tags = tags
	revisions, err := links(filepath.Join(manifests, "revisions", "sha256"), "link")
	if err != nil {
		return nil, err
	}
	for _, d := range revisions {
		data, err := os.ReadFile(filepath.Join(v2, "blobs", "sha256", d.Encoded()[:2], d.Encoded(), "data"))
		if err != nil {
			return nil, err
		}
		if c.Manifests[d], err = children(data); err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
	}
	return c, nil
}

// links maps each NAME in dir to the digest in the file NAME/link. It omits a NAME without that file.
// Distribution creates NAME before it writes the file, and can leave NAME after a deletion.
func links(dir, link string) (map[string]digest.Digest, error) {
	out := map[string]digest.Digest{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name(), filepath.FromSlash(link)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if out[e.Name()], err = digest.Parse(string(data)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return out, nil
}

// children returns the digests of the manifests that an index refers to. It returns none for an image manifest.
func children(manifest []byte) ([]digest.Digest, error) {
	var index struct {
		Manifests []struct {
			Digest digest.Digest `json:"digest"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(manifest, &index); err != nil {
		return nil, err
	}
	var out []digest.Digest
	for _, m := range index.Manifests {
		out = append(out, m.Digest)
	}
	return out, nil
}

// TagNames returns the tags, sorted.
func (c *Contents) TagNames() []string { return slices.Sorted(maps.Keys(c.Tags)) }

// TagsOf returns the tags of a manifest, sorted.
func (c *Contents) TagsOf(d digest.Digest) []string {
	return slices.DeleteFunc(c.TagNames(), func(tag string) bool { return c.Tags[tag] != d })
}

// Parents returns the indexes that refer to a manifest, sorted.
func (c *Contents) Parents(d digest.Digest) []digest.Digest {
	var out []digest.Digest
	for _, parent := range slices.Sorted(maps.Keys(c.Manifests)) {
		if slices.Contains(c.Manifests[parent], d) {
			out = append(out, parent)
		}
	}
	return out
}

// Unreachable returns the manifests that no tag leads to, neither directly nor through indexes. They are sorted.
func (c *Contents) Unreachable() []digest.Digest {
	reached := map[digest.Digest]bool{}
	next := slices.Collect(maps.Values(c.Tags))
	for len(next) > 0 {
		d := next[0]
		next = next[1:]
		if !reached[d] {
			reached[d] = true
			next = append(next, c.Manifests[d]...)
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Manifests)), func(d digest.Digest) bool { return reached[d] })
}
