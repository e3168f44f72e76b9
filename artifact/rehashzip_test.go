package artifact_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/content/memory"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// TestRehashZip shows which zips of modules clients can unpack. It also shows that only the files
// in a zip are hashed, and that their hash is compared with the h1: hash of the manifest.
func TestRehashZip(t *testing.T) {
	link := func(h *zip.FileHeader) { h.SetMode(fs.ModeSymlink | 0o777) }
	for name, tc := range map[string]struct {
		names []string
		head  func(*zip.FileHeader)
		h1    bool // the manifest gives the hash of main.tf alone
		// damaged means that another byte replaces the contents of the files.
		damaged bool
		files   int
		want    error
	}{
		"one file":              {names: []string{"main.tf"}, h1: true, files: 1},
		"without a hash":        {names: []string{"main.tf", "sub/main.tf"}, files: 2},
		"folders":               {names: []string{"./", "sub/", "sub/main.tf", "empty/"}, files: 1},
		"another file":          {names: []string{"other.tf"}, h1: true, want: artifact.ErrDamaged},
		"a link":                {names: []string{"main.tf"}, head: link, want: artifact.ErrNotModule},
		"outside":               {names: []string{"../main.tf"}, want: artifact.ErrNotModule},
		"absolute":              {names: []string{"/main.tf"}, want: artifact.ErrNotModule},
		"a folder outside":      {names: []string{"../sub/"}, want: artifact.ErrNotModule},
		"an absolute folder":    {names: []string{"/sub/"}, want: artifact.ErrNotModule},
		"backslash":             {names: []string{`..\main.tf`}, want: artifact.ErrNotModule},
		"folders with a hash":   {names: []string{"sub/", "main.tf"}, h1: true, files: 1},
		"a link to a folder":    {names: []string{"sub/"}, head: link, want: artifact.ErrNotModule},
		"a folder with content": {names: []string{"main.tf"}, head: func(h *zip.FileHeader) { h.SetMode(fs.ModeDir | 0o755) }, want: artifact.ErrNotModule},
		"a name twice":          {names: []string{"main.tf", "main.tf"}, want: artifact.ErrNotModule},
		"a damaged file":        {names: []string{"main.tf"}, damaged: true, want: artifact.ErrNotModule},
		"damage beside folders": {names: []string{"sub/", "sub/main.tf"}, damaged: true, want: artifact.ErrNotModule},
		"nothing that is a zip": {want: artifact.ErrNotModule},
	} {
		t.Run(name, func(t *testing.T) {
			data := zipOf(t, tc.head, tc.names...)
			if tc.names == nil {
				data = []byte("no zip")
			}
			if tc.damaged {
				data = bytes.ReplaceAll(data, []byte("contents"), []byte("Contents"))
			}
			m := artifact.Package{Digest: digest.FromBytes(data), Size: int64(len(data))}
			if tc.h1 {
				m.H1 = h1Of(t, "main.tf")
			}
			store := memory.New()
			if err := store.Push(t.Context(), m.Layer(), bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			got, err := artifact.RehashZip(t.Context(), store, m)
			if !errors.Is(err, tc.want) || err != nil && tc.want == nil || err == nil && got.Entries != tc.files {
				t.Errorf("%+v, %v; want %d files, %v", got, err, tc.files, tc.want)
			}
			files := slices.DeleteFunc(slices.Clone(tc.names), func(name string) bool { return strings.HasSuffix(name, "/") })
			if err == nil && got.H1 != h1Of(t, files...) {
				t.Errorf("%+v, want the hash of %q", got, files)
			}
		})
	}
	absent := artifact.Package{Digest: digest.FromString("absent"), Size: 6}
	if _, err := artifact.RehashZip(t.Context(), memory.New(), absent); !errors.Is(err, artifact.ErrMissing) {
		t.Errorf("a zip that the registry lacks: %v", err)
	}
	huge := artifact.Package{Digest: digest.FromString("huge"), Size: provider.MaxZipBytes + 1}
	if _, err := artifact.RehashZip(t.Context(), memory.New(), huge); !errors.Is(err, artifact.ErrDamaged) {
		t.Errorf("a zip that is too large: %v", err)
	}
}

// h1Of returns the h1: hash of a zip with the given files.
func h1Of(t *testing.T, files ...string) provider.Hash {
	t.Helper()
	data := zipOf(t, nil, files...)
	h1, err := provider.H1(t.Context(), bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return h1
}

// zipOf returns a zip with the given names. Names that end in a slash are folders.
func zipOf(t *testing.T, head func(*zip.FileHeader), names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range names {
		h := &zip.FileHeader{Name: name, Method: zip.Store}
		if head != nil {
			head(h)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if name[len(name)-1] != '/' {
			if _, err := f.Write([]byte("contents")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
