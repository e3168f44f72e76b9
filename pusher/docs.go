package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// docs is the documentation that a push stores.
type docs struct {
	manifest artifact.Blob // without data in a copy
	zip      []byte        // nil in a copy
}

// docsOf returns the documentation of a release, or nil if the release has none.
func docsOf(r *origin.Release) (*docs, error) {
	if r.Docs == nil {
		return nil, nil
	}
	manifest, err := artifact.EncodeDocs(artifact.Docs{Provider: r.Provider(), Version: r.Version(), Zip: artifact.DocsZip(r.Docs)})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Provider(), r.Version(), err)
	}
	return &docs{manifest, r.Docs}, nil
}

// copyDocs reads the documentation of the original. If it cannot be used, the copy has none.
func (w *push) copyDocs(ctx context.Context) error {
	o := w.original
	if o.version.Docs == nil {
		return nil
	}
	_, err := artifact.ReadDocs(ctx, o.from.Store, *o.version.Docs, w.release.Provider(), w.release.Version())
	switch {
	case repo.IsUnusable(err):
		w.warn("the documentation in %s is not copied: %v", o.from.Repository, err)
		return nil
	case err != nil:
		return o.from.failed(w.release.Version(), err)
	}
	w.docs = &docs{manifest: artifact.Blob{Descriptor: repo.Plain(*o.version.Docs)}}
	return nil
}

// replacesDocs reports whether the documentation of the push replaces other documentation that is stored. That of a
// copy only does so in a refresh, like its evidence.
func (a *asked) replacesDocs() bool { return a.docs != nil && (a.original == nil || a.refresh) }

// offersDocs reports whether a push changes the documentation of a stored version.
func (a *asked) offersDocs(stored *artifact.Version) bool {
	if a.docs == nil || stored.Docs == nil {
		return a.docs != nil
	}
	return a.replacesDocs() && stored.Docs.Digest != a.docs.manifest.Descriptor.Digest
}

// isOwnDocs reports whether a descriptor names documentation that the push itself has packed.
func (a *asked) isOwnDocs(desc ocispec.Descriptor) bool {
	return a.docs != nil && a.original == nil && a.docs.manifest.Descriptor.Digest == desc.Digest
}

// insists reports whether a push fails if a stored version that has all packages cannot be changed.
func (w *push) insists(stored *artifact.Version) bool {
	return w.refresh || w.original == nil && w.offeredDocs != nil && w.offersDocs(stored)
}

// offerDocs stores the documentation, once per push. It warns, and the version gets none, if the registry refuses it, for
// example because its allow list lacks the artifact type.
func (w *push) offerDocs(ctx context.Context) error {
	if w.docs == nil || w.docsSent {
		return nil
	}
	err := w.sendDocs(ctx)
	var answer *errcode.ErrorResponse
	switch {
	case err == nil:
		w.offeredDocs = &w.docs.manifest.Descriptor
	case errors.As(err, &answer) && repo.RefusesContent(err):
		w.warn("%s refuses the documentation (%v): stored without it", w.Dest.Repository.Registry, answer)
		err = nil
	case w.original != nil && w.cannotCarry(err):
		w.warn("the documentation in %s is not copied: %v", w.original.from.Repository, err)
		err = nil
	}
	w.docsSent = err == nil
	return err
}

func (w *push) sendDocs(ctx context.Context) error {
	if w.original != nil {
		return w.original.carrier.storeManifest(ctx, w.docs.manifest.Descriptor, 1)
	}
	zip := artifact.DocsZip(w.docs.zip)
	exists, err := w.Dest.Store.Exists(ctx, zip)
	if err == nil && !exists {
		_, err = w.upload(ctx, zip, bytesContent(w.docs.zip), func(int) {})
	}
	if err != nil {
		return w.Failed("push documentation to", err)
	}
	for _, b := range []artifact.Blob{artifact.Config(), w.docs.manifest} {
		if err := w.SendBlob(ctx, "push documentation to", b); err != nil {
			return err
		}
	}
	return nil
}

// bytesContent is the content of a layer in memory.
type bytesContent []byte

func (c bytesContent) open(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(c)), nil
}

func (c bytesContent) failure() error { return nil }

// chooseDocs returns the documentation of a version. A version without any gets what another push announced. That of the release does not replace documentation that another
// push stored after this push began. Otherwise, two pushes would replace each other's documentation forever.
func (s situation) chooseDocs() *ocispec.Descriptor {
	var stored *ocispec.Descriptor
	if s.stored != nil {
		stored = s.stored.Docs
	}
	switch {
	case s.docs == nil && stored == nil:
		return s.announcedDocs
	case s.docs == nil:
		return stored
	case stored == nil, s.replaceDocs && s.before != nil && sameDigest(stored, s.before.Docs):
		return s.docs
	}
	return stored
}

// reportDocs adds to a result which documentation is stored.
func (w *push) reportDocs(r *Result, after *artifact.Version) {
	if after.Docs == nil {
		return
	}
	r.Docs = after.Docs.Digest.String()
	if w.offeredDocs != nil && w.replacesDocs() && !sameDigest(after.Docs, w.offeredDocs) {
		r.warn("the documentation in place is kept: another push has just stored it")
	}
}
