package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// changing is a scene whose gateways, settings and certificates are replaced under load.
type changing struct {
	*scene
	dir    string
	config string // file
	delay  string // shutdown_delay
}

// newChanging pushes the null provider, a small provider, and a provider that is larger than all buffers.
func newChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{scene: newScene(t), dir: t.TempDir(), delay: "1s"}
	c.config = filepath.Join(c.dir, "ocibridge.hcl")
	addresses := []string{world.Null + "@" + nullVersion}
	for name, size := range map[string]int{"small": 64 << 10, "large": 24 << 20} {
		content := make([]byte, size)
		source := rand.NewChaCha8([32]byte{byte(size)})
		source.Read(content) // random bytes do not compress
		c.Origin.Add(release.For(t, release.Spec{
			Host: world.Host, Namespace: "acme", Type: name, Version: "1.0.0", Signer: c.Signer,
			Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-" + name + "_v1.0.0": content}}},
		}))
		addresses = append(addresses, world.Host+"/acme/"+name+"@1.0.0")
	}
	c.push(addresses...)
	if err := os.WriteFile(filepath.Join(c.dir, "keys"), []byte(strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.settings("")
	c.certificate()
	return c
}

// settings replaces the configuration file atomically, as Kubernetes does.
func (c *changing) settings(more string) {
	c.t.Helper()
	text := fmt.Sprintf(`gateway {
  capability_key_file = "keys"
  shutdown_delay      = "%s"
  token "acme" {
    sha256  = "%x"
    include = ["%s/acme/*"]
  }
%s}
`, c.delay, sha256.Sum256([]byte(acmeToken)), world.Host, more)
	next := c.config + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.config); err != nil {
		c.t.Fatal(err)
	}
}

// certificate replaces the gateways' certificate, file by file.
func (c *changing) certificate() {
	c.t.Helper()
	cert, err := c.CA.Issue("localhost")
	if err != nil {
		c.t.Fatal(err)
	}
	if _, _, err := cert.WriteFiles(c.dir); err != nil {
		c.t.Fatal(err)
	}
}

func (c *changing) gateway(args ...string) *world.Gateway {
	c.t.Helper()
	return world.ServeFor(c.t, c.ws, append([]string{
		"--data", c.data, "--config", c.config, "--tls-cert", filepath.Join(c.dir, "tls.pem"), "--tls-key", filepath.Join(c.dir, "tls.key"),
	}, args...)...)
}

// load requests a small package again and again, like a client. It runs until the method end stops it.
type load struct {
	requests atomic.Int64
	mu       sync.Mutex
	lost     []string
	stop     chan struct{}
	running  sync.WaitGroup
}

// start starts a load on a network mirror. The load uses HTTP/1.1 and HTTP/2, on kept and on new connections.
func (c *changing) start(mirror string) *load {
	l := &load{stop: make(chan struct{})}
	for worker := range 4 {
		client := c.client(worker%2 == 0)
		l.running.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if _, err := l.install(client, mirror, "small"); err != nil {
					l.mu.Lock()
					l.lost = append(l.lost, err.Error())
					l.mu.Unlock()
				}
				if worker >= 2 {
					client.CloseIdleConnections()
				}
			}
		})
	}
	return l
}

// end stops the load and checks that no request was lost.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	t.Logf("%d requests", l.requests.Load())
	if len(l.lost) > 0 {
		t.Errorf("%d installations failed, such as by %s", len(l.lost), l.lost[0])
	}
	if l.requests.Load() < 50 {
		t.Error("that is no load")
	}
}

// client returns a client that uses HTTP/1.1 or HTTP/2.
func (c *changing) client(http2 bool) *http.Client {
	client := c.CA.HTTPClient()
	transport := client.Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	client.Timeout = clients.DefaultTimeout
	return client
}

