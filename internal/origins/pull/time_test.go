package pull

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	testrelease "github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

var (
	widget = provider.MustParseAddress("registry.acme.example/acme/widget")
	linux  = provider.MustParsePlatform("linux_amd64")
)

// source is an origin in memory, because requests over a network do not run in virtual time.
type source struct {
	mu       sync.Mutex
	versions []string
	warnings []string
	err      error
	delay    time.Duration
	signer   *pgp.Signer // nil means that releases are unsigned
	asked    int
	opened   int
}

func (s *source) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// calls returns the number of requests for the list since calls was last called.
func (s *source) calls() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.asked
	s.asked = 0
	return n
}

func (s *source) Versions(ctx context.Context, _ provider.Address) (*origin.Listing, error) {
	s.mu.Lock()
	s.asked++
	delay, err := s.delay, s.err
	l := &origin.Listing{OriginWarnings: s.warnings}
	for _, v := range s.versions {
		l.Versions = append(l.Versions, provider.MustParseVersion(v))
	}
	s.mu.Unlock()
	if ctxErr := hang(ctx, delay); ctxErr != nil {
		return nil, ctxErr
	}
	return l, err
}

// hang waits for the delay, or until ctx ends. It makes no timer that it does not need: the runtime of Go 1.26.8 has crashed
// in one, under the race detector.
func hang(ctx context.Context, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *source) Platforms(context.Context, provider.Address, *origin.Listing, provider.Version) ([]provider.Platform, error) {
	return []provider.Platform{linux}, nil
}

func content(v provider.Version) []byte {
	return testrelease.AsZip([]byte(strings.Repeat("content of "+v.String(), 1000)))
}

func (s *source) Release(ctx context.Context, a provider.Address, _ *origin.Listing, v provider.Version, _ []provider.Platform) (*origin.Release, error) {
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	if err := hang(ctx, delay); err != nil {
		return nil, err
	}
	name := provider.PackageFilename(a, v, linux)
	claims := trust.Claims{Provider: a, Version: v, SHA256SUMS: fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(content(v)), name)}
	if s.signer != nil {
		var err error
		if claims.Signature, err = s.signer.Sign(claims.SHA256SUMS); err != nil {
			return nil, err
		}
		claims.Keys = []string{s.signer.ArmoredPublicKey()}
	}
	return &origin.Release{
		Origin: a.Hostname(),
		Claims: claims,
		Packages: []origin.Package{{Platform: linux, Filename: name, Open: func(context.Context) (io.ReadCloser, int64, error) {
			s.set(func() { s.opened++ })
			return io.NopCloser(bytes.NewReader(content(v))), int64(len(content(v))), nil
		}}},
	}, nil
}

// locating adds the method Package to a test's origin. The method returns packages of the origin's releases.
type locating struct{ origin.Source }

func (l locating) Package(ctx context.Context, a provider.Address, v provider.Version, platform provider.Platform) (pkg origin.Package, sum [sha256.Size]byte, err error) {
	r, err := l.Release(ctx, a, nil, v, []provider.Platform{platform})
	if err != nil {
		return pkg, sum, err
	}
	pkg = r.Packages[slices.IndexFunc(r.Packages, func(p origin.Package) bool { return p.Platform == platform })]
	for line := range strings.Lines(string(r.Claims.SHA256SUMS)) {
		if text, ok := strings.CutSuffix(line, "  "+pkg.Filename+"\n"); ok {
			_, err = hex.Decode(sum[:], []byte(text))
		}
	}
	return pkg, sum, err
}

// pulled gives access to one provider of a Puller.
type pulled struct {
	p *Puller
	a provider.Address
}

// of gives access to a provider of a Puller, and to an empty repository of that provider.
func of(p *Puller, a provider.Address) pulled { return pulled{p, a} }

// blob returns a package. It takes the version from the package's file name.
func (s pulled) blob(p artifact.Package) catalog.Blob {
	v := strings.TrimPrefix(p.Filename, "terraform-provider-"+s.a.Type()+"_")
	v = strings.TrimSuffix(v, "_"+p.Platform.String()+".zip")
	return s.p.Package(s.a, provider.MustParseVersion(v), p, catalog.Stored{Store: empty{}, Layer: p.Layer()})
}

