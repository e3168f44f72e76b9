package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// LocalOptions contains the settings of a [Local], and everything else that it needs.
type LocalOptions struct {
	// Settings are the settings of a gateway. A Local replaces the settings of the listener and of access control.
	Settings Settings
	// Origin returns the URL of the provider registry protocol at a host's own service, or nil if it is unknown.
	Origin func(svchost.Hostname) *url.URL
	// ModuleOrigin is like Origin, for the module registry protocol. The URL is nil if the host has no such service. An
	// error means that it is unknown whether the host has such a service.
	ModuleOrigin func(svchost.Hostname) (*url.URL, error)

	// The following functions must be safe for concurrent calls.

	// Listed is called for each list of versions that a client gets. versions is this list, which is empty if the gateway
	// does not have the provider. denied are the versions that the list lacks because the configuration denies them.
	Listed func(a provider.Address, versions, denied []provider.Version)
	// Lacks is called for each request for a package that the gateway does not have, or denies.
	Lacks func(provider.Address, provider.Version, provider.Platform)
	// LacksModule is called for each request for the versions of a module that is absent from the registry, unless the
	// gateway redirects the client.
	LacksModule func(module.Address)
	// DeprecatedModule is called for each request for the location of a module's version that the configuration
	// deprecates. Clients do not show the reason, as they do for providers.
	DeprecatedModule func(a module.Address, v provider.Version, reason string)

	Log     *slog.Logger
	Version string // the version of the program
}

// Local is a gateway for the programs that one command starts. It serves the provider and the module registry protocol
// over plain HTTP on a free loopback port.
//
// Each of its paths begins with a random capability. Requests without a valid capability are answered with 404, so that
// other users of the machine get nothing. Requests for a provider or module without a template are redirected to the
// origin of that provider or module. The credentials in requests are dropped.
type Local struct {
	o          LocalOptions
	site       *site
	server     *http.Server
	capability string
	// exit is a second capability, which allows only redirects to origins. Origins learn this capability, because the
	// Referer header of a redirected client contains the URL with the capability.
	exit      string
	requested atomic.Bool
}

// StartLocal starts a gateway. The caller must close the gateway.
func StartLocal(ctx context.Context, o LocalOptions) (*Local, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Local{o: o, capability: rand.Text(), exit: rand.Text()}
	if err := l.open(ctx, listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	l.server = newServer(l, o.Log)
	go func() { _ = l.server.Serve(listener) }() // it always returns an error, because Close ends it
	return l, nil
}

// open creates the gateway's site.
func (l *Local) open(ctx context.Context, addr net.Addr) error {
	p, err := newProcess(ctx, Options{Log: l.o.Log, Version: l.o.Version, Getenv: func(string) string { return "" }}, addr, "")
	if err != nil {
		return err
	}
	s := l.o.Settings
	c := *s.Config
	c.Gateway = localGateway(c.Gateway)
	s.Config, s.local, s.moduleOrigin = &c, &url.URL{Scheme: "http", Host: addr.String(), Path: "/" + l.capability + "/"}, l.moduleExit
	if l.site, err = p.newSite(s, nil); err != nil {
		return err
	}
	l.site.begin()
	return nil
}

// localGateway returns the gateway block of a [Local]. The capability replaces all other access control. Downloads are
// not redirected to the registry's storage, because the Referer header would reveal the capability to that storage.
func localGateway(g config.Gateway) config.Gateway {
	g.Listen, g.MetricsListen, g.PublicURL, g.HTTP, g.TLS, g.Redirect = "", "", "", true, config.TLS{}, false
	g.Tokens, g.OIDC, g.Login, g.CapabilityKeyFile = nil, nil, nil, ""
	return g
}

// RegistryURL returns the base URL of the provider registry protocol for a host.
func (l *Local) RegistryURL(host svchost.Hostname) string {
	return gateway.RegistryURL(l.site.address.URL.String(), string(host))
}

const (
	endLocal   = 5 * time.Second // how long Close waits for requests whose client has left
	drainLocal = time.Minute     // how long Close waits for running pushes of pull-through, which already have all bytes
)

// Close stops the gateway, and cancels requests that go on for too long. If pull-through is still storing packages, Close
// waits until they are stored, but for at most drainLocal, and not after ctx has ended.
func (l *Local) Close(ctx context.Context) error {
	err := l.stop(context.WithoutCancel(ctx))
	if puller := l.site.puller; puller != nil {
		ctx, cancel := context.WithTimeout(ctx, drainLocal)
		defer cancel()
		puller.Drain(ctx)
	}
	l.site.end()
	err = errors.Join(err, l.site.Close())
	l.site.ops.Close()
	return err
}

// stop stops the server. It returns after all requests, unless they take longer than endLocal.
func (l *Local) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endLocal)
	defer cancel()
	if l.server.Shutdown(ctx) == nil {
		return nil
	}
	return l.server.Close()
}

