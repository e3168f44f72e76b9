package pusher

import (
	"errors"
	"net/http"
	"regexp"
	"slices"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/refusals"
)

// status returns the HTTP status of the registry's answer that an error wraps; 0 if it
// wraps none.
func status(err error) int {
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// isNotFound reports whether a registry says that something does not exist.
func isNotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound) || status(err) == http.StatusNotFound
}

// refusesContent reports whether the status of an answer means that the registry does not
// accept the content itself.
func refusesContent(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}, status(err))
}

// mayBeTagRule reports whether the status of an answer may come from a rule about a tag,
// such as immutability.
func mayBeTagRule(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity,
	}, status(err))
}

// isTagRule reports whether an answer to the push of a tag clearly says that the tag cannot
// be moved.
func isTagRule(err error) bool {
	return !refusals.Full(err) && (status(err) == http.StatusMethodNotAllowed || isHeld(err))
}

// isHeld reports whether a registry refuses to change or delete one tag or manifest, for a
// reason that need not apply to others: a rule about the tag, or another manifest that names
// this one. It recognizes statuses that registries use for nothing else here, and words
// such as "configured as immutable" (Harbor), "cannot be overwritten because the tag is
// immutable" (Amazon ECR) and "locked" (Azure).
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

// cannotDelete reports whether an error means that this login or any login cannot delete
// manifests, rather than that the registry is unavailable.
func cannotDelete(err error) bool {
	code := status(err)
	return errors.Is(err, errdef.ErrUnsupported) || errors.Is(err, auth.ErrBasicCredentialNotFound) || code >= 400 && code < 500 && code != http.StatusTooManyRequests
}

// refusesReferrers reports whether a registry refuses the referrers API. Registries without
// the API answer with such a status, too, although they should answer 404.
func refusesReferrers(err error) bool {
	return refusesContent(err) || status(err) == http.StatusUnauthorized || errors.Is(err, auth.ErrBasicCredentialNotFound)
}
