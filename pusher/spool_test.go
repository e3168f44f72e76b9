package pusher

import (
	"errors"
	"io"
	"testing"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// endless is a body that has no end, and counts what was read of it.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

// TestPackageWithoutEnd stops at the bound, whether the origin announces no size or
// one beyond it, and keeps no more than that on disk.
func TestPackageWithoutEnd(t *testing.T) {
	const name, limit = "terraform-provider-widget_1.0.0_linux_amd64.zip", 10 * pieceBytes
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{
		Provider: provider.MustParseAddress("registry.acme.example/acme/widget"), Version: provider.MustParseVersion("1.0.0"),
		SHA256SUMS: []byte("0000000000000000000000000000000000000000000000000000000000000000  " + name + "\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, announced := range map[string]int64{"nothing": -1, "more than any package has": 1 << 50} {
		verifier, err := sums.Verifier(provider.MustParsePlatform("linux_amd64"), name)
		if err != nil {
			t.Fatal(err)
		}
		temp, err := newTempFile()
		if err != nil {
			t.Fatal(err)
		}
		body := &endless{}
		s := &spool{
			src: body, file: temp, temp: temp, closers: []io.Closer{temp}, verifier: verifier, size: announced, limit: limit,
			report: func(int) {}, explain: func(err error) error { return err },
		}
		if err := s.drain(); !errors.Is(err, ErrTooLong) {
			t.Errorf("announced is %s: %v", what, err)
		}
		if info, err := temp.Stat(); err != nil || info.Size() > limit+pieceBytes || body.read != info.Size() {
			t.Errorf("announced is %s: %d bytes were read, %v, %v", what, body.read, info, err)
		}
		s.Close()
	}
}
