package serve

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/lastuse"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
)

// process holds everything that all sites share. It stays the same when the settings change.
type process struct {
	log     *slog.Logger
	addr    net.Addr // the address of the listener
	version string   // the version of the program
	manager manager
	// randomKeys returns the keys that sign links to archives if no key file is configured. Links stay valid after a reload.
	randomKeys func() *access.Keys
	shared     pool
	ending
	budget   *pull.Budget   // tracks the use of the limits of pull-through
	lastUses *lastuse.Times // when clients last used versions
	// via is the Via header of the gateway's requests to origins. By this header, the gateway recognizes its own request
	// if an origin sends it back.
	via string
	ops *operations
}

// ending is the shutdown of a process.
type ending struct {
	draining atomic.Bool     // true once the process has begun to shut down
	over     context.Context // ends when the process stops waiting for running work, just before it exits
	end      context.CancelFunc
}

// newProcess creates the part of a gateway that all sites share. The caller must close the operations of the process.
func newProcess(ctx context.Context, o Options, addr net.Addr, metricsAddress string) (*process, error) {
	ops, err := newOperations(ctx, o, metricsAddress)
	if err != nil {
		return nil, err
	}
	p := &process{
		ops: ops, log: ops.log, addr: addr, version: o.Version, manager: manager{ops.log}, randomKeys: sync.OnceValue(access.RandomKeys),
		budget: pull.NewBudget(pull.Limits{}), lastUses: lastuse.New(), via: "1.1 ocibridge-" + rand.Text(),
	}
	p.over, p.end = context.WithCancel(context.Background())
	return p, nil
}

// openEmbedded opens the embedded registry once for all sites, because closing it does not free all of its memory.
func (p *process) openEmbedded(dir string) (*embedded.Registry, func() error, error) {
	type key struct{ dir string }
	return share(&p.shared, key{dir}, func() (*embedded.Registry, error) { return embedded.Open(dir, p.log) })
}

// manager notifies systemd about the state of the process, if systemd has set the variables NOTIFY_SOCKET, WATCHDOG_USEC and
// WATCHDOG_PID.
type manager struct{ log *slog.Logger }

// notify sends assignments to the service manager. The text has one assignment on each line, as sd_notify(3) describes.
func (m manager) notify(assignments string) {
	if _, err := daemon.SdNotify(false, assignments); err != nil {
		m.log.Warn("the service manager cannot be notified", "what", assignments, "err", err)
	}
}

// keepAlive reports to the service manager that the process is alive, twice as often as the service manager requires,
// until ctx ends. It returns immediately if the service manager requires no reports.
func (m manager) keepAlive(ctx context.Context) {
	timeout, err := daemon.SdWatchdogEnabled(false)
	if err != nil || timeout == 0 {
		return
	}
	tick := time.NewTicker(timeout / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.notify(daemon.SdNotifyWatchdog)
		}
	}
}

// pool holds resources that an old site and its successor share, such as the cache in a folder.
type pool struct {
	mu   sync.Mutex
	open map[any]*pooled
}

// pooled is a resource with the number of its users.
type pooled struct {
	io.Closer
	users int
}

// shared is like share, for a resource of a site. The site releases the resource when the site is closed.
func shared[T io.Closer](s *site, key any, open func() (T, error)) (T, error) {
	resource, release, err := share(&s.shared, key, open)
	if err == nil {
		s.onClose(release)
	}
	return resource, err
}

// share returns the open resource with the given key, or opens it. A key can be any comparable value. The caller must
// call release once. The last call of release closes the resource.
func share[T io.Closer](p *pool, key any, open func() (T, error)) (shared T, release func() error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.open[key]
	if found == nil {
		if shared, err = open(); err != nil {
			return shared, nil, err
		}
		if p.open == nil {
			p.open = map[any]*pooled{}
		}
		found = &pooled{Closer: shared}
		p.open[key] = found
	}
	found.users++
	return found.Closer.(T), func() error { return p.release(key) }, nil
}

// release ends one use of the resource with the given key. The end of the last use closes the resource.
func (p *pool) release(key any) error {
	p.mu.Lock()
	used := p.open[key]
	used.users--
	if used.users > 0 {
		p.mu.Unlock()
		return nil
	}
	delete(p.open, key)
	p.mu.Unlock()
	return used.Close()
}

// Address is the address of a gateway, with everything that clients need to use it.
type Address struct {
	URL      *url.URL // ends in a slash
	Listens  string   // the address that the gateway listens on; "" if the URL contains it
	CAFile   string   // the file with the certificate of the local CA; "" if another CA signed the gateway's certificate
	Embedded bool     // whether the gateway serves the embedded registry
	Tokens   bool     // whether the gateway requires a token
	Pulls    bool     // whether the gateway fetches missing versions from their origins
	// AsClients means that a fetched provider may be unsigned if OpenTofu installs it unsigned. AsClients is set if
	// nothing is configured.
	AsClients bool
}

// address returns the address of a gateway that listens on addr. Its URL is the configured public_url, or else consists of
// the gateway's host and the port of addr. A [Local] has set its URL already.
func (s *Settings) address(addr net.Addr) (Address, error) {
	g := s.gateway()
	if s.local != nil {
		return Address{URL: s.local}, nil
	}
	if g.PublicURL != "" {
		u, err := url.Parse(g.PublicURL)
		return Address{URL: u, Listens: addr.String()}, err
	}
	_, port, err := net.SplitHostPort(addr.String())
	u := &url.URL{Scheme: "https", Host: net.JoinHostPort(s.publicHost(), port), Path: "/"}
	if g.HTTP {
		u.Scheme = "http"
	}
	return Address{URL: u}, err
}

// Template returns the repository template of the embedded registry. It returns "" if the gateway serves no embedded
// registry, or if its URL has a path or no TLS, because clients cannot read the embedded registry then.
func (a Address) Template() string {
	if !a.Embedded || a.URL.Path != "/" || a.URL.Scheme != "https" {
		return ""
	}
	return a.URL.Host + "/" + embedded.Template
}
