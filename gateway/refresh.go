package gateway

import (
	"fmt"
	"net/http"

	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// serveRefresh drops the cached answers about a provider or a module. Its answer says that other replicas
// keep theirs. Only operators may call it.
func (g *gateway) serveRefresh(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, "only POST is allowed here", http.StatusMethodNotAllowed)
		return
	}
	kind, a, n := "provider", "", 0
	p, err := provider.ParseAddress(r.URL.Query().Get("provider"))
	m, merr := module.ParseAddress(r.URL.Query().Get("module"))
	switch {
	case err == nil:
		a, n = p.String(), g.Catalog.Refresh(p)
	case merr == nil:
		kind, a, n = "module", m.String(), g.Catalog.RefreshModule(m)
	default:
		http.Error(w, "name the provider, ?provider=HOSTNAME/NAMESPACE/TYPE, or the module, ?module=HOSTNAME/NAMESPACE/NAME/SYSTEM", http.StatusBadRequest)
		return
	}
	g.Log.InfoContext(r.Context(), "cached metadata dropped", kind, a, "entries", n)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "dropped the cached answers about %s (%d) in this replica alone; other replicas keep theirs: send the request to each one\n", a, n)
}
