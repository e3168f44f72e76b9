package fresh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/panics"
)

var (
	errDown   = errors.New("the source is down")
	errAbsent = errors.New("not found")
)

// source answers each fetch with the number of fetches since count was last called. It can be made to fail.
type source struct {
	mu      sync.Mutex
	fetches int
	delay   time.Duration
	err     error // not nil: the source fails
	absent  bool
	answer  fresh.Answer[int]
}

func (s *source) set(f func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *source) fetch(ctx context.Context, _ string, _ *fresh.Answer[int]) (fresh.Answer[int], error) {
	s.mu.Lock()
	s.fetches++
	a, delay, err := s.answer, s.delay, s.err
	if a.Value = s.fetches; s.absent {
		a.Err = errAbsent
	}
	s.mu.Unlock()
	if delay == 0 {
		return a, err
	}
	select {
	case <-time.After(delay):
		return a, err
	case <-ctx.Done():
		return a, ctx.Err()
	}
}

// count returns the number of fetches since count was last called.
func (s *source) count() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.fetches
	s.fetches = 0
	return n
}

// scene is a cache with its source. An answer is current for a minute, and can be served stale for an hour.
type scene struct {
	*fresh.Cache[string, int]
	*source
	t *testing.T
}

type options = fresh.Options[string, int]

func name(key string) string { return key }

func inTime(t *testing.T, change func(*options), f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{source: &source{answer: fresh.Answer[int]{TTL: time.Minute, StaleFor: time.Hour}}, t: t}
		o := options{Key: name, Fetch: s.fetch}
		if change != nil {
			change(&o)
		}
		s.Cache = fresh.New(o)
		defer s.Close()
		f(s)
	})
}

// want gets a key. It checks the answer, the time that the call takes, and the number of fetches.
func (s *scene) want(key, want string, took time.Duration, fetches int) {
	s.t.Helper()
	start := time.Now()
	a, err := s.Get(s.t.Context(), key)
	waited := time.Since(start)
	got := fmt.Sprint(err)
	if err == nil {
		if got = fmt.Sprint(a.Value); a.Err != nil {
			got = a.Err.Error()
		}
	}
	if n := s.count(); got != want || waited != took || n != fetches {
		s.t.Errorf("%s after %s with %d fetches, want %s after %s with %d", got, waited, n, want, took, fetches)
	}
}

func TestExpires(t *testing.T) {
	inTime(t, nil, func(s *scene) {
		s.want("a", "1", 0, 1)
		time.Sleep(time.Minute - 1)
		s.want("a", "1", 0, 0)
		time.Sleep(time.Nanosecond)
		s.want("a", "1", 0, 1)
		s.want("b", "1", 0, 1)
		s.set(func(s *source) { s.answer.TTL = fresh.Forever })
		s.want("c", "1", 0, 1)
		time.Sleep(10_000 * time.Hour)
		s.want("c", "1", 0, 0)
		s.set(func(s *source) { s.answer.TTL = 0 })
		s.want("d", "1", 0, 1)
		s.want("d", "1", 0, 1)
	})
}

// TestClockThatWentBack shows that an answer from the future is not current.
func TestClockThatWentBack(t *testing.T) {
	inTime(t, nil, func(s *scene) {
		s.Put("a", fresh.Answer[int]{Value: 9, At: time.Now().Add(time.Hour), TTL: time.Minute})
		s.want("a", "1", 0, 1)
	})
}

// TestEarlyRefresh shows that no caller ever waits for an answer that is used regularly, because it is refreshed
// before it expires.
func TestEarlyRefresh(t *testing.T) {
	inTime(t, func(o *options) { o.Early = true }, func(s *scene) {
		s.want("a", "1", 0, 1)
		s.set(func(s *source) { s.delay, s.fetches = 10*time.Second, 1 })
		for range 30 {
			time.Sleep(5 * time.Second)
			start := time.Now()
			if _, err := s.Get(s.t.Context(), "a"); err != nil || time.Since(start) != 0 {
				s.t.Errorf("%v after %s", err, time.Since(start))
			}
		}
		if n := s.count(); n != 1+2 { // 45 s and 100 s after the first
			s.t.Errorf("%d fetches", n)
		}
	})
}

