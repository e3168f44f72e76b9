// Package embedded runs an OCI registry inside the process: distribution, on a data folder.
//
// It opens no listener: clients in this process reach the registry over pipes. Several
// processes may open the same folder. Each process immediately sees the content that another
// process pushes. A gateway serves its clients with [Registry.ReadOnly]. This handler also
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

// Host is the registry's name in repository addresses. The name is never resolved.
const Host = ociaddr.Registry("embedded")

// Template is the repository template of the embedded registry. Clients put the gateway's
// address in front of it.
const Template = "${hostname}/${namespace}/${type}"

// maxCatalogEntries is the maximum number of repositories on one page of the catalog.
const maxCatalogEntries = 1000

// Registry is an open data folder.
type Registry struct {
	dir    string
	app    http.Handler
	server *http.Server
	client *http.Client
	stop   context.CancelFunc
}

// Open opens the registry in a data folder, and creates the folder if it is missing. If
// other users have access to the content's folder, Open narrows its mode to 0700 and logs a
// warning. Distribution's own log goes to log at the level debug; a nil log discards it.
// Distribution has one log for the whole process, so the first registry that is opened gets
// all of it.
func Open(dir string, log *slog.Logger) (*Registry, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
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
	r.app = newReferrers(dir, r.wholeTags(handlers.NewApp(ctx, config(dir))), maxSubjects)
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

// config returns distribution's configuration for a folder. Distribution panics on a bad
// configuration, so only the folder varies, and Open has checked it.
func config(dir string) *configuration.Configuration {
	c := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": configuration.Parameters{"rootdirectory": content(dir)},
			"delete":     configuration.Parameters{"enabled": true},
		},
	}
	c.Catalog.MaxEntries = maxCatalogEntries
	// The secret signs the state of an upload between its requests, which all come from
	// this process.
	c.HTTP.Secret = rand.Text()
	return c
}

// Close stops the registry. The folder stays.
func (r *Registry) Close() error {
	r.client.CloseIdleConnections()
	err := r.server.Close()
	r.stop()
	return err
}

// marker is the name of a file that every data folder contains. If the folder vanishes, such
// as with a lost mount, the registry would otherwise answer that nothing exists.
const marker = "ocibridge-registry"

// present fails if the data folder is gone.
func (r *Registry) present() error {
	if _, err := os.Stat(filepath.Join(r.dir, marker)); err != nil {
		return hint.Wrap(fmt.Errorf("embedded registry: its data folder is gone: %w", err), "is its disk mounted?")
	}
	return nil
}

// Repository returns a client for a repository of the registry. It fails if the data folder
// is gone.
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

// Explain adds a hint to an error of the registry that its folder causes.
func (r *Registry) Explain(err error) error {
	var answer *errcode.ErrorResponse
	if hint.Of(err) != "" || !errors.As(err, &answer) || answer.StatusCode != http.StatusInternalServerError {
		return err
	}
	return hint.Wrap(err, "the data folder %s could not be read or written: is its disk full, and is all in it this user's?", r.dir)
}

// Catalog returns a client that lists the registry's repositories. It fails if the data
// folder is gone.
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

// ReadOnly returns a handler for /v2/ that answers requests that read, and refuses requests
// that write.
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

// refuse answers with an error in the format of the distribution specification.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

// pipeListener accepts the connections that its dial method opens. Connections of grpc's
// bufconn do not work here: their deadlines expire late, so net/http cancels requests.
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

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: string(Host), Net: "pipe"} }

var redirectOnce sync.Once

// redirectLogs sends distribution's log to ours. Distribution logs to the global logger of
// logrus: a line for every request, and an error for every 404.
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
