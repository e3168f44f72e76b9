package pusher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/refusals"
)

// sendTag stores a manifest under a tag. A registry whose tags cannot be moved
// may refuse even to have a tag named what it names already: that is no failure.
func (w *push) sendTag(ctx context.Context, op string, desc ocispec.Descriptor, data []byte, tag string) error {
	return w.putTag(ctx, op, desc, data, tag, helpImmutable)
}

// putTag is [push.sendTag] with a hint for tags that cannot be moved.
func (w *push) putTag(ctx context.Context, op string, desc ocispec.Descriptor, data []byte, tag, help string) error {
	err := w.put(ctx, desc, data, tag)
	if err == nil {
		return nil
	}
	if mayBeRule(err) {
		there, rerr := artifact.Resolve(ctx, w.dest.Store, tag)
		switch {
		case rerr != nil: // the refusal says more
		case there.Digest == desc.Digest:
			return nil
		case saysRule(err):
			err = hint.Wrap(fmt.Errorf("%w: it names %s: %w", ErrImmutable, there.Digest, err), "%s", help)
		}
	}
	return w.registryError(op, err)
}

const helpImmutable = "what was sent is there, but the tag still names what it did. Let this tag be moved and run it again (Harbor: the project's tag immutability rules; " +
	"Amazon ECR: aws ecr put-image-tag-mutability; elsewhere they are locks, protected or immutable tags), or push all platforms of a version at once from the start"

// mayBeRule reports whether an answer may come of a rule about a tag, and not of
// trouble or of missing credentials.
func mayBeRule(err error) bool {
	switch status(err) {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// saysRule reports whether an answer to the push of a tag is plainly about a tag that
// cannot be moved.
func saysRule(err error) bool {
	return !refusals.Full(err) && (status(err) == http.StatusMethodNotAllowed || isHeld(err))
}

// isHeld reports whether a registry refuses to change or delete one tag or manifest, for a
// reason that need not hold for others: a rule about the tag, or another manifest that
// names this one. It knows the refusal by a status that registries give for nothing else
// here, or by the registry's words, such as "configured as immutable" (Harbor), "cannot be
// overwritten because the tag is immutable" (Amazon ECR) or "locked" (Azure).
func isHeld(err error) bool {
	switch status(err) {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return true
	case http.StatusMethodNotAllowed: // the registry deletes nothing
		return false
	}
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && ruleWords.MatchString(answer.Errors.Error())
}

var ruleWords = regexp.MustCompile(`(?i)immutab|overwrit|already exists|locked|protected|cannot be (moved|changed|updated|modified)|tag[ _]already`)
