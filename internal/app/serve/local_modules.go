package serve

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// StoredModuleHosts returns the hosts of the modules in the embedded registry of a data folder.
func StoredModuleHosts(dataFolder string) (out []svchost.Hostname, err error) {
	names, err := embedded.ModuleHosts(dataFolder)
	for _, name := range names {
		if a, err := module.AddressFromPath(name, "example", "example", "example"); err == nil {
			out = append(out, a.ServiceHost())
		}
	}
	return out, err
}

// StoredProviderHosts returns the hosts of the providers in the embedded registry of a data folder.
func StoredProviderHosts(dataFolder string) (out []svchost.Hostname, err error) {
	names, err := embedded.ProviderHosts(dataFolder)
	for _, name := range names {
		if a, err := provider.AddressFromPath(name, "example", "example"); err == nil {
			out = append(out, svchost.Hostname(a.Hostname()))
		}
	}
	return out, err
}

// ModulesURL returns the base URL of the module registry protocol for a host.
func (l *Local) ModulesURL(host svchost.Hostname) string {
	return gateway.ModulesURL(l.site.address.URL.String(), string(host))
}

// serveModule answers a request for a module. path is the part of the request's path after the capability.
func (l *Local) serveModule(w http.ResponseWriter, r *http.Request, capability, path string) {
	a, rest, ok := splitModulePath(path)
	switch {
	case !ok:
		http.NotFound(w, r)
	case same(capability, l.capability):
		answer := &recordingWriter{ResponseWriter: w, code: http.StatusOK}
		l.site.handler.ServeHTTP(answer, withoutCredentials(r, path))
		if rest == "versions" && answer.code == http.StatusNotFound && l.isAbsent(r.Context(), a) {
			l.o.LacksModule(a)
		}
		if version, ok := strings.CutSuffix(rest, "/download"); ok && answer.code == http.StatusOK {
			if v, err := provider.ParseVersion(version); err == nil {
				if reason := l.site.catalog.Deprecated(a, v); reason != "" {
					l.o.DeprecatedModule(a, v, reason)
				}
			}
		}
	case same(capability, l.exit):
		l.redirectModule(w, r, a, rest)
	default:
		http.NotFound(w, r)
	}
}

// isAbsent reports whether the registry has no version of a module. It is false if rules deny all versions.
func (l *Local) isAbsent(ctx context.Context, a module.Address) bool {
	_, err := l.site.catalog.Registry().Versions(ctx, a)
	return errors.Is(err, catalog.ErrAbsent)
}

// redirectModule sends a client to the module's origin.
func (l *Local) redirectModule(w http.ResponseWriter, r *http.Request, a module.Address, rest string) {
	base, err := l.o.ModuleOrigin(a.ServiceHost())
	switch {
	case !l.leaves(a) || base == nil && err == nil:
		http.NotFound(w, r)
	case err != nil:
		http.Error(w, "the module's origin is unknown", http.StatusBadGateway)
	default:
		http.Redirect(w, r, base.JoinPath(a.Namespace(), a.Name(), a.System(), rest).String(), http.StatusTemporaryRedirect)
	}
}

// leaves reports whether clients go to the origin of a module that the registry lacks. They do if no module_mirror block
// is for the module, if its block has fall_through, or if the registry is the embedded one. They never do if the module may be
// pulled through.
func (l *Local) leaves(a module.Address) bool {
	if l.Pulls(a) {
		return false
	}
	_, err := l.site.repositories.Templates.For(a)
	return errors.Is(err, templates.ErrNotSelected) || l.site.repositories.Embedded != nil || l.site.settings.Config.ModuleMirror(a).FallThrough
}

// moduleExit returns the URL that redirects to the origin of a module, for [gateway.Options].ModuleOrigin. Its path begins
// with the second capability.
func (l *Local) moduleExit(_ context.Context, a module.Address) (*url.URL, error) {
	if !l.leaves(a) {
		return nil, nil
	}
	if base, err := l.o.ModuleOrigin(a.ServiceHost()); base == nil {
		return nil, err
	}
	exit := url.URL{Scheme: "http", Host: l.site.settings.local.Host, Path: "/" + l.exit + "/"}
	return url.Parse(gateway.ModulesURL(exit.String(), a.Hostname()))
}

// splitModulePath splits a path of the module registry protocol into the module's address and the rest of the path.
func splitModulePath(path string) (a module.Address, rest string, ok bool) {
	parts := splitHostPath(path, gateway.ModulesPath, 5)
	if parts == nil {
		return module.Address{}, "", false
	}
	a, err := module.AddressFromURL(parts[0], parts[1], parts[2], parts[3])
	return a, parts[4], err == nil
}
