package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// maxJobs is the maximum number of versions that wait to be pushed. Further versions are pushed after a later request
	// for them.
	maxJobs = 256
	// pushAttempts is the number of attempts to push a version before another request for it.
	pushAttempts = 6
	// pushPause is the pause before the second attempt. Each further pause is twice as long.
	pushPause    = 30 * time.Second
	refusedPause = 10 * time.Minute // after a final error, see isFinal
)

// job pushes one version: the configured platforms, and those that clients request before the job ends.
type job struct {
	store   catalog.Store // the repository
	subject providerVersion

	// Guarded by Puller.mu.
	held      []*reader           // the downloads that the job keeps open until they are pushed
	added     []provider.Platform // requested since the last push
	requested map[provider.Platform]bool
	paused    bool      // the job waits for its next attempt, and holds no download
	retry     time.Time // when the version of a failed job may be pushed again; zero: the job runs
}

// pushLocked is called with mu held when a client has requested a package. It starts a job that
// pushes the package's version, or adds the package's platform to the running job. The client
// reads the download d, or gets the package from a cache if d is nil.
func (p *Puller) pushLocked(s catalog.Store, w wanted, d *download) {
	if p.o.Push == nil || p.closed || p.draining {
		return
	}
	j := p.jobs[w.subject]
	switch {
	case j != nil && !j.retry.IsZero():
		if time.Now().Before(j.retry) {
			return
		}
		j = nil
	case j != nil && j.requested[w.platform]:
		return
	case j == nil && len(p.jobs) >= maxJobs && !p.dropFailed():
		p.o.Log.Warn("too many versions wait to be stored: it is served, and stored when it is asked for later", "version", w.subject.String())
		return
	}
	isNew := j == nil
	if isNew {
		j = &job{store: s, subject: w.subject, requested: map[provider.Platform]bool{}}
		p.jobs[w.subject] = j
	}
	j.requested[w.platform] = true
	j.added = append(j.added, w.platform)
	if d != nil && !j.paused {
		if r := d.openLocked(p.ctx, false); r != nil {
			j.held = append(j.held, r)
		}
	}
	if isNew {
		p.pushes.Add(1)
		p.tasks.Go(func() {
			defer p.pushes.Done()
			p.work(p.ctx, j)
		})
	}
}

// dropFailed forgets one failed job, and reports whether there was one. It is called with mu held.
func (p *Puller) dropFailed() bool {
	for about, j := range p.jobs {
		if !j.retry.IsZero() {
			delete(p.jobs, about)
			return true
		}
	}
	return false
}

// work runs a job until all requested platforms are stored, or until the job fails.
func (p *Puller) work(ctx context.Context, j *job) {
	pause := pushPause
	var platforms []provider.Platform
	for attempt := 1; ; attempt++ {
		held, added := p.take(j, false)
		platforms = append(platforms, added...)
		for _, r := range held {
			r.d.wellUnderway(ctx) // the client that waits for the download has priority over the push
		}
		var result *pusher.Result
		err := panics.Catch(ctx, p.o.Log, func() (err error) {
			result, err = p.push(ctx, j, held, platforms)
			return err
		})
		closeAll(held)
		p.report(ctx, j, result, err)
		busy, isBusy := errors.AsType[*catalog.BusyError](err)
		wait := pause
		switch {
		case ctx.Err() != nil:
			p.end(j, time.Time{})
			return
		case err == nil:
			if p.end(j, time.Time{}) {
				return
			}
			attempt, pause, platforms = 0, pushPause, nil
			continue
		case isBusy:
			attempt, wait = 0, max(pause, busy.RetryAfter)
		case isFinal(err):
			p.end(j, time.Now().Add(refusedPause))
			return
		case attempt == pushAttempts:
			p.end(j, time.Now().Add(pause))
			return
		default:
			pause *= 2
		}
		held, added = p.take(j, true)
		platforms = append(platforms, added...)
		closeAll(held) // the pause may be long
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-p.retired.Done(): // the next Puller pushes the version after a request for it
			p.end(j, time.Now().Add(wait))
			return
		}
	}
}

// take returns the downloads that a job has held until now, and the platforms that clients have requested since the last
// call. If paused is true, the job holds no download before the next call.
func (p *Puller) take(j *job, paused bool) ([]*reader, []provider.Platform) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, added := j.held, j.added
	j.held, j.added, j.paused = nil, nil, paused
	return held, added
}

// end ends a job, and reports whether it has ended. retry is zero if the job has succeeded or was cancelled. A job that
// has succeeded does not end while it has more platforms to push. If the job has failed, its version is not pushed again
// before retry.
func (p *Puller) end(j *job, retry time.Time) bool {
	p.mu.Lock()
	if retry.IsZero() && len(j.added) > 0 && !p.closed {
		p.mu.Unlock()
		return false
	}
	held := j.held
	j.held, j.added, j.retry = nil, nil, retry
	if retry.IsZero() {
		delete(p.jobs, j.subject)
	}
	p.mu.Unlock()
	closeAll(held)
	return true
}

