package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	maxLocation  = maxURL // bytes of a module's location
	maxSpellings = 4      // of one version in a list; real ones are 1.2.3 and v1.2.3
)

// locationLimits are the limits of the document that says where a version of a module is.
var locationLimits = document.Limits{Bytes: 64 << 10, Values: 1_000, Elements: 1_000}

// ModuleListing lists the versions of a module at an origin.
type ModuleListing struct {
	Versions []provider.Version // oldest first
	// Spellings maps each version to the forms in which the origin lists it, such as 1.2.3 and
	// v1.2.3. Most versions have one.
	Spellings map[provider.Version][]string
	Warnings  []string // about ignored parts of the origin's document
}

// NoMatch returns the error for a constraint that no listed version meets.
func (l *ModuleListing) NoMatch(a module.Address, s provider.VersionSet) error {
	return noMatch(a, s, a.Hostname(), l.Versions)
}

// NoVersion returns the error for a version that the origin does not list. The error wraps [ErrVersionNotFound].
func (l *ModuleListing) NoVersion(a module.Address, v provider.Version) error {
	return hint.Wrap(fmt.Errorf("%s %s: %w", a, v, ErrVersionNotFound), "%s offers %s", a.Hostname(), list(newest(l.Versions)))
}

// noMatch returns the error for a constraint that none of an origin's versions meets.
func noMatch(a fmt.Stringer, s provider.VersionSet, host string, versions []provider.Version) error {
	return hint.Wrap(fmt.Errorf("%s %s: %w: nothing that it offers matches", a, s, ErrVersionNotFound),
		"%s offers %s; a prerelease must be named exactly", host, list(newest(versions)))
}

// moduleVersionsJSON is the protocol's document about the versions of a module.
type moduleVersionsJSON struct {
	Modules []struct {
		Versions []struct {
			Version string `json:"version"`
		} `json:"versions"`
	} `json:"modules"`
}

