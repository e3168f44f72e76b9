//go:build !windows

package artifact

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// fetcherFunc is a [Fetcher].
type fetcherFunc func() (io.ReadCloser, error)

func (f fetcherFunc) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) { return f() }

// TestDownloadHasNoName shows that a process that is killed during a download leaves no file: the file has no name.
func TestDownloadHasNoName(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	stop := errors.New("stop")
	_, err := downloadZip(t.Context(), fetcherFunc(func() (io.ReadCloser, error) {
		if entries, err := os.ReadDir(os.TempDir()); len(entries) > 0 || err != nil {
			t.Errorf("during a download, the temporary folder has %v: %v", entries, err)
		}
		return nil, stop
	}), ocispec.Descriptor{Size: 1})
	if !errors.Is(err, stop) {
		t.Errorf("%v, want that of the store", err)
	}
}
