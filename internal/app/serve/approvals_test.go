package serve

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	registries "github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/provider"
)

// TestRequestsOfApprovals shows how many more requests a version needs that is not cached, because a block requires its approval:
// at most three, and at most five for the first version after the start if the registry refuses the referrers API.
func TestRequestsOfApprovals(t *testing.T) {
	shared := approvals.NewShared(t)
	for name, tc := range map[string]struct {
		refusal int // the status of the referrers API
		first   int
		next    int
		bare    int // a version without a signature
	}{
		"with the referrers API": {0, 3, 3, 2},
		"404":                    {http.StatusNotFound, 4, 3, 3},
		"405":                    {http.StatusMethodNotAllowed, 4, 3, 3},
		"401":                    {http.StatusUnauthorized, 4, 4, 3}, // can be about the login
	} {
		t.Run(name, func(t *testing.T) {
			registry := approvals.NewRegistry(t, registries.For(t).Truth)
			places := registry.In("acme")
			w := approvals.NewWorld(t, shared, places, approvals.Case{})
			templates, _ := registry.Templates()
			key := filepath.Join(t.TempDir(), "team.pub")
			write(t, key, w.Key.PEM())
			plain := "oci_mirror {\n  repository_template = \"" + templates + "\"\n  include = [\"registry.acme.example/*/*\"]\n}\ngateway {\n  http = true\n  cache {\n    enabled = false\n  }\n}\n"
			requiring := newReloading(t, plain+fmt.Sprintf("trust \"registry.acme.example/*/*\" {\n  require \"platform team\" {\n    public_key = file(%q)\n  }\n}\n", key))
			free := newReloading(t, plain)

			widget, other := places.Provider("widget"), places.Provider("other")
			store := func(a provider.Address, version string, signed bool) {
				w.Address = a
				w.Stored, _ = w.Store(a, provider.MustParseVersion(version), "")
				if !signed {
					return
				}
				signature := w.Sign(w.Key, w.Stored)
				if tc.refusal != 0 {
					w.Fallback(artifact.TypeBundle, signature)
				}
			}
			store(widget, "1.1.0", true)
			store(widget, "1.2.0", true)
			store(widget, "1.3.0", false)
			store(other, "1.0.0", true)
			places.Intercept(func(rw http.ResponseWriter, r *http.Request) bool {
				refused := tc.refusal != 0 && strings.Contains(r.URL.Path, "/referrers/")
				if refused {
					http.Error(rw, "refused", tc.refusal)
				}
				return refused
			})
			for _, v := range []struct {
				of      provider.Address
				version string
				more    int
				status  int
			}{
				{widget, "1.1.0", tc.first, http.StatusOK},
				{widget, "1.2.0", tc.next, http.StatusOK},
				{other, "1.0.0", tc.next, http.StatusOK},
				{widget, "1.3.0", tc.bare, http.StatusUnavailableForLegalReasons},
			} {
				count := func(r *reloading, want int) int {
					places.Requests().Reset()
					if got := r.status("/providers/"+v.of.Path()+"/"+v.version+".json", ""); got != want {
						t.Fatalf("%s %s: status %d\n%s", v.of, v.version, got, r.log)
					}
					return places.Requests().Count()
				}
				before := count(free, http.StatusOK)
				if more := count(requiring, v.status) - before; more != v.more {
					t.Errorf("%s %s: %d requests more than %d, want %d: %+v", v.of, v.version, more, before, v.more, places.Requests().Requests())
				}
			}
		})
	}
}