func (s pulled) Offers(ctx context.Context) ([]catalog.Offer, []string, error) {
	return s.p.Offers(ctx, s.a)
}

func (s pulled) Complete(ctx context.Context, v provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	return s.p.Complete(ctx, s.a, v, stored)
}

// empty is a repository without content.
type empty struct{}

func (empty) Exists(context.Context, ocispec.Descriptor) (bool, error) { return false, nil }

func (empty) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errdef.ErrNotFound
}

func (empty) Blobs() registry.BlobStore { return noBlobs{} }

// noBlobs has no blobs.
type noBlobs struct{ registry.BlobStore }

func (noBlobs) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errdef.ErrNotFound
}

func (empty) Tags(context.Context, string, func([]string) error) error { return errdef.ErrNotFound }

func (empty) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return ocispec.Descriptor{}, nil, errdef.ErrNotFound
}

func (empty) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errdef.ErrNotFound
}

var allowUnsigned = func(provider.Address) trust.Policy { return trust.Policy{AllowUnsigned: true} }

func puller(t *testing.T, s *source, o Options) *Puller {
	t.Helper()
	o.Origin, o.Policy = locating{s}, allowUnsigned
	if o.Spool == "" {
		o.Spool = t.TempDir()
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// offered returns the versions of widget that are offered, or "trouble" if the origin fails.
func offered(t *testing.T, p *Puller) string {
	t.Helper()
	offers, _, err := of(p, widget).Offers(t.Context())
	if err != nil {
		if !errors.Is(err, catalog.ErrSource) {
			t.Errorf("%v is not marked as a failure of the origin", err)
		}
		return "trouble"
	}
	var out []string
	for _, o := range offers {
		out = append(out, o.Version.String())
	}
	return strings.Join(out, " ")
}

// TestCooldown shows that a cooldown starts when a version is first seen, and survives restarts.
func TestCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0", "1.1.0"}}
		o := Options{Scope: Scope{Cooldown: 24 * time.Hour}, Directory: t.TempDir(), ListTTL: time.Minute}
		p := puller(t, s, o)
		expect := func(want string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			if got := offered(t, p); got != want {
				t.Errorf("offered are %q, want %q", got, want)
			}
		}
		expect("1.0.0 1.1.0")
		s.set(func() { s.versions = append(s.versions, "2.0.0") })
		expect("1.0.0 1.1.0")
		time.Sleep(12 * time.Hour)
		expect("1.0.0 1.1.0")
		p.Close()
		p = puller(t, s, o)
		expect("1.0.0 1.1.0")
		time.Sleep(12 * time.Hour)
		expect("1.0.0 1.1.0 2.0.0")
		// After the origin has reported the provider as absent for a while, a new version still has its cooldown.
		s.set(func() { s.err = fmt.Errorf("%w: 404", origin.ErrProviderNotFound) })
		expect("")
		p.Close()
		p = puller(t, s, o)
		s.set(func() { s.err, s.versions = nil, append(s.versions, "3.0.0") })
		expect("1.0.0 1.1.0 2.0.0")
	})
	if _, err := New(Options{Scope: Scope{Cooldown: time.Hour}}); err == nil {
		t.Error("a cooldown is accepted without a folder")
	}
}

// TestCooldownBesideAnotherProcess shows that a process without a cooldown does not end the cooldown
// of a process that shares its folder.
func TestCooldownBesideAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0"}}
		o := Options{Scope: Scope{Cooldown: 24 * time.Hour}, Directory: t.TempDir(), ListTTL: time.Minute}
		p := puller(t, s, o)
		if got := offered(t, p); got != "1.0.0" {
			t.Errorf("offered are %q", got)
		}
		s.set(func() { s.versions = append(s.versions, "2.0.0") })
		time.Sleep(2 * time.Minute)
		offered(t, p)
		p.Close()
		other := puller(t, s, Options{Directory: o.Directory, ListTTL: time.Minute})
		if got := offered(t, other); got != "1.0.0 2.0.0" {
			t.Errorf("without a cooldown, offered are %q", got)
		}
		time.Sleep(2 * time.Minute)
		offered(t, other)
		other.Close()
		p = puller(t, s, o)
		time.Sleep(2 * time.Minute)
		if got := offered(t, p); got != "1.0.0" {
			t.Errorf("with the cooldown again, offered are %q", got)
		}
		time.Sleep(24 * time.Hour)
		offered(t, p)
		synctest.Wait()
		if got := offered(t, p); got != "1.0.0 2.0.0" {
			t.Errorf("after a day, offered are %q", got)
		}
	})
}

