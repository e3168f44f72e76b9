// Package faults_test tests every fault of internal/test/testkit/faultproxy at every step. The steps are between
// gateway and registry, pusher and registry, pusher and origin, and clients and gateway. Gateway, pusher and
// the clients of registries and origins are the real code with production limits. The network is in memory,
// with the virtual time of package testing/synctest, so no test has to wait for the limits.
//
// docs/explanation/reliability.md describes the result of each fault, and names the tests.
package faults_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/test/testkit/memnet"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	originHost   = "origin.test"
	registryHost = "registry.test"
	gatewayHost  = "gateway.test"
	version      = "1.0.0"
)

var (
	widget    = provider.MustParseAddress(originHost + "/acme/widget")
	large     = provider.MustParseAddress(originHost + "/acme/large") // larger than the network's buffers
	platforms = []string{"linux_amd64", "darwin_arm64"}
)

// long reports whether to test every combination instead of only some.
func long() bool { return os.Getenv("OCIBRIDGE_FAULTS") == "long" }

// world contains what all cases share. It is created in real time. The clock of each test's bubble is usually
// set to the real time.
type world struct {
	ca       *tlsca.CA
	tls      *tls.Config
	signer   *pgp.Signer
	release  *release.Release // the release of widget
	large    *release.Release
	module   packedModule
	public   map[string]recorded // see [publicModules]
	registry *embedded.Registry  // outside of all bubbles, because it has no time limits
	temp     string              // TMPDIR
}

var (
	shared  *world
	numbers atomic.Int64 // the number of cases that have begun
)

func TestMain(m *testing.M) {
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func run(m *testing.M) (int, error) {
	if !testkit.RunsUnderMake() {
		fmt.Println("left to make test")
		return 0, nil
	}
	// The folder is in memory if possible, because the registry syncs each of its thousands of files to disk.
	dir, err := os.MkdirTemp("/dev/shm", "ocibridge-faults-")
	if err != nil {
		dir, err = os.MkdirTemp("", "ocibridge-faults-")
	}
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	shared = &world{temp: filepath.Join(dir, "tmp")}
	if err := os.Mkdir(shared.temp, 0o700); err != nil {
		return 1, err
	}
	if err := os.Setenv("TMPDIR", shared.temp); err != nil {
		return 1, err
	}
	if err := shared.make(filepath.Join(dir, "data")); err != nil {
		return 1, err
	}
	defer shared.registry.Close()
	status := m.Run()
	for _, left := range []func(string) ([]string, error){openFiles, filesIn} {
		names, err := left(dir)
		if err != nil {
			return 1, err
		}
		if len(names) > 0 {
			return 1, fmt.Errorf("the tests leave %v", names)
		}
	}
	return status, nil
}

func (w *world) make(data string) error {
	var err error
	if w.ca, err = tlsca.New(); err != nil {
		return err
	}
	if w.tls, err = w.ca.ServerConfig(originHost, registryHost, gatewayHost); err != nil {
		return err
	}
	if w.signer, err = pgp.NewSigner("Acme"); err != nil {
		return err
	}
	if w.release, err = w.build("widget", 5000); err != nil {
		return err
	}
	if w.large, err = w.build("large", 1<<20); err != nil {
		return err
	}
	if w.module, err = packModule(); err != nil {
		return err
	}
	if w.public, err = recordModules(filepath.Join(filepath.Dir(data), "git")); err != nil {
		return err
	}
	w.registry, err = embedded.Open(data, slog.New(slog.DiscardHandler))
	return err
}

// build creates a release whose packages contain about size bytes.
func (w *world) build(typ string, size int) (*release.Release, error) {
	spec := release.Spec{Host: originHost, Namespace: "acme", Type: typ, Version: version, Signer: w.signer}
	for i, p := range platforms {
		goos, arch, _ := strings.Cut(p, "_")
		content := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(i)}).Read(content)
		spec.Contents = append(spec.Contents, release.Content{OS: goos, Arch: arch, Files: map[string][]byte{"terraform-provider-" + typ + "_v" + version: content}})
	}
	return release.Build(spec)
}

