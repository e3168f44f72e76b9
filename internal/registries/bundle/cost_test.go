package bundle_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestCostOfIndex shows that decoding the most expensive index.json files costs no more than a limit.
func TestCostOfIndex(t *testing.T) {
	testkit.LeaveToAll(t)
	for name, document := range map[string][]byte{
		"entries":                       cost.Filled(12<<20, `{"manifests":[`, `{}`, `]}`),
		"as many as there may be":       cost.Counted(40_000, `{"manifests":[`, `{"annotations":{"x":"%d"}}`, `]}`),
		"annotations of one entry":      cost.Filled(12<<20, `{"manifests":[{"annotations":{`, `"%d":""`, `}}]}`),
		"platform features without end": cost.Filled(12<<20, `{"manifests":[{"platform":{"os.features":[`, `""`, `]}}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			dir := create(t, false)
			write(t, filepath.Join(dir, "index.json"), document)
			cost.Check(t, len(document), true, func() error {
				_, err := bundle.Open(t.Context(), dir, false)
				return err
			})
		})
	}
}

// TestKeptOfArchives shows that an open archive needs little memory, even if it contains large headers, or many
// files that do not belong to a bundle.
func TestKeptOfArchives(t *testing.T) {
	testkit.LeaveToAll(t)
	good, err := os.ReadFile(create(t, true))
	if err != nil {
		t.Fatal(err)
	}
	for name, header := range map[string]func(n int) *tar.Header{
		"other files": func(n int) *tar.Header {
			return &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%s/%05d", strings.Repeat("x", 150), n)}
		},
		"other files among blobs": func(n int) *tar.Header {
			return &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("blobs/sha256/%s/%05d", strings.Repeat("x", 130), n)}
		},
		"large headers": func(n int) *tar.Header {
			if n > 20 {
				return nil
			}
			return &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("blobs/sha256/%064x", n),
				PAXRecords: map[string]string{"path": fmt.Sprintf("blobs/sha256/%064x", n), "OCIBRIDGE.comment": strings.Repeat("x", 200_000)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var data bytes.Buffer
			w := tar.NewWriter(&data)
			for n := range 10_000 {
				h := header(n)
				if h == nil {
					break
				}
				if err := w.WriteHeader(h); err != nil {
					t.Fatal(err)
				}
			}
			w.Flush()
			data.Write(good)
			file := filepath.Join(t.TempDir(), "bundle.tar")
			write(t, file, data.Bytes())
			cost.Kept(t, 1<<20, func() any {
				b, err := bundle.Open(t.Context(), file, true)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { b.Close() })
				return b
			})
		})
	}
}
