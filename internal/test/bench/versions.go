package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	listedVersions = 300
	// registryDelay is how long the registry waits before each response.
	registryDelay = 40 * time.Millisecond
)

// The provider whose repository has a summary, and the provider whose repository has none.
var (
	summarized = provider.MustParseAddress(world.Host + "/acme/summarized")
	unread     = provider.MustParseAddress(world.Host + "/acme/unread")
)

// distantRegistry serves two providers with the same versions, and delays each response.
type distantRegistry struct {
	delay   time.Duration
	indexes map[string]artifact.Blob // by provider and tag
	tags    []byte
}

// newDistantRegistry returns a registry whose providers have the given number of versions.
// Its summary says that the given signers have signed the versions.
func newDistantRegistry(versions int, delay time.Duration, signers ...approval.Signer) (*distantRegistry, error) {
	d := &distantRegistry{delay: delay, indexes: map[string]artifact.Blob{}}
	var list struct {
		Tags []string `json:"tags"`
	}
	summary := artifact.Summary{}
	for i := range versions {
		v := catalogVersion(i)
		list.Tags = append(list.Tags, v.String())
		for _, a := range []provider.Address{summarized, unread} {
			described, index, err := signedIndex(a, v)
			if err != nil {
				return nil, err
			}
			d.indexes[a.Path()+":"+v.String()] = index
			if a == summarized {
				described.Signers = signers
				summary[v] = described
			}
		}
	}
	state, err := artifact.EncodeState(artifact.State{Owner: summarized, Summary: summary})
	if err != nil {
		return nil, err
	}
	d.indexes[summarized.Path()+":"+string(ociaddr.StateTag)] = state
	d.tags, err = json.Marshal(list)
	return d, err
}

// signedIndex returns the index of a version whose evidence is said to be signed, and its summary.
func signedIndex(a provider.Address, v provider.Version) (artifact.VersionSummary, artifact.Blob, error) {
	evidence := artifact.DescribeEvidence(ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(v.String()), Size: 700}, trust.Signed)
	out := artifact.Version{Owner: a, Version: v, Protocols: []string{"5.0"}, Evidence: &evidence}
	for i := range platforms {
		out.Packages = append(out.Packages, packageOf(a, v, i))
	}
	index, err := artifact.EncodeIndex(out)
	out.Index = index.Descriptor
	described, _ := out.Summary()
	return described, index, err
}

// ServeHTTP implements [http.Handler].
func (d *distantRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(d.delay):
	case <-r.Context().Done():
		return
	}
	if strings.HasSuffix(r.URL.Path, "/tags/list") {
		w.Header().Set("Content-Type", "application/json")
		w.Write(d.tags)
		return
	}
	// Paths have the form /v2/HOST/NAMESPACE/TYPE/manifests/1.2.0.
	repository := strings.TrimPrefix(path.Dir(path.Dir(r.URL.Path)), "/v2/")
	manifest, ok := d.indexes[repository+":"+path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", manifest.Descriptor.MediaType)
	h.Set("Docker-Content-Digest", manifest.Descriptor.Digest.String())
	h.Set("Content-Length", strconv.Itoa(len(manifest.Data)))
	if r.Method != http.MethodHead {
		w.Write(manifest.Data)
	}
}

// versions measures how long a new gateway takes to list the versions of a provider. It compares a provider with
// a summary of its versions with a provider without one.
func (b *bench) versions() error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	distant, err := newDistantRegistry(listedVersions, registryDelay)
	if err != nil {
		return err
	}
	host, stop, err := distant.serve()
	if err != nil {
		return err
	}
	defer stop()
	var ratios []float64
	var took []time.Duration
	for range runs {
		with, err := b.coldVersions(certFile, keyFile, host, cacheIn, summarized)
		if err != nil {
			return err
		}
		without, err := b.coldVersions(certFile, keyFile, host, cacheIn, unread)
		if err != nil {
			return err
		}
		took, ratios = append(took, with), append(ratios, with.Seconds()/without.Seconds())
	}
	b.rows = append(b.rows, row{
		what:   fmt.Sprintf("cold list of %d versions, registry %s away", listedVersions, registryDelay),
		figure: fmt.Sprintf("%.0f ms", median(took).Seconds()*1e3), ratio: median(ratios), than: "one read for each version", wanted: "<= 0.25", reached: median(ratios) <= 0.25,
	})
	return nil
}

// serve serves the registry on the loopback interface. It returns the registry's host and port.
func (d *distantRegistry) serve() (host string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: d}
	go server.Serve(l)
	return l.Addr().String(), server.Close, nil
}

// coldVersions measures how long a new gateway takes to list the versions of a provider.
func (b *bench) coldVersions(certFile, keyFile, registry string, settings func(dir string) string, a provider.Address) (time.Duration, error) {
	gateway, _, err := b.startGatewayWith(certFile, keyFile, registry+"/${hostname}/${namespace}/${type}", settings)
	if err != nil {
		return 0, err
	}
	defer gateway.stop()
	c := b.connect(true)
	defer c.close()
	host := strings.TrimSuffix(gateway.url, "/providers")
	if _, err := c.get(b.ctx, host+"/healthz", io.Discard); err != nil { // opens the connection
		return 0, err
	}
	start := time.Now()
	_, err = c.get(b.ctx, listURL(gateway, a), io.Discard)
	return time.Since(start), err
}

// listURL returns the URL of a provider's list of versions in the registry protocol.
func listURL(gateway *server, a provider.Address) string {
	return strings.TrimSuffix(gateway.url, "/providers") + "/hosts/" + a.Hostname() + "/v1/providers/" + a.Namespace() + "/" + a.Type() + "/versions"
}
