package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ocibridge/ocibridge/internal/app/config"
)

// serve answers requests on a listener until ctx ends, and then waits for running requests
// to finish. It returns an error if they take longer than the shutdown timeout.
func (l *live) serve(ctx context.Context, listener net.Listener) error {
	p := l.process
	server := newServer(l, p.log)
	server.TLSConfig = l.tlsConfig()
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig == nil {
			failed <- server.Serve(listener)
			return
		}
		failed <- server.ServeTLS(listener, "", "")
	}()
	p.manager.notify(daemon.SdNotifyReady + "\nSTATUS=serving")
	ended, end := context.WithCancel(context.Background())
	defer end()
	go p.manager.keepAlive(ended)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	p.draining.Store(true)
	p.ops.ready.Drain()
	p.manager.notify(daemon.SdNotifyStopping)
	g := l.current.Load().settings.gateway()
	if g.ShutdownDelay > 0 {
		p.log.Info("shutting down: requests are still answered, until load balancers notice", "for", g.ShutdownDelay)
		select {
		case err := <-failed:
			return err
		case <-time.After(g.ShutdownDelay):
		}
	}
	within := cmp.Or(g.ShutdownTimeout, config.DefaultShutdownTimeout)
	p.log.Info("shutting down: downloads under way may finish", "within", within)
	grace, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return fmt.Errorf("shutting down: %w", errors.Join(err, server.Close()))
	}
	return nil
}
