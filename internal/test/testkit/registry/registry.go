// Package registry runs a stand-alone OCI registry on a free port of the loopback interface. The registry is a
// distribution program that "make tools" installs.
//
// It is a real registry in its own process. It stores files on disk as in production, and allows deletions. TLS
// and passwords are optional.
package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/contents"
	"github.com/ocibridge/ocibridge/internal/test/testkit/ports"
)

// startTimeout is how long a registry may take until it answers its first request.
const startTimeout = 30 * time.Second

// Program is the name of a registry's program.
type Program string

const (
	// Distribution3 is distribution v3.
	Distribution3 Program = "registry"
	// Distribution28 is distribution 2.8, as Debian packages it and Harbor ships it.
	Distribution28 Program = "docker-registry"
)

// Programs are all registry programs.
var Programs = []Program{Distribution3, Distribution28}

// Options configure a registry. The zero value means distribution v3 on plain HTTP, without access control and
// with a temporary data folder.
type Options struct {
	// Program is the registry's program. "" means [Distribution3].
	Program Program

	// Dir is the data folder. "" means a temporary folder, which Stop removes.
	Dir string

	// CertFile and KeyFile are PEM files. If they are set, the registry uses TLS.
	CertFile, KeyFile string

	// Users maps user names to passwords. If it is not nil, every request needs one of these logins.
	Users map[string]string

	// Tokens describes a token server. If it is not nil, every request needs a token from that server, and Users
	// has no effect.
	Tokens *TokenAuth

	// RelativeURLs makes the URLs in the registry's responses relative.
	RelativeURLs bool
}

// TokenAuth describes a token server for a registry.
type TokenAuth struct {
	Realm          string // the URL of the token server
	Service        string // the registry's name, and the audience of tokens
	Issuer         string // the issuer of tokens
	RootCertBundle string // the PEM file with the certificates that verify tokens
}

// A Registry is a running registry.
type Registry struct {
	Addr string // the address, "127.0.0.1:PORT"
	Host string // the same address as "localhost:PORT"
	URL  string // the base URL with Addr, without a slash at the end
	Dir  string // the data folder

	program   clients.Client
	config    string // the path of the configuration
	cmd       *exec.Cmd
	log       *logWriter
	transport *http.Transport
	temp      string // the folder of the configuration; also of the data if Options.Dir is ""
	stopped   chan struct{}
	stop      sync.Once
	held      ports.Held // the registry's port, after Stop
}

// Start starts a registry, and waits until it answers requests. The registry runs until [Registry.Stop], even
// after ctx has ended.
func Start(ctx context.Context, opts Options) (*Registry, error) {
	program, err := clients.Find(string(cmp.Or(opts.Program, Distribution3)))
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "ocibridge-registry-")
	if err != nil {
		return nil, err
	}
	r := &Registry{Dir: opts.Dir, temp: temp, log: newLogWriter(), stopped: make(chan struct{})}
	if r.Dir == "" {
		r.Dir = filepath.Join(temp, "data")
	}
	if err := r.start(ctx, program, opts); err != nil {
		r.Stop()
		return nil, fmt.Errorf("start a registry: %w\n%s", err, r.Log())
	}
	return r, nil
}

// For is like [Start], but fails the test if there is an error. When the test ends, For stops the registry. If the test failed, For also prints the
// registry's log.
func For(tb testkit.TB, opts Options) *Registry {
	tb.Helper()
	r, err := Start(context.Background(), opts)
	clients.Must(tb, err)
	tb.Cleanup(func() {
		r.Stop()
		r.held.Release()
		if tb.Failed() {
			tb.Logf("log of the registry at %s:\n%s", r.Addr, r.Log())
		}
	})
	return r
}

// start runs the program, and waits until the registry answers requests.
func (r *Registry) start(ctx context.Context, program clients.Client, opts Options) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	if r.config, err = r.writeConfig(opts); err != nil {
		return err
	}
	r.program = program
	if r.transport, err = transport(opts.CertFile); err != nil {
		return err
	}
	if err := r.run(); err != nil {
		return err
	}
	if err := r.waitAddr(ctx, opts); err != nil {
		return err
	}
	return r.ping(ctx)
}

// run starts the process, and closes r.stopped when it exits.
func (r *Registry) run() error {
	cmd := exec.Command(r.program.Path, "serve", r.config)
	// REGISTRY_* variables would override the configuration, so the environment contains only this variable.
	// Without it, each request would wait for a collector of traces.
	cmd.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	cmd.Dir = r.temp
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd = cmd
	go func() {
		// Ignore the error. Either Stop has killed the process, or the log contains the reason.
		_ = cmd.Wait()
		close(r.stopped)
	}()
	return nil
}

