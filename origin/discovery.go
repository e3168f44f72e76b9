package origin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/provider"
)

// The IDs of the provider registry protocol and of the module registry protocol in service discovery.
const (
	serviceID = "providers.v1"
	modulesID = "modules.v1"
)

// NewDiscovery returns a service discovery client. It follows redirects and retries
// requests by the same rules as every other request to an origin.
func NewDiscovery(transport http.RoundTripper, options ...disco.DiscoOption) *disco.Disco {
	client := newHTTPClient(smallAnswers{transport})
	client.Transport = refusals{client.Transport}
	return disco.New(append(options, disco.WithHTTPClient(client))...)
}

// refusals is a transport that returns a *statusError for a response with an error status.
// The errors of package disco would contain the status only as text. A response with status
// 404 is returned unchanged, because it means that the host has no services.
type refusals struct{ next http.RoundTripper }

func (r refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode < 400 || resp.StatusCode == http.StatusNotFound {
		return resp, err
	}
	resp.Body.Close()
	status := &statusError{redactedURL(req.URL), resp.StatusCode}
	if outgoing.IsLater(resp.StatusCode) {
		return nil, outgoing.NewLaterError(resp.Header, status)
	}
	return nil, status
}

const (
	maxBase        = 2 << 10 // the maximum length of a service's URL in bytes
	maxContentType = 256     // the maximum length in bytes of a Content-Type header that package disco may quote
)

// discoveryLimits are the limits of discovery documents. Real documents have less than 1 KiB.
var discoveryLimits = document.Limits{Bytes: 64 << 10, Values: 1_000, Elements: 1_000}

// smallAnswers is a transport that reads the whole body before it returns a response, so that a
// request is retried if the body breaks off. It also removes the parts of a response that
// discovery does not need, because package disco caches and quotes every part.
type smallAnswers struct{ next http.RoundTripper }

func (s smallAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, discoveryLimits.Bytes+1))
	resp.Body.Close()
	contentType := resp.Header.Get("Content-Type")
	mediaType, _, _ := mime.ParseMediaType(contentType)
	switch {
	case mediaType != "application/json":
		data = nil // package disco reports the wrong media type
	case err == nil && resp.StatusCode == http.StatusOK:
		data, err = onlyRegistries(data)
	}
	if err != nil {
		return nil, explainDocument(err)
	}
	resp.Header.Set("Content-Type", contentType[:min(len(contentType), maxContentType)])
	resp.Status = fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return resp, nil
}

// onlyRegistries removes all services except provider and module registries from a discovery
// document. It returns data unchanged if it is not a JSON object.
func onlyRegistries(data []byte) ([]byte, error) {
	var services map[string]json.RawMessage
	if err := discoveryLimits.Unmarshal(data, &services); errors.Is(err, document.ErrTooLarge) {
		return nil, err
	} else if err != nil {
		return data, nil
	}
	maps.DeleteFunc(services, func(id string, _ json.RawMessage) bool {
		return !strings.HasPrefix(id, "providers.") && !strings.HasPrefix(id, "modules.")
	})
	return json.Marshal(services)
}

const (
	rediscoverAfter = 10 * time.Minute // how long a host's services stay cached
	maxDiscovered   = 256              // the maximum number of hosts whose services are cached
)

// servicesFor returns the service discovery client for requests to a host.
func (r *Registry) servicesFor(host svchost.Hostname) *disco.Disco {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rediscover == nil {
		return r.services
	}
	if time.Since(r.since) >= rediscoverAfter || len(r.hosts) >= maxDiscovered && !r.hosts[host] {
		r.services, r.since, r.hosts = r.rediscover(), time.Now(), map[svchost.Hostname]bool{}
	}
	r.hosts[host] = true
	return r.services
}

// endpoint returns the base URL of a provider's registry, and a function that adds the credentials
// for the provider's own host to each request, even if the base URL is on another host.
func (r *Registry) endpoint(ctx context.Context, a provider.Address) (*url.URL, func(*http.Request), error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	host := &url.URL{Scheme: "https", Host: string(a.ServiceHost())}
	r.guard.recordAsked(host.Hostname())
	services := r.servicesFor(a.ServiceHost())
	base, err := services.DiscoverServiceURL(ctx, a.ServiceHost(), serviceID)
	if err != nil {
		return nil, nil, explainDiscovery(fmt.Errorf("service discovery of %s: %w", a.Hostname(), explainTransport(err)), a.Hostname())
	}
	if n := len(base.String()); n > maxBase {
		return nil, nil, hint.New(fmt.Sprintf("service discovery of %s: the URL of %s has %d bytes, more than %d", a.Hostname(), serviceID, n, maxBase), "ask the operator of the origin")
	}
	if base.Host == "" {
		return nil, nil, hint.New(fmt.Sprintf("service discovery of %s: %s is at %q, which names no host", a.Hostname(), serviceID, base), "is it the host of a provider registry?")
	}
	if err := r.guard.checkService(serviceID, host, base); err != nil {
		return nil, nil, fmt.Errorf("service discovery of %s: %s is at %w", a.Hostname(), serviceID, err)
	}
	prepare, err := credentials(ctx, services, a.ServiceHost(), base, serviceID)
	return base, prepare, err
}

