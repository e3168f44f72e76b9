package pullthrough

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
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// maxJobs bounds how many versions wait to be stored. Those beyond are taken up
	// by a later request.
	maxJobs = 256
	// pushAttempts is how often a version is pushed before it waits for a request.
	pushAttempts = 6
	// pushPause is the wait before it is pushed again, the first time; each further
	// one is twice as long.
	pushPause = 30 * time.Second
	// refusedPause is how long a version is not pushed again that was refused for good.
	refusedPause = 10 * time.Minute
)

// job stores one version, and what of it is asked for meanwhile.
type job struct {
	store   *store
	subject subject

	// Guarded by Puller.mu.
	asked []*download         // which it holds until they are stored, or that failed
	also  []provider.Platform // of those, and of what is asked for and needs no download
	taken map[provider.Platform]bool
	// pauses is set while it waits to be pushed again, and holds nothing.
	pauses bool
	until  time.Time // it ended without success, and is not begun again before
}

// pushLocked has the version of a package that a client asks for stored. d is the
// download that the client waits for; nil for none. It is called with mu held.
func (p *Puller) pushLocked(s *store, w wanted, d *download) {
	if p.o.Push == nil || p.closed || p.draining {
		return
	}
	about := w.subject
	j := p.jobs[about]
	switch {
	case j != nil && !j.until.IsZero():
		if time.Now().Before(j.until) {
			return
		}
		j = nil
	case j != nil && j.taken[w.platform]:
		return
	case j == nil && len(p.jobs) >= maxJobs && !p.dropRefused():
		p.o.Log.Warn("too many versions wait to be stored: it is served, and stored when it is asked for later", "version", about.String())
		return
	}
	begin := j == nil
	if begin {
		j = &job{store: s, subject: about, taken: map[provider.Platform]bool{}}
		p.jobs[about] = j
	}
	j.taken[w.platform] = true
	j.also = append(j.also, w.platform)
	if d != nil && !j.pauses {
		p.enter(d, false)
		j.asked = append(j.asked, d)
	}
	if begin {
		p.pushes.Add(1)
		p.tasks.Go(func() {
			defer p.pushes.Done()
			p.work(p.ctx, j)
		})
	}
}

// dropRefused forgets a job that ended without success, and reports whether there
// was one. It is called with mu held.
func (p *Puller) dropRefused() bool {
	for about, j := range p.jobs {
		if !j.until.IsZero() {
			delete(p.jobs, about)
			return true
		}
	}
	return false
}

// work pushes until all that was asked for is stored.
func (p *Puller) work(ctx context.Context, j *job) {
	pause := pushPause
	var platforms []provider.Platform
	for attempt := 1; ; attempt++ {
		asked := p.take(j, false, &platforms)
		for _, d := range asked {
			d.wellUnderway(ctx) // the client who waits for it goes first
		}
		result, err := p.push(ctx, j, asked, platforms)
		for _, d := range asked {
			p.leave(d, false)
		}
		p.told(ctx, j, result, err)
		var busy *BusyError
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
		case errors.As(err, &busy):
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
		for _, d := range p.take(j, true, &platforms) {
			p.leave(d, false) // it may be long until then
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-p.retired: // the one that took its place tries, when it is next asked for
			p.end(j, time.Now().Add(wait))
			return
		}
	}
}

// take takes what was asked for of a job's version, whose platforms join those given;
// pauses says whether it holds more of that from now on.
func (p *Puller) take(j *job, pauses bool, platforms *[]provider.Platform) []*download {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := j.asked
	*platforms = append(*platforms, j.also...)
	j.asked, j.also, j.pauses = nil, nil, pauses
	return asked
}

// end ends a job, unless it succeeded and was asked for more meanwhile. until says
// when it may be begun again where it failed.
func (p *Puller) end(j *job, until time.Time) bool {
	p.mu.Lock()
	if until.IsZero() && len(j.also) > 0 && !p.closed {
		p.mu.Unlock()
		return false
	}
	asked := j.asked
	j.asked, j.also, j.until = nil, nil, until
	if until.IsZero() {
		delete(p.jobs, j.subject)
	}
	p.mu.Unlock()
	for _, d := range asked {
		p.leave(d, false)
	}
	return true
}

