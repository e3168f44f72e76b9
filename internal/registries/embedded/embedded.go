// Package embedded runs an OCI registry inside the process. The registry is distribution, and stores its content in a data
// folder. It also has the referrers API, which distribution does not implement.
//
// The registry listens on no port. Clients in this process read blobs from their files, and send all other requests over
// pipes. Several processes may open the same folder, and each process immediately sees the content that another process
// pushes. A process that writes must hold [Registry.Lock], so that [Registry.GC] in another process deletes nothing
// that the writer relies on. A gateway passes the requests of its clients to [Registry.ReadOnly].
package embedded

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // registers the storage driver that config names
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sirupsen/logrus"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Host is the registry's name in repository addresses. The name is never resolved.
const Host = ociaddr.Registry("embedded")

// Template is the repository template of the embedded registry for providers, without the registry. In
// the configuration of clients, the gateway's HOST:PORT precedes the template.
const Template = "${hostname}/${namespace}/${type}"

// maxCatalogEntries is the maximum number of repositories on one page of the catalog.
const maxCatalogEntries = 1000

// Registry is an embedded registry that is running on its data folder.
type Registry struct {
	dir    string
	app    http.Handler
	server *http.Server
	client *http.Client
	stop   context.CancelFunc
	log    *slog.Logger

	used      *lru.Cache[any, time.Time] // when the use of a version was last recorded
	uses      chan use
	usesEnded chan struct{}

	// beforeFile is called before each file operation of a garbage collection, and before a wait. Tests replace it.
	beforeFile func(operation, name string)
}

// Open starts the registry in a data folder, and creates the folder if it is missing. It refuses a folder that another user
// could replace, see [privatefolder.Check]. If other users have access to the folder with the content, Open changes the
// mode of that folder to 0700 and logs a warning. Distribution's log messages go to the log of the first call of Open, at
// level debug, or are discarded if that log is nil.
func Open(dir string, log *slog.Logger) (*Registry, error) {
	return open(dir, privatefolder.ForUser(), log)
}

// OpenToRead is like [Open], for callers that only read. Root may also open a folder of another
// user, such as a service's, see [privatefolder.ForOwner].
func OpenToRead(dir string, log *slog.Logger) (*Registry, error) {
	return open(dir, privatefolder.ForOwner(dir), log)
}

func open(dir string, folders privatefolder.Checker, log *slog.Logger) (*Registry, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = folders.MakeAsIs(dir)
	}
	// Distribution would create the folder of the content with a mode that depends on the umask.
	for _, folder := range []string{content(dir), filepath.Join(dir, lockFolder), filepath.Join(dir, pulledFolder)} {
		if err == nil {
			err = folders.Make(folder, log)
		}
	}
	if err == nil {
		err = mark(dir)
	}
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("embedded registry: %w", err), "--data names another folder; --template, a registry elsewhere")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	redirectLogs(log)
	ctx, stop := context.WithCancel(context.Background())
	r := &Registry{dir: dir, stop: stop, log: log, uses: make(chan use, maxWaitingUses), usesEnded: make(chan struct{}), beforeFile: func(string, string) {}}
	r.used, _ = lru.New[any, time.Time](maxUses) // lru.New fails only for a size below 1
	go r.recordUses(ctx)
	files := &blobs{root: storage(dir), next: r.wholeTags(handlers.NewApp(ctx, config(dir))), closed: ctx}
	r.app = newReferrers(dir, files, maxSubjects)
	pipes := newPipeListener()
	r.server = &http.Server{Handler: r.app, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go r.server.Serve(pipes)
	transport := outgoing.Transport()
	transport.Proxy = nil
	transport.DialContext = pipes.dial
	transport.WriteBufferSize, transport.ReadBufferSize = 64<<10, 64<<10
	transport.MaxIdleConnsPerHost = 64
	r.client = &http.Client{Transport: &blobTransport{files, transport}}
	return r, nil
}

// content returns the folder inside the data folder in which distribution stores content.
func content(dir string) string { return filepath.Join(dir, "registry") }

// storage returns the folder of distribution's storage format in a data folder.
func storage(dir string) string { return filepath.Join(content(dir), "docker", "registry", "v2") }

// ModuleHosts returns the hosts of the modules in a data folder. ocibridge names the folders of modules after the
// hosts, so ModuleHosts need not open the registry. Without a data folder ("") there are none.
func ModuleHosts(dir string) ([]string, error) { return folders(dir, "modules") }

