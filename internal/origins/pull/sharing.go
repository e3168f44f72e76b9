package pull

import (
	"slices"
	"time"
)

const (
	// leftToOthers is the number of slots that one host leaves to other hosts. Every host may
	// have at least one slot. A host therefore leaves one slot if there are two slots, and
	// none if there is one slot.
	leftToOthers = 2
	// preemptAfter is how long a client waits for a slot before a download that no client
	// reads is cancelled. Most downloads end within that time. A download is not cancelled
	// before it has had its slot for preemptAfter.
	preemptAfter = 5 * time.Second
)

// claim describes a download that has a slot or waits for one.
type claim struct {
	background bool     // no client waited for the download before it got its slot
	hosts      []string // the names and addresses of the host that sends the package; nil: unknown

	// Only for a download that has a slot.
	unread bool          // no client reads it, and it may be cancelled
	bytes  int64         // received
	age    time.Duration // since it got its slot
}

// admits reports whether a download may have a slot, given the downloads that already have
// one.
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

// countHost counts the downloads from a host. Two downloads have the same host if they share a
// name or an address. They also have the same host if each of them has the same host as a
// third download.
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

// next returns the index of the queued download that gets the next slot, or -1 if no queued
// download may have a slot now. Downloads with a client come before background downloads.
// Apart from that, the order of the queue decides.
func next(slots int, held, queue []claim) int {
	for _, background := range []bool{false, true} {
		i := slices.IndexFunc(queue, func(c claim) bool { return c.background == background && admits(slots, held, c) })
		if i >= 0 {
			return i
		}
	}
	return -1
}

// victim returns the index of the download that is cancelled in favour of a waiting client. It
// considers the downloads that no client reads, that have had their slot for at least
// preemptAfter, and whose slot the waiting client may have. It chooses the slowest of them,
// and returns -1 if there is none.
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
