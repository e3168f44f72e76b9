package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/ocibridge/ocibridge/provider"
)

// maxWrongMirrors is the maximum number of clients and paths that are remembered, so that each is logged once.
const maxWrongMirrors = 1024

// wrongMirrors answers clients whose network_mirror block has a wrong URL. Without /providers/ or without the slash at its end, the
// requests go to other paths, such as /HOSTNAME/NAMESPACE/TYPE/index.json. After a 404, clients would report the provider as absent,
// or install it by their next method, past the gateway.
type wrongMirrors struct {
	logged *lru.Cache[string, struct{}] // the clients and paths that are in the log already
}

func newWrongMirrors() wrongMirrors {
	logged, _ := lru.New[string, struct{}](maxWrongMirrors) // fails only for a negative size
	return wrongMirrors{logged}
}

// isFirst reports whether a client has not requested an index below a path before.
func (m wrongMirrors) isFirst(r *http.Request, below string) bool {
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		client = r.RemoteAddr
	}
	seen, _ := m.logged.ContainsOrAdd(client+" "+below, struct{}{})
	return !seen
}

// mirrorIndexBelow returns the path of the folder in which a client looks for its network mirror, if the request is for an index of
// versions: PATH/HOSTNAME/NAMESPACE/TYPE/index.json. Clients request it first on every init.
func mirrorIndexBelow(r *http.Request) (below string, ok bool) {
	parts := strings.Split(r.URL.Path, "/")
	n := len(parts) - 4
	if n < 1 || parts[n+3] != "index.json" || hasEncodedSlash(r) || !strings.Contains(parts[n], ".") {
		return "", false
	}
	if slices.ContainsFunc(parts[1:n], func(part string) bool { return part == "" || part == "." || part == ".." }) {
		return "", false
	}
	if _, err := provider.AddressFromURL(parts[n], parts[n+1], parts[n+2]); err != nil {
		return "", false
	}
	return strings.Join(parts[:n], "/") + "/", true
}

// wrongURLScheme begins the Location of the answer to a client with a wrong URL. Clients know no such scheme.
const wrongURLScheme = "write-the-url-as:"

// unknown answers a request for an unknown path.
func (g *gateway) unknown(w http.ResponseWriter, r *http.Request) {
	below, ok := mirrorIndexBelow(r)
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		notFound(w, r)
		return
	}
	right := g.ClientURL(r).JoinPath(MirrorPath).String()
	if g.wrongMirrors.isFirst(r, clip(below)) {
		g.Log.WarnContext(r.Context(), "a client's network_mirror block has a wrong URL", "path", clip(below), "client", r.RemoteAddr, "agent", clip(r.UserAgent()),
			"hint", "write it as url = \""+right+"\" in the client's CLI configuration, with the slash at the end")
	}
	// Clients print neither the body nor the reason of an answer, but they print the URL of a redirect that they cannot follow.
	// They then try no other installation method.
	h := w.Header()
	h.Set("Location", wrongURLScheme+right)
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Host")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusTemporaryRedirect)
	fmt.Fprintf(w, "there is no network mirror at this URL: write the url of the network_mirror block as %s\n", right)
}

// ClientURL returns the gateway's URL for clients, with a slash at the end. It is the first of these that exists: the public URL, an
// https URL with the request's Host if that is valid, Address, or a placeholder.
func (o *Options) ClientURL(r *http.Request) *url.URL {
	switch {
	case o.PublicURL != nil:
		return o.PublicURL
	case ValidHost(r.Host):
		// Clients require TLS. If this request came without TLS, a proxy must have terminated TLS.
		return &url.URL{Scheme: "https", Host: strings.ToLower(r.Host), Path: "/"}
	case o.Address != nil:
		return o.Address
	}
	return &url.URL{Scheme: "https", Host: "gateway.example", Path: "/"}
}
