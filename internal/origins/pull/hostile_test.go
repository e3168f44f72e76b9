package pull

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// opener opens a package, as [origin.Package] does.
type opener = func(context.Context) (io.ReadCloser, int64, error)

// liar is an origin whose packages differ from the SHA256SUMS that it offers.
type liar struct {
	*source
	open opener
}

func (l liar) Release(ctx context.Context, a provider.Address, listing *origin.Listing, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	r, err := l.source.Release(ctx, a, listing, v, want)
	if err == nil {
		r.Packages[0].Open = l.open
	}
	return r, err
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a bug") }

// TestHostilePackages shows that, if an origin sends other bytes than the signed package, neither clients nor the
// registry get a complete package. The bytes that the origin sends cannot exceed the limits.
func TestHostilePackages(t *testing.T) {
	v := provider.MustParseVersion("1.0.0")
	whole := content(v)
	size := int64(len(whole))
	says := func(n int64, r io.Reader) opener {
		return func(context.Context) (io.ReadCloser, int64, error) { return io.NopCloser(r), n, nil }
	}
	for name, tc := range map[string]struct {
		open   func() opener
		limits Limits
		check  func(error) bool
	}{
		"more than announced": {open: func() opener { return says(size, io.MultiReader(bytes.NewReader(whole), endless{})) }, limits: Limits{MaxSpool: 4 << 20},
			check: func(err error) bool { return err != nil && strings.Contains(err.Error(), "sends more than") }},
		"fewer than announced": {open: func() opener { return says(size, bytes.NewReader(whole[1:])) },
			// A reader that opens the package after the failed download gets a copy of the download's error with
			// the same text.
			check: func(err error) bool { return err != nil && strings.HasSuffix(err.Error(), io.ErrUnexpectedEOF.Error()) }},
		"fewer than listed": {open: func() opener { return says(-1, bytes.NewReader(whole[1:])) },
			check: func(err error) bool { return errors.Is(err, trust.ErrChecksum) }},
		"other bytes": {open: func() opener { return says(size, bytes.NewReader(bytes.ToUpper(whole))) },
			check: func(err error) bool { return errors.Is(err, trust.ErrChecksum) }},
		"without end": {open: func() opener { return says(-1, endless{}) }, limits: Limits{MaxSize: 1 << 20},
			check: func(err error) bool { return errors.As(err, new(*SizeError)) }},
		"announced too large": {open: func() opener { return says(2<<20, endless{}) }, limits: Limits{MaxSize: 1 << 20},
			check: func(err error) bool { return errors.As(err, new(*SizeError)) }},
		"a bug in what reads it": {open: func() opener { return says(-1, io.MultiReader(bytes.NewReader(whole[1:]), panicking{})) },
			check: func(err error) bool { return errors.As(err, new(*panics.Error)) }},
		"more than the disk may take": {open: func() opener { return says(-1, endless{}) }, limits: Limits{MaxSpool: 4 << 20},
			check: func(err error) bool { return errors.As(err, new(*catalog.BusyError)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pushed := make(chan error, 100)
				p, err := New(Options{
					Origin: locating{liar{&source{versions: []string{"1.0.0"}}, tc.open()}}, Policy: allowUnsigned, Limits: tc.limits, Spool: t.TempDir(),
					Push: func(ctx context.Context, r *origin.Release) (*pusher.Result, error) {
						body, _, err := r.Packages[0].Open(ctx)
						if err == nil {
							_, err = io.Copy(io.Discard, body)
							body.Close()
						}
						pushed <- err
						if err == nil {
							err = errors.New("it must not get here")
						}
						return nil, err
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				store := of(p, widget)
				found, err := store.Complete(t.Context(), v, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := fetched(t.Context(), store, found.Packages[0]); !tc.check(err) {
					t.Errorf("a client gets %v", err)
				}
				if err := <-pushed; err == nil {
					t.Error("the registry gets the complete package")
				}
				p.Close()
				time.Sleep(lingerTime)
				synctest.Wait()
				if usage := p.Usage(); usage.Spool != 0 || usage.Fetching != 0 {
					t.Errorf("in use: %+v", usage)
				}
			})
		})
	}
}

// fetched reads a package as the gateway does, and returns an error unless the package is complete.
func fetched(ctx context.Context, store pulled, p artifact.Package) error {
	size, err := store.blob(p).Size(ctx, true)
	if err != nil {
		return err
	}
	body, _, err := store.blob(p).Open(ctx, size, 0)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// TestPushPanics shows that a push that panics ends neither the process nor the downloads of clients, and is not retried soon.
func TestPushPanics(t *testing.T) {
	v := provider.MustParseVersion("1.0.0")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		pushes := 0
		p, err := New(Options{
			Origin: locating{&source{versions: []string{"1.0.0"}}}, Policy: allowUnsigned, Spool: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Push: func(context.Context, *origin.Release) (*pusher.Result, error) { pushes++; panic("a bug") },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		store := of(p, widget)
		found, err := store.Complete(t.Context(), v, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := fetched(t.Context(), store, found.Packages[0]); err != nil {
				t.Errorf("a client gets %v", err)
			}
			time.Sleep(refusedPause / 2)
			synctest.Wait()
		}
		if got := log.String(); pushes != 1 || strings.Count(got, "msg=panic") != 1 || p.Pending() != 0 {
			t.Errorf("%d pushes, %d pending\n%s", pushes, p.Pending(), got)
		}
	})
}
