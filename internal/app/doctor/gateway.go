package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Gateway diagnoses a network mirror or a module registry as a client sees it.
type Gateway struct {
	URL string // the URL in the network_mirror block, or for a module the gateway's URL
	// Subject is the provider or the module to request, or nil.
	Subject subject.Address
	// Guesses are the providers to request if Subject is nil and the gateway has no catalog of an embedded registry.
	// The gateway may lack them, and the token may not cover them.
	Guesses []provider.Address
	// Inner is the URL of a discovery document that exists only if URL is, by mistake, the URL of a gateway instead of
	// the URL of its network mirror. "" omits the check.
	Inner string
	// Platform is the client's platform.
	Platform provider.Platform
	// Discovery is the URL of the discovery document of a module's host if the gateway itself is that host. Otherwise
	// it is "", and Modules is the URL in a host block.
	Discovery, Modules string
	// Prepare adds the client's credentials to a request. TokenSource says where the credentials come from, and is ""
	// if there are none. TokenHost is the host under which clients store the credentials, or "" for the host of URL.
	Prepare     func(*http.Request)
	TokenSource string
	TokenHost   string
	// Transport sends the requests. If it is nil, [outgoing.Transport] does.
	Transport http.RoundTripper

	isGuess bool // whether Subject is one of Guesses
}

// documentLimits limits the JSON documents of a gateway.
var documentLimits = document.Limits{Bytes: 8 << 20, Values: 400_000, Elements: 10_000}

// gatewayTimeout limits the examination of one gateway.
const gatewayTimeout = time.Minute

// maxRedirects is the maximum number of redirects that OpenTofu follows.
const maxRedirects = 5

// Examine diagnoses the gateway. It sends the requests that an installation sends.
func (x Gateway) Examine(ctx context.Context) *Report {
	if x.Transport == nil {
		x.Transport = outgoing.Transport()
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayTimeout)
	defer cancel()
	at, _, _ := strings.Cut(ociaddr.HideLogin(x.URL), "?")
	r := &Report{Subject: at}
	base, ok := x.base(r)
	if !ok || !r.proxy(ctx, base) {
		return r
	}
	if x.TokenSource == "" {
		r.ok("token", "none is filed for %s", x.tokenHost(base))
	} else {
		r.ok("token", "%s", x.TokenSource)
	}
	if x.ofModule() {
		x.examineModule(ctx, r)
		return r
	}
	subjects := []subject.Address{x.Subject}
	if x.Subject == nil {
		if subjects = x.stored(ctx, r, base); len(subjects) == 0 {
			x.isGuess = true
			for _, a := range x.Guesses[:min(len(x.Guesses), maxStored)] {
				subjects = append(subjects, a)
			}
		}
	}
	for _, x.Subject = range subjects {
		x.examineProvider(ctx, r, base)
	}
	x.page(ctx, r, base)
	return r
}

func (x Gateway) ofModule() bool { return x.Subject != nil && x.Subject.Kind() == subject.Module }

// examineProvider requests x.Subject, a provider, as clients do.
func (x Gateway) examineProvider(ctx context.Context, r *Report, base *url.URL) {
	version, ok := x.index(ctx, r, base)
	if !ok {
		return
	}
	if archive, ok := x.version(ctx, r, base, version); ok {
		x.archive(ctx, r, archive)
	}
}

// maxStored is the maximum number of providers that are examined if the user names none.
const maxStored = 3

// mirrorPath is the last part of the path of a gateway's network mirror.
const mirrorPath = "/providers/"

// root returns the URL of the gateway, if base is the URL of its network mirror.
func root(base *url.URL) *url.URL {
	return base.ResolveReference(&url.URL{Path: strings.TrimSuffix(base.Path, "providers/")})
}

