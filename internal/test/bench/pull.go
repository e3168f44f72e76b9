package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// pullRuns is the number of runs of [bench.pull]. It is larger than [runs], because pull measures times of only
// a few milliseconds, on which other load has more effect.
const pullRuns = 15

// pulledPackage is a package that every run pulls through. In each run, the package belongs to a different
// provider.
type pulledPackage struct {
	name string
	mib  int
	kept bool // whether it is requested on an existing connection
}

var (
	// warmUp is pulled first, because the first requests of a new gateway are slower than those of a long-running
	// gateway.
	warmUp = pulledPackage{name: "warm", mib: 8}
	// The client requests the package cold on a new connection. It requests the package kept on the connection on
	// which it has requested the documents.
	cold = pulledPackage{name: "cold", mib: 96}
	kept = pulledPackage{name: "kept", mib: 96, kept: true}

	pulledPackages = []pulledPackage{warmUp, cold, kept}
)

func (p pulledPackage) provider(run int) string { return fmt.Sprint(p.name, run) }

func (p pulledPackage) zip(dir string) string { return filepath.Join(dir, p.name+".zip") }

// firstBytes contains the times until the first byte of a package.
type firstBytes struct {
	gateway  time.Duration // through the gateway, which has not cached the package
	direct   time.Duration // directly from the origin, if the client knows the package's URL
	document time.Duration // directly from the origin, if the client first requests the package's URL
}

// pull compares the times until the first byte of a package that only the origin has: through the gateway, and
// directly from the origin. The client of the gateway already has the package's URL. Each run uses a new
// gateway, which has already pulled another provider through. The origin has closed the gateway's connection
// since then. Therefore the gateway must connect again when the client requests the documents.
func (b *bench) pull() error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Stop()
	for i, p := range pulledPackages {
		if _, err := release.WriteBigZip(p.zip(b.Dir), "terraform-provider-cold_v1.0.0", p.mib, uint64(i+1)); err != nil {
			return err
		}
	}
	from, err := b.startOrigin(b.Dir, certFile, keyFile)
	if err != nil {
		return err
	}
	defer from.stop()
	took := map[pulledPackage][]firstBytes{}
	for i := range pullRuns {
		if err := b.pulled(i, from, reg, certFile, keyFile, took); err != nil {
			return err
		}
	}
	b.tell("", "a direct download's", took[cold], func(f firstBytes) time.Duration { return f.direct }, 1.5)
	b.tell("", "the same with the registry's answer", took[cold], func(f firstBytes) time.Duration { return f.document }, 0)
	b.tell(", kept connection", "a direct download's", took[kept], func(f firstBytes) time.Duration { return f.direct }, 0)
	b.tell(", kept connection", "the same with the registry's answer", took[kept], func(f firstBytes) time.Duration { return f.document }, 0)
	return nil
}

// tell adds a row with the ratio of the gateway's time to a baseline, which baseline takes from each run. The
// target is reached if the ratio is at most maxRatio. If maxRatio is 0, there is no target.
func (b *bench) tell(how, than string, took []firstBytes, baseline func(firstBytes) time.Duration, maxRatio float64) {
	var ratios []float64
	var gateway []time.Duration
	for _, f := range took {
		ratios = append(ratios, f.gateway.Seconds()/baseline(f).Seconds())
		gateway = append(gateway, f.gateway)
	}
	r := row{
		what:   fmt.Sprintf("first byte of %d MB pulled through%s", cold.mib<<20/1_000_000, how),
		figure: fmt.Sprintf("%.1f ms", median(gateway).Seconds()*1e3), ratio: median(ratios), than: than, wanted: nothing,
	}
	if maxRatio > 0 {
		r.wanted, r.reached = fmt.Sprintf("<= %.2f", maxRatio), r.ratio <= maxRatio
	}
	b.rows = append(b.rows, r)
}

