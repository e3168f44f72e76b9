package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// The gateway serves one provider with twenty versions, each for ten platforms. One package of the last version
// has 150 MB.
const (
	benchmarked = world.Host + "/acme/bench"
	versions    = 20
	platforms   = 10
	archiveMiB  = 143
	// clientsAtOnce is the number of concurrent connections to a server.
	clientsAtOnce = 8
)

// asked is a resource that the benchmark requests from every server.
type asked struct {
	what, path string
	requests   int // the number of requests per connection in one run
	runs       int // the number of runs; 0 means the constant runs
	unit       func(requests int, bytes int64, took time.Duration) string
	wanted     float64
	than       string
}

func last() string { return fmt.Sprintf("1.%d.0", versions-1) }

func perSecond(requests int, _ int64, took time.Duration) string {
	return fmt.Sprintf("%.0f/s", float64(requests)/took.Seconds())
}

func megabytesPerSecond(_ int, bytes int64, took time.Duration) string {
	return fmt.Sprintf("%.0f MB/s", float64(bytes)/1e6/took.Seconds())
}

func documents() []asked {
	one := asked{requests: 2500, unit: perSecond, wanted: 0.85, than: "net/http"}
	index, version := one, one
	index.what, index.path = "index.json", "/"+benchmarked+"/index.json"
	version.what, version.path = "version.json", "/"+benchmarked+"/"+last()+".json"
	return []asked{index, version}
}

func archives() []asked {
	return []asked{{what: "cached archive", path: "/" + benchmarked + "/" + last() + "/" + archive(), requests: 1, unit: megabytesPerSecond, wanted: 0.95, than: "http.ServeContent"}}
}

func archive() string {
	return "linux_arch0/terraform-provider-bench_" + last() + "_linux_arch0.zip"
}

// speed compares the gateway's throughput with the bare server's, and with nginx's if nginx is installed.
func (b *bench) speed(what func() []asked) error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Stop()
	template := reg.Host + "/providers/${hostname}/${namespace}/${type}"
	if err := b.publish(template); err != nil {
		return err
	}
	gateway, _, err := b.startGateway(certFile, keyFile, template)
	if err != nil {
		return err
	}
	defer gateway.stop()
	root, err := b.copyOf(gateway, append(documents(), archives()...))
	if err != nil {
		return err
	}
	bare, err := b.startBare(root, certFile, keyFile)
	if err != nil {
		return err
	}
	defer bare.stop()
	all := []*server{gateway, bare}
	nginx, err := b.startNginx(root, certFile, keyFile)
	if err != nil {
		return err
	}
	if nginx != nil {
		defer nginx.stop()
		all = append(all, nginx)
	}
	for _, a := range what() {
		for _, http2 := range []bool{false, true} {
			if err := b.compare(a, http2, all); err != nil {
				return fmt.Errorf("%s: %w", a.what, err)
			}
		}
	}
	return nil
}

func (b *bench) certificate() (certFile, keyFile string, err error) {
	cert, err := b.CA.Issue("localhost")
	if err != nil {
		return "", "", err
	}
	return cert.WriteFiles(b.Dir)
}

// publish creates the releases of the provider, and pushes them into the registry.
func (b *bench) publish(template string) error {
	big := filepath.Join(b.Dir, "big.zip")
	if _, err := release.WriteBigZip(big, "terraform-provider-bench_v"+last(), archiveMiB, 1); err != nil {
		return err
	}
	for i := range versions {
		version := fmt.Sprintf("1.%d.0", i)
		spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "bench", Version: version, Signer: b.Signer}
		for p := range platforms {
			c := release.Content{OS: "linux", Arch: fmt.Sprintf("arch%d", p), Files: map[string][]byte{"terraform-provider-bench_v" + version: fmt.Appendf(nil, "%d", p)}}
			if version == last() && p == 0 {
				c.Files, c.Zip = nil, big
			}
			spec.Contents = append(spec.Contents, c)
		}
		r, err := release.Build(spec)
		if err != nil {
			return err
		}
		b.Origin.Add(r)
	}
	_, err := b.ws.Run(b.bridge, "push", "--all", "--template", template, benchmarked+"@>= 1.0.0")
	return err
}

