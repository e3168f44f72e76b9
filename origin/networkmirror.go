package origin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/provider"
)

// NetworkMirror is a client of one mirror on a server.
type NetworkMirror struct {
	mirror
	registry *Registry
	base     *url.URL
}

const helpMirror = "the mirror does not keep to the provider network mirror protocol, or a proxy has changed its answer; nothing was stored"

// NetworkMirror returns a client of the mirror at base, an https: URL that ends in a
// slash. The token for the mirror's host is sent only with requests for JSON.
func (r *Registry) NetworkMirror(base *url.URL) *NetworkMirror {
	r.guard.recordAsked(base.Hostname())
	m := &NetworkMirror{registry: r, base: base}
	m.mirror = mirror{files: m, origin: base.Hostname(), help: helpMirror, empty: "has the version been pushed to the mirror?"}
	return m
}

// get implements [mirrorFiles]. It sends the credentials for the mirror's host.
func (m *NetworkMirror) get(ctx context.Context, a provider.Address, name string, limits document.Limits, out any, notFound error) (from mirrorDocument, err error) {
	host, err := svchost.ForComparison(m.base.Host)
	if err != nil {
		return from, fmt.Errorf("mirror %s: %w", redactedURL(m.base), err)
	}
	creds, err := m.registry.servicesFor(host).CredentialsForHost(ctx, host)
	if err != nil {
		return from, fmt.Errorf("credentials for %s: %w", host, err)
	}
	err = m.registry.getJSON(ctx, resolve(m.base, path.Join(a.Path(), name)), func(req *http.Request) {
		if creds != nil {
			creds.PrepareRequest(req)
		}
	}, limits, out, func(by answered) error {
		from = mirrorDocument{at: redactedURL(by.url), url: by.url}
		if by.mediaType() != "application/json" {
			from.warnings = []string{fmt.Sprintf("%s sends %s with the Content-Type %.80q: clients refuse it, and want application/json", m.base.Host, name, by.contentType)}
		}
		return nil
	})
	if err != nil {
		server := "the mirror " + redactedURL(m.base)
		return from, fmt.Errorf("read %s of %s: %w", name, a, explainStatus(err, server, notFound, server+" does not have it",
			fmt.Sprintf("write a credentials block for %s into the CLI configuration, or set TF_TOKEN_%s", m.base.Host, tokenVariable(m.base.Host))))
	}
	return from, nil
}

// locate implements [mirrorFiles]. The protocol has no file names and allows any URL, so
// the package gets the file name under which it was published.
func (m *NetworkMirror) locate(from mirrorDocument, a provider.Address, v provider.Version, p provider.Platform, entry mirrorArchive) (Package, error) {
	u, err := reference(from.url, entry.URL)
	if err != nil {
		return Package{}, fmt.Errorf("the URL of the package is %w", err)
	}
	if err := entry.checkSchemes(); err != nil {
		return Package{}, err
	}
	return m.registry.newPackage(p, provider.PackageFilename(a, v, p), u, nil), nil
}