// TestLongerCooldown shows that, if the cooldown is longer after a restart, it also applies to the versions in a saved
// list, even while the origin fails.
func TestLongerCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0"}}
		o := Options{Scope: Scope{Cooldown: time.Hour}, Directory: t.TempDir(), ListTTL: time.Minute}
		p := puller(t, s, o)
		for _, want := range []string{"1.0.0", "1.0.0", "1.0.0", "1.0.0 2.0.0"} {
			if got := offered(t, p); got != want {
				t.Errorf("offered are %q, want %q", got, want)
			}
			s.set(func() { s.versions = []string{"1.0.0", "2.0.0"} })
			time.Sleep(50 * time.Minute)
		}
		p.Close()
		o.Scope.Cooldown = 7 * 24 * time.Hour
		s.set(func() { s.err = errors.New("503") })
		if got := offered(t, puller(t, s, o)); got != "1.0.0" {
			t.Errorf("offered with a longer cooldown: %q", got)
		}
	})
}

// TestScopeChanges shows that the scope can change between two processes or on a reload. If the new scope excludes all
// versions of a saved list, the Puller does not conclude that the origin offers no versions.
func TestScopeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0", "2.0.0"}}
		o := Options{Directory: t.TempDir()}
		for _, next := range []struct{ versions, want string }{{"~> 1.0", "1.0.0"}, {"~> 2.0", "2.0.0"}, {"~> 3.0", ""}, {"~> 1.0", "1.0.0"}} {
			set, err := provider.ParseConstraint(next.versions)
			if err != nil {
				t.Fatal(err)
			}
			o.Scope.Versions = set
			p := puller(t, s, o)
			if got := offered(t, p); got != next.want {
				t.Errorf("offered of %s are %q, want %q", next.versions, got, next.want)
			}
			p.Close()
		}
	})
}

// TestOriginHangs shows that, if a client stops waiting for an origin, it gets the stored versions. Versions that only
// the origin has are not reported as absent.
func TestOriginHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := provider.MustParseVersion("1.0.0")
		s := &source{versions: []string{"1.0.0"}}
		dir := t.TempDir()
		if got := offered(t, puller(t, s, Options{Directory: dir})); got != "1.0.0" {
			t.Fatalf("offered are %q", got)
		}
		s.set(func() { s.delay = time.Hour })
		for name, o := range map[string]Options{"nothing is known of it": {}, "its list is on disk": {Directory: dir}} {
			store := of(puller(t, s, o), widget)
			for _, stored := range []*artifact.Version{{Owner: widget, Version: v}, nil} {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				found, err := store.Complete(ctx, v, stored)
				cancel()
				if found != stored || stored != nil && err != nil || stored == nil && !errors.Is(err, catalog.ErrSource) {
					t.Errorf("%s: of %v: %v, %v", name, stored, found, err)
				}
			}
		}
	})
}

