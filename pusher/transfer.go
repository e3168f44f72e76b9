package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/refusals"
	"github.com/ocibridge/ocibridge/internal/registry/upload"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// sendAttempts is how often a layer is sent before its push fails.
	sendAttempts = 4
	// maxRetryAfter is the longest wait that a registry may ask for.
	maxRetryAfter = time.Minute
	// chunkBytes is how much of a package goes to a registry in one request when
	// it does not take the whole. It is below the limits that proxies and services
	// before registries are known to have, but for those that no package passes.
	chunkBytes = 16 << 20
	// cancelTimeout bounds how long a registry is told of an upload's end.
	cancelTimeout = 5 * time.Second
)

// sendLayer stores a package's bytes, and returns how they got there: StageDone,
// StageMounted or StageFound. They are read from the origin as they are sent, unless they
// were before; from a failed upload, what was read is kept for the next.
func (w *push) sendLayer(ctx context.Context, platform provider.Platform, layer ocispec.Descriptor, s *spool) (Stage, error) {
	op := "push " + platform.String() + " to"
	exists, err := w.dest.Store.Exists(ctx, layer)
	if err != nil {
		return "", w.registryError(op, err)
	}
	stage := StageFound
	if !exists {
		if stage, err = w.upload(ctx, op, platform, layer, s); err != nil {
			return "", err
		}
	}
	if stage != StageDone {
		// It is read all the same, for the hash of what is in it.
		if err := s.drain(); err != nil {
			return "", err
		}
	}
	w.shelve(layer.Digest, w.dest.Repository)
	return stage, nil
}

// upload has the registry take a package from a repository that has it, or else
// sends it, as often as it takes. It returns StageMounted or StageDone. A registry, or what
// stands before it, to which it is too large for one request, gets it in chunks, and all
// later ones, too.
func (w *push) upload(ctx context.Context, op string, platform provider.Platform, layer ocispec.Descriptor, s *spool) (Stage, error) {
	from := w.sibling(layer.Digest)
	pause := w.o.RetryPause
	for attempt := 1; ; attempt++ {
		_, chunked := w.chunked.Load(w.dest.Repository.Registry)
		mounted, err := w.tryUpload(ctx, platform, layer, s, from, chunked)
		switch {
		case err == nil && mounted:
			return StageMounted, nil
		case err == nil:
			return StageDone, nil
		}
		if serr := s.failure(); serr != nil {
			return "", serr // the upload failed for want of bytes
		}
		if status(err) == http.StatusRequestEntityTooLarge && !chunked {
			w.chunked.Store(w.dest.Repository.Registry, true)
			attempt--
			continue
		}
		var refused *upload.RefusedError
		wait := pause + rand.N(pause)
		if errors.As(err, &refused) {
			wait = max(wait, refused.RetryAfter)
		}
		if attempt == sendAttempts || !worthRetrying(err) || wait > maxRetryAfter {
			return "", w.registryError(op, err)
		}
		if err := sleep(ctx, wait); err != nil {
			return "", w.registryError(op, err)
		}
		from = ""
		pause *= 2
	}
}

// tryUpload is one attempt. The session that it leaves is ended, as far as the
// registry will have it.
func (w *push) tryUpload(ctx context.Context, platform provider.Platform, layer ocispec.Descriptor, s *spool, from string, chunked bool) (mounted bool, err error) {
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(w.o.StallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	body := &spoolReader{
		spool: s,
		// However long the origin takes is not the registry's fault.
		before: func() { stall.Stop() },
		after: func(n int) {
			stall.Reset(w.o.StallTimeout)
			if n > 0 {
				w.event(platform, StageSend, n, layer.Size)
			}
		},
	}
	begin := func() { w.event(platform, StageSend, 0, layer.Size) }
	repo := w.dest.Store.Remote()
	if repo == nil {
		begin()
		err = w.dest.Store.Push(sending, layer, body)
	} else {
		mounted, err = w.uploadTo(sending, repo, layer, body, from, chunked, begin)
	}
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(sending), errStalled) {
		err = hint.Wrap(fmt.Errorf("%w: %v", errStalled, err), "the registry takes no bytes: ask whoever runs it, and run the push again")
	}
	if n := body.end(); err != nil && n > 0 {
		w.event(platform, StageSend, -int(n), layer.Size)
	}
	return mounted, err
}

func (w *push) uploadTo(ctx context.Context, repo *remote.Repository, layer ocispec.Descriptor, body io.Reader, from string, chunked bool, begin func()) (mounted bool, err error) {
	session, mounted, err := w.mountOrBegin(ctx, repo, layer, from)
	if err != nil || mounted {
		return mounted, err
	}
	begin()
	chunk := int64(0)
	if chunked {
		chunk = chunkBytes
	}
	err = session.Send(ctx, body, chunk)
	if err != nil && !errors.Is(context.Cause(ctx), errStalled) {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		// Nothing depends on it: what is not completed is forgotten in the end.
		_ = session.Cancel(after)
	}
	return false, err
}

