package outgoing

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter returns the time from now until the retry that the Retry-After header allows
// (RFC 9110, section 10.2.3). The header contains a number of seconds or a date. RetryAfter
// returns 0 if the header is missing or malformed, or if the date has passed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// LaterError means that a server sent status 429 or 503, and may accept the same request
// later.
type LaterError struct {
	// Until is the time from which the server accepts a retry. It is zero if the server
	// states no time.
	Until time.Time
	// Err describes the server's response.
	Err error
}

// NewLaterError returns the error for a response that has just arrived. h is the header of
// the response, and err describes the response.
func NewLaterError(h http.Header, err error) *LaterError {
	e := &LaterError{Err: err}
	now := time.Now()
	if after := RetryAfter(h, now); after > 0 {
		e.Until = now.Add(after)
	}
	return e
}

// Bare returns a copy of the error without Err. The copy is small, so it can be cached.
func (e *LaterError) Bare() *LaterError { return &LaterError{Until: e.Until} }

// Error implements error.
func (e *LaterError) Error() string {
	if e.Err == nil {
		return "the other party cannot answer now"
	}
	return e.Err.Error()
}

// Unwrap returns e.Err.
func (e *LaterError) Unwrap() error { return e.Err }

// Is reports whether target is a LaterError with the same Until. It ignores Err, so that
// [errors.Is] finds the result of [LaterError.Bare] equal to the original error.
func (e *LaterError) Is(target error) bool {
	other, ok := target.(*LaterError)
	return ok && e.Until.Equal(other.Until)
}

// IsLater reports whether a response with the given status should become a [LaterError].
func IsLater(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}