// rig is an origin and a registry, each behind a proxy. It also contains the parts of ocibridge that run
// between the proxies.
type rig struct {
	t         *testing.T
	net       *memnet.Network
	origin    *faultproxy.Server
	registry  *faultproxy.Server
	transport *http.Transport
	auth      *auth.Client
	source    *origin.Registry
	repo      ociaddr.Repository
	pusher    *pusher.Pusher
	log       *collected.Text
	client    *http.Client // sends requests to the gateway; nil if there is no gateway
	stop      func()       // stops the gateway
}

// inRig runs f with a new rig and a new repository. It then checks that f has leaked no goroutine, connection
// or file.
func inRig(t *testing.T, f func(*rig)) {
	t.Helper()
	inRigAt(t, time.Now().Round(0), f)
}

// inRigAt is like [inRig], but with the clock set to now.
func inRigAt(t *testing.T, now time.Time, f func(*rig)) {
	t.Helper()
	number := numbers.Add(1)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(now.Sub(time.Now().Round(0)))
		r := newRig(t, fmt.Sprintf("case-%d/acme/widget", number))
		f(r)
		r.close()
	})
}

func newRig(t *testing.T, name string) *rig {
	r := &rig{t: t, net: memnet.New(), log: &collected.Text{}, repo: ociaddr.Repository{Registry: registryHost, Name: name}}
	r.origin = r.listen(originHost+":443", shared.tls, publicModules{shared.public, withModules(testorigin.New(testorigin.Options{}, shared.release, shared.large))})
	r.registry = r.listen(registryHost+":443", shared.tls, quirks.New(shared.registry.Handler(), quirks.Settings{Access: access}))
	// The transport has the settings of the program's transport, except for the addresses.
	r.transport = &http.Transport{
		DialContext: r.dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: shared.ca.CertPool()},
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 60 * time.Second, ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
	}
	r.auth = r.newAuth()
	r.newSource()
	r.pusher = pusher.New(pusher.Options{
		Destination: func(ctx context.Context, _ subject.Address) (repo.Destination, error) {
			store, err := r.auth.Repository(ctx, r.repo)
			return repo.Destination{Repository: r.repo, Store: registry.Repository{Repository: store}}, err
		},
	})
	return r
}

// dial dials with the timeouts of the program.
func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	limit := 10 * time.Second
	if address == r.origin.Addr {
		limit = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.net.Dial(ctx, network, address)
}

var access = quirks.Access{User: "robot", Password: "secret", Tokens: true}

// newAuth creates a client of registries. Like in a new process, the client has no tokens.
func (r *rig) newAuth() *auth.Client {
	return auth.New(auth.Options{Login: login.Options{Explicit: []login.Login{
		{Prefix: registryHost, Username: login.NewSecret(access.User), Password: login.NewSecret(access.Password)},
	}}, Wire: wire.Options{Transport: r.transport, Log: slog.New(slog.NewTextHandler(r.log, nil))}})
}

// newSource creates a new client of origins.
func (r *rig) newSource() {
	r.source = origin.NewRegistry(origin.RegistryOptions{Transport: r.transport, Services: origin.NewDiscovery(r.transport)})
}

// listen starts a server behind a proxy.
func (r *rig) listen(address string, config *tls.Config, h http.Handler) *faultproxy.Server {
	s, err := faultproxy.Serve(faultproxy.New(h), config, func() (net.Listener, error) { return r.net.Listen(address) })
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// close stops everything that the rig has started, and reports leaks. A leaked goroutine would fail the test by
// itself.
func (r *rig) close() {
	r.t.Helper()
	r.stopServing()
	// Idle connections are closed within this time. Leaked connections stay open.
	time.Sleep(2 * r.transport.IdleConnTimeout)
	for _, c := range r.net.Open() {
		r.t.Errorf("left open: the %s", c)
	}
	r.origin.Close()
	r.registry.Close()
	time.Sleep(time.Minute) // the servers need this time to end
}

// stopServing stops the gateway if a gateway is running.
func (r *rig) stopServing() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// openFiles returns this process's open files below a folder.
func openFiles(dir string) ([]string, error) {
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		if target, err := os.Readlink(name); err == nil && strings.HasPrefix(target, dir+"/") {
			out = append(out, target)
		}
	}
	return out, nil
}

