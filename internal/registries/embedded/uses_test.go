package embedded_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestUsesKeepNoRequests shows that the registry does not keep the queries of requests for manifests in memory with the uses of
// versions.
func TestUsesKeepNoRequests(t *testing.T) {
	dir := t.TempDir()
	cost.Kept(t, 8<<20, func() any {
		r := open(t, dir)
		for i := range 500 {
			target := fmt.Sprintf("/v2/host/acme/a/manifests/1.0.%d?q=%s", i, strings.Repeat("q", 60<<10))
			r.ReadOnly().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, target, nil))
		}
		return r
	})
}
