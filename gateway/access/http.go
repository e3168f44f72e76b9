package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// retryAfter is the Retry-After in seconds if the issuer of a token cannot be reached.
const retryAfter = 5

// Private is the Cache-Control header of every response that depends on the client.
const Private = "private, no-store"

// Handler removes the capability from a request's path, before next sees the request. next must contain all other
// handlers, including the handler that logs requests.
func (c *Control) Handler(next http.Handler) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &state{}
		r = r.WithContext(context.WithValue(r.Context(), stateKey{}, s))
		// A segment of a repository's name may look like a capability.
		if !strings.HasPrefix(r.URL.Path, registryPath) {
			var plain string
			if plain, s.capability = split(r.URL.Path); plain != r.URL.Path {
				u := &url.URL{}
				*u = *r.URL
				// The client may have escaped the path in another way. The new path means the same, unless a
				// segment had an escaped slash, which no path of the gateway has.
				u.Path, u.RawPath = plain, ""
				r.URL, r.RequestURI = u, u.RequestURI()
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Guard passes a request to next if the request's token or capability covers the requested provider or module. It
// rejects all other requests. address returns the requested provider or module. If address fails, a request with a
// valid token gets 404.
func Guard[A subject.Address](c *Control, address func(*http.Request) (A, error), next http.Handler) http.Handler {
	return c.guard(func(r *http.Request) (subject.Address, error) { return address(r) }, next)
}

func (c *Control) guard(requested func(*http.Request) (subject.Address, error), next http.Handler) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = keepPrivate(w)
		what, err := requested(r)
		s := stateOf(r.Context())
		if s.capability != "" {
			g, digest := c.verify(s.capability, r.URL.Path, what, time.Now())
			if g == nil || err != nil {
				c.ForbidCapability(w)
				return
			}
			s.digest, s.name = digest, g.kind+" "+g.name
			next.ServeHTTP(w, r)
			return
		}
		switch client := c.identify(w, r); {
		case client == nil:
		case err != nil:
			http.Error(w, "not found", http.StatusNotFound)
		case client.grantFor(what) == nil:
			c.n.Forbidden.Add(1)
			forbid(w, "the token does not cover this address")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// GuardOperator passes a request to next if it has an operator's token, and rejects all others.
func (c *Control) GuardOperator(next http.Handler) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = keepPrivate(w)
		switch client := c.identify(w, r); {
		case client == nil:
		case !slices.ContainsFunc(client.grants, func(g *grant) bool { return g.operator }):
			c.n.Forbidden.Add(1)
			http.Error(w, "not allowed: this needs an operator's token", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// identify returns the client of a request's token, and records it for the log. If the token is not valid, identify
// answers the request and returns nil.
func (c *Control) identify(w http.ResponseWriter, r *http.Request) *Client {
	client, err := c.authenticate(r, false)
	if err != nil {
		c.refuse(w, err)
		return nil
	}
	stateOf(r.Context()).setClient(client)
	return client
}

// keepPrivate sets the Cache-Control header of a response to Private. It sets the header again just before the response
// is sent, because http.ServeContent removes it from errors.
func keepPrivate(w http.ResponseWriter) http.ResponseWriter {
	h := w.Header()
	h.Set("Cache-Control", Private)
	return httpsnoop.Wrap(w, httpsnoop.Hooks{WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
		return func(status int) {
			h.Set("Cache-Control", cmp.Or(h.Get("Cache-Control"), Private))
			next(status)
		}
	}})
}

// ForbidCapability rejects a capability that does not cover the requested file; see [Covers].
func (c *Control) ForbidCapability(w http.ResponseWriter) {
	c.n.Capability.Add(1)
	if warn, others := c.refused.Allow(); warn {
		c.log.Warn("a link was refused: it has expired, or a gateway with other keys made it", "others", others, "hint", "gateways behind one address need the same capability_key_file; links of a token that was changed or removed are refused, too")
	}
	forbid(w, "the link has expired, or a gateway with other keys made it")
}

func forbid(w http.ResponseWriter, why string) {
	w.Header().Set("Cache-Control", Private)
	http.Error(w, "not allowed: "+why, http.StatusForbidden)
}

// refuse answers a request whose authentication failed with err.
func (c *Control) refuse(w http.ResponseWriter, err error) {
	c.Refused(err)
	if errors.Is(err, ErrUnavailable) {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		http.Error(w, "the issuer of the token cannot be reached now; the gateway's log says why", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="ocibridge"`)
	http.Error(w, "this gateway requires a valid token", http.StatusUnauthorized)
}

// registryPath is the prefix of the embedded registry's paths.
const registryPath = "/v2/"

// GuardRegistry is like [Guard], for the embedded registry at /v2/. resource returns the provider or module of a
// repository. A client may also send its token as a password, with any user name.
func (c *Control) GuardRegistry(resource func(repository string) (subject.Address, error), next http.Handler) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", Private)
		client, err := c.authenticate(r, true)
		if err != nil {
			c.Refused(err)
		}
		switch {
		case errors.Is(err, ErrUnavailable):
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
			RegistryError(w, http.StatusServiceUnavailable, "UNAVAILABLE", "the issuer of the token cannot be reached now")
			return
		case err != nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="ocibridge"`)
			RegistryError(w, http.StatusUnauthorized, "UNAUTHORIZED", "use a token of this gateway as the password")
			return
		}
		stateOf(r.Context()).setClient(client)
		if !client.mayAsk(r, resource) {
			c.n.Forbidden.Add(1)
			RegistryError(w, http.StatusForbidden, "DENIED", "the token does not cover this repository")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// mayAsk reports whether the client may send the given request to the embedded registry.
func (c *Client) mayAsk(r *http.Request, resource func(string) (subject.Address, error)) bool {
	if c.mayReadAll() || r.URL.Path == registryPath {
		return true
	}
	// The path must be unambiguous, because the registry parses it again to find the repository.
	name, ok := repositoryOf(r.URL.Path)
	if !ok || r.URL.RawPath != "" {
		return false
	}
	what, err := resource(name)
	return err == nil && c.grantFor(what) != nil
}

// repositoryOf returns the repository in the path of a request that reads from a registry. It returns false for other
// paths, and for paths that the registry might parse differently.
func repositoryOf(p string) (string, bool) {
	parts := strings.Split(strings.TrimPrefix(p, registryPath), "/")
	if len(parts) < 3 {
		return "", false
	}
	if slices.ContainsFunc(parts, func(part string) bool { return part == "" || part == "." || part == ".." }) {
		return "", false
	}
	name, kind, what := parts[:len(parts)-2], parts[len(parts)-2], parts[len(parts)-1]
	reads := kind == "manifests" || kind == "blobs" || kind == "referrers" || kind == "tags" && what == "list"
	return strings.Join(name, "/"), reads
}

// RegistryError answers with an error in the format of the OCI distribution specification.
func RegistryError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}
