package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

var (
	widget = provider.MustParseAddress("registry.acme.example/acme/widget")
	gadget = provider.MustParseAddress("registry.acme.example/acme/gadget")
	v100   = provider.MustParseVersion("1.0.0")
	v110   = provider.MustParseVersion("1.1.0")
	linux  = provider.MustParsePlatform("linux_amd64")
)

// memory is a repository that counts fetches.
type memory struct {
	mu      sync.Mutex
	blobs   map[digest.Digest][]byte
	fetches int
}

func (m *memory) put(mediaType string, data []byte) ocispec.Descriptor {
	d := digest.FromBytes(data)
	m.blobs[d] = data
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (m *memory) Fetch(_ context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetches++
	data, ok := m.blobs[target.Digest]
	if !ok {
		return nil, errdef.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// count returns the number of fetches since the last call.
func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.fetches
	m.fetches = 0
	return n
}

// signed returns widget 1.0.0 and its repository. The given signer has signed the version's evidence.
func signed(t *testing.T, by *pgp.Signer) (*memory, *artifact.Version) {
	t.Helper()
	return signedWith(t, by, by.ArmoredPublicKey())
}

// signedWith is like signed, but the evidence has the given keys.
func signedWith(t *testing.T, by *pgp.Signer, keys ...string) (*memory, *artifact.Version) {
	t.Helper()
	var gpg []map[string]string
	for _, k := range keys {
		gpg = append(gpg, map[string]string{"ascii_armor": k})
	}
	signingKeys, err := json.Marshal(map[string]any{"gpg_public_keys": gpg})
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{blobs: map[digest.Digest][]byte{}}
	layer := m.put("archive/zip", []byte("content"))
	doc := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256([]byte("content")), provider.PackageFilename(widget, v100, linux))
	signature, err := by.Sign(doc)
	if err != nil {
		t.Fatal(err)
	}
	manifest, parts, err := artifact.EncodeEvidence(artifact.Evidence{
		SHA256SUMS: doc, Signature: signature,
		SigningKeys: signingKeys,
		Record:      artifact.Record{Verdict: trust.Signed},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(parts, manifest) {
		m.put(b.Descriptor.MediaType, b.Data)
	}
	h1, err := provider.ParseHash("h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
	if err != nil {
		t.Fatal(err)
	}
	return m, &artifact.Version{
		Protocols: []string{"5.0"},
		Packages:  []artifact.Package{{Platform: linux, Filename: "claimed.zip", Digest: layer.Digest, Size: layer.Size, H1: h1}},
		Evidence:  &manifest.Descriptor, Index: ocispec.Descriptor{Digest: digest.FromString("index")},
	}
}

func newChecker(by *pgp.Signer) *verify.Checker {
	return verify.New(verify.Options{Policy: func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{by.Fingerprint()}} }})
}

func TestServesVerifiedPackagesAndCachesResults(t *testing.T) {
	acme := pgp.For(t, "Acme")
	m, found := signed(t, acme)
	before := *found
	before.Packages = append([]artifact.Package{}, found.Packages...)
	c := newChecker(acme)
	for _, fetches := range []int{5, 0} {
		got, err := c.Check(t.Context(), m, widget, v100, found)
		if err != nil {
			t.Fatal(err)
		}
		p := got.Packages[0]
		if len(got.Packages) != 1 || p.Digest != found.Packages[0].Digest || !p.H1.IsZero() || p.Filename != provider.PackageFilename(widget, v100, linux) || len(got.Protocols) != 1 {
			t.Errorf("served is %+v", got)
		}
		if n := m.count(); n != fetches {
			t.Errorf("%d fetches, want %d", n, fetches)
		}
	}
	if !reflect.DeepEqual(*found, before) {
		t.Errorf("what was read is changed: %+v", found)
	}
	// The same index counts as another subject if it belongs to another version or provider.
	for _, s := range []struct {
		a provider.Address
		v provider.Version
	}{{widget, v110}, {gadget, v100}} {
		if got, err := c.Check(t.Context(), m, s.a, s.v, found); !errors.Is(err, verify.ErrRefused) || !errors.Is(err, trust.ErrNotListed) {
			t.Errorf("%s %s: %+v, %v", s.a, s.v, got, err)
		}
	}
	if got := c.Counts(); got != (verify.Counts{Verified: 1, Refused: 2}) {
		t.Errorf("%+v", got)
	}
}

func TestMissingEvidenceIsNotCached(t *testing.T) {
	acme := pgp.For(t, "Acme")
	whole, found := signed(t, acme)
	n := &telemetry.VerifyCounters{}
	c := verify.New(verify.Options{Counters: n, Policy: func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{acme.Fingerprint()}} }})
	_, err := c.Check(t.Context(), &memory{}, widget, v100, found)
	if err == nil || errors.Is(err, verify.ErrRefused) || errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if _, err := c.Check(t.Context(), whole, widget, v100, found); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if n.Undecided.Load() != 1 || n.Verified.Load() != 1 || n.Refused.Load() != 0 {
		t.Errorf("%d undecided, %d verified, %d refused", n.Undecided.Load(), n.Verified.Load(), n.Refused.Load())
	}
}