func closeAll(held []*reader) {
	for _, r := range held {
		r.Close()
	}
}

// isFinal reports whether a push that failed with err would fail again if it were retried soon.
func isFinal(err error) bool {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	denied := ok && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden)
	final := []error{pusher.ErrConflict, pusher.ErrApproved, repo.ErrOccupied, repo.ErrImmutable, pusher.ErrMisnamed, trust.ErrUnknown}
	return denied || errors.As(err, new(*panics.Error)) || errors.As(err, new(*SizeError)) || trust.Refused(err) ||
		slices.ContainsFunc(final, func(reason error) bool { return errors.Is(err, reason) })
}

// report logs the result of a push, and emits its event.
func (p *Puller) report(ctx context.Context, j *job, result *pusher.Result, err error) {
	if ctx.Err() != nil {
		return
	}
	e := Event{Kind: Stored, Subject: j.subject.provider, Version: j.subject.version, Err: err}
	r := p.current(j.subject)
	if r != nil {
		r.describe(&e)
		if err == nil {
			r.setStored(result)
		}
	}
	err = brief(err)
	log := p.o.Log.With("version", j.subject.String())
	switch {
	case errors.As(err, new(*catalog.BusyError)):
		log.Warn("pulled through: a version is not stored yet, because a limit is reached", "err", err, "hint", hint.Of(err))
	case err != nil:
		log.Error("pulled through: a version is not stored; clients are served from its origin", "err", err, "hint", hint.Of(err))
	default:
		log.Info("pulled through: a version is stored", "repository", result.Repository.String(), "status", result.Status, "platforms", len(result.Packages))
		for _, w := range result.Warnings {
			if p.isNew(j.subject, w) {
				log.Warn("pulled through: a version is stored, with a warning", "warning", w)
			}
		}
	}
	p.o.Events(e)
}

// push pushes the configured platforms and those that clients have requested. It reads the downloads that the job holds,
// and then downloads the other packages.
func (p *Puller) push(ctx context.Context, j *job, held []*reader, requested []provider.Platform) (*pusher.Result, error) {
	r, err := p.release(ctx, j.subject)
	if err != nil {
		return nil, err
	}
	l, err := p.list(ctx, j.subject.provider)
	if err != nil {
		return nil, err
	}
	platforms := p.platforms(r.packages, requested)
	if len(platforms) == 0 {
		return nil, fmt.Errorf("%s: there is no package to be stored", j.subject)
	}
	offer, ok := l.offer(j.subject.version)
	if !ok {
		return nil, ErrNotOffered // the version was withdrawn
	}
	rel, err := p.o.Origin.Release(ctx, j.subject.provider, listingOf(offer), j.subject.version, platforms)
	if err != nil {
		return nil, err
	}
	for i := range rel.Packages {
		pkg := &rel.Packages[i]
		known := r.find(pkg.Platform)
		if known == nil || known.Filename != pkg.Filename {
			return nil, contradiction(j.subject, pkg.Platform, pkg.Filename)
		}
		pkg.Open = p.opener(j.store, wanted{j.subject, pkg.Platform, known.Filename, known.Digest}, *pkg, held)
	}
	return p.o.Push(ctx, rel)
}

// platforms returns the platforms to push: the available ones that are configured or that clients have requested.
func (p *Puller) platforms(available []artifact.Package, requested []provider.Platform) []provider.Platform {
	var out []provider.Platform
	for _, pkg := range available {
		if len(p.o.Scope.Platforms) == 0 || slices.Contains(p.o.Scope.Platforms, pkg.Platform) || slices.Contains(requested, pkg.Platform) {
			out = append(out, pkg.Platform)
		}
	}
	return out
}

// opener returns the [origin.Package.Open] of a push, which opens the same download that clients read. Clients wait for the
// downloads that the job holds, so other downloads of the push begin only after these have ended.
func (p *Puller) opener(s catalog.Store, w wanted, at origin.Package, held []*reader) func(context.Context) (io.ReadCloser, int64, error) {
	isHeld := slices.ContainsFunc(held, func(r *reader) bool { return r.d.want.digest == w.digest })
	return func(ctx context.Context) (io.ReadCloser, int64, error) {
		if !isHeld {
			for _, r := range held {
				if err := r.d.over(ctx); err != nil {
					return nil, 0, err
				}
			}
		}
		r, err := p.join(ctx, s, w, &at)
		if err != nil {
			return nil, 0, err
		}
		size, err := r.d.Size(ctx)
		if err != nil {
			r.Close()
			return nil, 0, err
		}
		return r, size, nil
	}
}
