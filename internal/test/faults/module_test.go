package faults_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// packModule returns a module whose zip is in memory.
func packModule() (pusher.ModulePackage, error) {
	dir, err := os.MkdirTemp("", "module-")
	if err != nil {
		return pusher.ModulePackage{}, err
	}
	defer os.RemoveAll(dir)
	content := make([]byte, 5000)
	rand.NewChaCha8([32]byte{}).Read(content)
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), content, 0o600); err != nil {
		return pusher.ModulePackage{}, err
	}
	z, err := modulezip.Pack(context.Background(), dir)
	if err != nil {
		return pusher.ModulePackage{}, err
	}
	defer z.Close()
	data, err := io.ReadAll(z.Open())
	return pusher.ModulePackage{
		Module: artifact.Module{
			Address: module.MustParseAddress(originHost + "/acme/vpc/aws"), Version: provider.MustParseVersion(version),
			Digest: z.Digest, Size: z.Size, H1: z.H1,
		},
		Open: func() io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) },
	}, err
}

// pushModule runs a push as "ocibridge module push" does.
func (r *rig) pushModule(ctx context.Context) error {
	store, err := r.auth.Repository(ctx, r.repo)
	if err == nil {
		_, err = r.pusher.PushModule(ctx, repo.Destination{Repository: r.repo, Store: registry.Repository{Repository: store}}, shared.module)
	}
	return r.auth.Explain(err, r.repo)
}

// moduleTagged reports whether the module's version is tagged. It reports an error if the version is tagged but
// incomplete.
func (r *rig) moduleTagged() bool {
	r.t.Helper()
	if r.truth("manifests", version).Code == http.StatusNotFound {
		return false
	}
	m, err := artifact.ReadModule(r.t.Context(), r.direct(), shared.module.Address, shared.module.Version)
	if err != nil {
		r.t.Errorf("the tagged version cannot be read: %v", err)
		return true
	}
	blob := r.truth("blobs", m.Digest.String())
	if m.H1 != shared.module.H1 || blob.Code != http.StatusOK || digest.FromBytes(blob.Body.Bytes()) != shared.module.Digest {
		r.t.Errorf("the version is tagged, but its zip is not the pushed one: %d, %d bytes", blob.Code, blob.Body.Len())
	}
	return true
}