// TestMissingManifestArrives shows that a version is refused while a manifest is missing, and accepted after
// the manifest has arrived. The version's index stays the same.
func TestMissingManifestArrives(t *testing.T) {
	acme := pgp.For(t, "Acme")
	m, found := signed(t, acme)
	later := *found
	without := *found
	without.Packages = nil
	without.Missing = []artifact.MissingPackage{{Platform: linux, Manifest: found.Packages[0].Digest}}
	c := newChecker(acme)
	if got, err := c.Check(t.Context(), m, widget, v100, &without); !errors.Is(err, verify.ErrRefused) {
		t.Errorf("without its only package: %+v, %v", got, err)
	}
	if got, err := c.Check(t.Context(), m, widget, v100, &later); err != nil || len(got.Packages) != 1 {
		t.Errorf("with the package: %+v, %v", got, err)
	}
}

// TestNotStored shows that a version without an index is checked once. If its packages or its evidence
// change, it is checked again.
func TestNotStored(t *testing.T) {
	acme := pgp.For(t, "Acme")
	m, found := signed(t, acme)
	found.Index = ocispec.Descriptor{}
	c := newChecker(acme)
	for range 2 {
		if _, err := c.Check(t.Context(), m, widget, v100, found); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Counts(); got != (verify.Counts{Verified: 1}) {
		t.Errorf("%+v", got)
	}
	tampered, renamed, unsigned := *found, *found, *found
	tampered.Packages = slices.Clone(found.Packages)
	tampered.Packages[0].Digest = digest.FromString("tampered")
	if _, err := c.Check(t.Context(), m, widget, v100, &tampered); !errors.Is(err, trust.ErrChecksum) {
		t.Errorf("another package: %v", err)
	}
	renamed.Packages = slices.Clone(found.Packages)
	renamed.Packages[0].Platform = provider.MustParsePlatform("darwin_arm64")
	if got, err := c.Check(t.Context(), m, widget, v100, &renamed); !errors.Is(err, verify.ErrRefused) {
		t.Errorf("another platform: %+v, %v", got, err)
	}
	unsigned.Evidence = nil
	if _, err := c.Check(t.Context(), m, widget, v100, &unsigned); !errors.Is(err, trust.ErrUnsigned) {
		t.Errorf("without evidence: %v", err)
	}
}

// TestKeysTooLargeInEvidence shows that evidence with keys that are too large is refused immediately.
func TestKeysTooLargeInEvidence(t *testing.T) {
	acme := pgp.For(t, "Acme")
	keys := []string{acme.ArmoredPublicKey()}
	for range 60 {
		keys = append(keys, pgp.ArmoredPackets(t, pgp.ForgedDSA(t, 4097, 256).Packets()))
	}
	for what, keys := range map[string][]string{"beside the pinned key": keys, "alone": keys[1:]} {
		t.Run(what, func(t *testing.T) {
			registry, found := signedWith(t, acme, keys...)
			c := newChecker(acme)
			for range 2 {
				_, err := c.Check(t.Context(), registry, widget, v100, found)
				if !errors.Is(err, verify.ErrRefused) || !errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), "a DSA key has a p of 4097 bits, more than 4096") {
					t.Fatalf("error %v", err)
				}
			}
			if c.Counts().Refused != 1 {
				t.Errorf("%+v", c.Counts())
			}
		})
	}
}

