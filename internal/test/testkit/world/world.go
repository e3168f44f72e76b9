// Package world prepares complete runs of the program. It provides a publisher who signs releases of the real
// null provider, and an origin registry that serves these releases. It also provides workspaces whose CLI
// configuration leads to that origin.
//
// Like a real host name, the provider's host name has no port. A host block in the CLI configuration sends
// requests for that host to the origin on the loopback interface.
package world

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/ports"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// Host is the host name in the addresses of the publisher's providers. Null is the address of the publisher's
// null provider.
const (
	Host = "registry.acme.example"
	Null = Host + "/acme/null"
)

// World consists of a publisher and its origin registry.
type World struct {
	Dir       string // the folder of all files that the world writes
	CA        *tlsca.CA
	CAFile    string // PEM
	Signer    *pgp.Signer
	Origin    *origin.Origin
	OriginURL string

	server *http.Server
	addr   net.Addr
	held   ports.Held // the origin's port, after Close
}

// New creates a world in the folder dir. The origin has no releases yet.
func New(dir string) (*World, error) {
	ca, err := tlsca.New()
	if err != nil {
		return nil, err
	}
	w := &World{Dir: dir, CA: ca}
	if w.CAFile, err = ca.WriteFile(dir); err != nil {
		return nil, err
	}
	if w.Signer, err = publisher(); err != nil {
		return nil, err
	}
	config, err := ca.ServerConfig("localhost")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.Origin = origin.New(origin.Options{})
	w.addr = listener.Addr()
	w.OriginURL = "https://localhost:" + port(w.addr)
	w.server = &http.Server{Handler: w.Origin, TLSConfig: config}
	go w.server.ServeTLS(listener, "", "")
	return w, nil
}

// publisher returns the key of the publisher. All worlds of a process share it, because an RSA key takes long to create.
var publisher = sync.OnceValues(func() (*pgp.Signer, error) { return pgp.NewSigner("Acme Providers", pgp.RSA(2048)) })

// For is like [New], but fails the test if there is an error.
func For(tb testkit.TB) *World {
	tb.Helper()
	w, err := New(tb.TempDir())
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		w.Close()
		w.held.Release()
	})
	return w
}

// Close stops the origin. It keeps the files. It reserves the origin's port until the process or the test ends.
func (w *World) Close() error {
	err := w.server.Close()
	w.held.Hold(w.addr.String())
	return err
}

// port returns the port of a listener's address.
func port(addr net.Addr) string {
	_, p, _ := net.SplitHostPort(addr.String())
	return p
}

// NullRelease creates and signs a release of the null provider in the namespace acme. It does not add the release to the
// origin.
func (w *World) NullRelease(version string) (*release.Release, error) {
	return w.NullReleaseIn("acme", version)
}

// NullReleaseIn is like [World.NullRelease], for any namespace. The package for this platform contains the program that "make
// tools" built. The packages for other platforms contain the beginning of their program, because nothing runs it, and every
// push and check reads it whole.
func (w *World) NullReleaseIn(namespace, version string) (*release.Release, error) {
	binaries, err := clients.NullProvider()
	if err != nil {
		return nil, err
	}
	spec := release.Spec{Host: Host, Namespace: namespace, Type: "null", Version: version, Protocols: []string{"5.0"}, Signer: w.Signer}
	for _, b := range binaries {
		content := release.Content{OS: b.OS, Arch: b.Arch, Binary: b.Path}
		if b.OS != runtime.GOOS || b.Arch != runtime.GOARCH {
			if content, err = beginning(b, "terraform-provider-null_v"+version); err != nil {
				return nil, err
			}
		}
		spec.Contents = append(spec.Contents, content)
	}
	return release.Build(spec)
}

// beginning returns a package with the first bytes of a program.
func beginning(b clients.Binary, name string) (release.Content, error) {
	if b.OS == "windows" {
		name += ".exe"
	}
	f, err := os.Open(b.Path)
	if err != nil {
		return release.Content{}, err
	}
	defer f.Close()
	head := make([]byte, 100<<10)
	n, err := io.ReadFull(f, head)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return release.Content{OS: b.OS, Arch: b.Arch, Files: map[string][]byte{name: head[:n]}}, err
}

// HostBlock returns the CLI configuration that sends requests for Host to the origin.
func (w *World) HostBlock() string {
	return fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", Host, w.OriginURL+origin.ServicePath)
}

// Workspace creates a workspace. Its clients trust the world's CA in addition to the system's. Its CLI
// configuration consists of the host block and of cliConfig.
func (w *World) Workspace(cliConfig string) (*clients.Workspace, error) {
	dir, err := os.MkdirTemp(w.Dir, "workspace-")
	if err != nil {
		return nil, err
	}
	ws, err := clients.NewWorkspace(dir)
	if err != nil {
		return nil, err
	}
	ws.TrustCA(w.CAFile)
	return ws, ws.WriteCLIConfig(w.HostBlock() + cliConfig)
}

// NetworkMirror returns a CLI configuration that installs only from a network mirror.
func NetworkMirror(url string) string {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n}\n", url)
}

