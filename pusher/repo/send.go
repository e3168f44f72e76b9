package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Session holds what all writes of one run share.
type Session struct {
	retryPause time.Duration // before the first retry of a request; each further pause is twice as long
	jobs       int           // the maximum number of repositories that are summarized concurrently

	turns sync.Map // ociaddr.Repository -> *semaphore.Weighted: see TakeTurn

	// pending are the versions that a run has found or stored since the last [Session.Summarize].
	pendingLock sync.Mutex
	pending     map[ociaddr.Repository]pendingState
}

// NewSession returns a session.
func NewSession(retryPause time.Duration, jobs int) *Session {
	return &Session{retryPause: retryPause, jobs: jobs}
}

// Writer returns the writer to a repository.
func (s *Session) Writer(dest Destination) Writer { return Writer{s, dest} }

// TakeTurn waits until no other caller has the turn at a repository, and takes the turn. The caller must call
// end.
func (s *Session) TakeTurn(ctx context.Context, r ociaddr.Repository) (end func(), err error) {
	value, _ := s.turns.LoadOrStore(r, semaphore.NewWeighted(1))
	turn := value.(*semaphore.Weighted)
	if err := turn.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { turn.Release(1) }, nil
}

// Writer writes to one repository.
type Writer struct {
	*Session
	Dest Destination
}

// Failed returns the [RegistryError] of an operation. It adds a hint if a blob is gone.
func (w *Writer) Failed(op string, err error) error {
	if refusals.UnknownBlob(err) {
		err = hint.Wrap(err, "parts of the version are gone, perhaps by a clean-up job: --force sends them again")
	}
	return &RegistryError{op, w.Dest.Repository, err}
}

const (
	// sendAttempts is the maximum number of attempts to send a layer, a blob or a manifest.
	sendAttempts = 4
	// maxRetryAfter is the longest time that a registry may make a push wait before a retry.
	maxRetryAfter = time.Minute
)

// SendBlob stores a small blob or a manifest, unless the repository has it.
func (w *Writer) SendBlob(ctx context.Context, op string, b artifact.Blob) error {
	err := w.putMissing(ctx, b)
	if HTTPStatus(err) == http.StatusNotFound {
		// The HTTP client repeats a request if its connection breaks. If the first request
		// has already ended the upload, the registry responds to the repeated request with
		// status 404. putMissing then finds the blob in the repository, or sends it again.
		err = w.putMissing(ctx, b)
	}
	if err != nil {
		return w.Failed(op, err)
	}
	return nil
}

// putMissing calls [Writer.Put] without a tag, unless the repository has the content.
func (w *Writer) putMissing(ctx context.Context, b artifact.Blob) error {
	exists, err := w.Dest.Store.Exists(ctx, b.Descriptor)
	if HTTPStatus(err) == http.StatusPreconditionFailed {
		err = nil // a policy may forbid reading the manifest, and the response to HEAD has no body that says so
	}
	if exists || err != nil {
		return err
	}
	return w.Put(ctx, b, "")
}

// SendTag stores a manifest under a tag. It returns [ErrImmutable] with the given hint if the registry does not
// move the tag. It succeeds if a rule about tags refuses the request, but the tag already names the manifest.
func (w *Writer) SendTag(ctx context.Context, op string, manifest artifact.Blob, tag, help string) error {
	err := w.Put(ctx, manifest, tag)
	if err == nil {
		return nil
	}
	if mayBeTagRule(err) {
		there, rerr := artifact.Resolve(ctx, w.Dest.Store, tag)
		switch {
		case rerr != nil: // return err, because the refusal says more than rerr
		case there.Digest == manifest.Descriptor.Digest:
			return nil
		case !refusals.Full(err) && (HTTPStatus(err) == http.StatusMethodNotAllowed || IsHeld(err)): // clearly a rule about the tag
			err = hint.Wrap(fmt.Errorf("%w: it names %s: %w", ErrImmutable, there.Digest, err), "%s", help)
		}
	}
	return w.Failed(op, err)
}

// Put stores a small blob or a manifest, under a tag unless tag is "". It retries if the registry refuses a
// manifest because of an unknown blob. Distribution 2 does so while it rewrites the file that links the blob to
// the repository. It rewrites this file whenever a push sends the blob.
func (w *Writer) Put(ctx context.Context, b artifact.Blob, tag string) error {
	return w.Retry(ctx, refusals.UnknownBlob, func() error {
		if tag == "" {
			return w.Dest.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
		}
		return w.Dest.Store.PushReference(ctx, b.Descriptor, bytes.NewReader(b.Data), tag)
	})
}

// Retry calls send until it succeeds or returns an error that is not temporary, at most sendAttempts times. In
// between, it waits at least as long as the registry requests. It gives up if the wait would be longer than
// maxRetryAfter.
func (s *Session) Retry(ctx context.Context, temporary func(error) bool, send func() error) error {
	pause := s.retryPause
	for attempt := 1; ; attempt++ {
		err := send()
		wait := pause + rand.N(pause)
		var later *outgoing.LaterError
		if errors.As(err, &later) {
			wait = max(wait, time.Until(later.Until))
		}
		if err == nil || attempt == sendAttempts || !temporary(err) || wait > maxRetryAfter {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		pause *= 2
	}
}

// DeleteAny deletes a manifest, if it exists.
func DeleteAny(ctx context.Context, store Store, manifest ocispec.Descriptor) error {
	if err := store.Delete(ctx, manifest); !IsNotFound(err) {
		return err
	}
	return nil
}

// DeleteWithTag deletes a manifest that only one tag names. Some registries want the tag removed first.
func DeleteWithTag(ctx context.Context, store Store, manifest ocispec.Descriptor, tag ociaddr.Tag) error {
	err := DeleteAny(ctx, store, manifest)
	if err == nil {
		return nil
	}
	named, rerr := artifact.Resolve(ctx, store, string(tag))
	if rerr != nil || named.Digest != manifest.Digest { // the tag names a newer announcement, which Untag would remove
		return err
	}
	if store.Untag(ctx, string(tag)) != nil {
		return err
	}
	return DeleteAny(ctx, store, manifest)
}

// RemoveOldTag removes a tag, but keeps its manifest. If the registry deletes only by digest, it moves the tag to
// a placeholder, and deletes the placeholder.
func RemoveOldTag(ctx context.Context, store Store, tag ociaddr.Tag) error {
	err := store.Untag(ctx, string(tag))
	if err == nil || IsNotFound(err) {
		return nil
	}
	if !errors.Is(err, errdef.ErrUnsupported) {
		return err
	}
	instead, err := artifact.Placeholder(ociaddr.NewAnnouncementID())
	if err != nil {
		return err
	}
	if err := store.PushReference(ctx, instead.Descriptor, bytes.NewReader(instead.Data), string(tag)); err != nil {
		return err
	}
	return store.Delete(ctx, instead.Descriptor)
}