// wordy is a repository whose errors are 4 MB long.
type wordy struct{}

func (wordy) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, fmt.Errorf("%w: %s", artifact.ErrTooLarge, strings.Repeat("x", 4_000_000))
}

// TestLongRefusalsAreNotKept shows that the cache truncates the reason of a refusal if the reason is 4 MB
// long.
func TestLongRefusalsAreNotKept(t *testing.T) {
	acme := pgp.For(t, "Acme")
	_, found := signed(t, acme)
	c := newChecker(acme)
	var refusal error
	cost.Kept(t, 64<<10, func() any {
		_, refusal = c.Check(t.Context(), wordy{}, widget, v100, found)
		return c
	})
	if n := len(refusal.Error()); n > 2<<10 || !errors.Is(refusal, verify.ErrRefused) || !errors.Is(refusal, artifact.ErrTooLarge) {
		t.Errorf("an error of %d bytes: %.200v", n, refusal)
	}
}

// TestEndOfTheContextIsNoVerdict shows that the result of a cancelled check is not cached, so the next check
// succeeds.
func TestEndOfTheContextIsNoVerdict(t *testing.T) {
	acme := pgp.For(t, "Acme")
	registry, found := signed(t, acme)
	c := newChecker(acme)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Check(ctx, registry, widget, v100, found); !errors.Is(err, context.Canceled) || errors.Is(err, verify.ErrRefused) {
		t.Errorf("error %v", err)
	}
	if _, err := c.Check(t.Context(), registry, widget, v100, found); err != nil {
		t.Errorf("checked again: %v", err)
	}
}

// TestManyVersions shows that the result for a version in use stays in the cache while many other versions
// are checked. A version whose result was evicted is checked again.
func TestManyVersions(t *testing.T) {
	testkit.LeaveToAll(t) // it tries very many versions in one goroutine
	acme := pgp.For(t, "Acme")
	m, found := signed(t, acme)
	c := newChecker(acme)
	check := func() int {
		if _, err := c.Check(t.Context(), m, widget, v100, found); err != nil {
			t.Fatal(err)
		}
		return m.count()
	}
	others := func(n int, tag string) {
		for i := range n {
			v := &artifact.Version{Index: ocispec.Descriptor{Digest: digest.FromString(fmt.Sprint(tag, i))}}
			if _, err := c.Check(t.Context(), m, widget, v110, v); !errors.Is(err, verify.ErrRefused) || !errors.Is(err, trust.ErrUnsigned) {
				t.Fatalf("error %v", err)
			}
		}
	}
	check()
	for round := range 5 {
		others(verify.Remembered/2, fmt.Sprint("a", round))
		if n := check(); n != 0 {
			t.Errorf("round %d: %d fetches", round, n)
		}
	}
	others(2*verify.Remembered+1, "b")
	if n := check(); n == 0 {
		t.Error("everything is remembered")
	}
}

// TestConcurrentChecks shows that concurrent checks of an index are counted as one check.
func TestConcurrentChecks(t *testing.T) {
	acme := pgp.For(t, "Acme")
	m, found := signed(t, acme)
	c := newChecker(acme)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := c.Check(t.Context(), m, widget, v100, found); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := c.Counts(); got != (verify.Counts{Verified: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsPinned(t *testing.T) {
	acme := pgp.For(t, "Acme")
	m, found := signed(t, acme)
	c := verify.New(verify.Options{})
	if _, err := c.Check(t.Context(), m, widget, v100, found); !errors.Is(err, verify.ErrRefused) || m.count() != 0 {
		t.Errorf("error %v", err)
	}
}
