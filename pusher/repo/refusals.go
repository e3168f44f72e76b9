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

// HTTPStatus returns the HTTP status of the registry's response that err wraps. It returns 0
// if err wraps no response.
func HTTPStatus(err error) int {
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// IsNotFound reports whether err means that the requested content does not exist in the
// registry.
func IsNotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound) || HTTPStatus(err) == http.StatusNotFound
}

// RefusesContent reports whether the HTTP status in err means that the registry does not
// accept the content itself.
func RefusesContent(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}, HTTPStatus(err))
}

// mayBeTagRule reports whether a rule about a tag, such as immutability, might have caused
// the HTTP status in err.
func mayBeTagRule(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity,
	}, HTTPStatus(err))
}

// isTagRule reports whether err clearly means that the tag cannot be moved. err is the error
// of pushing a tag.
func isTagRule(err error) bool {
	return !refusals.Full(err) && (HTTPStatus(err) == http.StatusMethodNotAllowed || IsHeld(err))
}

// IsHeld reports whether err means that the registry refuses to change or delete this tag or
// manifest, but might change or delete others. The reason can be a rule about the tag, or
// another manifest that names this manifest. IsHeld recognizes HTTP statuses that registries
// use only for such refusals. It also recognizes the messages of registries: "configured as
// immutable" (Harbor), "cannot be overwritten because the tag is immutable" (Amazon ECR) and
// "locked" (Azure).
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

// CannotDelete reports whether err means that this login, or any login, cannot delete
// manifests. It returns false if err only means that the registry is unavailable.
func CannotDelete(err error) bool {
	code := HTTPStatus(err)
	return errors.Is(err, errdef.ErrUnsupported) || errors.Is(err, auth.ErrBasicCredentialNotFound) || code >= 400 && code < 500 && code != http.StatusTooManyRequests
}

// refusesReferrers reports whether err means that the registry refuses or lacks the referrers
// API. Some registries without the API return one of these statuses, although they should
// return 404.
func refusesReferrers(err error) bool {
	return RefusesContent(err) || errors.Is(err, errdef.ErrUnsupported) || HTTPStatus(err) == http.StatusUnauthorized || errors.Is(err, auth.ErrBasicCredentialNotFound)
}

// IsReplaceable reports whether --force may replace the stored content that err is about. It
// returns false for another provider's version. It also returns false for damaged content,
// because the registry might return the right bytes later.
func IsReplaceable(err error) bool {
	return artifact.IsContent(err) && !errors.Is(err, artifact.ErrDamaged) && !errors.Is(err, artifact.ErrForeign)
}

// IsUnusable reports whether err means that stored content is invalid or does not exist.
// Other errors are failures of the registry or of the connection.
func IsUnusable(err error) bool {
	return artifact.IsContent(err) || errors.Is(err, errdef.ErrNotFound)
}

// IsGone reports whether err means that a manifest does not exist.
func IsGone(err error) bool { return IsNotFound(err) || errors.Is(err, artifact.ErrMissing) }
