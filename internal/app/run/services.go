package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/neterr"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

// services are the services of a host by ID, as in a host block of the CLI configuration. The URLs of discovered services are
// absolute.
type services = map[string]any

const (
	providersID      = "providers.v1" // the ID of the provider registry protocol in service discovery
	modulesID        = "modules.v1"   // the ID of the module registry protocol
	discoveryPath    = "/.well-known/terraform.json"
	discoveryTimeout = 2 * time.Second // the longest wait of a command for the discovery documents of all hosts
	discoveryTTL     = 24 * time.Hour  // how long a discovery document in the user's cache folder stays current
	// failureTTL is how long a host that did not answer in time is not asked again. Other failures are not remembered:
	// they cost little time, and the user may have removed the cause, such as a missing token or CA.
	failureTTL   = time.Minute
	maxRedirects = 3
)

// discoveryLimits are the limits of discovery documents. Real documents have less than 1 KiB.
var discoveryLimits = document.Limits{Bytes: 64 << 10, Values: 1_000, Elements: 1_000}

// discovery finds out the services of hosts.
type discovery struct {
	transport   http.RoundTripper
	credentials svcauth.CredentialsSource // the user's API tokens; nil for none
	userAgent   string
	folder      string // the folder of cached discovery documents; "" for no cache
	now         func() time.Time
	log         *slog.Logger
}

// all returns the services of each host. configured are the services in the user's host blocks, which replace
// discovery. The result has nil for a host whose services cannot be found out.
func (d *discovery) all(ctx context.Context, hosts []svchost.Hostname, configured map[svchost.Hostname]services) map[svchost.Hostname]services {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[svchost.Hostname]services{}
	for _, host := range hosts {
		wg.Go(func() {
			found, ok := configured[host]
			if !ok {
				found = d.services(ctx, host)
			}
			mu.Lock()
			defer mu.Unlock()
			out[host] = found
		})
	}
	wg.Wait()
	return out
}

// services returns the services of a host. For the public registries, these are constants. For other hosts, they come
// from the host's discovery document, or from an earlier one if the host does not answer. The result is nil if the
// services are unknown.
func (d *discovery) services(ctx context.Context, host svchost.Hostname) services {
	if host == terraformHost || host == openTofuHost {
		at := "https://" + string(host)
		return services{modulesID: at + "/v1/modules/", providersID: at + "/v1/providers/"}
	}
	known := d.cached(host)
	if within(known.Fetched, d.now(), discoveryTTL) {
		return known.Services
	}
	err := errRecentFailure
	if !within(known.Failed, d.now(), failureTTL) {
		var found services
		if found, err = d.fetch(ctx, host); err == nil {
			d.keep(host, cachedServices{Fetched: d.now(), Services: found})
			return found
		}
		switch {
		case errors.Is(ctx.Err(), context.Canceled): // an interrupt says nothing about the host
			return known.Services
		case ctx.Err() != nil:
			known.Failed = d.now()
			d.keep(host, known)
		}
	}
	level := slog.LevelWarn
	if neterr.NoSuchHost(err) {
		level = slog.LevelInfo // such a host has no services
	}
	d.log.Log(ctx, level, "the services of a host are unknown: only the providers and modules that the gateway has work, unless an earlier answer is cached", "host", string(host), "err", err)
	return known.Services
}

// errRecentFailure means that a host is not asked because it did not answer in time.
var errRecentFailure = fmt.Errorf("it did not answer in time, and is not asked again for %s", failureTTL)

// within reports whether a time is less than ttl ago.
func within(then, now time.Time, ttl time.Duration) bool {
	age := now.Sub(then)
	return age >= 0 && age < ttl
}

// fetch requests the discovery document of a host. Like clients, it sends the user's token for this host, and sends
// this token to no other host.
func (d *discovery) fetch(ctx context.Context, host svchost.Hostname) (services, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+string(host)+discoveryPath, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", d.userAgent)
	d.authorize(req, host)
	client := &http.Client{Transport: d.transport, CheckRedirect: checkRedirect}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || mediaType != "application/json" {
		return nil, fmt.Errorf("%s answers %d with media type %.100q", req.URL, resp.StatusCode, mediaType)
	}
	data, err := document.ReadAll(resp.Body, discoveryLimits.Bytes)
	if err != nil {
		return nil, err
	}
	var out services
	if err := discoveryLimits.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	return absolute(resp.Request.URL, out), nil
}

// authorize adds the user's token for a host to a request. Like clients, it goes on if a credentials helper fails.
func (d *discovery) authorize(req *http.Request, host svchost.Hostname) {
	if d.credentials == nil {
		return
	}
	if c, err := d.credentials.ForHost(req.Context(), host); err == nil && c != nil {
		c.PrepareRequest(req)
	}
}

// checkRedirect refuses redirects without TLS. It drops the token from a redirect to another host, also to a subdomain, to
// which net/http would send it.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if req.URL.Scheme != "https" {
		return errors.New("it redirects to a URL that is not https")
	}
	if req.URL.Host != via[0].URL.Host {
		req.Header.Del("Authorization")
	}
	return nil
}

// absolute returns services whose URLs are absolute. It drops services that are neither URLs nor objects.
func absolute(base *url.URL, found services) services {
	out := services{}
	for id, service := range found {
		switch s := service.(type) {
		case string:
			if u, err := base.Parse(s); err == nil {
				out[id] = u.String()
			}
		case map[string]any: // such as login.v1
			s = maps.Clone(s)
			for _, name := range []string{"authz", "token"} {
				text, ok := s[name].(string)
				if u, err := base.Parse(text); ok && err == nil {
					s[name] = u.String()
				}
			}
			out[id] = s
		}
	}
	return out
}

// cachedServices is the last discovery document of a host, on disk.
type cachedServices struct {
	Fetched  time.Time `json:"fetched"`
	Services services  `json:"services"`
	Failed   time.Time `json:"failed,omitzero"` // when the host last did not answer in time, if later than Fetched
}

// path returns the path of a host's cached discovery document.
func (d *discovery) path(host svchost.Hostname) string {
	return filepath.Join(d.folder, strings.ReplaceAll(string(host), ":", "_")+".json")
}

// cached returns what is cached about a host, or the zero value.
func (d *discovery) cached(host svchost.Hostname) (c cachedServices) {
	if d.folder == "" {
		return c
	}
	data, err := files.Read(d.path(host))
	if err != nil || discoveryLimits.Unmarshal(data, &c) != nil {
		return cachedServices{}
	}
	return c
}

// keep caches the services of a host. It only logs an error, because an error only makes the next command slower.
func (d *discovery) keep(host svchost.Hostname, c cachedServices) {
	if d.folder == "" {
		return
	}
	data, err := json.Marshal(c)
	if err == nil {
		err = privatefolder.Write(d.path(host), data)
	}
	if err != nil {
		d.log.Debug("a discovery document is not cached", "host", string(host), "err", err)
	}
}

// originOf returns the URL of the service with the given ID in the services of a host, or nil. A relative URL in a host
// block is relative to the host's discovery document.
func originOf(host svchost.Hostname, s services, id string) *url.URL {
	text, ok := s[id].(string)
	base := &url.URL{Scheme: "https", Host: string(host), Path: discoveryPath}
	u, err := base.Parse(text)
	if !ok || err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil
	}
	return u
}
