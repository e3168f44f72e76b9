package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// repositoryState is what a provider's repository holds, by one listing of its
// tags.
type repositoryState struct {
	provider provider.Address
	dest     Destination
	store    SyncStore
	versions map[provider.Version]bool
	tags     []ociaddr.Tag // all
	// oldAges are the tags in which earlier releases kept ages, [ociaddr.SeenAll] last.
	oldAges []ociaddr.Tag

	keep      bool               // others look after the repository, too
	cooldown  bool               // the provider has a cooldown
	ages      stateChange        // what the plan read from oldAges and the state lacks
	unseen    []provider.Version // versions of the source that no sync has seen before
	firstSync bool               // no sync with a cooldown has been there before

	cold atomic.Bool // as that of keptStore
}

func (s *Syncer) repositoryState(ctx context.Context, a provider.Address) (*repositoryState, error) {
	dest, err := s.o.Push.Destination(ctx, a)
	if err != nil {
		return nil, err
	}
	store, ok := dest.Store.(SyncStore)
	if !ok {
		return nil, fmt.Errorf("%s: the store of %s cannot be synced", a, dest.Repository)
	}
	state := &repositoryState{
		provider: a, dest: dest, store: store,
		versions: map[provider.Version]bool{},
	}
	if state.tags, err = listTags(mayPush(ctx, dest.Repository), store); err != nil {
		return nil, &RegistryError{"list tags of", dest.Repository, err}
	}
	for _, t := range state.tags {
		if v, ok := t.Version(); ok {
			state.versions[v] = true
		}
		if _, ok := t.Seen(); ok {
			state.oldAges = append(state.oldAges, t)
		}
	}
	if slices.Contains(state.tags, ociaddr.SeenAll) {
		state.oldAges = append(state.oldAges, ociaddr.SeenAll)
	}
	return state, nil
}

// read reads a version that is in a repository.
func (p *planner) read(ctx context.Context, dest Destination, v provider.Version) (*artifact.Version, error) {
	found, err := artifact.Read(ctx, keptStore{p.state.store, p.o.Manifests, &p.state.cold}, p.want.Provider, v)
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, hint.Wrap(fmt.Errorf("%s:%s: %w: %w", dest.Repository, v, ErrOccupied, err), "let the template give each provider a repository of its own")
	case isUnusable(err):
		return nil, hint.Wrap(fmt.Errorf("%s:%s: %w", dest.Repository, v, err), "ocibridge push --force replaces what the tag names")
	}
	return nil, &RegistryError{"read " + v.String() + " in", dest.Repository, err}
}

// keptStore asks for a tag by HEAD, and for a manifest only if it is not kept.
type keptStore struct {
	SyncStore
	kept Manifests // nil: none are
	// cold is set once a manifest was not kept. Others are then likely not to be,
	// either, and a tag is asked for by GET at once; nil: always by HEAD first.
	cold *atomic.Bool
}

// FetchReference implements [artifact.ReferenceFetcher].
func (k keptStore) FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	if k.kept == nil {
		return k.SyncStore.FetchReference(ctx, reference)
	}
	if k.cold != nil && k.cold.Load() {
		return k.getAndKeep(ctx, reference)
	}
	desc, err := k.Resolve(ctx, reference)
	if err != nil || desc.Size <= 0 || desc.Size > artifact.MaxManifestBytes {
		// Some registries answer HEAD without what it takes. What is truly gone is
		// so for GET as well.
		return k.SyncStore.FetchReference(ctx, reference)
	}
	body, err := k.Fetch(ctx, desc)
	if isNotFound(err) { // the tag has moved, and what it named was pruned
		return k.SyncStore.FetchReference(ctx, reference)
	}
	return desc, body, err
}

// getAndKeep gets a manifest by tag, and keeps it if it is what it is said to be.
func (k keptStore) getAndKeep(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	desc, body, err := k.SyncStore.FetchReference(ctx, reference)
	if err != nil {
		return desc, nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, artifact.MaxManifestBytes+1))
	if err != nil {
		return desc, nil, err
	}
	if int64(len(data)) == desc.Size && digest.FromBytes(data) == desc.Digest {
		k.kept.Put(desc, data)
	}
	return desc, io.NopCloser(bytes.NewReader(data)), nil
}

// Fetch implements [artifact.Fetcher].
func (k keptStore) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if k.kept == nil || desc.Size > artifact.MaxManifestBytes || !artifact.IsManifest(desc.MediaType) {
		return k.SyncStore.Fetch(ctx, desc)
	}
	if body, ok := k.kept.Get(desc); ok {
		return body, nil
	}
	if k.cold != nil {
		k.cold.Store(true)
	}
	data, err := artifact.FetchManifest(ctx, k.SyncStore, desc)
	if err != nil {
		return nil, err
	}
	k.kept.Put(desc, data)
	return io.NopCloser(bytes.NewReader(data)), nil
}

// keeping has manifests kept that are pushed under a tag: the next sync asks for
// them.
func keeping(destination func(context.Context, provider.Address) (Destination, error), kept Manifests) func(context.Context, provider.Address) (Destination, error) {
	return func(ctx context.Context, a provider.Address) (Destination, error) {
		dest, err := destination(ctx, a)
		if store, ok := dest.Store.(SyncStore); ok {
			dest.Store = keepingStore{store, kept}
		}
		return dest, err
	}
}

type keepingStore struct {
	SyncStore
	kept Manifests
}

// Remote returns the repository that it wraps, for uploads.
func (k keepingStore) Remote() *remote.Repository { return remoteOf(k.SyncStore) }

// PushReference implements [Store].
func (k keepingStore) PushReference(ctx context.Context, desc ocispec.Descriptor, content io.Reader, reference string) error {
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if err := k.SyncStore.PushReference(ctx, desc, bytes.NewReader(data), reference); err != nil {
		return err
	}
	k.kept.Put(desc, data)
	return nil
}

func (p *planner) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}
