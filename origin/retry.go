package origin

import (
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/ocibridge/ocibridge/internal/base/neterr"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

const (
	// maxPerHost is the maximum number of concurrent requests to one host, including
	// downloads. A request ends when the body of its response is closed.
	maxPerHost = 16
	// maxRetryAfter is the longest Retry-After that is honoured. If an origin asks for a
	// longer wait, the request is not repeated.
	maxRetryAfter = 30 * time.Second
	// losses is the maximum number of times that a request is repeated because its
	// connection is refused or lost.
	losses = 2
)

// retryPolicy is the retry policy for origins. It is oras-go's default policy, except that
// a wait is at least as long as the Retry-After header says.
type retryPolicy struct{}

// Retry implements [retry.Policy]. If the connection is refused or lost before the response
// begins, the origin may be restarting, so the request is repeated after a short wait. All
// requests to origins are safe to repeat.
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
		// The status of this response is more informative than the error for an exceeded
		// deadline.
		if deadline, ok := resp.Request.Context().Deadline(); ok && time.Now().Add(wait).After(deadline) {
			return -1, nil
		}
	}
	return wait, nil
}
