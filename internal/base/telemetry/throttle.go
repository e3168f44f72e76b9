package telemetry

import (
	"sync"
	"time"
)

// WarningPause is the minimum time between two warnings that a [Throttle] allows. Clients can cause such warnings as often
// as they want.
const WarningPause = time.Minute

// Throttle limits a warning to one per [WarningPause]. The zero value is ready for use.
type Throttle struct {
	mu     sync.Mutex
	warned time.Time
	others int // events since the last warning
}

// Allow reports whether an event is to be logged as a warning, and how many events were not since the last warning.
func (t *Throttle) Allow() (warn bool, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.warned.IsZero() || now.Sub(t.warned) >= WarningPause {
		others, t.others, t.warned = t.others, 0, now
		return true, others
	}
	t.others++
	return false, 0
}
