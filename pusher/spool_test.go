package pusher

import (
	"errors"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// endless is a body that never ends. It counts the bytes that were read.
type endless struct {
	read   int64
	closed bool
}

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

func (e *endless) Close() error {
	e.closed = true
	return nil
}

// TestPackageWithoutEnd shows that a push reads and stores at most the maximum size of a package, whether the origin
// announces no size or a larger size.
func TestPackageWithoutEnd(t *testing.T) {
	const name, limit = "terraform-provider-widget_1.0.0_linux_amd64.zip", 10 * fill.Buffer
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
		body, reported := &endless{}, int64(0)
		s := &spool{verifier: verifier, report: func(n int) { reported += int64(n) }, explain: func(err error) error { return err }}
		err = s.begin(t.Context(), func() {}, body, announced, limit)
		if err == nil {
			err = s.drain()
			if n := s.file.State().Written; n > limit || body.read > limit+fill.Buffer || reported != body.read {
				t.Errorf("announced is %s: %d bytes were read, %d reported, %d stored", what, body.read, reported, n)
			}
			s.Close()
		}
		if !errors.Is(err, ErrTooLong) || announced > 0 && body.read > 0 || !body.closed {
			t.Errorf("announced is %s: %v after %d bytes; closed is %v", what, err, body.read, body.closed)
		}
	}
}
