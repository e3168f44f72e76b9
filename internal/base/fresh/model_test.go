package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/fresh"
)

// world is a source whose answers change and vanish at random, and whose fetches fail at
// random.
type world struct {
	mu     sync.Mutex
	rand   *rand.Rand
	epoch  map[string]int // the current value of a key
	absent map[string]bool
	downAt map[string]time.Time // when a fetch of a key last failed
	flying map[string]int
	errs   []string
}

const (
	worldTTL        = time.Minute
	worldStale      = 10 * time.Minute
	worldTimeout    = 20 * time.Second
	worldFailureTTL = 3 * time.Second
)

func (w *world) complain(format string, args ...any) {
	w.errs = append(w.errs, fmt.Sprintf(format, args...))
}

// fetch waits for up to 30 s, and then returns the state that the key has after the
// wait.
func (w *world) fetch(ctx context.Context, key string, last *fresh.Answer[int]) (fresh.Answer[int], error) {
	w.mu.Lock()
	if w.flying[key]++; w.flying[key] > 1 {
		w.complain("%s: two fetches at the same time", key)
	}
	delay := time.Duration(w.rand.IntN(30)) * time.Second * time.Duration(w.rand.IntN(2))
	fails := w.rand.IntN(3) == 0
	w.mu.Unlock()
	var err error
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying[key]--
	if fails && err == nil {
		err = errDown
	}
	if err != nil {
		w.downAt[key] = time.Now()
		return fresh.Answer[int]{}, err
	}
	a := fresh.Answer[int]{Value: w.epoch[key], TTL: worldTTL, StaleFor: worldStale}
	if w.absent[key] {
		a.Err = errAbsent
	}
	return a, nil
}

// change gives a key a new value.
func (w *world) change(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch[key]++
	w.absent[key] = w.rand.IntN(3) == 0
}

// TestStateMachine drives a cache through random histories in virtual time, with
// concurrent callers, and checks each answer against the history of the source.
func TestStateMachine(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { history(t, seed) })
	}
}

func history(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 16))
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 17)), epoch: map[string]int{}, absent: map[string]bool{},
		downAt: map[string]time.Time{}, flying: map[string]int{},
	}
	early := seed%2 == 0
	c := fresh.New(options{Key: name, Fetch: w.fetch, Timeout: worldTimeout, FailureTTL: worldFailureTTL, Early: early, MaxEntries: 16})
	defer c.Close()
	keys := []string{"a", "b", "c"}
	dropped := map[string]int{} // the epoch at the last drop
	var callers sync.WaitGroup
	for range 150 {
		key := keys[r.IntN(len(keys))]
		switch r.IntN(8) {
		case 0:
			w.change(key)
		case 1:
			time.Sleep(time.Duration(r.IntN(240)) * time.Second)
		case 2:
			time.Sleep(time.Duration(r.IntN(8)) * time.Second)
		case 3:
			if r.IntN(10) == 0 {
				callers.Wait() // otherwise a caller could get an answer from before the drop
				time.Sleep(worldTimeout + 1)
				w.change(key)
				w.mu.Lock()
				dropped[key] = w.epoch[key]
				w.mu.Unlock()
				c.Drop(func(k string) bool { return k == key }, nil)
			}
		default:
			gives := time.Duration(1+r.IntN(40)) * time.Second
			callers.Go(func() { w.call(t, c, key, gives, dropped[key]) })
		}
	}
	callers.Wait()
	for _, e := range w.errs {
		t.Errorf("seed %d: %s", seed, e)
	}
}

// call gets a key and waits for at most patience. It checks the answer against the
// history of the source. Since is the epoch of the key's last drop, and the answer must
// not be older.
func (w *world) call(t *testing.T, c *fresh.Cache[string, int], key string, patience time.Duration, since int) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	start := time.Now()
	w.mu.Lock()
	before := c.Last(key)
	w.mu.Unlock()
	a, err := c.Get(ctx, key)
	now := time.Now()
	took := now.Sub(start)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		recently := now.Sub(w.downAt[key]) <= worldFailureTTL
		if gaveUp := errors.Is(err, context.DeadlineExceeded) && took == patience; !gaveUp && !recently {
			w.complain("%s: %v, and the source has not failed", key, err)
		}
		if before.Stale(now) != nil {
			w.complain("%s: %v, and a stale answer is left", key, err)
		}
	case now.Sub(a.At) < worldTTL: // the answer is current
	case a.Err != nil:
		w.complain("%s: %v is served stale", key, a.Err)
	case now.Sub(a.At) >= worldStale+2*time.Second:
		w.complain("%s: a stale answer that is %s old", key, now.Sub(a.At))
	case took > 2*time.Second:
		w.complain("%s: it takes %s to get a stale answer", key, took)
	case took < 2*time.Second && took < patience && now.Sub(w.downAt[key]) > 30*time.Second:
		w.complain("%s: a stale answer, and the source has not failed", key)
	}
	if err == nil && a.Value < since {
		w.complain("%s: the answer %d is from before it was dropped at %d", key, a.Value, since)
	}
	if err == nil && now.Sub(a.At) < took && a.Value > w.epoch[key] {
		w.complain("%s: an answer that the source never gave", key)
	}
}
