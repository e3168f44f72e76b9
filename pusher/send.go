package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/internal/refusals"
)

// writer writes to one repository.
type writer struct {
	*Pusher
	dest Destination
}

// sendBlob stores a small blob or a manifest, unless the repository has it.
func (w *writer) sendBlob(ctx context.Context, op string, b artifact.Blob) error {
	err := w.putMissing(ctx, b)
	if httpStatus(err) == http.StatusNotFound {
		// The HTTP client repeats a request if its connection breaks. If the first request
		// has already ended the upload, the registry responds to the repeated request with
		// status 404. putMissing then finds the blob in the repository, or sends it again.
		err = w.putMissing(ctx, b)
	}
	if err != nil {
		return w.registryError(op, err)
	}
	return nil
}

// putMissing calls [writer.put] without a tag, unless the repository has the content.
func (w *writer) putMissing(ctx context.Context, b artifact.Blob) error {
	exists, err := w.dest.Store.Exists(ctx, b.Descriptor)
	if httpStatus(err) == http.StatusPreconditionFailed {
		err = nil // a policy may forbid reading the manifest, and the response to HEAD has no body that says so
	}
	if exists || err != nil {
		return err
	}
	return w.put(ctx, b, "")
}

// sendTag stores a manifest under a tag. It returns [ErrImmutable] with the given hint if the
// registry does not move the tag. It succeeds if the registry refuses the request because of
// a rule about the tag, but the tag already names the manifest.
func (w *writer) sendTag(ctx context.Context, op string, manifest artifact.Blob, tag, help string) error {
	err := w.put(ctx, manifest, tag)
	if err == nil {
		return nil
	}
	if mayBeTagRule(err) {
		there, rerr := artifact.Resolve(ctx, w.dest.Store, tag)
		switch {
		case rerr != nil: // return err, because the refusal says more than rerr
		case there.Digest == manifest.Descriptor.Digest:
			return nil
		case isTagRule(err):
			err = hint.Wrap(fmt.Errorf("%w: it names %s: %w", ErrImmutable, there.Digest, err), "%s", help)
		}
	}
	return w.registryError(op, err)
}

// put stores a small blob or a manifest. Unless tag is "", it stores the manifest under that
// tag. It retries if the registry refuses a manifest because of an unknown blob. Distribution
// 2 does so while it rewrites the file that links the blob to the repository. It rewrites
// that file whenever a push sends the blob, and does not find the blob until the file is
// written.
func (w *writer) put(ctx context.Context, b artifact.Blob, tag string) error {
	return w.retry(ctx, refusals.UnknownBlob, func() error {
		if tag == "" {
			return w.dest.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
		}
		return w.dest.Store.PushReference(ctx, b.Descriptor, bytes.NewReader(b.Data), tag)
	})
}

// retry calls send until send succeeds or returns an error that is not temporary. It calls
// send at most sendAttempts times. Between two calls, it waits at least as long as the
// registry requests. It gives up if it would have to wait longer than maxRetryAfter.
func (p *Pusher) retry(ctx context.Context, temporary func(error) bool, send func() error) error {
	pause := p.o.RetryPause
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

const helpImmutable = "the registry keeps what was uploaded, but the tag names the same index as before. Let this tag be moved and run it again (Harbor: the project's tag immutability rules; " +
	"Amazon ECR: aws ecr put-image-tag-mutability; elsewhere they are locks, protected or immutable tags), or push all platforms of a version at once from the start"

// plain returns a descriptor without annotations and other optional fields.
func plain(desc ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
}

// httpStatus returns the HTTP status of the registry's response that err wraps. It returns 0
// if err wraps no response.
func httpStatus(err error) int {
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// isNotFound reports whether err means that the requested content does not exist in the
// registry.
func isNotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound) || httpStatus(err) == http.StatusNotFound
}

// refusesContent reports whether the HTTP status in err means that the registry does not
// accept the content itself.
func refusesContent(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}, httpStatus(err))
}

// mayBeTagRule reports whether a rule about a tag, such as immutability, might have caused
// the HTTP status in err.
func mayBeTagRule(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity,
	}, httpStatus(err))
}

// isTagRule reports whether err clearly means that the tag cannot be moved. err is the error
// of pushing a tag.
func isTagRule(err error) bool {
	return !refusals.Full(err) && (httpStatus(err) == http.StatusMethodNotAllowed || isHeld(err))
}

// isHeld reports whether err means that the registry refuses to change or delete this tag or
// manifest, but might change or delete others. The reason can be a rule about the tag, or
// another manifest that names this manifest. isHeld recognizes HTTP statuses that registries
// use only for such refusals. It also recognizes the messages of registries: "configured as
// immutable" (Harbor), "cannot be overwritten because the tag is immutable" (Amazon ECR) and
// "locked" (Azure).
func isHeld(err error) bool {
	switch httpStatus(err) {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return true
	case http.StatusMethodNotAllowed: // the registry deletes no tags or manifests at all
		return false
	}
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && ruleWords.MatchString(answer.Errors.Error())
}

var ruleWords = regexp.MustCompile(`(?i)immutab|overwrit|already exists|locked|protected|cannot be (moved|changed|updated|modified)|tag[ _]already`)

// cannotDelete reports whether err means that this login, or any login, cannot delete
// manifests. It returns false if err only means that the registry is unavailable.
func cannotDelete(err error) bool {
	code := httpStatus(err)
	return errors.Is(err, errdef.ErrUnsupported) || errors.Is(err, auth.ErrBasicCredentialNotFound) || code >= 400 && code < 500 && code != http.StatusTooManyRequests
}

// refusesReferrers reports whether err means that the registry refuses or lacks the referrers
// API. Some registries without the API return one of these statuses, although they should
// return 404.
func refusesReferrers(err error) bool {
	return refusesContent(err) || errors.Is(err, errdef.ErrUnsupported) || httpStatus(err) == http.StatusUnauthorized || errors.Is(err, auth.ErrBasicCredentialNotFound)
}
