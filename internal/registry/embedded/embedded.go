// Package embedded is the OCI registry that needs no installation: distribution,
// on a data folder, inside the process.
//
// Nothing listens: the registry's own clients in this process reach it over
// pipes. Several processes may open the same folder, and what one of them pushes
// the others see at once. [Registry.ReadOnly] is what may be shown to others. It also
// answers the referrers API, which distribution lacks.
package embedded

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the storage driver configured below
	"github.com/sirupsen/logrus"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/internal/privatefolder"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Host is the registry's name in repository addresses. It is resolved nowhere.
const Host = ociaddr.Registry("embedded")

// Template is the repository template for the embedded registry, as clients
// write it behind the address that serves it.
const Template = "${hostname}/${namespace}/${type}"

// maxCatalogEntries is how many repositories one page of the catalog holds.
const maxCatalogEntries = 1000

// Registry is an open data folder.
type Registry struct {
	dir    string
	app    http.Handler
	server *http.Server
	client *http.Client
	stop   context.CancelFunc
}

// Open opens the registry in a data folder, which is made if it is missing. If other
// users can use the content's folder, Open narrows its mode to 0700 and warns in log.
// log also gets what distribution logs, at the level debug; nil: nobody does. As
// distribution has one log for all its registries, that of the first one opened in a
// process gets it.
func Open(dir string, log *slog.Logger) (*Registry, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = writable(dir)
	}
	if err == nil {
		err = privatefolder.Make(content(dir), log) // distribution leaves the mode to the umask
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, marker), []byte("The data folder of an ocibridge registry.\n"), 0o600)
	}
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("embedded registry: %w", err), "--data names another folder; --template, a registry elsewhere")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	redirectLogs(log)
	ctx, stop := context.WithCancel(context.Background())
	r := &Registry{dir: dir, stop: stop}
	r.app = newReferrers(dir, r.wholeTags(handlers.NewApp(ctx, config(dir))))
	pipes := newPipeListener()
	r.server = &http.Server{Handler: r.app, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go r.server.Serve(pipes)
	transport := outgoing.Transport()
	transport.Proxy = nil
	transport.DialContext = pipes.dial
	transport.WriteBufferSize, transport.ReadBufferSize = 64<<10, 64<<10
	transport.MaxIdleConnsPerHost = 64
	r.client = &http.Client{Transport: transport}
	return r, nil
}

// content is the folder in which distribution stores content.
func content(dir string) string { return filepath.Join(dir, "registry") }

// config says how distribution runs on dir. It panics on a bad configuration, so
// nothing in this one depends on its caller but the folder, which is checked.
func config(dir string) *configuration.Configuration {
	c := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": configuration.Parameters{"rootdirectory": content(dir)},
			"delete":     configuration.Parameters{"enabled": true},
		},
	}
	c.Catalog.MaxEntries = maxCatalogEntries
	// Signs the state of an upload between its requests, all of which one
	// process makes.
	c.HTTP.Secret = rand.Text()
	return c
}

// writable fails where files cannot be made in dir.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".ocibridge-*")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

// Close ends the registry's work. The folder stays.
func (r *Registry) Close() error {
	r.client.CloseIdleConnections()
	err := r.server.Close()
	r.stop()
	return err
}

// marker is a file that every data folder has. Without its folder, such as when a
// mount is lost, the registry would say of everything that it is not there.
const marker = "ocibridge-registry"

// present fails if the data folder is gone.
func (r *Registry) present() error {
	if _, err := os.Stat(filepath.Join(r.dir, marker)); err != nil {
		return hint.Wrap(fmt.Errorf("embedded registry: its data folder is gone: %w", err), "is its disk mounted?")
	}
	return nil
}

// Repository returns a client of one of the registry's repositories. It fails if
// the data folder is gone.
func (r *Registry) Repository(name string) (*remote.Repository, error) {
	if err := r.present(); err != nil {
		return nil, err
	}
	repo, err := remote.NewRepository(string(Host) + "/" + name)
	if err != nil {
		return nil, err
	}
	repo.PlainHTTP = true // over pipes in this process
	repo.Client = r.client
	repo.ReferrerListMaxPages = 1
	repo.SkipReferrersGC = true
	return repo, nil
}

// Explain gives an error that came of using the registry, and that its folder is to
// blame for, a hint.
func (r *Registry) Explain(err error) error {
	var answer *errcode.ErrorResponse
	if hint.Of(err) != "" || !errors.As(err, &answer) || answer.StatusCode != http.StatusInternalServerError {
		return err
	}
	return hint.Wrap(err, "the data folder %s could not be read or written: is its disk full, and is all in it this user's?", r.dir)
}

// Catalog returns a client of the registry as a whole, for the list of its
// repositories. It fails if the data folder is gone.
func (r *Registry) Catalog() (*remote.Registry, error) {
	if err := r.present(); err != nil {
		return nil, err
	}
	registry, err := remote.NewRegistry(string(Host))
	if err != nil {
		return nil, err
	}
	registry.PlainHTTP = true // over pipes in this process
	registry.Client = r.client
	return registry, nil
}

// Handler returns the whole registry, for tests.
func (r *Registry) Handler() http.Handler { return r.app }

// ReadOnly returns a handler for /v2/ that answers what reads, and refuses what
// writes.
func (r *Registry) ReadOnly() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			if r.present() != nil {
				refuse(w, http.StatusServiceUnavailable, "UNAVAILABLE", "the registry's data folder is gone")
				return
			}
			r.app.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only here; push with ocibridge push")
	})
}

// refuse answers with an error as the distribution specification has it.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

// pipeListener accepts the connections that its own dial makes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return string(Host) }

var redirectOnce sync.Once

// redirectLogs sends distribution's log, which goes to logrus's one global
// logger, into ours. It has a line for every request and an error for every 404.
func redirectLogs(log *slog.Logger) {
	redirectOnce.Do(func() {
		logrus.SetOutput(io.Discard)
		logrus.AddHook(logHook{log})
	})
}

type logHook struct{ log *slog.Logger }

func (h logHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h logHook) Fire(e *logrus.Entry) error {
	h.log.Debug("embedded registry: "+e.Message, "level", e.Level.String(), "err", e.Data["err"])
	return nil
}
