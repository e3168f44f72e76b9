package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// proxy reports which variable names which proxy for a URL, and whether this proxy connects to the URL's host.
// Requests to this machine use no proxy, and are not reported. The bool is false if the proxy fails.
func (r *Report) proxy(ctx context.Context, to *url.URL) bool {
	const name = "proxy"
	route, err := outgoing.RouteTo(to)
	switch {
	case ociaddr.Registry(to.Host).IsLoopback():
		return true
	case err != nil:
		r.fail(name, err, "correct the variable")
		return false
	case route.Variable == "":
		r.ok(name, "none: no variable names one for %s", to.Host)
		return true
	case route.Proxy == "":
		r.ok(name, "none: NO_PROXY exempts %s from %s", to.Host, route.Variable)
		return true
	}
	through := fmt.Sprintf("%s names %s for %s", route.Variable, route.Proxy, to.Host)
	if err := tryProxy(ctx, to); err != nil {
		r.fail(name, fmt.Errorf("%s: %w", through, err), fmt.Sprintf("correct %s, or add %s to NO_PROXY if it is reached without a proxy", route.Variable, to.Hostname()))
		return false
	}
	r.ok(name, "%s: it connects", through)
	return true
}

// tryProxy sends a request through the proxy for a URL. It returns an error only if the proxy is the reason: an
// untrusted certificate, for example, means that the proxy has connected to the host.
func tryProxy(ctx context.Context, to *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	resp, err := head(ctx, to)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusProxyAuthRequired {
			return nil
		}
		return hint.New("the proxy answers 407 "+http.StatusText(resp.StatusCode), "%s", outgoing.ProxyLoginHint(to))
	}
	var refused *outgoing.ProxyError
	help := outgoing.ProxyHint(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", clientTimeout)
	case errors.As(err, &refused):
		return hint.Wrap(refused, "%s", hint.Of(err))
	case help != "":
		return hint.Wrap(errors.Unwrap(err), "%s", help) // without the URL, which the caller names
	}
	return nil
}

// head sends a HEAD request to the root of a URL's host. It sends no credentials and follows no redirects.
func head(ctx context.Context, to *url.URL) (*http.Response, error) {
	root := &url.URL{Scheme: to.Scheme, Host: to.Host, Path: "/"}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, root.String(), nil)
	if err != nil {
		return nil, err
	}
	transport := outgoing.Transport()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client.Do(req)
}