// credentials returns a function that adds the credentials for a host to each request to the host's service at base.
func credentials(ctx context.Context, services *disco.Disco, host svchost.Hostname, base *url.URL, service string) (func(*http.Request), error) {
	creds, err := services.CredentialsForHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w", host, err)
	}
	if creds != nil && base.Scheme != "https" {
		return nil, hint.New(fmt.Sprintf("credentials for %s would go to %s unencrypted", host, redactedURL(base)),
			"give its %s service an https URL, or remove the credentials", service)
	}
	return func(req *http.Request) {
		if creds != nil {
			creds.PrepareRequest(req)
		}
	}, nil
}

// Modules returns the base URL of the module registry protocol at a host. The URL is https. The error
// wraps [ErrNoModules] if the host's discovery document has no module registry. If the host has no
// discovery document, the error does not wrap [ErrNoModules], because a 404 from a proxy looks the
// same.
func (r *Registry) Modules(ctx context.Context, host svchost.Hostname) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	at := &url.URL{Scheme: "https", Host: string(host)}
	r.guard.recordAsked(at.Hostname())
	base, err := r.servicesFor(host).DiscoverServiceURL(ctx, host, modulesID)
	switch {
	case isWithoutService(err):
		return nil, explainDiscovery(fmt.Errorf("service discovery of %s: %w: %w", host, ErrNoModules, err), string(host))
	case err != nil:
		return nil, explainDiscovery(fmt.Errorf("service discovery of %s: %w", host, explainTransport(err)), string(host))
	case len(base.String()) > maxBase, base.Host == "", base.Scheme != "https":
		return nil, hint.New(fmt.Sprintf("service discovery of %s: %s is at %.80q, which is not an https URL of at most %d bytes", host, modulesID, redactedURL(base), maxBase), "is it the host of a module registry?")
	}
	return base, nil
}

// isWithoutService reports whether a host's discovery document lacks a service. Package disco returns
// an error of the same type if there is no discovery document. Only the text of that error differs:
// it does not name the host.
func isWithoutService(err error) bool {
	none, ok := errors.AsType[*disco.ErrServiceNotProvided](err)
	return ok && !strings.HasPrefix(none.Error(), "host does not ")
}

// explainDiscovery adds a hint to an error of service discovery for a host.
func explainDiscovery(err error, host string) error {
	const help = "is it the host of a provider registry?"
	refused, ok := errors.AsType[*statusError](err)
	if ok && refused.status < http.StatusInternalServerError && refused.status != http.StatusTooManyRequests && !refused.unauthorized() {
		return hint.Wrap(err, help)
	}
	return hint.Wrap(explainStatus(err, host, nil, "",
		fmt.Sprintf("%s refuses its discovery document, which is usually public: a firewall may answer so. If the host wants a token, set TF_TOKEN_%s, or replace the token that is filed for it", host, tokenVariable(host))), help)
}

// explain adds a hint to the error of a request to the registry of a provider. For status 404,
// the result wraps notFound.
func (r *Registry) explain(err error, a provider.Address, notFound error) error {
	absent := fmt.Sprintf("check the address: %s does not know it", a.Hostname())
	if notFound == ErrPlatformNotFound {
		absent = fmt.Sprintf("name those that %s has with --platform", a.Hostname())
	}
	return explainStatus(err, a.Hostname(), notFound, absent,
		fmt.Sprintf("log in with terraform login or tofu login %[1]s, or set TF_TOKEN_%[2]s", a.Hostname(), tokenVariable(a.Hostname())))
}

// explainStatus adds a hint to an error that wraps a *statusError. For status 404, the result wraps
// notFound, and the parameter absent is the hint. If the server refuses the credentials, the result
// wraps [ErrUnauthorized], and the parameter login is the hint. Other errors are returned unchanged.
// Status 410 does not mean that the version is absent, because for clients only 404 does.
func explainStatus(err error, server string, notFound error, absent, login string) error {
	var status *statusError
	switch {
	case !errors.As(err, &status):
		return err
	case status.status == http.StatusNotFound:
		return hint.Wrap(fmt.Errorf("%w: %w", notFound, err), "%s", absent)
	case status.unauthorized():
		return hint.Wrap(fmt.Errorf("%w: %w", ErrUnauthorized, err), "%s", login)
	case status.status == http.StatusGone:
		return hint.Wrap(err, "%s has withdrawn it: choose another version, or ask its publisher", server)
	case status.status >= http.StatusBadRequest && status.status < http.StatusInternalServerError && status.status != http.StatusTooManyRequests && status.status != http.StatusRequestTimeout:
		return hint.Wrap(err, "%s refuses the request, and would refuse it again: check the address, and that no proxy answers in its place", server)
	}
	return hint.Wrap(err, "%s reports a server error: run it again later", server)
}

// tokenVariable returns the part after TF_TOKEN_ in the name of the variable that holds a host's token.
func tokenVariable(host string) string { return strings.NewReplacer("-", "__", ".", "_").Replace(host) }