// pulled performs the i-th run with a new gateway, and adds the measured times to took.
func (b *bench) pulled(i int, from *server, reg *registry.Registry, certFile, keyFile string, took map[pulledPackage][]firstBytes) (err error) {
	gateway, err := b.startPulling(i, from, reg, certFile, keyFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateway.Stop()) }()
	for _, p := range pulledPackages {
		base := "acme/" + p.provider(i) + "/"
		var f firstBytes
		if f.gateway, err = b.coldArchive(gateway.URL+world.Host+"/"+base, p.kept); err != nil {
			return err
		}
		if err := awaitStored(b.ctx, "http://"+reg.Host+"/v2/providers/"+world.Host+"/"+base+"manifests/1.0.0"); err != nil {
			return err
		}
		time.Sleep(2 * originIdle) // by then, the gateway has finished and the origin has closed its connections
		file := from.url + "/files/" + base + "1.0.0/terraform-provider-" + p.provider(i) + "_1.0.0_linux_amd64.zip"
		document := from.url + origin.ServicePath + base + "1.0.0/download/linux/amd64"
		if f.direct, err = b.direct(p.kept, document, file); err != nil {
			return err
		}
		if f.document, err = b.direct(p.kept, document, document, file); err != nil {
			return err
		}
		took[p] = append(took[p], f)
	}
	return nil
}

// startPulling starts a gateway with empty caches.
func (b *bench) startPulling(i int, from *server, reg *registry.Registry, certFile, keyFile string) (*world.Gateway, error) {
	dir, err := b.subdir(fmt.Sprint("pull", i))
	if err != nil {
		return nil, err
	}
	w := *b.World
	w.OriginURL = from.url
	ws, err := w.Workspace("")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "ocibridge.hcl")
	if err := os.WriteFile(config, fmt.Appendf(nil, `oci_mirror {
  repository_template = "%s/providers/${hostname}/${namespace}/${type}"
}
pull_through {
  include = ["%s/acme/*"]
}
gateway {
  cache {
    directory = %q
  }
}
`, reg.Host, world.Host, filepath.Join(dir, "cache")), 0o600); err != nil {
		return nil, err
	}
	return world.Serve(ws, "--config", config, "--tls-cert", certFile, "--tls-key", keyFile)
}

// coldArchive measures the time until the first byte of a package from the gateway. The client has requested the
// documents before. If kept is set, the client requests the package on the same connection.
func (b *bench) coldArchive(base string, kept bool) (time.Duration, error) {
	client := b.CA.HTTPClient()
	defer client.CloseIdleConnections()
	if err := read(client, base+"index.json", nil); err != nil {
		return 0, err
	}
	var version struct {
		Archives map[string]struct{ URL string }
	}
	if err := read(client, base+"1.0.0.json", &version); err != nil {
		return 0, err
	}
	if !kept {
		client = b.CA.HTTPClient()
		defer client.CloseIdleConnections()
	}
	return firstByte(client, base+version.Archives["linux_amd64"].URL)
}

// direct measures how long a new client takes to request all URLs one after another, until the first byte of the
// last response. If kept is set, the client first requests the URL before, which opens a connection.
func (b *bench) direct(kept bool, before string, urls ...string) (time.Duration, error) {
	client := b.CA.HTTPClient()
	defer client.CloseIdleConnections()
	if kept {
		if err := read(client, before, nil); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for _, url := range urls[:len(urls)-1] {
		if err := read(client, url, nil); err != nil {
			return 0, err
		}
	}
	asked := time.Since(start)
	took, err := firstByte(client, urls[len(urls)-1])
	return asked + took, err
}

// firstByte requests a package, and returns the time until the first byte of the response. It also reads the
// other bytes.
func firstByte(client *http.Client, url string) (time.Duration, error) {
	start := time.Now()
	resp, err := get(client, url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
		return 0, err
	}
	took := time.Since(start)
	_, err = io.Copy(io.Discard, resp.Body)
	return took, err
}

// read requests a URL, and reads the whole response. If into is not nil, read decodes the response as JSON.
func read(c *http.Client, url string, into any) error {
	resp, err := get(c, url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	return err
}

func get(c *http.Client, url string) (*http.Response, error) {
	resp, err := c.Get(url)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("%s: %s", strings.TrimPrefix(url, "https://"), resp.Status)
	}
	return resp, err
}