// ServeHTTP implements [http.Handler].
func (l *Local) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	capability, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if same(capability, l.capability) {
		l.requested.Store(true)
	}
	a, rest, ok := splitRegistryPath("/" + path)
	excluded := l.excludes(a)
	switch {
	case !ok:
		l.serveModule(w, r, capability, "/"+path)
	case same(capability, l.exit) && excluded:
		l.redirect(w, r, a, rest)
	case !same(capability, l.capability):
		http.NotFound(w, r)
	case excluded:
		http.Redirect(w, r, "/"+l.exit+"/"+path, http.StatusTemporaryRedirect)
	default:
		l.serve(w, withoutCredentials(r, "/"+path), a, rest)
	}
}

// excludes reports whether no template is for a provider.
func (l *Local) excludes(a provider.Address) bool {
	_, err := l.site.repositories.Templates.For(a)
	return errors.Is(err, templates.ErrNotSelected)
}

// same reports in constant time whether two capabilities are equal.
func same(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// Requested reports whether the command has sent a request to the gateway.
func (l *Local) Requested() bool { return l.requested.Load() }

// Pulls reports whether pull-through fetches missing versions of a provider or a module.
func (l *Local) Pulls(a subject.Address) bool { return l.site.pulls != nil && l.site.pulls(a) }

// Denied returns a *[catalog.DeniedError] if the configuration denies a version, or if the version is not approved. It returns nil
// otherwise, and if the registry cannot answer in time.
func (l *Local) Denied(a provider.Address, v provider.Version) error {
	c := l.site.catalog
	if !c.DecidesByManifest(a) {
		return c.Denied(a, v)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deniedWithin)
	defer cancel()
	_, err := c.Union().Version(ctx, a, v)
	if denied, ok := errors.AsType[*catalog.DeniedError](err); ok {
		return denied
	}
	return nil
}

// deniedWithin is the time for which Denied waits for the registry.
const deniedWithin = 5 * time.Second

// Stored returns the versions of a provider in the registry, signed or not, oldest first, or nil if they are unknown.
func (l *Local) Stored(ctx context.Context, a provider.Address) []provider.Version {
	item, err := l.site.catalog.Registry().Versions(ctx, a)
	if err != nil {
		return nil
	}
	return item.All()
}

// serve answers a request for a provider that a template selects, and reports what the gateway lists and lacks.
func (l *Local) serve(w http.ResponseWriter, r *http.Request, a provider.Address, rest string) {
	answer := &recordingWriter{ResponseWriter: w, code: http.StatusOK, keeps: rest == "versions"}
	l.site.handler.ServeHTTP(answer, r)
	switch {
	case rest == "versions" && (answer.code == http.StatusOK || answer.code == http.StatusNotFound):
		if versions, ok := answer.versions(); ok {
			l.o.Listed(a, versions, l.site.catalog.Union().DeniedVersions(r.Context(), a))
		}
	case answer.code == http.StatusNotFound, answer.code == http.StatusUnavailableForLegalReasons:
		if v, p, ok := splitDownloadPath(rest); ok {
			l.o.Lacks(a, v, p)
		}
	}
}

// redirect sends a client to the provider's origin.
func (l *Local) redirect(w http.ResponseWriter, r *http.Request, a provider.Address, rest string) {
	base := l.o.Origin(a.ServiceHost())
	if base == nil {
		l.site.log.Error("no template is for a provider, and its host does not name its own provider registry", "provider", a.String(),
			"hint", "is "+a.Hostname()+" reachable? Otherwise, add the provider to the include patterns, and push it")
		http.Error(w, "the provider's origin is unknown", http.StatusBadGateway)
		return
	}
	http.Redirect(w, r, base.JoinPath(a.Namespace(), a.Type(), rest).String(), http.StatusTemporaryRedirect)
}

// splitRegistryPath splits a path of the provider registry protocol into the provider's address and the rest of the path.
func splitRegistryPath(path string) (a provider.Address, rest string, ok bool) {
	parts := splitHostPath(path, gateway.RegistryPath, 4)
	if parts == nil {
		return provider.Address{}, "", false
	}
	a, err := provider.AddressFromURL(parts[0], parts[1], parts[2])
	return a, parts[3], err == nil
}

// splitHostPath splits a path below [gateway.HostsPath] and the root of a protocol into n parts: the host, the other parts of
// an address, and the rest of the path. It returns nil for other paths.
func splitHostPath(path, root string, n int) []string {
	path, ok := strings.CutPrefix(path, gateway.HostsPath)
	host, path, _ := strings.Cut(path, "/")
	path, found := strings.CutPrefix("/"+path, root)
	parts := append([]string{host}, strings.SplitN(path, "/", n-1)...)
	if !ok || !found || len(parts) != n || strings.Contains("/"+parts[n-1]+"/", "/../") {
		return nil
	}
	return parts
}

// withoutCredentials returns a request that has the given escaped path and no credentials. Clients send tokens that are
// for origins, and not for this gateway. These tokens must not appear in the gateway's log.
func withoutCredentials(r *http.Request, path string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	r.URL.RawPath = path
	r.URL.Path, _ = url.PathUnescape(path) // it was part of a valid path
	r.RequestURI = r.URL.RequestURI()
	return r
}

// splitDownloadPath returns the version and the platform in a path below a provider, such as 1.0.0/download/linux/amd64.
func splitDownloadPath(rest string) (v provider.Version, p provider.Platform, ok bool) {
	parts := strings.Split(rest, "/")
	if len(parts) != 4 || parts[1] != "download" {
		return v, p, false
	}
	v, err := provider.ParseVersion(parts[0])
	if err != nil {
		return v, p, false
	}
	p, err = provider.ParsePlatform(parts[2] + "_" + parts[3])
	return v, p, err == nil
}

// maxRecorded is the maximum size in bytes of a recorded list of versions. Longer lists are passed on, and not reported.
const maxRecorded = 16 << 20

// recordingWriter records the status of a response and, if keeps is set, its body.
type recordingWriter struct {
	http.ResponseWriter
	code  int
	keeps bool
	body  bytes.Buffer
}

func (w *recordingWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *recordingWriter) Write(p []byte) (int, error) {
	if w.keeps = w.keeps && w.body.Len()+len(p) <= maxRecorded; w.keeps {
		w.body.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// versions returns the versions in the recorded list. A provider that does not exist has none.
func (w *recordingWriter) versions() (versions []provider.Version, ok bool) {
	if w.code == http.StatusNotFound {
		return nil, true
	}
	var list struct {
		Versions []struct{ Version provider.Version }
	}
	if !w.keeps || json.Unmarshal(w.body.Bytes(), &list) != nil {
		return nil, false
	}
	for _, v := range list.Versions {
		versions = append(versions, v.Version)
	}
	return versions, true
}