// stored returns providers in the catalog of the gateway's embedded registry. It returns none if there is no catalog.
func (x Gateway) stored(ctx context.Context, r *Report, base *url.URL) (out []subject.Address) {
	var doc struct {
		Repositories []string `json:"repositories"`
	}
	if _, err := x.document(ctx, root(base).JoinPath("v2/_catalog"), &doc); err != nil {
		return nil
	}
	var names []string
	for _, name := range doc.Repositories {
		if a, err := provider.ParseAddress(name); err == nil && strings.Count(name, "/") == 2 && len(out) < maxStored {
			out, names = append(out, a), append(names, a.String())
		}
	}
	if len(out) > 0 {
		r.ok("catalog", "examined here: %s", list(names))
	}
	return out
}

// page requests the gateway's web page as a browser does, without a token. If there is no such page, it reports
// nothing, because the mirror may not be a gateway of ocibridge.
func (x Gateway) page(ctx context.Context, r *Report, base *url.URL) {
	if !strings.HasSuffix(base.Path, mirrorPath) || !r.has("TLS") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	at := root(base)
	resp, err := x.send(ctx, http.MethodGet, at, func(req *http.Request) { req.Header.Set("Accept", "text/html") })
	if err != nil {
		r.fail("page", err, "the gateway's own log says why")
		return
	}
	drain(resp.Body)
	switch mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case resp.StatusCode >= http.StatusInternalServerError:
		r.fail("page", statusError(resp), "people see no page: the gateway's own log says why")
	case mediaType == "text/html" && resp.StatusCode != http.StatusNotFound:
		r.ok("page", "%s answers", shown(at))
	}
}

// tokenHost returns the host under which clients store the token for requests to u.
func (x Gateway) tokenHost(u *url.URL) string { return cmp.Or(x.TokenHost, u.Host) }

// form returns a hint about the form of the gateway's URL.
func (x Gateway) form() string {
	if x.ofModule() {
		return "write the URL of the gateway as https://HOST:PORT/"
	}
	return "write it as https://HOST:PORT/providers/"
}

// base checks the form of the gateway's URL and of the provider's address. It returns the parsed URL. The bool
// is false if later checks would be meaningless.
func (x Gateway) base(r *Report) (*url.URL, bool) {
	u, err := url.Parse(x.URL)
	help := x.form()
	switch {
	case err != nil:
		r.fail("URL", errors.New("it is none"), help)
	case u.User != nil:
		r.fail("URL", errors.New("it holds a user name"), "leave it out: clients take a token from a credentials block, or from TF_TOKEN_...")
	case u.RawQuery != "" || u.Fragment != "":
		r.fail("URL", errors.New("it has a query or a fragment, which clients drop"), help)
	case u.Scheme != "https":
		r.fail("URL", fmt.Errorf("clients refuse the scheme %q", u.Scheme), help)
	case u.Host == "":
		r.fail("URL", errors.New("it has no host"), help)
	case !strings.HasSuffix(u.Path, "/") && !x.ofModule():
		r.fail("URL", errors.New("it does not end in a slash, so clients drop its last part"), help)
	case x.Subject != nil && !x.ofModule() && strings.Contains(x.Subject.Hostname(), ":"):
		r.ok("URL", "%s", shown(u))
		r.fail("provider", fmt.Errorf("clients cannot install %s through a network mirror: they read a host with a port as the scheme of a URL", x.Subject),
			"give the registry a host name without a port, and a host block in the clients' CLI configuration that says where it is")
	default:
		r.ok("URL", "%s", shown(u))
		return u, true
	}
	return nil, false
}

