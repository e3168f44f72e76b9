package repo

import (
	"errors"
	"net/http"
	"regexp"
	"slices"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
)

// HTTPStatus returns the HTTP status of the registry's response that err wraps, or 0.
func HTTPStatus(err error) int { return refusals.Status(err) }

// IsNotFound reports whether err means that the registry does not have the content.
func IsNotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound) || HTTPStatus(err) == http.StatusNotFound
}

// RefusesContent reports whether the HTTP status in err means that the registry refuses the content.
func RefusesContent(err error) bool { return refusals.Content(err) }

// mayBeTagRule reports whether a rule about a tag, such as immutability, might have caused the status in err.
func mayBeTagRule(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity,
	}, HTTPStatus(err))
}

// IsHeld reports whether err means that the registry refuses to change or delete this tag or manifest, but might
// change or delete others. The reason is a rule about the tag, or another manifest that names this one. IsHeld
// knows the statuses for such refusals, and the messages "configured as immutable" (Harbor), "cannot be
// overwritten because the tag is immutable" (Amazon ECR) and "locked" (Azure).
func IsHeld(err error) bool {
	switch HTTPStatus(err) {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return true
	case http.StatusMethodNotAllowed: // the registry deletes no tags or manifests at all
		return false
	}
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && ruleWords.MatchString(answer.Errors.Error())
}

var ruleWords = regexp.MustCompile(`(?i)immutab|overwrit|already exists|locked|protected|cannot be (moved|changed|updated|modified)|tag[ _]already`)

// CannotDelete reports whether err means that this login cannot delete manifests, or that no login can. It is
// false if the registry is only unavailable.
func CannotDelete(err error) bool {
	code := HTTPStatus(err)
	return errors.Is(err, errdef.ErrUnsupported) || errors.Is(err, auth.ErrBasicCredentialNotFound) || code >= 400 && code < 500 && code != http.StatusTooManyRequests
}

// IsReplaceable reports whether --force may replace the stored content that err is about. --force may not
// replace another provider's version. It may not replace damaged content either, because that content may be
// intact when it is read again.
func IsReplaceable(err error) bool {
	return artifact.IsContent(err) && !errors.Is(err, artifact.ErrDamaged) && !errors.Is(err, artifact.ErrForeign)
}

// IsUnusable reports whether err means that stored content is invalid or does not exist, and not that the registry
// or the connection failed.
func IsUnusable(err error) bool {
	return artifact.IsContent(err) || errors.Is(err, errdef.ErrNotFound)
}

// IsGone reports whether err means that a manifest does not exist.
func IsGone(err error) bool { return IsNotFound(err) || errors.Is(err, artifact.ErrMissing) }
