package origin

import (
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/ocibridge/ocibridge/internal/neterr"
	"github.com/ocibridge/ocibridge/internal/outgoing"
)

const (
	// maxPerHost is the maximum number of answers from one host, downloads included, that
	// are pending or being read at the same time.
	maxPerHost = 16
	// maxRetryAfter is the longest Retry-After that is honoured. If an origin asks for a
	// longer wait, the request is not repeated.
	maxRetryAfter = 30 * time.Second
	// losses is how many times a request is repeated if its connection is refused or lost.
	losses = 2
)

// retryPolicy is the retry policy for origins. It is oras-go's default policy, but waits at
// least as long as Retry-After says.
type retryPolicy struct{}

// Retry implements [retry.Policy]. If an origin refuses or loses a connection before it
// answers, it may be restarting: the request is repeated soon, or not at all. All requests
// to origins are safe to repeat.
func (retryPolicy) Retry(attempt int, resp *http.Response, err error) (time.Duration, error) {
	if err != nil && neterr.Lost(err) && attempt < losses {
		return retry.DefaultBackoff(attempt, resp), nil
	}
	wait, err := retry.DefaultPolicy.Retry(attempt, resp, err)
	if err != nil || wait < 0 || resp == nil {
		return wait, err
	}
	after := outgoing.RetryAfter(resp.Header, time.Now())
	if after > maxRetryAfter {
		return -1, nil
	}
	wait = max(wait, after)
	if resp.Request != nil {
		// The last answer is more informative than an exceeded deadline.
		if deadline, ok := resp.Request.Context().Deadline(); ok && time.Now().Add(wait).After(deadline) {
			return -1, nil
		}
	}
	return wait, nil
}
