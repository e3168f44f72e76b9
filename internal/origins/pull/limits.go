package pull

import (
	"fmt"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Limits limit the downloads from origins. They apply to one process, so several gateways have separate limits.
type Limits struct {
	// MaxConcurrent is the number of slots, that is, the maximum number of concurrent downloads. 0 means
	// [DefaultConcurrent]. Downloads without a client get at most half of the slots. Downloads from one host get all slots
	// but two.
	MaxConcurrent int
	MaxPerDay     int64 // of downloaded bytes in a day, which begins at midnight UTC; 0 means no maximum
	MaxSize       int64 // in bytes, of one package; 0 means no maximum
	MaxSpool      int64 // in bytes, of all downloads on disk; 0 means [DefaultSpool]
	// Free returns how many bytes are free on the disk that holds the downloads. A download that would leave less than 256
	// MiB is refused. If Free is nil, [New] sets it to the free space of the disk that holds [Options].Spool.
	Free func() (int64, error)
}

const (
	// DefaultConcurrent and DefaultSpool replace limits that are 0 in [Limits].
	DefaultConcurrent = 8
	DefaultSpool      = 8 << 30
	keepFree          = 256 << 20 // the number of free bytes that downloads leave on the disk for other programs
	spoolStep         = 8 << 20   // the number of bytes by which the room of a package of unknown size grows
	// slotPatience is how long a client waits for a slot before it gets a [catalog.BusyError].
	slotPatience = 30 * time.Second
	// retrySlot is the time after which clients should retry if all slots are taken, and retryRoom is this time if the
	// disk is full. Both are short because downloads take seconds.
	retrySlot, retryRoom = 10 * time.Second, 30 * time.Second
)

// busy returns a [catalog.BusyError] with its hint.
func busy(limit string, after time.Duration) error {
	err := &catalog.BusyError{Limit: limit, RetryAfter: after}
	switch limit {
	case "disk":
		return hint.Wrap(err, "make room where packages under way are kept, beside the cache or the embedded registry")
	case "max_concurrent":
		return hint.Wrap(err, "max_concurrent in the pull_through block bounds it, for all clients together; one host has all but two of it")
	}
	return hint.Wrap(err, "%s in the pull_through block bounds it, for all clients together", limit)
}

// SizeError means that a package exceeds max_size.
type SizeError struct{ Size, Max int64 }

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("the package has %d bytes or more, and max_size allows %d", e.Size, e.Max)
}

// Usage says how much of the [Limits] is used.
type Usage struct {
	Fetching int   // the number of packages that are being downloaded
	Today    int64 // bytes, since midnight UTC
	Spool    int64 // bytes
	Limits   Limits
}

const (
	// leftToOthers is the number of slots that one host leaves to other hosts. The host leaves fewer slots if it would
	// have no slot itself.
	leftToOthers = 2
	// preemptAfter is how long a client waits for a slot before another download, which no client reads, is cancelled. It
	// is also the minimum time for which a download keeps its slot. Most downloads end within that time.
	preemptAfter = 5 * time.Second
)

// claim describes a download that has a slot or waits for one.
type claim struct {
	background bool     // no client waited for the download before it got its slot
	hosts      []string // the names and addresses of the host that sends the package; nil: unknown

	// The following fields are set only for a download that has a slot.
	unread bool          // no client reads it, and it may be cancelled
	bytes  int64         // received
	age    time.Duration // since it got its slot
}

// admits reports whether a download may have a slot, given the downloads that already have one.
func admits(slots int, held []claim, c claim) bool {
	if len(held) >= slots || !admitsHost(slots, held, c.hosts) {
		return false
	}
	background := 0
	for _, h := range held {
		if h.background {
			background++
		}
	}
	return !c.background || background < max(1, slots/2)
}

// admitsHost reports whether a host may have another slot.
func admitsHost(slots int, held []claim, hosts []string) bool {
	share := max(1, slots-leftToOthers)
	return len(held) < share || countHost(held, hosts) < share
}

// countHost counts the downloads from a host. Two downloads have the same host if they share a name or an address, or if
// each of them has the same host as a third download.
func countHost(held []claim, hosts []string) int {
	known, others := slices.Clone(hosts), slices.Clone(held)
	n := 0
	for {
		i := slices.IndexFunc(others, func(c claim) bool {
			return slices.ContainsFunc(c.hosts, func(h string) bool { return slices.Contains(known, h) })
		})
		if i < 0 {
			return n
		}
		known = append(known, others[i].hosts...)
		others = slices.Delete(others, i, i+1)
		n++
	}
}

// next returns the index of the queued download that gets the next slot, or -1 if none may have a slot now. Downloads with
// a client come before background downloads. Apart from that, the order of the queue decides.
func next(slots int, held, queue []claim) int {
	for _, background := range []bool{false, true} {
		i := slices.IndexFunc(queue, func(c claim) bool { return c.background == background && admits(slots, held, c) })
		if i >= 0 {
			return i
		}
	}
	return -1
}

// victim returns the index of the download to cancel in favour of a waiting client, or -1 if there is none. victim
// chooses the slowest download that no client reads, that has had its slot for at least preemptAfter, and whose slot
// the waiting client may get.
func victim(slots int, held []claim, waiting claim) int {
	slowest := -1
	for i, c := range held {
		if !c.unread || c.age < preemptAfter || !admits(slots, slices.Delete(slices.Clone(held), i, i+1), waiting) {
			continue
		}
		if slowest < 0 || c.speed() < held[slowest].speed() {
			slowest = i
		}
	}
	return slowest
}

// speed returns the average speed in bytes per second.
func (c claim) speed() float64 { return float64(c.bytes) / c.age.Seconds() }