// ProviderHosts is like [ModuleHosts], for the hosts of the providers.
func ProviderHosts(dir string) ([]string, error) {
	names, err := folders(dir, "")
	return slices.DeleteFunc(names, func(name string) bool { return name == "modules" }), err
}

// folders returns the names of the folders in a folder of repositories.
func folders(dir, below string) (names []string, err error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(storage(dir), "repositories", below))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}

// config returns distribution's configuration for a data folder. Distribution panics if the configuration is invalid.
// Therefore only the folder varies, and Open checks the folder first.
func config(dir string) *configuration.Configuration {
	c := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": configuration.Parameters{"rootdirectory": content(dir)},
			"delete":     configuration.Parameters{"enabled": true},
		},
	}
	c.Catalog.MaxEntries = maxCatalogEntries
	c.HTTP.Secret = rand.Text() // the secret signs the state of uploads, and all requests of an upload come from this process
	return c
}

// Close stops the registry. It does not remove the data folder.
func (r *Registry) Close() error {
	r.client.CloseIdleConnections()
	err := r.server.Close()
	r.stop()
	<-r.usesEnded
	return err
}

// marker is the name of a file in every data folder, which shows that the folder is still there. Without the marker, the
// registry would return 404 for all content when the folder's disk is no longer mounted.
const marker = "ocibridge-registry"

// mark creates the marker in a data folder. It follows no link in the marker's place.
func mark(dir string) error {
	name := filepath.Join(dir, marker)
	f, err := files.CreateNew(name)
	if errors.Is(err, fs.ErrExist) {
		found, err := os.Lstat(name)
		if err == nil && !found.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file", name)
		}
		return err
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString("The data folder of an ocibridge registry.\n")
	return errors.Join(err, f.Close())
}

// IsDataFolder reports whether a folder contains a registry.
func IsDataFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, marker))
	return err == nil
}

// present returns an error if the data folder is gone.
func (r *Registry) present() error {
	if _, err := os.Stat(filepath.Join(r.dir, marker)); err != nil {
		return hint.Wrap(fmt.Errorf("embedded registry: its data folder is gone: %w", err), "is its disk mounted?")
	}
	return nil
}

// Repository returns a client for the repository with the given name. It fails if the data folder is gone.
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

// Explain adds a hint to err if err is a response of the registry with status 500. The cause of such a response is in
// the data folder.
func (r *Registry) Explain(err error) error {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	if !ok || answer.StatusCode != http.StatusInternalServerError {
		return err
	}
	return hint.Wrap(err, "the data folder %s could not be read or written: is its disk full, and is all in it this user's?", r.dir)
}

// Catalog returns a client for the registry's catalog, which lists the repositories. It fails if the data folder is gone.
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

// Changed returns when a tag was last written or, for the tag "", when a tag was last added to a repository or removed
// from it. It returns the zero time if there is no such tag or repository.
func (r *Registry) Changed(repository string, tag ociaddr.Tag) time.Time {
	name := filepath.Join(storage(r.dir), "repositories", filepath.FromSlash(repository), "_manifests", "tags")
	if tag != "" {
		name = filepath.Join(name, string(tag), "current", "link")
	}
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Handler returns a handler for tests. It accepts all requests, also those that write.
func (r *Registry) Handler() http.Handler { return r.app }

// ReadOnly returns a handler for /v2/ that accepts GET and HEAD, and refuses other methods with status 405.
func (r *Registry) ReadOnly() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Method != http.MethodGet && req.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only here; push with ocibridge push")
		case r.present() != nil:
			refuse(w, http.StatusServiceUnavailable, "UNAVAILABLE", "the registry's data folder is gone")
		default:
			r.noteUse(req)
			r.app.ServeHTTP(w, req)
		}
	})
}

// refuse sends a response with the status and an error in the format of the distribution specification.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

// pipeListener is a [net.Listener] that accepts the connections that its dial method opens. grpc's bufconn is not used,
// because the deadlines of its connections expire late, and net/http then cancels requests.
type pipeListener struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipeListener() *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn)}
	l.closed, l.close = context.WithCancel(context.Background())
	return l
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.close()
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: string(Host), Net: "pipe"} }

var redirectOnce sync.Once

// redirectLogs sends distribution's log messages to log instead of standard error. Distribution writes to the global
// logger of logrus. It logs each request, and logs each 404 as an error.
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
