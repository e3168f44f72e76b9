package origin

import (
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/ocibridge/ocibridge/internal/neterr"
	"github.com/ocibridge/ocibridge/internal/outgoing"
)

const (
	// maxPerHost is how many answers of one host are awaited or read at once,
	// downloads included.
	maxPerHost = 16
	// maxRetryAfter is the longest wait that an origin may ask for; one that asks
	// for more is not asked again.
	maxRetryAfter = 30 * time.Second
	// losses is how often an origin is asked again that refuses connections or loses
	// them.
	losses = 2
)

// patience says when an origin is asked again: as oras-go's policy does, but
// after no less time than it asks for.
type patience struct{}

// Retry implements [retry.Policy]. An origin that refuses connections, or loses one
// before it has answered, may be about to begin anew: it is asked again, soon or not at
// all. Nothing is asked of origins that does any harm when it is asked twice.
func (patience) Retry(attempt int, resp *http.Response, err error) (time.Duration, error) {
	if err != nil && neterr.Lost(err) && attempt < losses {
		return retry.DefaultBackoff(attempt, resp), nil
	}
	wait, err := retry.DefaultPolicy.Retry(attempt, resp, err)
	if err != nil || wait < 0 || resp == nil {
		return wait, err
	}
	after := retryAfter(resp.Header)
	if after > maxRetryAfter {
		return -1, nil
	}
	wait = max(wait, after)
	if resp.Request != nil {
		// The answer says more than that time ran out.
		if deadline, ok := resp.Request.Context().Deadline(); ok && time.Now().Add(wait).After(deadline) {
			return -1, nil
		}
	}
	return wait, nil
}

// retryAfter returns how long an answer's headers ask to wait; 0 if they do not say.
func retryAfter(h http.Header) time.Duration { return outgoing.RetryAfter(h, time.Now()) }
