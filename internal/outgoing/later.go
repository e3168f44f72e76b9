package outgoing

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads the Retry-After header (RFC 9110, section 10.2.3): seconds, or a date
// that it compares with now. It returns 0 if the header is missing or malformed, or if the
// date has passed.
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

// LaterError is an answer with status 429 or 503: the server cannot answer now.
type LaterError struct {
	// Until is the time from which the server accepts a retry; zero if it does not say.
	Until time.Time
	// Err describes the answer.
	Err error
}

// NewLaterError returns the error for an answer with these headers, which has just arrived.
func NewLaterError(h http.Header, err error) *LaterError {
	e := &LaterError{Err: err}
	now := time.Now()
	if after := RetryAfter(h, now); after > 0 {
		e.Until = now.Add(after)
	}
	return e
}

// Bare returns the error without Err, for long-term storage.
func (e *LaterError) Bare() *LaterError { return &LaterError{Until: e.Until} }

// Error implements error.
func (e *LaterError) Error() string {
	if e.Err == nil {
		return "the other party cannot answer now"
	}
	return e.Err.Error()
}

// Unwrap returns the description of the answer.
func (e *LaterError) Unwrap() error { return e.Err }

// Is reports whether target is a LaterError with the same Until: [errors.Is] compares only
// the part that [LaterError.Bare] keeps.
func (e *LaterError) Is(target error) bool {
	other, ok := target.(*LaterError)
	return ok && e.Until.Equal(other.Until)
}

// IsLater reports whether a status leads to a [LaterError].
func IsLater(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}
