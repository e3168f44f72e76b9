package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
)

// ServeHTTP implements [http.Handler]. It first looks up the request's path in memory, and answers the
// hottest documents without the router. The router would cost a quarter of their throughput.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.serveWarm(w, r) {
		g.routes.ServeHTTP(w, r)
	}
}

// serveWarm answers from memory if it can, without the registry or the router. It reports whether it has
// answered.
func (g *gateway) serveWarm(w http.ResponseWriter, r *http.Request) bool {
	// With access control, the client must be authenticated first, and traces need the router.
	if g.Access != nil || g.Hooks.Tracer != nil {
		return false
	}
	path, ok := strings.CutPrefix(r.URL.Path, MirrorPath)
	// A path with an unusual encoding has a RawPath. The RawPath may contain an encoded slash, which does not
	// separate names.
	if !ok || r.URL.RawPath != "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	now := time.Now()
	item, ok := g.View(r).Warm(path, now)
	if !ok {
		return false
	}
	kept, ok := item.Document(catalog.MirrorDocument).(*answer)
	if !ok {
		return false
	}
	line := g.begin(w, r, now)
	line.route = routeVersion
	if item.IsListing() {
		line.route = routeIndex
	}
	status, bytes := kept.write(w, r)
	g.ended(line, status, bytes)
	return true
}