// install requests a provider's versions, one version, and its package, and checks the bytes of the package. It
// returns the response that contained the package.
func (l *load) install(client *http.Client, mirror, name string) (*http.Response, error) {
	base := mirror + world.Host + "/acme/" + name + "/"
	if _, _, err := l.get(client, base+"index.json"); err != nil {
		return nil, err
	}
	_, body, err := l.get(client, base+"1.0.0.json")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Archives map[string]struct {
			URL    string   `json:"url"`
			Hashes []string `json:"hashes"`
		} `json:"archives"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	archive := doc.Archives["linux_amd64"]
	resp, body, err := l.get(client, base+archive.URL)
	if err != nil {
		return nil, err
	}
	if zh := fmt.Sprintf("zh:%x", sha256.Sum256(body)); !strings.Contains(strings.Join(archive.Hashes, " "), zh) {
		return nil, fmt.Errorf("%s: %d bytes that are not the package's", archive.URL, len(body))
	}
	return resp, nil
}

func (l *load) get(client *http.Client, url string) (*http.Response, []byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+acmeToken)
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s after %d bytes: %w", url, len(body), err)
	}
	l.requests.Add(1)
	return resp, body, nil
}

// pacedReader reads a body slowly until rest is closed. A gateway would drop a client that reads nothing for a
// minute.
type pacedReader struct {
	io.ReadCloser
	rest <-chan struct{} // closed when the client should read the rest
}

func (p pacedReader) Read(b []byte) (int, error) {
	select {
	case <-p.rest:
	case <-time.After(250 * time.Millisecond):
		b = b[:min(len(b), 32<<10)]
	}
	return p.ReadCloser.Read(b)
}

// pacedTransport slows down the bodies of packages. It signals on begun that a body has begun.
type pacedTransport struct {
	http.RoundTripper
	begun chan<- struct{}
	rest  <-chan struct{}
}

func (p pacedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, ".zip") {
		resp.Body = pacedReader{resp.Body, p.rest}
		close(p.begun)
	}
	return resp, err
}

// download makes a client download the large package slowly, and returns when the download has begun. The
// function finish completes the download, and returns the download's error.
func (c *changing) download(l *load, mirror string) (finish func() error) {
	c.t.Helper()
	client := c.client(true)
	client.Timeout = 0 // the download lasts as long as the rest of the test
	begun, rest, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	client.Transport = pacedTransport{client.Transport, begun, rest}
	go func() {
		_, err := l.install(client, mirror, "large")
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		c.t.Fatalf("the large package: %v", err)
	}
	return func() error {
		close(rest)
		return <-ended
	}
}

// waitForLog is the maximum time that a gateway on a busy machine needs to react without a request.
const waitForLog = 2 * time.Minute

// waitFor waits until a gateway's log contains a text the given number of times.
func waitFor(t *testing.T, g *world.Gateway, text string, times int) {
	t.Helper()
	deadline := time.Now().Add(waitForLog)
	for strings.Count(g.Log(), text) < times {
		if time.Now().After(deadline) {
			t.Fatalf("the log lacks %q", text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestReloadLosesNothing shows that clients lose no request while the gateway reloads. The test replaces the
// settings with and without kill -HUP, and then replaces the certificate.
func TestReloadLosesNothing(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	g := c.gateway()
	l := c.start(g.URL)
	finish := c.download(l, g.URL)
	installed := make(chan error, 1)
	user := c.user(world.NetworkMirror(g.URL)+credentials(g, acmeToken), nullVersion)
	go func() { _, err := user.Run(clients.Tofu(t), "init", "-no-color"); installed <- err }()

	hangup := func() {
		t.Helper()
		if err := g.Hangup(); err != nil {
			t.Fatal(err)
		}
	}
	const inForce = "settings have been read again and are in force"
	for i := range 5 {
		c.settings(fmt.Sprintf("  token \"new\" {\n    sha256 = \"%x\"\n  }\n", sha256.Sum256(fmt.Appendf(nil, "marked-%d", i))))
		hangup()
		waitFor(t, g, inForce, i+1)
	}
	if !c.knows(g, "marked-4") || c.knows(g, "marked-3") {
		t.Error("the tokens are not those of the file")
	}
	c.settings("  tokn \"wrong\" {}\n")
	hangup()
	waitFor(t, g, "settings cannot be used; those from before stay in force", 1)
	if !c.knows(g, "marked-4") {
		t.Error("a file that cannot be used takes a token away")
	}
	c.settings("")
	waitFor(t, g, inForce, 6) // the gateway reloads without SIGHUP
	for i := range 2 {
		c.certificate()
		waitFor(t, g, "files have changed and are in force", i+1)
	}
	if err := <-installed; err != nil {
		t.Errorf("tofu: %v", err)
	}
	if err := finish(); err != nil {
		t.Errorf("a download that lasted all the while: %v", err)
	}
	l.end(t)
	wantNoSecrets(t, g)
}

// knows reports whether a gateway accepts a token.
func (c *changing) knows(g *world.Gateway, token string) bool {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodGet, g.URL+world.Host+"/acme/small/index.json", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header["Authorization"] = []string{"Bearer " + token}
	client := c.client(true)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
