package serve

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/pull"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
)

// process holds everything that all sites share, however often the settings change.
type process struct {
	log     *slog.Logger
	addr    net.Addr // the address of the listener
	version string   // the version of the program
	manager manager
	// randomKeys returns the keys that sign links to archives if no key file is
	// configured. All sites share these keys, so that links stay valid after a reload.
	randomKeys func() *access.Keys
	shared     pool
	// draining means that the process is about to exit, and wants no more requests.
	draining atomic.Bool
	// ending is done when the process waits for nothing any more before it exits.
	ending context.Context
	end    context.CancelFunc
	// budget counts how much of its limits pull-through has used.
	budget *pull.Budget
	// via is the header Via of requests to origins. The gateway recognizes its own requests
	// by it, if an origin sends them back.
	via string
	ops *operations
}

// newProcess creates the part of a gateway that sites share. The caller closes its
// operations.
func newProcess(ctx context.Context, o Options, addr net.Addr, metricsAddress string) (*process, error) {
	p := &process{
		log: o.Log, addr: addr, version: o.Version, manager: manager{o.Log}, randomKeys: sync.OnceValue(access.RandomKeys),
		budget: pull.NewBudget(pull.Limits{}), via: "1.1 ocibridge-" + rand.Text(),
	}
	p.ending, p.end = context.WithCancel(context.Background())
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