// waitAddr waits until the log contains the registry's address. The system chooses the port.
func (r *Registry) waitAddr(ctx context.Context, opts Options) error {
	select {
	case r.Addr = <-r.log.addr:
	case <-r.stopped:
		return errors.New("it ended before it listened")
	case <-ctx.Done():
		return fmt.Errorf("it does not listen: %w", ctx.Err())
	}
	_, port, err := net.SplitHostPort(r.Addr)
	if err != nil {
		return err
	}
	scheme := "http"
	if opts.CertFile != "" {
		scheme = "https"
	}
	r.Host = net.JoinHostPort("localhost", port)
	r.URL = scheme + "://" + r.Addr
	return nil
}

// ping requests /v2/. It does not retry, because the registry already listens and accepts the connection.
func (r *Registry) ping(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/v2/", nil)
	if err != nil {
		return err
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("GET %s/v2/: %s", r.URL, resp.Status)
	}
	return nil
}

// Handler returns a reverse proxy to the registry. The URLs in the proxy's responses lead to the proxy. A test
// can wrap the proxy with a recorder, to count requests or to change responses.
func (r *Registry) Handler() (http.Handler, error) {
	target, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport: r.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.SetXForwarded()
		},
	}, nil
}

// Contents reads the content of a repository from the data folder.
func (r *Registry) Contents(repository string) (*contents.Contents, error) {
	return contents.Read(r.Dir, repository)
}

// CollectGarbage runs the garbage collection of distribution, which deletes the blobs that no manifest names. It must
// not run during a push.
func (r *Registry) CollectGarbage(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, r.program.Path, "garbage-collect", r.config)
	cmd.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	cmd.Dir = r.temp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("garbage-collect: %w\n%s", err, out)
	}
	return nil
}

// Log returns what the registry has logged so far.
func (r *Registry) Log() string { return r.log.String() }

// Stop kills the process without warning, and removes all files except those in Options.Dir. It reserves the
// port until this process or the test ends. Only the first call has an effect.
func (r *Registry) Stop() {
	r.stop.Do(func() {
		if r.cmd != nil {
			// Kill fails only if the process has already exited.
			_ = r.cmd.Process.Kill()
			<-r.stopped
			r.held.Hold(r.Addr)
		}
		if r.transport != nil {
			r.transport.CloseIdleConnections()
		}
		os.RemoveAll(r.temp)
	})
}

// transport returns a transport that trusts the registry's certificate.
func transport(certFile string) (*http.Transport, error) {
	t := &http.Transport{ForceAttemptHTTP2: true}
	if certFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", certFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool}
	return t, nil
}

type object = map[string]any

// writeConfig writes the registry's configuration, and returns its path. It writes JSON, which the registry's
// YAML parser accepts.
func (r *Registry) writeConfig(opts Options) (string, error) {
	server := object{"addr": "127.0.0.1:0", "secret": rand.Text(), "relativeurls": opts.RelativeURLs}
	if opts.CertFile != "" {
		server["tls"] = object{"certificate": opts.CertFile, "key": opts.KeyFile}
	}
	config := object{
		"version": "0.1",
		"log":     object{"level": "info"},
		"storage": object{
			"filesystem": object{"rootdirectory": r.Dir},
			"delete":     object{"enabled": true},
		},
		"http": server,
	}
	if opts.Users != nil {
		path := filepath.Join(r.temp, "htpasswd")
		if err := writeHtpasswd(path, opts.Users); err != nil {
			return "", err
		}
		config["auth"] = object{"htpasswd": object{"realm": "test", "path": path}}
	}
	if t := opts.Tokens; t != nil {
		config["auth"] = object{"token": object{
			"realm": t.Realm, "service": t.Service, "issuer": t.Issuer, "rootcertbundle": t.RootCertBundle,
		}}
	}
	data, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.temp, "config.yml")
	return path, os.WriteFile(path, data, 0o600)
}

func writeHtpasswd(path string, users map[string]string) error {
	var lines strings.Builder
	for name, password := range users {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s:%s\n", name, hash)
	}
	return os.WriteFile(path, []byte(lines.String()), 0o600)
}

// A logWriter stores the registry's log, and finds the address in the log.
type logWriter struct {
	addr chan string // receives the address once

	mu    sync.Mutex
	text  strings.Builder
	found bool
}

func newLogWriter() *logWriter { return &logWriter{addr: make(chan string, 1)} }

var _ io.Writer = (*logWriter)(nil)

// listening matches the log line with the address. It also matches one character after the port. Without that
// character, the last digits of the port might not have been written yet.
var listening = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)[^\d]`)

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if w.found {
		return len(p), nil
	}
	if m := listening.FindStringSubmatch(w.text.String()); m != nil {
		w.found = true
		w.addr <- m[1]
	}
	return len(p), nil
}

func (w *logWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