// TestSingleFlight shows that concurrent callers share a fetch, and that fetches beyond MaxFlights fail with
// ErrBusy.
func TestSingleFlight(t *testing.T) {
	inTime(t, func(o *options) { o.MaxFlights = 2 }, func(s *scene) {
		s.set(func(s *source) { s.delay = time.Second })
		var all sync.WaitGroup
		for range 100 {
			for _, key := range []string{"a", "b"} {
				all.Go(func() {
					if a, err := s.Get(s.t.Context(), key); err != nil || a.Err != nil {
						s.t.Error(a, err)
					}
				})
			}
		}
		synctest.Wait()
		if _, err := s.Get(s.t.Context(), "c"); !errors.Is(err, fresh.ErrBusy) {
			s.t.Errorf("a third flight: %v", err)
		}
		all.Wait()
		if n := s.count(); n != 2 {
			s.t.Errorf("%d fetches", n)
		}
		s.want("c", "1", time.Second, 1)
	})
}

// TestCallerThatLeaves shows that, if a caller gives up, its fetch continues for the next caller.
func TestCallerThatLeaves(t *testing.T) {
	inTime(t, nil, func(s *scene) {
		s.set(func(s *source) { s.delay = 10 * time.Second })
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if _, err := s.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			s.t.Error(err)
		}
		s.want("a", "1", 9*time.Second, 1)
		if _, err := s.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			s.t.Error(err)
		}
	})
}

// TestStale shows which callers wait for a source that fails, and for how long.
func TestStale(t *testing.T) {
	inTime(t, nil, func(s *scene) {
		s.want("a", "1", 0, 1)
		s.set(func(s *source) { s.err, s.delay = errDown, 10*time.Second })
		time.Sleep(time.Minute)
		s.want("a", "1", 2*time.Second, 1)
		s.want("a", "1", 2*time.Second, 0) // in flight
		time.Sleep(6 * time.Second)        // now it has failed
		s.want("a", "1", 0, 0)
		time.Sleep(5 * time.Second)
		s.want("a", "1", 0, 1) // fetched in the background
		time.Sleep(10*time.Second + 30*time.Second)
		s.want("a", "1", 2*time.Second, 1)
		time.Sleep(time.Hour)
		s.want("a", errDown.Error(), 10*time.Second, 1)
		s.want("a", errDown.Error(), 10*time.Second, 1)
		s.set(func(s *source) { s.err = nil })
		s.want("a", "1", 10*time.Second, 1)
	})
}

// TestStaleForACallerThatLeaves shows that a caller whose context ends gets the stale answer instead of an error.
func TestStaleForACallerThatLeaves(t *testing.T) {
	inTime(t, nil, func(s *scene) {
		s.want("a", "1", 0, 1)
		s.set(func(s *source) { s.delay = 10 * time.Second })
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if a, err := s.Get(ctx, "a"); err != nil || a.Value != 1 {
			s.t.Error(a, err)
		}
	})
}

// TestErrorsAreNeverStale shows that "not found" replaces the previous answer, and is never served after its TTL.
func TestErrorsAreNeverStale(t *testing.T) {
	inTime(t, nil, func(s *scene) {
		s.want("a", "1", 0, 1)
		time.Sleep(time.Minute)
		s.set(func(s *source) { s.absent = true })
		s.want("a", errAbsent.Error(), 0, 1)
		s.set(func(s *source) { s.err = errDown })
		s.want("a", errAbsent.Error(), 0, 0)
		time.Sleep(time.Minute)
		s.want("a", errDown.Error(), 0, 1)
	})
}

