package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// memoryGoal is what the program may use, beside its own code, before it collects
// garbage more often than it would by itself.
const memoryGoal = 32 << 20

// fewCollections is GOGC where the goal is what bounds the memory.
const fewCollections = 400

// boundMemory keeps the program's memory near memoryGoal until ctx ends. What is
// really in use and does not fit raises the goal, so that no time is lost to
// collections that free nothing; and below the goal there are few of them. A limit
// that the user has set (GOMEMLIMIT) stays.
func boundMemory(ctx context.Context) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	debug.SetMemoryLimit(memoryGoal)
	defer debug.SetGCPercent(debug.SetGCPercent(fewCollections))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// Of many connections, stacks are a third, which the limit counts, too.
			used := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
			metrics.Read(used)
			debug.SetMemoryLimit(max(memoryGoal, int64(used[0].Value.Uint64()/4*5+used[1].Value.Uint64())))
		}
	}
}
