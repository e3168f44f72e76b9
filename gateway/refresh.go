package gateway

import (
	"fmt"
	"net/http"

	"github.com/ocibridge/ocibridge/provider"
)

// serveRefresh drops the cached answers about a provider. Its answer says that other replicas
// keep theirs. Only operators may call it.
func (g *gateway) serveRefresh(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, "only POST is allowed here", http.StatusMethodNotAllowed)
		return
	}
	a, err := provider.ParseAddress(r.URL.Query().Get("provider"))
	if err != nil {
		http.Error(w, "name the provider: ?provider=HOSTNAME/NAMESPACE/TYPE", http.StatusBadRequest)
		return
	}
	n := g.Catalog.Refresh(a)
	g.Log.InfoContext(r.Context(), "cached metadata dropped", "provider", a.String(), "entries", n)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "dropped the cached answers about %s (%d) in this replica alone; other replicas keep theirs: send the request to each one\n", a, n)
}
