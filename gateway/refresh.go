package gateway

import (
	"fmt"
	"net/http"

	"github.com/ocibridge/ocibridge/internal/base/subject"
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
	var of subject.Address
	p, err := provider.ParseAddress(r.URL.Query().Get("provider"))
	m, merr := module.ParseAddress(r.URL.Query().Get("module"))
	switch {
	case err == nil:
		of = p
	case merr == nil:
		of = m
	default:
		http.Error(w, "name the provider, ?provider=HOSTNAME/NAMESPACE/TYPE, or the module, ?module=HOSTNAME/NAMESPACE/NAME/SYSTEM", http.StatusBadRequest)
		return
	}
	n := g.Catalog.Refresh(of)
	g.Log.InfoContext(r.Context(), "cached metadata dropped", subject.Attr(of), "entries", n)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "dropped the cached answers about %s (%d) in this replica alone; other replicas keep theirs: send the request to each one\n", of, n)
}
