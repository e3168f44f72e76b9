package inventory_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/ociaddr"
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
