// Package manifestcache keeps manifests by digest in a folder, from one run to the
// next. It is a cache and nothing else: what cannot be written is not kept, and
// what does not match its digest is not there.
package manifestcache

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxFiles bounds the folder; a manifest has some 5 KiB.
	maxFiles = 20_000
	// maxBytes bounds one manifest. With maxFiles, it bounds the folder to 1.3 GB.
	maxBytes = 64 << 10
	// refresh is how old the time of a file's last use may get before it is
	// written anew.
	refresh = 24 * time.Hour
)

// Dir is a folder of manifests. It may be used concurrently, and by several
// processes.
type Dir struct{ path string }

// Open returns the cache in a folder, which is made with the first manifest. Of
// too many files those that were not used for longest are removed.
func Open(path string) *Dir {
	d := &Dir{path}
	d.trim(maxFiles)
	return d
}

// Get returns a manifest that is kept.
func (d *Dir) Get(desc ocispec.Descriptor) (io.ReadCloser, bool) {
	name, ok := d.name(desc)
	if !ok || desc.Size > maxBytes {
		return nil, false
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil || int64(len(data)) != desc.Size || digest.FromBytes(data) != desc.Digest {
		return nil, false
	}
	if info, err := f.Stat(); err == nil && time.Since(info.ModTime()) > refresh {
		now := time.Now()
		_ = os.Chtimes(name, now, now) // else it goes a little sooner
	}
	return io.NopCloser(bytes.NewReader(data)), true
}

// Put keeps a manifest. It ignores one that is larger than maxBytes.
func (d *Dir) Put(desc ocispec.Descriptor, data []byte) {
	name, ok := d.name(desc)
	if !ok || len(data) > maxBytes || os.MkdirAll(d.path, 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(d.path, temporary+"*")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil || os.Rename(f.Name(), name) != nil {
		os.Remove(f.Name())
	}
}

// temporary begins the names of files that are being written.
const temporary = ".new-"

func (d *Dir) name(desc ocispec.Descriptor) (string, bool) {
	if desc.Digest.Validate() != nil || desc.Digest.Algorithm() != digest.SHA256 {
		return "", false
	}
	return filepath.Join(d.path, desc.Digest.Encoded()), true
}

// trim removes the files that were not used for longest, down to three quarters
// of the limit, once there are more.
func (d *Dir) trim(limit int) {
	entries, err := os.ReadDir(d.path)
	if err != nil || len(entries) <= limit {
		return
	}
	used := map[string]time.Time{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			used[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return used[a.Name()].Compare(used[b.Name()]) })
	for _, e := range entries[:len(entries)-limit*3/4] {
		os.Remove(filepath.Join(d.path, e.Name()))
	}
}
