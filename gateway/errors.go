package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/gateway/archives"
)

var (
	// ErrNotServed means that a provider has no repository here: no template is
	// for it, or none could name one.
	ErrNotServed = errors.New("provider is not served here")

	// errAbsent means that the registry itself says that there is no such
	// repository or tag.
	errAbsent = errors.New("not in the registry")

	// errLost means that the registry lists a tag, and does not have what it names.
	errLost = errors.New("the registry lists the version, but does not have it")
)

// noRepository reports whether a registry answered a tag listing, and not a
// request for a token on the way to it, with 404 in its own words: a bare 404 may
// come from whatever stands before it, and who is denied has not been told that
// nothing is there.
func noRepository(err error) bool {
	var answer *errcode.ErrorResponse
	if !errors.As(err, &answer) {
		return errors.Is(err, errdef.ErrNotFound)
	}
	return answer.StatusCode == http.StatusNotFound && len(answer.Errors) > 0 && strings.HasSuffix(answer.URL.Path, "/tags/list") &&
		!slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool {
			return e.Code == "" || e.Code == errcode.ErrorCodeUnauthorized || e.Code == errcode.ErrorCodeDenied
		})
}

// statusOf is the one place where an error becomes a status. What the registry
// did not answer is never taken for absence.
func statusOf(err error) int {
	var answer *errcode.ErrorResponse
	var network net.Error
	switch {
	case errors.Is(err, errAbsent), errors.Is(err, ErrNotServed):
		return http.StatusNotFound
	case errors.Is(err, archives.ErrStalled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return http.StatusGatewayTimeout
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable):
		return http.StatusServiceUnavailable
	case errors.As(err, &answer) && answer.StatusCode == http.StatusGatewayTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// retryAfter is how many seconds a client should wait before it asks again.
const retryAfter = 5

// fail answers a request that cannot be answered otherwise. The reason is for the
// log alone: it may name repositories and registries that are nobody's business.
func (g *gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status == http.StatusNotFound {
		notFound(w, r)
		return
	}
	level := slog.LevelError
	if r.Context().Err() != nil {
		level = slog.LevelDebug // the client is gone: that is the reason
	}
	g.log.Log(r.Context(), level, "cannot answer", "path", r.URL.Path, "status", status, "err", err)
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "the registry behind this mirror cannot answer now; the gateway's log says why", status)
}