// TestPushIsTriedAgain shows that a failed push is retried after a pause, and that clients are served meanwhile.
func TestPushIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0"}}
		var mu sync.Mutex
		var pushes []time.Duration
		start := time.Now()
		o := Options{Push: func(ctx context.Context, r *origin.Release) (*pusher.Result, error) {
			body, size, err := r.Packages[0].Open(ctx)
			if err != nil {
				return nil, err
			}
			defer body.Close()
			if data, err := io.ReadAll(body); err != nil || int64(len(data)) != size {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			mu.Lock()
			defer mu.Unlock()
			if pushes = append(pushes, time.Since(start)); len(pushes) < 3 {
				return nil, errors.New("no way")
			}
			return &pusher.Result{}, nil
		}}
		p := puller(t, s, o)
		store := of(p, widget)
		v := provider.MustParseVersion("1.0.0")
		found, err := store.Complete(t.Context(), v, nil)
		if err != nil || len(found.Packages) != 1 {
			t.Fatal(found, err)
		}
		for range 3 {
			read(t, store, found.Packages[0])
		}
		synctest.Wait()
		s.set(func() {
			if s.opened != 1 {
				t.Errorf("%d downloads", s.opened)
			}
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(pushes) != "[0s 30s 1m30s]" || p.Pending() != 0 {
			t.Errorf("pushed at %v, %d pending", pushes, p.Pending())
		}
		if usage := p.Usage(); usage.Spool != 0 || usage.Fetching != 0 {
			t.Errorf("in use: %+v", usage)
		}
	})
}

// twoPlatforms is a source with a second platform.
type twoPlatforms struct{ *source }

var darwin = provider.MustParsePlatform("darwin_arm64")

func (twoPlatforms) Platforms(context.Context, provider.Address, *origin.Listing, provider.Version) ([]provider.Platform, error) {
	return []provider.Platform{darwin, linux}, nil
}

func (s twoPlatforms) Release(_ context.Context, a provider.Address, _ *origin.Listing, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	r := &origin.Release{Origin: a.Hostname(), Claims: trust.Claims{Provider: a, Version: v}}
	for _, p := range []provider.Platform{darwin, linux} {
		name, data := provider.PackageFilename(a, v, p), testrelease.AsZip([]byte(p.String()))
		r.Claims.SHA256SUMS = fmt.Appendf(r.Claims.SHA256SUMS, "%x  %s\n", sha256.Sum256(data), name)
		if slices.Contains(want, p) {
			r.Packages = append(r.Packages, origin.Package{Platform: p, Filename: name, Open: func(context.Context) (io.ReadCloser, int64, error) {
				return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
			}})
		}
	}
	return r, nil
}

// TestPausesHoldNoDisk shows that, while the push of a version waits for its retry, the packages of the version take
// no disk space. The retry also pushes the packages that clients have requested meanwhile.
func TestPausesHoldNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pushed []string
		var mu sync.Mutex
		p, err := New(Options{
			Origin: locating{twoPlatforms{&source{versions: []string{"1.0.0"}}}}, Policy: allowUnsigned, Spool: t.TempDir(), Scope: Scope{Platforms: []provider.Platform{linux}},
			Push: func(ctx context.Context, r *origin.Release) (*pusher.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				var platforms []string
				for _, pkg := range r.Packages {
					platforms = append(platforms, pkg.Platform.String())
				}
				if pushed = append(pushed, strings.Join(platforms, " ")); len(pushed) == 1 {
					return nil, errors.New("no way")
				}
				return &pusher.Result{}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		store := of(p, widget)
		found, err := store.Complete(t.Context(), provider.MustParseVersion("1.0.0"), nil)
		if err != nil || len(found.Packages) != 2 {
			t.Fatal(found, err)
		}
		read(t, store, found.Packages[1])
		synctest.Wait()
		read(t, store, found.Packages[0])
		time.Sleep(lingerTime + time.Second)
		synctest.Wait()
		if usage := p.Usage(); usage.Spool != 0 {
			t.Errorf("in use while the push waits: %+v", usage)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"linux_amd64", "darwin_arm64 linux_amd64"}; !slices.Equal(pushed, want) || p.Pending() != 0 {
			t.Errorf("pushed are %q, want %q; %d pending", pushed, want, p.Pending())
		}
	})
}

// read reads a package as the gateway does.
func read(t *testing.T, store pulled, p artifact.Package) {
	t.Helper()
	body, size, err := begin(t, store, p)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if data, err := io.ReadAll(body); err != nil || int64(len(data)) != size {
		t.Errorf("%d bytes of %d, %v", len(data), size, err)
	}
}
