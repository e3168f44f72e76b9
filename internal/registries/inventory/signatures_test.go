package inventory_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// unlisted is a registry that does not list what is attached.
type unlisted struct{ inventory.Remote }

func (u unlisted) Repository(ctx context.Context, a subject.Address) (ociaddr.Repository, inventory.Store, error) {
	addr, store, err := u.Remote.Repository(ctx, a)
	return addr, unlistedStore{store}, err
}

type unlistedStore struct{ inventory.Store }

func (unlistedStore) Referrers(context.Context, ocispec.Descriptor, string, func([]ocispec.Descriptor) error) error {
	return errors.New("no list")
}

// TestInspectWithoutSignatures shows that inspect describes a version whose signatures cannot be read, and says so.
func TestInspectWithoutSignatures(t *testing.T) {
	r := stored.For(t, apart)
	r.Store("acme/null", "1.0.0")
	i := of(r)
	i.Registry = unlisted{inventory.Remote{Repositories: r}}
	got, err := inventory.Inspect(t.Context(), find(t, i, "HOST/acme/null@1.0.0"))
	if err != nil || len(got.Packages) != 2 || got.SignaturesError == nil || !strings.Contains(got.SignaturesError.Message, "no list") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDeniedByDigest shows that list, inspect and verify say of a version that it is denied if a rule denies the digest of its index.
func TestDeniedByDigest(t *testing.T) {
	r := stored.For(t, apart)
	r.Store("acme/null", "1.0.0")
	i := of(r)
	first, err := inventory.Inspect(t.Context(), find(t, i, "HOST/acme/null@1.0.0"))
	if err != nil || first.Denied != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	i.Denies = func(_ subject.Address, _ provider.Version, manifest digest.Digest) (string, bool) {
		return "it opens port 22", string(manifest) == first.Digest
	}
	inspected, err := inventory.Inspect(t.Context(), find(t, i, "HOST/acme/null@1.0.0"))
	if err != nil || inspected.Denied == nil {
		t.Errorf("inspect: %+v, %v", inspected, err)
	}
	listed, err := find(t, i, "HOST/acme/null").List(t.Context())
	if err != nil || listed.Stored[0].Versions[0].Denied == nil {
		t.Errorf("list: %+v, %v", listed, err)
	}
	verified, err := find(t, i, "HOST/acme/null").Verify(t.Context(), inventory.Verifier{Policy: func(provider.Address) trust.Policy { return trust.Policy{} }})
	if err != nil || verified.Stored[0].Versions[0].Denied == nil {
		t.Errorf("verify: %+v, %v", verified, err)
	}
}