func TestFailureTTL(t *testing.T) {
	inTime(t, func(o *options) { o.FailureTTL = 5 * time.Second }, func(s *scene) {
		s.set(func(s *source) { s.err = errDown })
		s.want("a", errDown.Error(), 0, 1)
		s.set(func(s *source) { s.err = nil })
		time.Sleep(5*time.Second - 1)
		s.want("a", errDown.Error(), 0, 0)
		if _, err := s.Ask(s.t.Context(), "a"); !errors.Is(err, errDown) {
			s.t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		s.want("a", "1", 0, 1)
	})
}

// TestSharedFailure shows that, after the source has failed for one key, callers of a related key get its stale
// answer, and the source is not asked.
func TestSharedFailure(t *testing.T) {
	var last time.Time
	var log []string
	inTime(t, func(o *options) {
		o.LastFailure = func(string) time.Time { return last }
		o.Failed = func(_ context.Context, key string, stale *fresh.Answer[int], again bool, err error) {
			last = time.Now()
			log = append(log, fmt.Sprintf("%s %t %t %v", key, stale != nil, again, err))
		}
	}, func(s *scene) {
		s.want("a", "1", 0, 1)
		s.want("b", "1", 0, 1)
		s.set(func(s *source) { s.err = errDown })
		time.Sleep(time.Minute)
		s.want("a", "1", 0, 1)
		s.want("b", "1", 0, 0)
		s.want("c", errDown.Error(), 0, 1)
		want := []string{"a true false the source is down", "c false true the source is down"}
		if !slices.Equal(log, want) {
			s.t.Errorf("%q", log)
		}
	})
}

func TestAsk(t *testing.T) {
	inTime(t, nil, func(s *scene) {
		s.want("a", "1", 0, 1)
		if a, err := s.Ask(s.t.Context(), "a"); err != nil || a.Value != 1 || s.count() != 1 {
			s.t.Error(a, err)
		}
		s.set(func(s *source) { s.err = errDown })
		if a, err := s.Ask(s.t.Context(), "a"); !errors.Is(err, errDown) {
			s.t.Error(a, err)
		}
	})
}

// TestSuperseded shows that an answer is no longer current once Superseded reports that another answer
// contradicts it.
func TestSuperseded(t *testing.T) {
	contradicted := false
	inTime(t, func(o *options) { o.Superseded = func(string, *fresh.Answer[int]) bool { return contradicted } }, func(s *scene) {
		s.want("a", "1", 0, 1)
		contradicted = true
		if s.Current("a", time.Now()) != nil || s.Last("a") == nil {
			s.t.Error("the superseded answer is current, or was dropped")
		}
		s.want("a", "1", 0, 1)
	})
}

// TestAnsweredMeanwhile shows that a caller does not ask the source again if a fetch ends after the caller has judged the
// last answer.
func TestAnsweredMeanwhile(t *testing.T) {
	var meanwhile func()
	inTime(t, func(o *options) {
		o.Superseded = func(_ string, a *fresh.Answer[int]) bool {
			if meanwhile != nil && a.Value == 1 {
				meanwhile()
				return true
			}
			return false
		}
	}, func(s *scene) {
		s.want("a", "1", 0, 1)
		meanwhile = func() {
			if _, err := s.Ask(s.t.Context(), "a"); err != nil {
				s.t.Error(err)
			}
		}
		s.set(func(s *source) { s.fetches = 1 })
		a, err := s.Get(s.t.Context(), "a")
		if err != nil || a.Value != 2 || s.count() != 2 {
			s.t.Errorf("%+v, %v", a, err)
		}
	})
}

// sized limits the cache to a number of bytes and of entries, and gives each answer a size of 1000 bytes.
func sized(bytes int64, entries int) func(*options) {
	return func(o *options) {
		o.MaxBytes, o.MaxEntries = bytes, entries
		o.Size = func(_ string, value int, err error) int64 {
			if value == 0 && err == nil {
				return 0
			}
			return 1000
		}
	}
}

// TestEviction shows that the cache keeps the most recently used answers, within its limits.
func TestEviction(t *testing.T) {
	for name, change := range map[string]func(*options){"by bytes": sized(20*1514, 0), "by number": sized(0, 20)} {
		t.Run(name, func(t *testing.T) {
			inTime(t, change, func(s *scene) {
				for i := range 100 {
					s.want(fmt.Sprint(i), "1", 0, 1)
					if i >= 19 {
						s.want(fmt.Sprint(i-5), "1", 0, 0) // this answer was first used 5 keys ago
					}
				}
				s.want("99", "1", 0, 0)
				s.want("50", "1", 0, 1)
				if n, bytes := s.Size(); n > 20 || n < 18 || bytes != int64(n)*1514 {
					s.t.Errorf("%d entries with %d bytes", n, bytes)
				}
				if n := len(s.Good()); n < 18 {
					s.t.Errorf("%d good answers", n)
				}
			})
		})
	}
}

// TestFloodOfErrors shows that requests for absent or failing keys evict no good answer.
func TestFloodOfErrors(t *testing.T) {
	inTime(t, sized(200*1519, 0), func(s *scene) {
		for i := range 100 {
			s.want(fmt.Sprint("good", i), "1", 0, 1)
		}
		s.set(func(s *source) { s.absent = true })
		for i := range 1000 {
			s.want(fmt.Sprint("absent", i), errAbsent.Error(), 0, 1)
		}
		s.set(func(s *source) { s.err = errDown })
		for i := range 1000 {
			s.want(fmt.Sprint("down", i), errDown.Error(), 0, 1)
		}
		if n, bytes := s.Size(); n < 100 || bytes > 200*1519 {
			s.t.Errorf("%d entries with %d bytes", n, bytes)
		}
		for i := range 100 {
			s.want(fmt.Sprint("good", i), "1", 0, 0)
		}
	})
}

// TestExpiredErrorsAreForgotten shows that the next request after errors have expired removes them from memory.
func TestExpiredErrorsAreForgotten(t *testing.T) {
	inTime(t, func(o *options) { o.FailureTTL = time.Minute }, func(s *scene) {
		s.set(func(s *source) { s.absent = true })
		for i := range 50 {
			s.want(fmt.Sprint("absent", i), errAbsent.Error(), 0, 1)
		}
		s.set(func(s *source) { s.err = errDown })
		for i := range 50 {
			s.want(fmt.Sprint("down", i), errDown.Error(), 0, 1)
		}
		if n, _ := s.Size(); n != 100 {
			s.t.Errorf("%d entries", n)
		}
		time.Sleep(time.Minute)
		s.want("another", errDown.Error(), 0, 1)
		if n, _ := s.Size(); n != 1 {
			s.t.Errorf("%d entries", n)
		}
	})
}

// TestFlightsAreNotEvicted shows that, while a fetch is in flight, its key is not evicted, however many other
// keys are used.
func TestFlightsAreNotEvicted(t *testing.T) {
	inTime(t, sized(0, 8), func(s *scene) {
		s.set(func(s *source) { s.delay = 10 * time.Second })
		go s.Get(s.t.Context(), "slow")
		synctest.Wait()
		s.set(func(s *source) { s.delay = 0 })
		for i := range 100 {
			s.Get(s.t.Context(), fmt.Sprint(i))
		}
		s.want("slow", "1", 10*time.Second, 101)
	})
}

// TestAnswerLargerThanTheCache shows that, if an answer is larger than the cache's limit, the cache keeps it
// until the next answer arrives.
func TestAnswerLargerThanTheCache(t *testing.T) {
	inTime(t, sized(100, 0), func(s *scene) {
		s.want("a", "1", 0, 1)
		s.want("a", "1", 0, 0)
		s.want("b", "1", 0, 1)
		s.want("a", "1", 0, 1)
	})
}

func TestResize(t *testing.T) {
	size := int64(100)
	inTime(t, func(o *options) { o.Size = func(string, int, error) int64 { return size } }, func(s *scene) {
		s.want("a", "1", 0, 1)
		size = 300
		s.Resize("a")
		s.Resize("b")
		if n, bytes := s.Size(); n != 1 || bytes != 513+300 {
			s.t.Errorf("%d entries with %d bytes", n, bytes)
		}
	})
}

// TestDrop shows that a dropped answer comes back neither from a fetch in flight nor from disk.
func TestDrop(t *testing.T) {
	saved := map[string]int{}
	var saves sync.Mutex
	inTime(t, func(o *options) {
		next := o.Fetch
		o.Fetch = func(ctx context.Context, key string, last *fresh.Answer[int]) (fresh.Answer[int], error) {
			a, err := next(ctx, key, last)
			a.Save = func(latest *fresh.Answer[int]) {
				saves.Lock()
				defer saves.Unlock()
				saved[key] = latest.Value
			}
			return a, err
		}
		o.Load = func(key string) (fresh.Answer[int], bool) {
			saves.Lock()
			defer saves.Unlock()
			v, ok := saved[key]
			return fresh.Answer[int]{Value: v, At: time.Now(), TTL: time.Minute}, ok
		}
	}, func(s *scene) {
		saved["old"] = 7
		s.want("old", "7", 0, 0)
		s.want("a", "1", 0, 1)
		s.want("b", "1", 0, 1)
		if saved["a"] != 1 || saved["b"] != 1 {
			s.t.Errorf("saved: %v", saved)
		}
		s.set(func(s *source) { s.delay = time.Second })
		time.Sleep(time.Minute)
		caller := make(chan int)
		go func() {
			a, err := s.Get(s.t.Context(), "a")
			if err != nil {
				s.t.Error(err)
			}
			caller <- a.Value
		}()
		synctest.Wait()
		if n := s.Drop(func(key string) bool { return key == "a" }, func() { delete(saved, "a") }); n != 1 {
			s.t.Errorf("%d keys are dropped", n)
		}
		if got := <-caller; got != 1 {
			s.t.Errorf("the caller that waited got %d", got)
		}
		synctest.Wait()
		if _, ok := saved["a"]; ok || saved["b"] != 1 || s.Last("a") != nil || s.Last("b") == nil {
			s.t.Errorf("afterwards: %v", saved)
		}
		s.count()
		s.want("a", "1", time.Second, 1)
		if saved["a"] != 1 {
			s.t.Errorf("saved anew: %v", saved)
		}
	})
}

// TestSaveSeesTheLatestAnswer shows that each save writes the latest answer. A slow save therefore never
// overwrites a newer answer with an older answer.
func TestSaveSeesTheLatestAnswer(t *testing.T) {
	var saved []int
	release := make(chan struct{})
	inTime(t, func(o *options) {
		next := o.Fetch
		o.Fetch = func(ctx context.Context, key string, last *fresh.Answer[int]) (fresh.Answer[int], error) {
			a, err := next(ctx, key, last)
			a.Save = func(latest *fresh.Answer[int]) {
				saved = append(saved, latest.Value)
				<-release
			}
			return a, err
		}
	}, func(s *scene) {
		for range 3 {
			if _, err := s.Ask(s.t.Context(), "a"); err != nil {
				s.t.Fatal(err)
			}
		}
		close(release)
		s.Close()
		if len(saved) != 3 || saved[1] != 3 || saved[2] != 3 {
			s.t.Errorf("saved: %v", saved)
		}
	})
}

func TestClose(t *testing.T) {
	inTime(t, func(o *options) { o.Early = true }, func(s *scene) {
		s.want("a", "1", 0, 1)
		s.set(func(s *source) { s.delay = time.Hour })
		time.Sleep(50 * time.Second)
		s.want("a", "1", 0, 1) // refreshed in the background
		start := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := s.Get(s.t.Context(), "b"); !errors.Is(err, context.Canceled) {
				s.t.Errorf("in flight: %v", err)
			}
		})
		synctest.Wait()
		s.Close()
		all.Wait()
		if _, err := s.Get(s.t.Context(), "c"); !errors.Is(err, fresh.ErrClosed) || time.Since(start) != 0 {
			s.t.Errorf("%v after %s", err, time.Since(start))
		}
		s.want("a", "1", 0, 1)
	})
}