// mountOrBegin has the registry take a package from another of its repositories. It begins
// an upload if from is "", or if the registry refuses the mount.
func (w *push) mountOrBegin(ctx context.Context, repo *remote.Repository, layer ocispec.Descriptor, from string) (*upload.Session, bool, error) {
	if from != "" {
		session, mounted, err := w.mount(ctx, repo, layer, from)
		if err == nil || ctx.Err() != nil {
			return session, mounted, err
		}
	}
	session, err := upload.Begin(ctx, repo, layer)
	return session, false, err
}

// mount has the registry take a package from another of its repositories. A refusal holds
// for all packages of that repository: a login may lack the right to read it, and the
// robot of a project in Harbor has no rights in other projects.
func (w *push) mount(ctx context.Context, repo *remote.Repository, layer ocispec.Descriptor, from string) (*upload.Session, bool, error) {
	session, mounted, err := upload.Mount(ctx, repo, layer, from)
	if refused := status(err); refused == http.StatusUnauthorized || refused == http.StatusForbidden {
		w.unmountable.Store(mountKey(w.dest.Repository, from), true)
	}
	return session, mounted, err
}

// mountKey is the key of a mount into a repository.
func mountKey(into ociaddr.Repository, from string) string { return into.String() + " " + from }

// shelf is which repositories are known to hold a package.
type shelf struct {
	mu    sync.Mutex
	holds map[digest.Digest][]ociaddr.Repository
}

// shelve notes that a repository holds a package.
func (p *Pusher) shelve(d digest.Digest, r ociaddr.Repository) {
	p.shelf.mu.Lock()
	defer p.shelf.mu.Unlock()
	if !slices.Contains(p.shelf.holds[d], r) {
		p.shelf.holds[d] = append(p.shelf.holds[d], r)
	}
}

// sibling returns the name of another repository of the same registry that holds
// the package: one that this Pusher found it in or sent it to, or else the one
// that the destination names; "" for none. It leaves out repositories that the registry
// has refused to mount from.
func (w *push) sibling(d digest.Digest) string {
	w.shelf.mu.Lock()
	defer w.shelf.mu.Unlock()
	for _, r := range w.shelf.holds[d] {
		if r.Registry == w.dest.Repository.Registry && w.mayMount(r.Name) {
			return r.Name
		}
	}
	if w.mayMount(w.dest.Sibling) {
		return w.dest.Sibling
	}
	return ""
}

// mayMount reports whether a repository of the registry is another one than the
// destination, and the registry has not refused to mount from it.
func (w *push) mayMount(from string) bool {
	_, refused := w.unmountable.Load(mountKey(w.dest.Repository, from))
	return from != w.dest.Repository.Name && !refused
}

// errStalled means that the registry took no byte for Options.StallTimeout.
var errStalled = errors.New("the upload stalled")

// worthRetrying reports whether sending the same bytes again may help.
func worthRetrying(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStalled) {
		return false
	}
	// 401: a token that ran out in the middle of a long upload.
	code := status(err)
	return code == 0 || code >= 500 || code == http.StatusTooManyRequests || code == http.StatusUnauthorized
}

// status returns the status of the registry's answer that an error is about; 0
// for none.
func status(err error) int {
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// sendBlob stores a small blob or a manifest unless it is there.
func (w *push) sendBlob(ctx context.Context, op string, b artifact.Blob) error {
	var err error
	for range 2 {
		var exists bool
		exists, err = w.dest.Store.Exists(ctx, b.Descriptor)
		if status(err) == http.StatusPreconditionFailed {
			err = nil // a policy forbids reading the manifest, and HEAD has no body that says so: it is sent
		}
		if err != nil || exists {
			break
		}
		// A request that was repeated because its connection broke finds that the
		// upload is over: the blob is there, or is sent once more.
		if err = w.put(ctx, b.Descriptor, b.Data, ""); status(err) != http.StatusNotFound {
			break
		}
	}
	if err != nil {
		return w.registryError(op, err)
	}
	return nil
}

// put stores a small blob or a manifest, under a tag if it is not "". Distribution 2
// rewrites the file that says that a repository holds a blob whenever a push sends the
// blob. Until the file is written, manifests that name the blob are refused.
func (w *push) put(ctx context.Context, desc ocispec.Descriptor, data []byte, tag string) error {
	pause := w.o.RetryPause
	for attempt := 1; ; attempt++ {
		var err error
		if tag == "" {
			err = w.dest.Store.Push(ctx, desc, bytes.NewReader(data))
		} else {
			err = w.dest.Store.PushReference(ctx, desc, bytes.NewReader(data), tag)
		}
		if attempt == sendAttempts || !refusals.UnknownBlob(err) {
			return err
		}
		if sleep(ctx, pause) != nil {
			return err
		}
		pause *= 2
	}
}

// isNotFound reports whether a registry says that something is not there.
func isNotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound) || status(err) == http.StatusNotFound
}
