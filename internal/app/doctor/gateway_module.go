package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/provider"
)

// examineModule requests a module as clients do: service discovery, the list of versions, the location of the newest
// version, and its zip.
func (x Gateway) examineModule(ctx context.Context, r *Report) {
	modules, ok := x.discovery(ctx, r)
	if !ok {
		return
	}
	version, ok := x.moduleVersions(ctx, r, modules)
	if !ok {
		return
	}
	zip, ok := x.moduleDownload(ctx, r, modules, version)
	if !ok {
		return
	}
	x.archive(ctx, r, zip)
}

// discovery returns the base URL of the module registry protocol. Clients with a host block do not request a discovery
// document. The bool is false if there is no usable URL.
func (x Gateway) discovery(ctx context.Context, r *Report) (*url.URL, bool) {
	const name = "discovery"
	if x.Discovery == "" {
		modules, err := url.Parse(x.Modules)
		if err != nil {
			r.fail("URL", errors.New("it is none"), x.form())
			return nil, false
		}
		r.skip(name, "ocibridge config client --for host prints the whole block", "clients need a host block for %s with \"modules.v1\" = %q", svchost.ForDisplay(x.Subject.Hostname()), shown(modules))
		return modules, true
	}
	const help = "only a gateway with this host name in public_url has modules of this name; for modules of another host, name the module with that host"
	var doc struct {
		Modules string `json:"modules.v1"`
	}
	at, err := url.Parse(x.Discovery)
	if err != nil {
		r.fail(name, errors.New("its URL is none"), x.form())
		return nil, false
	}
	resp, err := x.document(ctx, at, &doc)
	r.server(resp)
	switch {
	case resp == nil:
		r.fail(name, err, "the gateway's own log says why")
		return nil, false
	case err != nil:
		r.fail(name, err, help)
		return nil, false
	case doc.Modules == "":
		r.fail(name, fmt.Errorf("%s has no modules.v1", shown(at)), help)
		return nil, false
	}
	u, err := resp.Request.URL.Parse(doc.Modules)
	if err != nil || u.Scheme != "https" || !strings.HasSuffix(u.Path, "/") {
		r.fail(name, fmt.Errorf("modules.v1 is %.200q, and no https URL that ends in a slash", doc.Modules), "clients fail on it: a proxy in between may have changed it")
		return nil, false
	}
	r.ok(name, "modules.v1 is %s", shown(u))
	return u, true
}

// moduleVersions requests the list of versions, and returns the newest version. The bool is false if no version can be
// checked.
func (x Gateway) moduleVersions(ctx context.Context, r *Report, modules *url.URL) (provider.Version, bool) {
	const name = "versions"
	var doc struct {
		Modules []struct {
			Versions []struct {
				Version string `json:"version"`
			} `json:"versions"`
		} `json:"modules"`
	}
	resp, err := x.document(ctx, x.modulePath(modules, name), &doc)
	r.server(resp)
	switch {
	case resp != nil && resp.StatusCode == http.StatusNotFound:
		if strings.HasSuffix(x.URL, "/providers/") && x.Discovery == "" {
			r.fail(name, fmt.Errorf("%s is not there, because the URL is that of the network mirror", x.Subject),
				"write the URL of the gateway as "+strings.TrimSuffix(x.URL, "providers/"))
			return provider.Version{}, false
		}
		r.warn(name, "push it, if it should be there; MODULE names another one to look for", "%s is not there: clients fail", x.Subject)
		return provider.Version{}, false
	case err != nil:
		r.fail(name, err, "the gateway's own log says why")
		return provider.Version{}, false
	}
	var listed []string
	for _, m := range doc.Modules {
		for _, s := range m.Versions {
			listed = append(listed, s.Version)
		}
	}
	return r.newest(name, x.Subject, listed, "clients do not install a version that does not parse: remove it from the registry")
}

// moduleDownload requests the location of a version. OpenTofu reads it from the document, and Terraform from the header
// X-Terraform-Get. The bool is false if clients download no zip over https from there.
func (x Gateway) moduleDownload(ctx context.Context, r *Report, modules *url.URL, v provider.Version) (*url.URL, bool) {
	const name = "download"
	var doc struct {
		Location string `json:"location"`
	}
	resp, err := x.document(ctx, x.modulePath(modules, v.String(), name), &doc)
	if resp != nil && resp.StatusCode == http.StatusNoContent { // an origin sent it, after a redirect by the gateway
		doc.Location, err = resp.Header.Get("X-Terraform-Get"), nil
	}
	if err != nil {
		r.fail(name, err, "the gateway's own log says why; 451 means that a deny rule denies the version")
		return nil, false
	}
	header := resp.Header.Get("X-Terraform-Get")
	u, err := resp.Request.URL.Parse(header)
	switch {
	case header == "" || header != doc.Location:
		r.fail(name, errors.New("the header X-Terraform-Get and the location in the document differ"), "Terraform reads the header, and OpenTofu the document: a proxy in between may have removed the header")
	case err != nil:
		r.fail(name, errors.New("the location is no URL"), "clients fail on it: the gateway's own log may say why")
	case u.Scheme == "oci":
		r.warn(name, "leave direct out of the module_mirror block, if Terraform should install the module", "%s: OpenTofu downloads it from the registry, and Terraform cannot", shown(u))
	case u.Scheme != "https":
		r.skip("archive", "", "the location has the form %s:..., and is not examined", u.Scheme)
	default:
		r.ok(name, "it names the zip")
		q := u.Query()
		q.Del("archive") // clients do not send this parameter
		u.RawQuery = q.Encode()
		return u, true
	}
	return nil, false
}

// modulePath returns the URL of a document about the module.
func (x Gateway) modulePath(modules *url.URL, last ...string) *url.URL {
	parts := x.Subject.Parts()
	return modules.JoinPath(slices.Concat(parts[1:], last)...)
}
