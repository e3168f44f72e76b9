package pullthrough

import (
	"slices"
	"time"
)

const (
	// leftToOthers is how many of the places one host leaves to the others. Every host
	// may have one place, so that it leaves fewer where there are three places or two,
	// and none where there is one.
	leftToOthers = 2
	// yieldAfter is how long a client waits for a place before a download ends that no
	// client reads. At a usual speed, downloads end by themselves in that time. A
	// download has its place for as long before it may be ended.
	yieldAfter = 5 * time.Second
)

// claim describes a download that has one of the places, or waits for one.
type claim struct {
	background bool     // no client waited for it when it asked
	hosts      []string // names and addresses of the host it comes from; none: not known

	// Of a download that has a place.
	unread bool          // no client reads it, and it may be ended
	bytes  int64         // received
	age    time.Duration // since it has its place
}

// admits reports whether a download may have one of the places beside those that have
// one already.
func admits(places int, held []claim, c claim) bool {
	if len(held) >= places || !admitsHost(places, held, c.hosts) {
		return false
	}
	background := 0
	for _, h := range held {
		if h.background {
			background++
		}
	}
	return !c.background || background < max(1, places/2)
}

// admitsHost reports whether a host may have one place more.
func admitsHost(places int, held []claim, hosts []string) bool {
	share := max(1, places-leftToOthers)
	return len(held) < share || ofHost(held, hosts) < share
}

// ofHost counts the downloads that come from a host. Two downloads come from one host
// if they share a name or an address, or each of them shares one with a third.
func ofHost(held []claim, hosts []string) int {
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

// next returns the index of the download in the queue that has the next place; -1 if
// none may have one. Clients go first, and then who waited longest.
func next(places int, held, queue []claim) int {
	for _, background := range []bool{false, true} {
		i := slices.IndexFunc(queue, func(c claim) bool { return c.background == background && admits(places, held, c) })
		if i >= 0 {
			return i
		}
	}
	return -1
}

// toEnd returns the index of the download that ends so that a waiting client gets its
// place: the slowest one that no client reads. It returns -1 if no such download is in
// the client's way, or only one that has just begun.
func toEnd(places int, held []claim, waiting claim) int {
	slowest := -1
	for i, c := range held {
		if !c.unread || c.age < yieldAfter || !admits(places, slices.Delete(slices.Clone(held), i, i+1), waiting) {
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