// isFinal reports whether a push would fail again, as far as anybody knows.
func isFinal(err error) bool {
	var size *SizeError
	for _, reason := range []error{pusher.ErrConflict, pusher.ErrOccupied, pusher.ErrImmutable, pusher.ErrMisnamed, trust.ErrUnknown} {
		if errors.Is(err, reason) {
			return true
		}
	}
	var answer *errcode.ErrorResponse
	denied := errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden)
	return denied || errors.As(err, &size) || trust.Refused(err)
}

// told tells what came of a push.
func (p *Puller) told(ctx context.Context, j *job, result *pusher.Result, err error) {
	if ctx.Err() != nil {
		return
	}
	e := Event{Kind: Stored, Provider: j.subject.provider, Version: j.subject.version, Err: err}
	if r := p.current(j.subject); r != nil {
		r.describe(&e)
		if err == nil {
			r.stored(result)
		}
	}
	var busy *BusyError
	err = brief(err)
	if errors.As(err, &busy) {
		p.o.Log.Warn("pulled through: a version is not stored yet, because a limit is reached", "version", j.subject.String(), "err", err, "hint", hint.Of(err))
	} else if err != nil {
		p.o.Log.Error("pulled through: a version is not stored; clients are served from its origin", "version", j.subject.String(), "err", err, "hint", hint.Of(err))
	} else {
		p.o.Log.Info("pulled through: a version is stored", "version", j.subject.String(), "repository", result.Repository.String(), "status", result.Status, "platforms", len(result.Packages))
		warnings := result.Warnings
		if r := p.current(j.subject); r != nil {
			warnings = r.unlogged(warnings)
		}
		for _, w := range warnings {
			p.o.Log.Warn("pulled through: a version is stored, with a warning", "version", j.subject.String(), "warning", w)
		}
	}
	p.o.Events(e)
}

// push pushes the platforms that are to be stored, and those asked for, whose
// downloads the others wait for.
func (p *Puller) push(ctx context.Context, j *job, asked []*download, also []provider.Platform) (*pusher.Result, error) {
	r, err := p.release(ctx, j.subject)
	if err != nil {
		return nil, err
	}
	l, err := p.fetchable(ctx, j.subject.provider)
	if err != nil {
		return nil, err
	}
	platforms := p.platforms(r.packages, also)
	if len(platforms) == 0 {
		return nil, fmt.Errorf("%s: there is no package to be stored", j.subject)
	}
	if _, ok := l.offer(j.subject.version); !ok {
		return nil, ErrNotOffered // it was withdrawn
	}
	rel, err := p.o.Origin.Release(ctx, j.subject.provider, l.listing, j.subject.version, platforms)
	if err != nil {
		return nil, err
	}
	for i := range rel.Packages {
		pkg := &rel.Packages[i]
		known := r.find(pkg.Platform)
		if known == nil || known.Filename != pkg.Filename {
			return nil, contradiction(wanted{j.subject, pkg.Platform, provider.PackageFilename(j.subject.provider, j.subject.version, pkg.Platform), ""}, pkg.Filename)
		}
		w := wanted{j.subject, pkg.Platform, known.Filename, known.Digest}
		first := slices.ContainsFunc(asked, func(d *download) bool { return d.want.digest == w.digest })
		pkg.Open = p.shared(j.store, w, *pkg, first, asked)
	}
	return p.o.Push(ctx, rel)
}

// platforms returns those that are to be stored, of those that there are.
func (p *Puller) platforms(there []artifact.Package, also []provider.Platform) []provider.Platform {
	var out []provider.Platform
	for _, pkg := range there {
		if len(p.o.Scope.Platforms) == 0 || slices.Contains(p.o.Scope.Platforms, pkg.Platform) || slices.Contains(also, pkg.Platform) {
			out = append(out, pkg.Platform)
		}
	}
	return out
}

// opener starts reading a package, as [origin.Package] does.
type opener = func(context.Context) (io.ReadCloser, int64, error)

// shared returns what opens a package for a push, by the download that clients read
// along. What no client asked for lets those go first.
func (p *Puller) shared(s *store, w wanted, at origin.Package, first bool, asked []*download) opener {
	return func(ctx context.Context) (io.ReadCloser, int64, error) {
		if !first {
			for _, d := range asked {
				if err := d.over(ctx); err != nil {
					return nil, 0, err
				}
			}
		}
		d, err := p.join(ctx, s, w, &at)
		if err != nil {
			return nil, 0, err
		}
		size, err := d.size(ctx)
		if err != nil {
			p.leave(d, false)
			return nil, 0, err
		}
		return d.reader(ctx, false), size, nil
	}
}
