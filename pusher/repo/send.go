package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
)

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

// SendTag stores a manifest under a tag. It returns [ErrImmutable] with the given hint if the
// registry does not move the tag. It succeeds if the registry refuses the request because of
// a rule about the tag, but the tag already names the manifest.
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
		case isTagRule(err):
			err = hint.Wrap(fmt.Errorf("%w: it names %s: %w", ErrImmutable, there.Digest, err), "%s", help)
		}
	}
	return w.Failed(op, err)
}

// Put stores a small blob or a manifest. Unless tag is "", it stores the manifest under that
// tag. It retries if the registry refuses a manifest because of an unknown blob. Distribution
// 2 does so while it rewrites the file that links the blob to the repository. It rewrites
// that file whenever a push sends the blob, and does not find the blob until the file is
// written.
func (w *Writer) Put(ctx context.Context, b artifact.Blob, tag string) error {
	return w.Retry(ctx, refusals.UnknownBlob, func() error {
		if tag == "" {
			return w.Dest.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
		}
		return w.Dest.Store.PushReference(ctx, b.Descriptor, bytes.NewReader(b.Data), tag)
	})
}

// Retry calls send until send succeeds or returns an error that is not temporary. It calls
// send at most sendAttempts times. Between two calls, it waits at least as long as the
// registry requests. It gives up if it would have to wait longer than maxRetryAfter.
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