// ModuleVersions lists the versions of a module with the module registry protocol. Errors wrap
// [ErrModuleNotFound] if the origin does not have the module, [ErrNoModules] if it has no module
// registry, and [ErrUnauthorized] if it refuses the credentials.
func (r *Registry) ModuleVersions(ctx context.Context, a module.Address) (*ModuleListing, error) {
	base, prepare, err := r.moduleEndpoint(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	var body moduleVersionsJSON
	var l *ModuleListing
	err = r.getJSON(ctx, resolve(base, a.Namespace(), a.Name(), a.System(), "versions"), prepare, listLimits, &body, func(answered) (err error) {
		l, err = body.listing(a.Hostname())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list versions of %s: %w", a, r.explainModule(err, a, ErrModuleNotFound))
	}
	return l, nil
}

// listing converts the document to a [ModuleListing]. Like clients, it reads the first module
// only. It ignores entries that are not versions, with a warning.
func (b *moduleVersionsJSON) listing(host string) (*ModuleListing, error) {
	if len(b.Modules) == 0 {
		return nil, hint.New(`the document has no list of versions: "modules" is missing or empty`, "the registry does not keep to the module registry protocol, or a proxy has changed its answer")
	}
	listed := b.Modules[0].Versions
	if err := checkCount("versions", len(listed), maxVersions); err != nil {
		return nil, err
	}
	l := &ModuleListing{Spellings: map[provider.Version][]string{}}
	var noVersions names
	for _, entry := range listed {
		v, err := provider.ParseVersion(entry.Version)
		if err != nil {
			loose, ok := provider.LooseVersion(entry.Version)
			if !ok {
				noVersions = append(noVersions, quote(entry.Version))
				continue
			}
			v = loose
		}
		spellings := l.Spellings[v]
		if spellings == nil {
			l.Versions = append(l.Versions, v)
		}
		if !slices.Contains(spellings, entry.Version) {
			if err := checkCount("spellings of the version "+v.String(), len(spellings)+1, maxSpellings); err != nil {
				return nil, err
			}
			l.Spellings[v] = append(spellings, strings.Clone(entry.Version))
		}
	}
	provider.SortVersions(l.Versions)
	if len(noVersions) > 0 {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s lists entries that are not versions and are ignored: %s", host, noVersions))
	}
	return l, nil
}

// ModuleLocation returns the location of a version in the form of go-getter. It resolves a relative
// location, as clients do. spelling is the version as clients request it, or a spelling in the
// origin's list. The location can contain secrets. Errors wrap [ErrVersionNotFound] if the origin
// does not have the version.
func (r *Registry) ModuleLocation(ctx context.Context, a module.Address, spelling string) (string, error) {
	base, prepare, err := r.moduleEndpoint(ctx, a)
	if err != nil {
		return "", fmt.Errorf("%s: %w", a, err)
	}
	at := resolve(base, a.Namespace(), a.Name(), a.System(), spelling, "download")
	location, err := r.location(ctx, at, prepare)
	if err != nil {
		return "", fmt.Errorf("location of %s %s: %w", a, spelling, r.explainModule(err, a, ErrVersionNotFound))
	}
	return location, nil
}

// location requests the location of a version. OpenTofu reads the document of a response with
// status 200, and the header X-Terraform-Get of one without a document. Terraform reads the header
// only. The two must agree, because the stored module is for both clients.
func (r *Registry) location(ctx context.Context, at *url.URL, prepare func(*http.Request)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	resp, err := r.askFor(ctx, r.http, http.MethodGet, at, prepare, http.StatusOK, http.StatusNoContent)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	header := resp.Header.Get("X-Terraform-Get")
	var body struct {
		Location string `json:"location"`
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && (header == "" || mediaType == "application/json") {
		doc, err := document.Read(resp.Body, locationLimits)
		if err != nil {
			return "", fmt.Errorf("%s: %w", redactedURL(at), explainDocument(err))
		}
		err = doc.Decode(ctx, &body)
		doc.Close()
		if err != nil && header == "" {
			return "", hint.Wrap(fmt.Errorf("%s: the answer is not the JSON that the protocol wants: %w", redactedURL(at), explainDocument(err)),
				"the registry does not keep to the module registry protocol, or a proxy has changed its answer")
		}
	}
	switch {
	case header == "" && body.Location == "":
		return "", hint.New(redactedURL(at)+" answered without a location", "the registry does not keep to the module registry protocol, or a proxy has removed the header X-Terraform-Get")
	case header != "" && body.Location != "" && header != body.Location:
		return "", hint.New(redactedURL(at)+" answered with two locations: one in the document and another in the header X-Terraform-Get",
			"OpenTofu uses the first, Terraform the second, so there is no single content to store: ask the operator of the registry")
	case body.Location != "":
		header = body.Location
	}
	return resolveLocation(at, header)
}

// resolveLocation resolves a location that clients read as a relative URL.
func resolveLocation(at *url.URL, location string) (string, error) {
	if len(location) > maxLocation {
		return "", hint.New(fmt.Sprintf("%s answered with a location of %d bytes, more than %d", redactedURL(at), len(location), maxLocation), "ask the operator of the registry")
	}
	if !strings.HasPrefix(location, "/") && !strings.HasPrefix(location, "./") && !strings.HasPrefix(location, "../") {
		return location, nil
	}
	u, err := url.Parse(location)
	if err != nil {
		return "", hint.New(redactedURL(at)+" answered with a relative location that is not a URL", "ask the operator of the registry")
	}
	return at.ResolveReference(u).String(), nil
}

// moduleEndpoint is like endpoint, for the registry of a module.
func (r *Registry) moduleEndpoint(ctx context.Context, a module.Address) (*url.URL, func(*http.Request), error) {
	base, err := r.Modules(ctx, a.ServiceHost())
	if err != nil {
		return nil, nil, err
	}
	if err := r.guard.checkService(modulesID, &url.URL{Scheme: "https", Host: a.Hostname()}, base); err != nil {
		return nil, nil, fmt.Errorf("service discovery of %s: %s is at %w", a.Hostname(), modulesID, err)
	}
	prepare, err := credentials(ctx, r.servicesFor(a.ServiceHost()), a.ServiceHost(), base, modulesID)
	return base, prepare, err
}

// explainModule is like explain, for a module.
func (r *Registry) explainModule(err error, a module.Address, notFound error) error {
	return explainStatus(err, a.Hostname(), notFound, fmt.Sprintf("check the address and the version: %s does not know them", a.Hostname()),
		fmt.Sprintf("log in with terraform login or tofu login %[1]s, or set TF_TOKEN_%[2]s", a.Hostname(), tokenVariable(a.Hostname())))
}

// CheckReference returns an error if the server at one URL may not refer clients to another URL: only a
// server on this machine may refer to this machine, unless the user named the host. A [Guard] checks
// the addresses that host names resolve to.
func (r *Registry) CheckReference(from, to *url.URL) error {
	if r.guard != nil && r.guard.named(to.Hostname(), portOf(to)) {
		return nil
	}
	if err := checkLocalReference(from, to); err != nil {
		return hint.Replace(err, "that is this machine, or what is next to it: ask the operator of the registry; "+
			"if it is meant, a host block of the CLI configuration whose modules.v1 URL has that host and port says so")
	}
	return nil
}

// ErrNotModified means that a server still has the archive with a known ETag.
var ErrNotModified = errors.New("the archive has not changed")

// Archive is the content of an archive that is being downloaded.
type Archive struct {
	io.ReadCloser
	Size int64  // in bytes; -1 if the server does not announce it
	ETag string // as the server sent it; "" if it sent none
}

// Archive opens a file at a URL, such as the archive of a module. The request has the login for the URL's host from the .netrc
// file, unless the URL has one. A download that is too slow fails, as that of a [Package]. known is an ETag from an earlier
// response, or "". If the server says that the archive still has it, the error wraps [ErrNotModified].
func (r *Registry) Archive(ctx context.Context, u *url.URL, known string) (*Archive, error) {
	u, err := r.netrc.authorize(u)
	if err != nil {
		return nil, err
	}
	d, err := r.downloadUnless(ctx, u, known)
	if err != nil {
		return nil, explainStatus(err, u.Host, ErrVersionNotFound, "the registry announces an archive that is not there: ask its operator",
			fmt.Sprintf("file a login for %s in .netrc, as for the clients", u.Host))
	}
	return &Archive{d, d.size, d.etag}, nil
}

// Login returns the login for a URL: the one in the URL itself, or else the one for its host from the
// .netrc file. It is nil if there is none.
func (r *Registry) Login(u *url.URL) (*url.Userinfo, error) {
	with, err := r.netrc.authorize(u)
	if err != nil {
		return nil, err
	}
	return with.User, nil
}

// HTTP returns the client for downloads. Its connections, its redirects, and its number of
// concurrent requests to a host are bounded like those of every request to an origin.
func (r *Registry) HTTP() *http.Client { return r.downloads }
