package main

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// memoryGoal is what the program may use, beside its own code, before it collects
// garbage more often than it would by itself.
const memoryGoal = 32 << 20

// fewCollections is GOGC where the goal is what bounds the memory.
const fewCollections = 400

// Who allocates less than quiet bytes a second has time to give back what a burst of
// work left, which is worth it from rest bytes on.
const quiet, rest = 1 << 20, 16 << 20

// quietTicks is for how many seconds that is to be so.
const quietTicks = 3

// boundMemory keeps the program's memory near memoryGoal until ctx ends. What is
// really in use and does not fit raises the goal, so that no time is lost to
// collections that free nothing; below the goal there are few of them; and after a
// burst of work the system gets its memory back. A limit that the user has set
// (GOMEMLIMIT) stays.
func boundMemory(ctx context.Context) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	debug.SetMemoryLimit(memoryGoal)
	defer debug.SetGCPercent(debug.SetGCPercent(fewCollections))
	collected := make(chan struct{}, 1)
	whenCollected(ctx, collected)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last, freed uint64
	still := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-collected:
			debug.SetMemoryLimit(memoryLimit())
		case <-tick.C:
			allocated := read("/gc/heap/allocs:bytes")
			if still++; allocated-last >= quiet {
				still = 0
			}
			if still >= quietTicks && allocated-freed > rest {
				runtime.GC() // after which a second one frees what pools have
				debug.FreeOSMemory()
				freed = allocated
			}
			last = allocated
		}
	}
}

// memoryLimit leaves room for a quarter of what is in use as garbage. The limit
// counts more than objects: of many connections, stacks are a third.
func memoryLimit() int64 {
	garbage := read("/memory/classes/heap/objects:bytes") + read("/memory/classes/heap/free:bytes") + read("/memory/classes/heap/released:bytes")
	other := read("/memory/classes/total:bytes") - garbage
	return max(memoryGoal, int64(read("/gc/heap/live:bytes")/4*5+other))
}

func read(metric string) uint64 {
	sample := []metrics.Sample{{Name: metric}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// whenCollected tells c of each collection of garbage, until ctx ends.
func whenCollected(ctx context.Context, c chan<- struct{}) {
	type garbage struct{ _ *garbage } // with a pointer, so that it shares its memory with nothing
	runtime.AddCleanup(&garbage{}, func(struct{}) {
		if ctx.Err() == nil {
			select {
			case c <- struct{}{}:
			default:
			}
			whenCollected(ctx, c)
		}
	}, struct{}{})
}