// index requests the list of versions, and returns the newest version. The bool is false if no version can be
// checked.
func (x Gateway) index(ctx context.Context, r *Report, base *url.URL) (provider.Version, bool) {
	var doc struct {
		Versions map[string]struct{} `json:"versions"`
	}
	const name = "index.json"
	resp, err := x.document(ctx, base.JoinPath(x.Subject.Path(), name), &doc)
	r.server(resp)
	switch {
	case resp != nil && resp.StatusCode == http.StatusNotFound:
		if inner, perr := url.Parse(x.Inner); perr == nil && x.Inner != "" && !strings.HasSuffix(base.Path, mirrorPath) && x.has(ctx, inner) {
			r.fail(name, errors.New("this is the URL of a gateway, and not of its network mirror: clients find no provider there"),
				"write the URL of the network mirror as "+shown(base.JoinPath("providers/")))
			return provider.Version{}, false
		}
		if right := base.JoinPath("providers/"); !strings.HasSuffix(base.Path, mirrorPath) && x.has(ctx, right.JoinPath(x.Subject.Path(), name)) {
			r.fail(name, fmt.Errorf("%s is not there, because the path of the URL is wrong: clients go on to their next installation method", x.Subject),
				"write the URL of the network mirror as "+shown(right))
			return provider.Version{}, false
		}
		r.warn(name, "push it, if it should be there; PROVIDER names another one to look for", "%s is not there: clients go on to their next installation method", x.Subject)
		return provider.Version{}, false
	case resp != nil && resp.StatusCode == http.StatusForbidden && x.isGuess && x.Prepare != nil:
		r.warn(name, "name a PROVIDER that the token may read", "the token may not read %s, which is only an example", x.Subject)
		return provider.Version{}, false
	case err != nil:
		r.fail(name, err, "the gateway's own log says why")
		return provider.Version{}, false
	}
	return r.newest(name, x.Subject, slices.Collect(maps.Keys(doc.Versions)), "clients fail on a version that does not parse: remove it from the mirror")
}

// newest adds the check of the listed versions of a provider or module, and returns the newest version. helpInvalid is the
// hint for a version that does not parse. The bool is false if there is no version to check further.
func (r *Report) newest(name string, of fmt.Stringer, listed []string, helpInvalid string) (provider.Version, bool) {
	var versions []provider.Version
	for _, s := range listed {
		v, err := provider.ParseVersion(s)
		if err != nil {
			r.fail(name, err, helpInvalid)
			return provider.Version{}, false
		}
		versions = append(versions, v)
	}
	if len(versions) == 0 {
		r.warn(name, "push a version", "it lists no version")
		return provider.Version{}, false
	}
	provider.SortVersions(versions)
	newest := versions[len(versions)-1]
	r.ok(name, "%s of %s, the newest %s", count(len(versions), "version"), of, newest)
	return newest, true
}

// version requests the list of a version's packages. It returns the URL of the package for the client's
// platform. The bool is false if there is no usable URL.
func (x Gateway) version(ctx context.Context, r *Report, base *url.URL, v provider.Version) (*url.URL, bool) {
	var doc struct {
		Archives map[string]struct {
			URL    string   `json:"url"`
			Hashes []string `json:"hashes"`
		} `json:"archives"`
	}
	name := v.String() + ".json"
	resp, err := x.document(ctx, base.JoinPath(x.Subject.Path(), name), &doc)
	if err != nil {
		r.fail(name, err, "the gateway's own log says why; clients give up at this point")
		return nil, false
	}
	mine, ok := doc.Archives[x.Platform.String()]
	if !ok {
		r.warn(name, "push the platform, if it should be there", "%s, but not %s", count(len(doc.Archives), "platform"), x.Platform)
		return nil, false
	}
	h1, ignored, err := readHashes(mine.Hashes)
	if err != nil {
		r.fail(name, err, "let the mirror send hashes that begin with zh: or h1:")
		return nil, false
	}
	u, err := url.Parse(mine.URL)
	if err != nil {
		r.fail(name, errors.New("the package's URL is none"), "clients fail on it: the gateway's own log may say why")
		return nil, false
	}
	switch {
	case len(mine.Hashes) == 0:
		r.warn(name, "let the mirror send hashes", "%s, without hashes: clients install unverified", count(len(doc.Archives), "platform"))
	case len(ignored) > 0:
		r.warn(name, "clients check the package with the other hashes; remove these from the mirror", "%s; clients ignore the hashes %s", count(len(doc.Archives), "platform"), list(ignored))
	case !h1:
		r.warn(name, "push it with ocibridge, which computes them", "%s, without h1 hashes: Terraform 0.13 needs them", count(len(doc.Archives), "platform"))
	default:
		r.ok(name, "%s, with hashes", count(len(doc.Archives), "platform"))
	}
	return resp.Request.URL.ResolveReference(u), true
}

