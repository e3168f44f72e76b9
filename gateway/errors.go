package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

var (
	// ErrNotServed is [catalog.ErrNotServed].
	ErrNotServed = catalog.ErrNotServed
	errAbsent    = catalog.ErrAbsent
)

// StatusOf returns the HTTP status of the response if a request for a document, an archive or a page has failed with
// err: 400, 404, 451, 500, 502, 503 or 504. A failure of the registry never becomes 404.
func StatusOf(err error) int {
	var answer *errcode.ErrorResponse
	var network net.Error
	_, limited := pauseOf(err)
	switch {
	case errors.Is(err, errNoHost):
		return http.StatusBadRequest
	case errors.Is(err, errAbsent), errors.Is(err, ErrNotServed):
		return http.StatusNotFound
	case errors.Is(err, catalog.ErrDenied):
		return http.StatusUnavailableForLegalReasons
	case errors.As(err, new(*panics.Error)):
		return http.StatusInternalServerError
	case errors.Is(err, archives.ErrStalled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return http.StatusGatewayTimeout
	case limited, errors.As(err, new(*outgoing.LaterError)), errors.Is(err, catalog.ErrBusy):
		return http.StatusServiceUnavailable
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable):
		return http.StatusServiceUnavailable
	case errors.As(err, &answer) && answer.StatusCode == http.StatusGatewayTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// pauseOf returns the time after which a client should retry. If limited is true, a limit of the gateway is reached,
// on fetches from origins or on documents in memory, and the limit determines the pause. Otherwise the registry or the
// origin has requested the pause, or the pause is the default.
func pauseOf(err error) (pause time.Duration, limited bool) {
	var busy *catalog.BusyError
	var later *outgoing.LaterError
	switch {
	case errors.As(err, &busy):
		return busy.RetryAfter, true
	case errors.Is(err, document.ErrBusy):
		return document.RetryAfter, true
	case errors.As(err, &later) && !later.Until.IsZero():
		return min(time.Until(later.Until), maxRetryAfter), false
	}
	return retryAfter, false
}

const (
	retryAfter    = 5 * time.Second // the default
	maxRetryAfter = 5 * time.Minute // of a pause that a registry or an origin requests; Terraform would sleep for any time
)

// RetryAfterOf returns the Retry-After header for err, in seconds.
func RetryAfterOf(err error) int {
	wait, _ := pauseOf(err)
	return max(1, int(math.Ceil(wait.Seconds())))
}

// hintOf returns the hint about err for the log, or "".
func (g *gateway) hintOf(r *http.Request, err error) string {
	if a, aerr := AddressOf(r); aerr == nil && g.Explain != nil {
		err = g.Explain(a, err)
	} else if m, merr := ModuleOf(r); merr == nil && g.Explain != nil {
		err = g.Explain(m, err)
	}
	return hint.Of(err)
}

// fail answers a request that has failed with err. Only the log gets the text of err, because clients must not see the
// repositories and registries in it.
func (g *gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := StatusOf(err)
	switch status {
	case http.StatusBadRequest:
		g.Log.InfoContext(r.Context(), "a document cannot be given an absolute URL: where a proxy sets the Host header, set public_url", "err", err)
		http.Error(w, "the Host header is not a valid host, and this document's URLs would contain it", status)
		return
	case http.StatusNotFound:
		notFound(w, r)
		return
	case http.StatusUnavailableForLegalReasons:
		http.Error(w, g.sayDenied(r, err), status)
		return
	}
	level := slog.LevelError
	switch {
	case r.Context().Err() != nil:
		level = slog.LevelDebug // the client has left, which is the likely cause of the error
	case errors.Is(err, verify.ErrRefused):
		level = slog.LevelDebug // this was logged when the index was first read
	}
	g.Log.Log(r.Context(), level, "cannot answer", "path", r.URL.Path, "status", status, "err", hint.Brief(err), "hint", g.hintOf(r, err))
	w.Header().Set("Retry-After", strconv.Itoa(RetryAfterOf(err)))
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, saidOf(err)+"; the gateway's log says why", status)
}

// sayDenied logs the request for a version that is denied or not approved, and returns the text that the client gets.
func (g *gateway) sayDenied(r *http.Request, err error) string {
	denied := &catalog.DeniedError{}
	errors.As(err, &denied)
	if denied.Approval != nil {
		g.Log.InfoContext(r.Context(), "a version that is not approved was requested", subject.Attr(denied.Subject), "version", denied.Version, "err", hint.OneLine(denied.Approval.Error()), "hint", cmp.Or(denied.Approval.Hint(), fmt.Sprintf("review it, and approve it with ocibridge approve %s@%s", denied.Subject, denied.Version)))
		return denied.Said()
	}
	g.Log.InfoContext(r.Context(), "a denied version was requested", subject.Attr(denied.Subject), "version", denied.Version, "reason", denied.Reason)
	return denied.Said()
}

// saidOf returns the text that clients get for err. The text says what failed, but not why.
func saidOf(err error) string {
	_, limited := pauseOf(err)
	switch {
	case errors.As(err, new(*panics.Error)):
		return "this gateway has a bug that what was requested reaches"
	case limited:
		return "this gateway has reached a limit of its fetches from origins"
	case errors.Is(err, catalog.ErrSource):
		return "the origin is unavailable"
	case errors.Is(err, artifact.ErrMissing), errors.Is(err, catalog.ErrLost), errors.Is(err, archives.ErrGone):
		return "the registry behind this mirror lacks part of this version"
	case isContent(err), errors.Is(err, verify.ErrRefused):
		return "the stored version is not one that this gateway may serve"
	}
	return "the registry behind this mirror is unavailable"
}