func TestCounters(t *testing.T) {
	n := &fresh.Counters{}
	inTime(t, func(o *options) { o.Counters, o.Early = n, true }, func(s *scene) {
		expect := func(want ...uint64) {
			s.t.Helper()
			got := []uint64{n.Hits.Load(), n.Misses.Load(), n.Stale.Load(), n.Failures.Load(), n.Refreshes.Load()}
			if !slices.Equal(got, want) {
				s.t.Errorf("hits, misses, stale, failures, refreshes: %d, want %d", got, want)
			}
		}
		s.want("a", "1", 0, 1)
		expect(0, 1, 0, 0, 0)
		time.Sleep(50 * time.Second)
		s.want("a", "1", 0, 1)
		expect(1, 1, 0, 0, 1)
		s.set(func(s *source) { s.err = errDown })
		time.Sleep(time.Minute)
		s.want("a", "1", 0, 1)
		s.want("b", errDown.Error(), 0, 1)
		expect(1, 1, 1, 1, 1)
	})
}

// TestFetchPanics shows that a fetch that panics is a failed fetch: callers that wait for it get an error, a later fetch can
// succeed, a stale answer is served, and the log has the panic once.
func TestFetchPanics(t *testing.T) {
	var log bytes.Buffer
	bug := true
	panicking := func(o *options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		fetch := o.Fetch
		o.Fetch = func(ctx context.Context, key string, last *fresh.Answer[int]) (fresh.Answer[int], error) {
			if bug {
				time.Sleep(time.Second)
				panic("a bug")
			}
			return fetch(ctx, key, last)
		}
	}
	inTime(t, panicking, func(s *scene) {
		var waiting sync.WaitGroup
		for range 4 {
			waiting.Go(func() {
				if _, err := s.Get(s.t.Context(), "a"); !errors.As(err, new(*panics.Error)) {
					t.Errorf("a caller got %v", err)
				}
			})
		}
		waiting.Wait()
		if n := strings.Count(log.String(), "msg=panic"); n != 1 || !strings.Contains(log.String(), "TestFetchPanics") {
			t.Errorf("the log has %d panics: %s", n, &log)
		}
		bug = false
		s.want("a", "1", 0, 1)
		bug = true
		time.Sleep(2 * time.Minute)
		s.want("a", "1", time.Second, 0)
	})
}
