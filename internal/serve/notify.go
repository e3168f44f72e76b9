package serve

import (
	"context"
	"log/slog"
	"time"
)

// manager is the service manager that started the process, if any: systemd.
type manager struct {
	getenv func(string) string
	log    *slog.Logger
}

// notify sends assignments to the service manager, as in sd_notify(3).
func (m manager) notify(assignments ...string) {
	if err := m.send(assignments...); err != nil {
		m.log.Warn("the service manager cannot be told", "what", assignments, "err", err)
	}
}

// keepAlive reports to the service manager, as often as it asks for, that the process
// lives.
func (m manager) keepAlive(ctx context.Context) {
	every := m.watchdogInterval()
	if every == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.notify("WATCHDOG=1")
		}
	}
}
