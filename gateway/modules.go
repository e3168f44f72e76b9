package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/mux"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/respond"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// ModulesPath is the root of the module registry protocol for modules with the gateway's own host name. The paths of
// another host begin with [HostsPath], the host's name and ModulesPath.
const ModulesPath = "/v1/modules/"

// modulesID is the ID of the module registry protocol in service discovery.
const modulesID = "modules.v1"

// ModulesURL is like [RegistryURL], for the module registry protocol.
func ModulesURL(public, hostname string) string {
	return strings.TrimSuffix(public, "/") + HostsPath + hostname + ModulesPath
}

// ModuleLink is like [Options.PackageLink], for the zip of a module's version.
func (o *Options) ModuleLink(r *http.Request, root string, a module.Address, v provider.Version, zip artifact.Package) string {
	base := fmt.Sprintf("%s%s/%s/%s/%s/", strings.TrimPrefix(ModulesURL("", a.Hostname()), "/"), a.Namespace(), a.Name(), a.System(), v)
	return o.Access.Link(r, a, root+base+zip.Filename, zip.Digest)
}

// moduleVersionsJSON is the response of "List Available Versions for a Specific Module".
type moduleVersionsJSON struct {
	Modules [1]struct {
		Versions []moduleVersionJSON `json:"versions"`
	} `json:"modules"`
}

type moduleVersionJSON struct {
	Version string `json:"version"`
}

// ModuleOf returns the module address in the path of a route with the variables hostname, namespace, name and system.
func ModuleOf(r *http.Request) (module.Address, error) {
	if hasEncodedSlash(r) {
		return module.Address{}, errors.New("encoded slash in a path")
	}
	v := mux.Vars(r)
	return module.AddressFromURL(v["hostname"], v["namespace"], v["name"], v["system"])
}

// routeModules adds the routes of one host's modules below a path. See [gateway.routeHost].
func (g *gateway) routeModules(r *mux.Router, path string, wrap func(http.HandlerFunc) http.HandlerFunc) {
	path += "{namespace}/{name}/{system}/"
	r.HandleFunc(path+"versions", wrap(g.guardedModule(g.orOrigin(g.serveModuleVersions, "versions")))).Name("versions")
	r.HandleFunc(path+"{version}/download", wrap(g.guardedModule(g.orOrigin(g.serveModuleDownload, "download")))).Name("download")
	if g.Manuals != nil {
		r.HandleFunc(path+"{version}", wrap(g.guardedModule(g.orOrigin(g.serveModuleDetails, "")))).Name("download")
	}
	r.HandleFunc(path+"{version}/{filename}", wrap(g.guardedModule(g.serveModuleArchive))).Name("archive")
}

// errAllDenied means that rules without a reason deny all versions of a module. Clients get the same response as for an
// absent module, but are not redirected to the module's origin.
var errAllDenied = fmt.Errorf("%w: all versions are denied", errAbsent)

// serveModuleVersions lists the versions of a module. If rules deny all versions, it lists those that a rule with a
// reason denies, so that a client requests one and gets the reason. If there are no such versions, it answers with
// 404. serveVersions does the same for providers.
func (g *gateway) serveModuleVersions(w http.ResponseWriter, r *http.Request, a module.Address) error {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.View(r).Versions(ctx, a)
	if err == nil && len(g.listedVersions(item)) == 0 {
		err = errAllDenied
	}
	if err != nil {
		return fmt.Errorf("list versions of the module %s: %w", a, err)
	}
	return g.answer(w, r, item, catalog.RegistryDocument, true, func() any {
		var out moduleVersionsJSON
		for _, v := range g.listedVersions(item) {
			out.Modules[0].Versions = append(out.Modules[0].Versions, moduleVersionJSON{v.String()})
		}
		return out
	})
}

// listedVersions returns the versions of a module for its list; see serveModuleVersions.
func (g *gateway) listedVersions(item *catalog.Item) []provider.Version {
	if len(item.Versions) > 0 {
		return item.Versions
	}
	var denied []provider.Version
	for _, d := range g.Catalog.Denials(item) {
		denied = append(denied, d.Versions...)
	}
	return denied
}