// OCIMirror returns a CLI configuration that installs only from an OCI mirror.
func OCIMirror(template string) string {
	return fmt.Sprintf("provider_installation {\n  oci_mirror {\n    repository_template = %q\n  }\n}\n", template)
}

// UseNull returns a configuration that requires the given version of the null provider.
func UseNull(version string) string {
	return fmt.Sprintf(`terraform {
  required_providers {
    null = {
      source  = %q
      version = %q
    }
  }
}

resource "null_resource" "example" {}
`, Null, version)
}

// Gateway is a running "ocibridge serve".
type Gateway struct {
	URL                string `json:"url"`                 // the URL of the network mirror, even if the gateway serves modules alone
	Root               string `json:"gateway_url"`         // the URL of the gateway
	Address            string `json:"address"`             // the listen address; set if URL is the gateway's public_url
	CAFile             string `json:"ca_file"`             // the certificate of the local CA that signed the gateway's certificate
	RepositoryTemplate string `json:"repository_template"` // the template of the embedded registry

	cmd    *exec.Cmd
	cancel context.CancelFunc
	log    *syncBuffer
	ended  chan error
}

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 2 * time.Minute
)

// Serve starts "ocibridge serve" on a free port of localhost, and waits until the gateway listens.
func Serve(ws *clients.Workspace, args ...string) (*Gateway, error) {
	bridge, err := clients.Bridge()
	if err != nil {
		return nil, err
	}
	return ServeBy(bridge, ws, args...)
}

// ServeBy is like [Serve], but for a given program, in place of the program that [clients.Bridge] returns.
func ServeBy(bridge clients.Client, ws *clients.Workspace, args ...string) (*Gateway, error) {
	return serve(bridge, ws, nil, args)
}

// ServeLogging is like [ServeBy], but for a gateway with a long log. The gateway writes its log to the file log, and
// [Gateway.Log] returns nothing.
func ServeLogging(bridge clients.Client, ws *clients.Workspace, log *os.File, args ...string) (*Gateway, error) {
	return serve(bridge, ws, log, args)
}

func serve(bridge clients.Client, ws *clients.Workspace, log *os.File, args []string) (*Gateway, error) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &Gateway{cancel: cancel, log: &syncBuffer{}, ended: make(chan error, 1)}
	g.cmd = ws.Command(ctx, bridge, append([]string{"serve", "--listen", "localhost:0", "--output", "json"}, args...)...)
	g.cmd.Stderr = g.log
	if log != nil {
		g.cmd.Stderr = log
	}
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	// The first line contains the address. Reading the other lines keeps the gateway from blocking when it writes.
	started := make(chan error, 1)
	go func() {
		r := bufio.NewReader(stdout)
		line, err := r.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, g)
		}
		if g.URL == "" {
			g.URL = g.Root + "providers/"
		}
		started <- err
		io.Copy(io.Discard, r)
		g.ended <- g.cmd.Wait()
	}()
	select {
	case err = <-started:
	case <-time.After(startTimeout):
		err = errors.New("it did not say where it listens")
	}
	if err != nil {
		g.Stop()
		return nil, fmt.Errorf("ocibridge serve: %w\n%s", err, g.Log())
	}
	return g, nil
}

// ServeFor is like [Serve], but fails the test if there is an error. When the test ends, ServeFor stops the gateway. If the test failed, ServeFor
// also prints the gateway's log.
func ServeFor(tb testkit.TB, ws *clients.Workspace, args ...string) *Gateway {
	tb.Helper()
	g, err := Serve(ws, args...)
	clients.Must(tb, err)
	tb.Cleanup(func() {
		err := g.Stop()
		if tb.Failed() {
			tb.Logf("ocibridge serve: %v\n%s", err, g.Log())
		}
	})
	return g
}

// Log returns what the gateway has written to standard error.
func (g *Gateway) Log() string { return g.log.String() }

// PID returns the gateway's process ID.
func (g *Gateway) PID() int { return g.cmd.Process.Pid }

// Interrupt tells the gateway to stop, and does not wait for that.
func (g *Gateway) Interrupt() error { return g.cmd.Process.Signal(os.Interrupt) }

// Hangup tells the gateway to reload its settings, and does not wait for that.
func (g *Gateway) Hangup() error { return g.cmd.Process.Signal(syscall.SIGHUP) }

// Kill kills the gateway without warning, and waits until it has exited. Stop may be called afterwards.
func (g *Gateway) Kill() error {
	if err := g.cmd.Process.Kill(); err != nil {
		return err
	}
	<-g.ended
	g.cancel()
	g.cancel = nil
	return nil
}

// Stop tells the gateway to stop, waits until it has exited, and returns its exit error. If the gateway has
// already been stopped, Stop returns nil.
func (g *Gateway) Stop() error {
	if g.cancel == nil {
		return nil
	}
	if err := g.Interrupt(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return g.Wait()
}

// Wait waits until the gateway has exited, and returns its exit error. After that, Wait and Stop return nil.
func (g *Gateway) Wait() error {
	if g.cancel == nil {
		return nil
	}
	defer func() { g.cancel(); g.cancel = nil }()
	select {
	case err := <-g.ended:
		return err
	case <-time.After(stopTimeout):
		return errors.New("it did not stop when asked to")
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	return len(p), nil
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.buf)
}
