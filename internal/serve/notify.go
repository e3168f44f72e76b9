package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// manager is the service manager that started the process, if any: systemd, which the
// variables NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID describe.
type manager struct{ log *slog.Logger }

// notify sends assignments to the service manager, one on each line, as in sd_notify(3).
func (m manager) notify(assignments string) {
	if _, err := daemon.SdNotify(false, assignments); err != nil {
		m.log.Warn("the service manager cannot be notified", "what", assignments, "err", err)
	}
}

// keepAlive reports to the service manager that the process is alive, twice as often as the
// service manager requires. It returns immediately if the service manager wants no reports.
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