// readHashes reads the hashes of a package in a network mirror as clients do. It reports whether there is an h1: hash, and
// which hashes clients ignore. These have an unknown scheme, or match no package. It returns an error if clients refuse
// the package.
func readHashes(hashes []string) (h1 bool, ignored []string, err error) {
	for _, s := range hashes {
		scheme, _, found := strings.Cut(s, ":")
		if !found || scheme == "" {
			return false, nil, fmt.Errorf("the hash %.80q has no scheme: clients refuse the package", s)
		}
		if _, err := provider.ParseHash(s); err != nil {
			ignored = append(ignored, fmt.Sprintf("%.80q", s))
			continue
		}
		h1 = h1 || scheme == "h1"
	}
	if len(ignored) > 0 && len(ignored) == len(hashes) {
		return false, nil, fmt.Errorf("no hash to check the package with, only %s: clients refuse the package", list(ignored))
	}
	return h1, ignored, nil
}

// archive requests the package as Terraform does, with a HEAD and then a GET, both without a token.
func (x Gateway) archive(ctx context.Context, r *Report, u *url.URL) {
	const name = "archive"
	head, err := x.send(ctx, http.MethodHead, u, nil)
	if err != nil {
		r.fail(name, err, "clients cannot download")
		return
	}
	drain(head.Body)
	get, err := x.send(ctx, http.MethodGet, u, nil)
	if err != nil {
		r.fail(name, err, "clients cannot download")
		return
	}
	defer get.Body.Close()
	var magic [len(zipMagic)]byte
	_, readErr := io.ReadFull(get.Body, magic[:])
	switch {
	case get.StatusCode == http.StatusForbidden && get.Request.URL.Host == u.Host:
		r.fail(name, statusError(get), helpLinks)
	case get.StatusCode != http.StatusOK:
		r.fail(name, statusError(get), "the gateway's own log says why")
	case head.StatusCode == http.StatusForbidden && head.Request.URL.Host == u.Host:
		r.fail(name, statusError(head), helpLinks)
	case readErr != nil:
		r.fail(name, readErr, "the download breaks off at once: the gateway's own log says why")
	case string(magic[:]) != zipMagic:
		r.fail(name, fmt.Errorf("%s is no zip", shown(u)), "is there a proxy or a login page in between?")
	case head.StatusCode == http.StatusOK && head.ContentLength != get.ContentLength:
		r.fail(name, fmt.Errorf("HEAD says %d bytes, GET %d", head.ContentLength, get.ContentLength), "Terraform asks HEAD first and fails: a proxy in between may answer it")
	default:
		r.ok(name, "%d bytes, HEAD answers %d", get.ContentLength, head.StatusCode)
	}
}

// helpLinks is the hint for a link that a gateway refuses. Behind a load balancer, another gateway may have created the
// link.
const helpLinks = "gateways behind one address need the same capability_key_file: a link of one of them must be valid at all others"

// has reports whether a client gets a JSON document from a URL.
func (x Gateway) has(ctx context.Context, u *url.URL) bool {
	_, err := x.document(ctx, u, &struct{}{})
	return err == nil
}

