package serve

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
)

// process holds everything that all sites share. It stays the same when the settings
// change.
type process struct {
	log     *slog.Logger
	addr    net.Addr // the address of the listener
	version string   // the version of the program
	manager manager
	// randomKeys returns the keys that sign links to archives if no key file is
	// configured. All sites share these keys, so that links stay valid after a reload.
	randomKeys func() *access.Keys
	shared     pool
	ending
	// budget counts how much of the limits of pull-through is used.
	budget *pull.Budget
	// via is the Via header of the gateway's requests to origins. If an origin sends such a
	// request back to the gateway, the gateway recognizes the request by this header.
	via string
	ops *operations
}

// ending is the shutdown of a process.
type ending struct {
	// draining is true once the process has begun to shut down. Clients should then send no
	// more requests.
	draining atomic.Bool
	// over ends when the process stops waiting for running work, just before it exits.
	over context.Context
	end  context.CancelFunc
}

// newProcess creates the part of a gateway that all sites share. The caller closes the
// operations of the process.
func newProcess(ctx context.Context, o Options, addr net.Addr, metricsAddress string) (*process, error) {
	p := &process{
		log: o.Log, addr: addr, version: o.Version, manager: manager{o.Log}, randomKeys: sync.OnceValue(access.RandomKeys),
		budget: pull.NewBudget(pull.Limits{}), via: "1.1 ocibridge-" + rand.Text(),
	}
	p.over, p.end = context.WithCancel(context.Background())
	var err error
	p.ops, err = newOperations(ctx, o, metricsAddress)
	return p, err
}

// openEmbedded opens the embedded registry once for all sites, because closing an embedded
// registry does not free all of its memory.
func (p *process) openEmbedded(dir string) (*embedded.Registry, func() error, error) {
	type key struct{ dir string }
	return share(&p.shared, key{dir}, func() (*embedded.Registry, error) { return embedded.Open(dir, p.log) })
}

// manager notifies systemd about the state of the process. If systemd started the process
// as a service, it has set the variables NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
// Without these variables, manager does nothing.
type manager struct{ log *slog.Logger }

// notify sends assignments to the service manager. The text has one assignment on each
// line, as sd_notify(3) describes.
func (m manager) notify(assignments string) {
	if _, err := daemon.SdNotify(false, assignments); err != nil {
		m.log.Warn("the service manager cannot be notified", "what", assignments, "err", err)
	}
}

// keepAlive reports to the service manager that the process is alive, until ctx ends. It
// reports twice as often as the service manager requires. It returns immediately if the
// service manager requires no reports.
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
