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
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// packedModule is a version of a module, and its zip.
type packedModule struct {
	version artifact.Version
	open    func() io.ReadCloser
	archive []byte // a tar.gz with the same files
}

// packModule returns a module whose zip is in memory.
func packModule() (packedModule, error) {
	dir, err := os.MkdirTemp("", "module-")
	if err != nil {
		return packedModule{}, err
	}
	defer os.RemoveAll(dir)
	content := make([]byte, 5000)
	rand.NewChaCha8([32]byte{}).Read(content)
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), content, 0o600); err != nil {
		return packedModule{}, err
	}
	z, err := modulezip.Pack(context.Background(), dir)
	if err != nil {
		return packedModule{}, err
	}
	defer z.Close()
	data, err := io.ReadAll(z.Open())
	if err != nil {
		return packedModule{}, err
	}
	archive, err := archiveOf("main.tf", content)
	return packedModule{
		archive: archive,
		version: artifact.Version{
			Owner: module.MustParseAddress(originHost + "/acme/vpc/aws"), Version: provider.MustParseVersion(version),
			Packages: []artifact.Package{{Digest: z.Digest, Size: z.Size, H1: z.H1}},
		},
		open: func() io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) },
	}, err
}

// pushModule runs a push as "ocibridge module push" does.
func (r *rig) pushModule(ctx context.Context) error {
	store, err := r.auth.Repository(ctx, r.repo)
	if err == nil {
		_, err = r.pusher.PushZip(ctx, repo.Destination{Repository: r.repo, Store: registry.Repository{Repository: store}}, &shared.module.version, shared.module.open)
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
	m, err := artifact.ReadZip(r.t.Context(), r.direct(), shared.module.version.Owner, shared.module.version.Version)
	if err != nil {
		r.t.Errorf("the tagged version cannot be read: %v", err)
		return true
	}
	blob := r.truth("blobs", m.Zip().Digest.String())
	if m.Zip().H1 != shared.module.version.Zip().H1 || blob.Code != http.StatusOK || digest.FromBytes(blob.Body.Bytes()) != shared.module.version.Zip().Digest {
		r.t.Errorf("the version is tagged, but its zip is not the pushed one: %d, %d bytes", blob.Code, blob.Body.Len())
	}
	return true
}