// serveModuleDownload says where the zip of a module's version is: to OpenTofu in the document, and to Terraform in the
// header X-Terraform-Get. The URL ends in ?archive=zip, because clients otherwise treat the response as a page with a
// link. If clients download the module from its repository, the URL is an oci:// address with the manifest's digest. If
// the module is in a folder of the zip, the URL has the folder after //, as its origin's location has. The URL of an
// announced version is on the gateway, whose request for the zip stores the version.
func (g *gateway) serveModuleDownload(w http.ResponseWriter, r *http.Request, a module.Address) error {
	absolute, err := g.references(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	item, err := g.moduleVersion(ctx, r, a)
	if err != nil {
		return err
	}
	uses(r, a, item.Version)
	found := item.Found
	zip, folder := found.Zip(), ""
	if found.Provenance.Folder != "" {
		folder = "//" + found.Provenance.Folder
	}
	// The document is at VERSION/download. Clients treat a reference without ./ as another kind of address.
	location := absolute(g.Access.Link(r, a, "./"+zip.Filename, zip.Digest)) + folder + "?archive=zip"
	if g.ModuleRepository != nil && !item.Announced() {
		if repo, ok := g.ModuleRepository(a); ok {
			location = "oci://" + repo.String() + folder + "?digest=" + string(zip.Manifest.Digest)
			if r.Method == http.MethodGet {
				lineOf(r).sent = sentRedirect
			}
		}
	}
	w.Header().Set("X-Terraform-Get", location)
	return writeJSON(w, r, map[string]string{"location": location})
}

// serveModuleArchive serves the zip of a module's version. A GET request for an announced version waits until the version
// is stored.
func (g *gateway) serveModuleArchive(w http.ResponseWriter, r *http.Request, a module.Address) error {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.Start)
	defer cancel()
	item, err := g.moduleVersion(ctx, r, a)
	if err != nil {
		return err
	}
	uses(r, a, item.Version)
	switch {
	case mux.Vars(r)["filename"] != item.Found.Zip().Filename:
		return errAbsent
	// A capability that the client got while the version was announced covers no digest. It stays valid for the version.
	case !access.Covers(r.Context(), item.Found.Zip().Digest) && !access.Covers(r.Context(), ""):
		g.Access.ForbidCapability(w)
		return nil
	case item.Announced() && r.Method == http.MethodHead:
		w.Header().Set("Content-Type", "application/zip") // the size is not known before the version is stored
		return nil
	case item.Announced():
		within, cancel := context.WithTimeout(r.Context(), g.limits.module)
		defer cancel()
		if item, err = g.Catalog.StoreModule(within, a, item.Version); err != nil {
			return err
		}
	}
	zip := *item.Found.Zip()
	blob := g.Catalog.StoredPackage(context.WithoutCancel(ctx), a, zip)
	lineOf(r).archive = true
	err = g.archives.Serve(w, r, archives.Archive{Package: zip, Blob: blob})
	if g.Used != nil && r.Method == http.MethodGet && err == nil {
		g.Used(a, item.Version)
	}
	return err
}

// moduleVersion returns the version in a request's path.
func (g *gateway) moduleVersion(ctx context.Context, r *http.Request, a module.Address) (*catalog.Item, error) {
	v, err := versionOf(r)
	if err != nil {
		return nil, err
	}
	item, err := g.View(r).ModuleVersion(ctx, a, v)
	if err != nil {
		return nil, err
	}
	return item, nil
}

// orOrigin adds a redirect to h: if the registry lacks the module or the version, the client is redirected to the
// module's origin, which [Options].ModuleOrigin returns. document is the last part of the path at the origin, after the
// module's address and the version in the request's path. If the registry cannot answer, or if versions need approvals, there is
// no redirect.
func (g *gateway) orOrigin(h handler[module.Address], document string) handler[module.Address] {
	if g.ModuleOrigin == nil {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request, a module.Address) error {
		absent := h(w, r, a)
		if errors.Is(absent, errAllDenied) || !errors.Is(absent, errAbsent) && !errors.Is(absent, ErrNotServed) {
			return absent
		}
		ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
		defer cancel()
		base, err := g.ModuleOrigin(ctx, a)
		v, verr := provider.ParseVersion(mux.Vars(r)["version"])
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", catalog.ErrSource, err)
		case base == nil:
			return absent
		case g.Catalog.Policy(a).Enforces():
			return g.Catalog.NotStored(ctx, a, v) // the origin would serve versions that are not approved
		case r.Header.Get("Authorization") != "" && g.isBelowOwnHost(r, base):
			return hint.New(fmt.Sprintf("no redirect from %s to %s: clients would send the gateway's token there", r.Host, base.Host),
				"give the gateway a host name that the origin's host name does not end in")
		}
		to := base.JoinPath(a.Namespace(), a.Name(), a.System(), "versions")
		if verr == nil {
			to = base.JoinPath(a.Namespace(), a.Name(), a.System(), v.String(), document)
		}
		w.Header().Set("Referrer-Policy", "no-referrer")
		respond.Redirect(w, to.String())
		return nil
	}
}

// isBelowOwnHost reports whether a URL is on the gateway's own host or a subdomain. On a redirect to such a host, HTTP
// clients keep the Authorization header.
func (g *gateway) isBelowOwnHost(r *http.Request, to *url.URL) bool {
	hosts := []string{(&url.URL{Host: r.Host}).Hostname()}
	if own := g.announced(); own != nil {
		hosts = append(hosts, own.Hostname())
	}
	name := strings.ToLower(strings.TrimSuffix(to.Hostname(), "."))
	for _, host := range hosts {
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		if host != "" && (name == host || strings.HasSuffix(name, "."+host)) {
			return true
		}
	}
	return false
}
