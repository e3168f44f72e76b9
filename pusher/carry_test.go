package pusher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// blobSource is a source with one blob.
type blobSource struct {
	repo.Reader
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
	c := newCarrier(Stored{Store: blobSource{data: data}}, target{}, provider.Version{})
	err = c.readBlob(t.Context(), content.NewDescriptorFromBytes("text/plain", data), tempWriter{io.NewOffsetWriter(f, 0)})
	var source *repo.RegistryError
	if err == nil || errors.As(err, &source) || hint.Of(err) != helpTemp {
		t.Errorf("error %v, hint %q", err, hint.Of(err))
	}
}

// TestZipOfModuleIsNotAttached shows that a copied module may have a zip of any size that a push accepts. The limit for
// everything else does not count it.
func TestZipOfModuleIsNotAttached(t *testing.T) {
	zip, other := digest.FromString("zip"), digest.FromString("other")
	c := newCarrier(Stored{}, target{}, provider.MustParseVersion("1.0.0"))
	c.zip = zip
	for _, tc := range []struct {
		digest digest.Digest
		size   int64
		fails  bool
	}{
		{zip, provider.MaxZipBytes + 1, true},
		{zip, provider.MaxZipBytes, false},
		{other, maxCarriedBytes + 1, true},
		{other, maxCarriedBytes, false},
		{other, 1, true}, // together with the one above
	} {
		if _, err := c.admit(ocispec.Descriptor{Digest: tc.digest, Size: tc.size}); errors.Is(err, repo.ErrTooMuchAttached) != tc.fails || tc.size == 1 && !strings.HasSuffix(err.Error(), "more than 1073741824 bytes") {
			t.Errorf("%s, %d bytes: %v", tc.digest, tc.size, err)
		}
	}
}
