package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestRefreshReachesOneReplica shows that a refresh drops one replica's answers, and that the response says so.
func TestRefreshReachesOneReplica(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	const token = "an-operators-token"
	replica := s.controlled(fmt.Sprintf("  token \"ops\" {\n    sha256   = \"%x\"\n    include  = [\"*/*/*\"]\n    operator = true\n  }\n", sha256.Sum256([]byte(token))))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(replica.URL, "providers/")+"-/refresh?provider="+world.Null, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := s.CA.HTTPClient()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), world.Null) || !strings.Contains(string(body), "in this replica alone") {
		t.Errorf("%d %v: %s", resp.StatusCode, err, body)
	}
}

// TestFailedHandshakeIsLogged shows that the log names a client that does not trust the certificate, once a minute.
func TestFailedHandshakeIsLogged(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	gateway := s.serve("--data", s.data)
	for range 3 {
		if conn, err := tls.Dial("tcp", authority(gateway), &tls.Config{ServerName: "localhost"}); err == nil {
			conn.Close()
			t.Fatal("the certificate is trusted")
		}
	}
	waitFor(t, gateway, "TLS handshake", 3) // the log at the level debug has all of them
	log := gateway.Log()
	if n := strings.Count(log, `level=WARN msg="a TLS handshake failed" client=`); n != 1 || !strings.Contains(log, "bad certificate") {
		t.Errorf("%d warnings: %s", n, log)
	}
}
