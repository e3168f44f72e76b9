package pusher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// blobSource is a source with one blob.
type blobSource struct {
	StoredStore
	data []byte
}

func (s blobSource) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s.data)), nil
}

// TestTemporaryFileCannotBeWritten shows that, if a temporary file cannot be written, the error is not reported as a
// failure of the source.
func TestTemporaryFileCannotBeWritten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "read-only")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := []byte("signature")
	c := newCarrier(source{Store: blobSource{data: data}}, writer{}, provider.Version{})
	err = c.readBlob(t.Context(), content.NewDescriptorFromBytes("text/plain", data), tempWriter{io.NewOffsetWriter(f, 0)})
	var source *RegistryError
	if err == nil || errors.As(err, &source) || hint.Of(err) != helpTemp {
		t.Errorf("error %v, hint %q", err, hint.Of(err))
	}
}