// copyOf copies the gateway's responses for the resources into a folder, and returns the folder.
func (b *bench) copyOf(gateway *server, all []asked) (string, error) {
	root, err := b.subdir("root")
	if err != nil {
		return "", err
	}
	c := b.connect(false)
	defer c.close()
	for _, a := range all {
		name := filepath.Join(root, filepath.FromSlash(a.path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", err
		}
		f, err := os.Create(name)
		if err != nil {
			return "", err
		}
		_, err = c.get(b.ctx, gateway.url+a.path, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return root, nil
}

// compare adds a row with the ratio between the gateway's throughput and the throughput of each other server. A
// ratio is the median of several runs.
func (b *bench) compare(a asked, http2 bool, servers []*server) error {
	loads := make([]*group, len(servers))
	for i, s := range servers {
		g, err := b.newGroup(s, a.path, http2)
		if err != nil {
			return err
		}
		defer g.close()
		loads[i] = g
		if g.cipher != loads[0].cipher || g.bytes != loads[0].bytes {
			return fmt.Errorf("%s speaks %s and sends %d bytes, the gateway %s and %d", s.name, tls.CipherSuiteName(g.cipher), g.bytes, tls.CipherSuiteName(loads[0].cipher), loads[0].bytes)
		}
	}
	took := make([][]time.Duration, len(servers))
	for run := range cmp.Or(a.runs, runs) {
		times := make([]time.Duration, len(servers))
		for i := range servers {
			k := (i + run) % len(servers) // the order changes with each run
			runtime.GC()
			var err error
			if times[k], err = loads[k].ask(b.ctx, a.requests); err != nil {
				return err
			}
		}
		for k := range servers {
			took[k] = append(took[k], times[k])
		}
	}
	ratio := func(k int) float64 {
		var all []float64
		for run := range took[0] {
			all = append(all, took[k][run].Seconds()/took[0][run].Seconds())
		}
		return median(all)
	}
	requests := a.requests * clientsAtOnce
	r := row{what: a.what + ", HTTP/1.1", than: a.than, wanted: fmt.Sprintf(">= %.2f", a.wanted), ratio: ratio(1)}
	if http2 {
		r.what = a.what + ", HTTP/2"
	}
	r.figure = a.unit(requests, int64(requests)*loads[0].bytes, median(took[0]))
	r.reached = r.ratio >= a.wanted
	if len(servers) > 2 {
		r.nginx = ratio(2)
	}
	b.rows = append(b.rows, r)
	return nil
}

func median[T cmp.Ordered](all []T) T {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

// client is an HTTP client with one connection, which is kept alive.
type client struct {
	*http.Client
	transport *http.Transport
	buf       []byte
}

func (b *bench) connect(http2 bool) *client {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: b.CA.CertPool()}, Protocols: &protocols, DisableCompression: true}
	return &client{&http.Client{Transport: t}, t, make([]byte, 256<<10)}
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// get requests a resource, and copies the response body to w. It returns an error if the response is incomplete.
func (c *client) get(ctx context.Context, url string, w io.Writer) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	// Wrap w, because CopyBuffer does not use the buffer if the writer implements io.ReaderFrom.
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, resp.Body, c.buf)
	if err == nil && (resp.StatusCode != http.StatusOK || n != resp.ContentLength) {
		err = fmt.Errorf("%s: %s, %d bytes", url, resp.Status, n)
	}
	return resp, err
}

// group consists of several connections that request the same resource from one server.
type group struct {
	url     string
	clients []*client
	cipher  uint16
	bytes   int64 // the size of one response body
}

// newGroup opens the connections of a group. It requests the resource once on each connection.
func (b *bench) newGroup(s *server, path string, http2 bool) (*group, error) {
	g := &group{url: s.url + path}
	for range clientsAtOnce {
		c := b.connect(http2)
		g.clients = append(g.clients, c)
		resp, err := c.get(b.ctx, g.url, io.Discard)
		if err != nil {
			g.close()
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if (resp.ProtoMajor == 2) != http2 {
			g.close()
			return nil, fmt.Errorf("%s speaks %s", s.name, resp.Proto)
		}
		g.cipher, g.bytes = resp.TLS.CipherSuite, resp.ContentLength
	}
	return g, nil
}

func (g *group) close() {
	for _, c := range g.clients {
		c.close()
	}
}

// ask sends the given number of requests on each connection. It returns the time until all responses were read.
func (g *group) ask(ctx context.Context, requests int) (time.Duration, error) {
	var all sync.WaitGroup
	errs := make([]error, len(g.clients))
	start := time.Now()
	for i, c := range g.clients {
		all.Go(func() {
			for range requests {
				if _, errs[i] = c.get(ctx, g.url, io.Discard); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(start), errors.Join(errs...)
}
