package pull

import (
	"slices"
	"time"
)

const (
	// leftToOthers is how many slots one host leaves to others. Every host may have one
	// slot, so it leaves fewer if there are three slots or two, and none if there is one.
	leftToOthers = 2
	// preemptAfter is how long a client waits for a slot before a download is cancelled that
	// no client reads. Most downloads end within that time. A download is not cancelled
	// before it has had its slot for as long.
	preemptAfter = 5 * time.Second
)

// claim is a download that has a slot or waits for one.
type claim struct {
	background bool     // no client waited for it when it asked
	hosts      []string // names and addresses of the host that sends it; none: unknown

	// Of a download that has a slot.
	unread bool          // no client reads it, and it may be cancelled
	bytes  int64         // received
	age    time.Duration // since it got its slot
}

// admits reports whether a download may have a slot in addition to those that have one.
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

// countHost counts the downloads from a host. Two downloads have the same host if they
// share a name or an address, or if each of them shares one with a third.
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

// next returns the index of the queued download that gets the next slot; -1: none may have
// it. Downloads with a client come first, and then the queue's order counts.
func next(slots int, held, queue []claim) int {
	for _, background := range []bool{false, true} {
		i := slices.IndexFunc(queue, func(c claim) bool { return c.background == background && admits(slots, held, c) })
		if i >= 0 {
			return i
		}
	}
	return -1
}

// victim returns the index of the download that is cancelled for a waiting client. It is
// the slowest download without a reading client whose slot the waiting client may have;
// -1: there is none, or it has only just begun.
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

// speed is in bytes per second.
func (c claim) speed() float64 { return float64(c.bytes) / c.age.Seconds() }
