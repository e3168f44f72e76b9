package origin

import (
	"fmt"
	"net/url"
)

// reference resolves a URL in a document against the document's own URL. Errors begin
// with the quoted raw URL, except for the errors of checkLocalReference.
func reference(at *url.URL, raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("%.200q, which has more than %d bytes", raw, maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil || raw == "" {
		return nil, fmt.Errorf("%.200q", raw)
	}
	if u = at.ResolveReference(u); len(u.String()) > maxURL {
		return nil, fmt.Errorf("%.200q, which is relative to a URL of %d bytes", raw, len(at.String()))
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%.200q, which is not of the scheme https or http", raw)
	}
	return u, checkLocalReference(at, u)
}
