package repo

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Session holds what all writes of one run share.
type Session struct {
	retryPause time.Duration // before the first retry of a request; each further pause is twice as long
	jobs       int           // the maximum number of repositories that are summarized concurrently

	turns     sync.Map // ociaddr.Repository -> *semaphore.Weighted: see TakeTurn
	summaries pendingSummaries
}

// NewSession returns a session.
func NewSession(retryPause time.Duration, jobs int) *Session {
	return &Session{retryPause: retryPause, jobs: jobs}
}

// Writer returns the writer to a repository.
func (s *Session) Writer(dest Destination) Writer { return Writer{s, dest} }

// TakeTurn waits for the caller's turn at a repository. At most one caller has the turn at a
// time. The caller must call end when it is done.
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
