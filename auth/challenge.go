package auth

import (
	"fmt"
	"net/http"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// maxChallenge bounds a challenge in bytes. Challenges of registries have a few hundred.
const maxChallenge = 4 << 10

// challengeBound refuses long challenges before they are parsed. oras-go keeps parts of
// a challenge with each token, and realmAliases keeps its realm.
type challengeBound struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t challengeBound) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	if n := len(resp.Header.Get("Www-Authenticate")); n > maxChallenge {
		_ = resp.Body.Close()
		return nil, hint.New(fmt.Sprintf("%.80s answers with a challenge of %d bytes, and at most %d are read", req.URL.Host, n, maxChallenge),
			"check that this is the host name of a registry: challenges of registries have a few hundred bytes")
	}
	return resp, nil
}