// document fetches a JSON document, and decodes it into out. It returns an error if clients would refuse the
// response.
func (x Gateway) document(ctx context.Context, u *url.URL, out any) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	resp, err := x.send(ctx, http.MethodGet, u, x.Prepare)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden:
		if x.Prepare != nil {
			return resp, hint.Wrap(statusError(resp), "if this is an ocibridge gateway, it knows the token, which may not read this: add it to include in the token block or the rule, or examine another PROVIDER or MODULE")
		}
		fallthrough
	case http.StatusUnauthorized:
		return resp, hint.Wrap(statusError(resp), "file a token for %s in a credentials block, with the port in its name, or in TF_TOKEN_...", x.tokenHost(u))
	default:
		return resp, statusError(resp)
	}
	if mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mediaType != "application/json" {
		return resp, hint.New(fmt.Sprintf("%s is of the type %q", shown(u), resp.Header.Get("Content-Type")), "clients want application/json: is there a proxy or a login page in between?")
	}
	data, err := document.ReadAll(resp.Body, documentLimits.Bytes)
	if err == nil {
		err = documentLimits.Unmarshal(data, out)
	}
	if err != nil {
		return resp, fmt.Errorf("%s: %w", shown(u), err)
	}
	return resp, nil
}

func (x Gateway) send(ctx context.Context, method string, u *url.URL, prepare func(*http.Request)) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if prepare != nil {
		prepare(req)
	}
	resp, err := (&http.Client{Transport: x.Transport, CheckRedirect: checkRedirect}).Do(req)
	if err != nil {
		help := unreachable(err)
		var asked *url.Error
		if errors.As(err, &asked) {
			err = fmt.Errorf("%s: %w", shown(u), asked.Err) // asked.Err contains the target of the redirect
		}
		return nil, hint.Wrap(err, "%s", help)
	}
	return resp, nil
}

// unreachable returns a hint for err, which means that the gateway sent no response.
func unreachable(err error) string {
	if help := outgoing.ProxyHint(err); help != "" {
		return help
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "its certificate is for other names: use one of them, or have a certificate made out for this one"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew its certificate, or set the clock of this machine"
	case errors.As(err, &authority):
		return "its certificate is by an authority that is not known here: name the authority's file in SSL_CERT_FILE (ocibridge serve prints the file of its local CA)"
	}
	return "nothing usable answers there: check the address, and for a private CA, SSL_CERT_FILE"
}

// wrongURLScheme is the scheme of the URL to which an ocibridge gateway redirects clients whose network_mirror block has a wrong URL.
// The right URL follows it.
const wrongURLScheme = "write-the-url-as"

// checkRedirect allows only redirects to https URLs. It removes the token from a request to another address than
// the gateway's. net/http alone would also send the token to other ports of the gateway's host.
func checkRedirect(req *http.Request, via []*http.Request) error {
	right, err := url.Parse(req.URL.Opaque)
	switch {
	case req.URL.Scheme == wrongURLScheme && err == nil && right.Scheme == "https":
		return hint.New("the path of the URL is wrong: clients find no provider there, and fail", "write the URL of the network mirror as %s", shown(right))
	case req.URL.Scheme != "https":
		return hint.New(fmt.Sprintf("it redirects to %s://%s, which is not https", req.URL.Scheme, req.URL.Host),
			"let it redirect to https alone: some clients follow, and send their token along for all to read")
	case len(via) > maxRedirects:
		return hint.New(fmt.Sprintf("more than %d redirects", maxRedirects), "clients give up, too: does it redirect to itself?")
	case req.URL.Host != via[0].URL.Host:
		req.Header.Del("Authorization")
	}
	return nil
}

// shown returns a URL for messages. It omits the parts that can contain secrets: the user, the query, and the
// capability in the path of a package.
func shown(u *url.URL) string {
	s := u.Scheme + "://" + u.Host + u.EscapedPath()
	return capability.ReplaceAllString(s, "/...")
}

var capability = regexp.MustCompile(`/cap[0-9]+\.[^/]*`)

// statusError returns the error for a response with an unexpected status.
func statusError(resp *http.Response) error {
	return fmt.Errorf("%s answers %d %s", shown(resp.Request.URL), resp.StatusCode, http.StatusText(resp.StatusCode))
}
