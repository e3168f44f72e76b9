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

	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// pulledMiB is the size of the package that is pulled through.
const pulledMiB = 96

// pull compares how long a client waits for the first byte of a package that only
// the origin has: by the gateway, and straight from the origin. Each client is a new
// one with new connections, and has the URL already. Each run has a provider and a
// gateway of its own, so that nothing of the package was seen before.
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
	zip := filepath.Join(b.Dir, "pulled.zip")
	if _, err := release.WriteBigZip(zip, "terraform-provider-cold_v1.0.0", pulledMiB, 1); err != nil {
		return err
	}
	var ratios []float64
	var took []time.Duration
	for i := range runs {
		rel, err := release.Build(release.Spec{Host: world.Host, Namespace: "acme", Type: fmt.Sprintf("cold%d", i), Version: "1.0.0", Signer: b.Signer,
			Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: zip}}})
		if err != nil {
			return err
		}
		b.Origin.Add(rel)
		ours, err := b.pulled(rel, reg, certFile, keyFile)
		if err != nil {
			return err
		}
		theirs, err := b.firstByte(b.OriginURL + "/files/acme/" + rel.Type + "/" + rel.Version + "/" + rel.Packages[0].Filename)
		if err != nil {
			return err
		}
		took = append(took, ours)
		ratios = append(ratios, ours.Seconds()/theirs.Seconds())
	}
	r := row{
		what:   fmt.Sprintf("first byte of %d MB pulled through", pulledMiB<<20/1_000_000),
		figure: fmt.Sprintf("%.1f ms", median(took).Seconds()*1e3), ratio: median(ratios), than: "a direct download's", wanted: "<= 1.50",
	}
	r.reached = r.ratio <= 1.5
	b.rows = append(b.rows, r)
	return nil
}

// pulled is how long that takes by a gateway that knows nothing.
func (b *bench) pulled(rel *release.Release, reg *registry.Registry, certFile, keyFile string) (time.Duration, error) {
	dir, err := b.subdir(rel.Type)
	if err != nil {
		return 0, err
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
		return 0, err
	}
	gateway, err := world.Serve(b.ws, "--config", config, "--tls-cert", certFile, "--tls-key", keyFile)
	if err != nil {
		return 0, err
	}
	took, err := b.coldArchive(gateway.URL + world.Host + "/acme/" + rel.Type + "/")
	return took, errors.Join(err, gateway.Stop())
}

// coldArchive is how long a client waits that has asked for the documents before.
func (b *bench) coldArchive(base string) (time.Duration, error) {
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
	return b.firstByte(base + version.Archives["linux_amd64"].URL)
}

// firstByte measures how long a new client waits for the first byte of a package,
// and reads the rest.
func (b *bench) firstByte(url string) (time.Duration, error) {
	client := b.CA.HTTPClient()
	defer client.CloseIdleConnections()
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

// read reads an answer whole, as JSON if into is given.
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