// filesIn returns the files in the folder for temporary files.
func filesIn(string) ([]string, error) { return filepath.Glob(shared.temp + "/*") }

// push runs a push as "ocibridge push" does.
func (r *rig) push(ctx context.Context, a provider.Address) error {
	listing, err := r.source.Versions(ctx, a)
	if err != nil {
		return err
	}
	rel, err := r.source.Release(ctx, a, listing, provider.MustParseVersion(version), nil)
	if err != nil {
		return err
	}
	_, err = r.pusher.Push(ctx, rel)
	return r.auth.Explain(err, r.repo)
}

// truth sends a GET request directly to the registry, without faults and without a login.
func (r *rig) truth(kind, reference string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/v2/"+r.repo.Name+"/"+kind+"/"+reference, nil)
	req.Header.Set("Accept", "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json")
	shared.registry.Handler().ServeHTTP(w, req)
	return w
}

// direct returns a store that sends its requests directly to the registry, without faults.
func (r *rig) direct() repo.Store {
	repo, err := shared.registry.Repository(r.repo.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	repo.Client = &http.Client{Transport: handlerTransport{shared.registry.Handler()}}
	return registry.Repository{Repository: repo}
}

// handlerTransport sends requests directly to a handler.
type handlerTransport struct{ http.Handler }

// RoundTrip implements [http.RoundTripper].
func (h handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	in := req.Clone(req.Context())
	in.RequestURI = req.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	h.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// tagged reports whether the version has a tag, and checks that this tag names the complete release.
func (r *rig) tagged() bool {
	r.t.Helper()
	store := r.direct()
	v, err := artifact.Read(r.t.Context(), store, widget, provider.MustParseVersion(version))
	if r.truth("manifests", version).Code == http.StatusNotFound {
		return false
	}
	if err != nil {
		r.t.Errorf("the tagged version cannot be read: %v", err)
		return true
	}
	for _, want := range shared.release.Packages {
		found := false
		for _, p := range v.Packages {
			if p.Platform.OS != want.OS || p.Platform.Arch != want.Arch {
				continue
			}
			found = true
			blob := r.truth("blobs", p.Digest.String())
			if blob.Code != http.StatusOK || !bytes.Equal(blob.Body.Bytes(), want.Data) {
				r.t.Errorf("%s is tagged, but its package is not the released one: %d, %d bytes", p.Platform, blob.Code, blob.Body.Len())
			}
		}
		if !found {
			r.t.Errorf("a version without %s_%s is tagged", want.OS, want.Arch)
		}
	}
	if v.Evidence == nil {
		r.t.Error("a version without evidence is tagged")
		return true
	}
	e, err := artifact.ReadEvidence(r.t.Context(), store, *v.Evidence)
	if err != nil || !bytes.Equal(e.SHA256SUMS, shared.release.SHA256SUMS) || e.Record.Verdict != trust.Signed {
		r.t.Errorf("the evidence that is tagged: %v", err)
	}
	return true
}

func descriptorOf(content string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: "application/octet-stream", Digest: digest.FromString(content), Size: int64(len(content))}
}

// originTransport connects to an origin in this process, without a network.
type originTransport struct{}

// RoundTrip implements [http.RoundTripper].
func (originTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return handlerTransport{testorigin.New(testorigin.Options{}, shared.release, shared.large)}.RoundTrip(req)
}
