package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

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
