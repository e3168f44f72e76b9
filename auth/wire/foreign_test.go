package wire

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// padded returns a challenge of n bytes. It replaces the %s in format with the padding.
func padded(n int, format string) string {
	return fmt.Sprintf(format, strings.Repeat("x", n-len(format)+len("%s")))
}

// TestChallengesAreBounded shows that a challenge longer than maxChallenge is an error.
// The original length counts: narrower scopes would make some of these challenges short.
func TestChallengesAreBounded(t *testing.T) {
	const scope = "repository:a/x:pull"
	for name, format := range map[string]string{
		"service": `Bearer realm="https://registry.test/token",service="%s"`,
		"realm":   `Bearer realm="https://10.0.0.6/%s",service="s"`,
		"scope":   `Bearer realm="https://registry.test/token",scope="` + scope + ` repository:%s:pull"`,
		"basic":   `Basic realm="%s"`,
	} {
		for n, ok := range map[int]bool{maxChallenge: true, maxChallenge + 1: false, 9 << 20: false} {
			challenge := padded(n, format)
			conns := New(Options{Transport: roundTripper(func(*http.Request) *http.Response {
				return answer(401, http.Header{"Www-Authenticate": {challenge}}, "")
			})})
			conns.lookup = addressesOf("10.0.0.5")
			ctx := auth.WithScopesForHost(t.Context(), "registry.test", scope)
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://registry.test/v2/a/x/tags/list", nil)
			resp, err := conns.chain("").RoundTrip(req)
			switch {
			case ok && (err != nil || resp.StatusCode != http.StatusUnauthorized):
				t.Errorf("%s, %d bytes: %v", name, n, err)
			case !ok && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("registry.test answers with a challenge of %d bytes", n)) || len(err.Error()) > 200 || hint.Of(err) == ""):
				t.Errorf("%s, %d bytes: %.300v (hint %q)", name, n, err, hint.Of(err))
			}
		}
	}
}
