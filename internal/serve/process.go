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

// process is what all sites share, however often settings change.
type process struct {
	log     *slog.Logger
	addr    net.Addr // of the listener
	version string   // of the program
	manager manager
	// randomKeys signs links to archives unless a key file is configured. Links from
	// before a reload stay valid.
	randomKeys func() *access.Keys
	shared     pool
	// draining means that the process is about to end, and wants no more requests.
	draining atomic.Bool
	// ending is done when nothing is waited for any more.
	ending context.Context
	end    context.CancelFunc
	// budget counts what pull-through takes of its limits.
	budget *pull.Budget
	// via is the header Via of requests to origins: a request that comes back is known by
	// it.
	via string
	ops *operations
}

// newProcess prepares what sites share. The caller closes its operations.
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

// openEmbedded opens the embedded registry once for all sites, because closing one does not
// free all of its memory.
func (p *process) openEmbedded(dir string) (*embedded.Registry, func() error, error) {
	type key struct{ dir string }
	return share(&p.shared, key{dir}, func() (*embedded.Registry, error) { return embedded.Open(dir, p.log) })
}
