package pull

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
)

// reserved makes a reservation. It fails the test unless the reservation succeeds immediately.
func reserved(t *testing.T, l *Budget, size int64, background bool) *reservation {
	t.Helper()
	before := time.Now()
	r, err := l.reserve(t.Context(), size, demand{background: background})
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(before); waited != 0 {
		t.Fatalf("the reservation waited for %s", waited)
	}
	return r
}

func wantBusy(t *testing.T, err error, limit string, after time.Duration) {
	t.Helper()
	var busy *catalog.BusyError
	if !errors.As(err, &busy) || busy.Limit != limit || busy.RetryAfter != after {
		t.Errorf("error %v (%+v), want %s and a retry after %s", err, busy, limit, after)
	}
}

func TestSlotsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 2})
		first, second := reserved(t, l, 1, false), reserved(t, l, 1, false)
		_, err := l.reserve(t.Context(), 1, demand{})
		wantBusy(t, err, "max_concurrent", retrySlot)
		start := time.Now()
		time.AfterFunc(slotPatience-time.Second, first.done)
		third, err := l.reserve(t.Context(), 1, demand{})
		if err != nil || time.Since(start) != slotPatience-time.Second {
			t.Fatalf("after %s: %v", time.Since(start), err)
		}
		if got := l.Usage().Fetching; got != 2 {
			t.Errorf("%d downloads are under way", got)
		}
		for _, r := range []*reservation{first, second, third, third} {
			r.done()
			r.drop()
			r.drop()
		}
		if got := l.Usage(); got.Fetching != 0 || got.Spool != 0 {
			t.Errorf("in use at the end: %+v", got)
		}
	})
}

func TestBackgroundLeavesSlotsToClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 4})
		first := reserved(t, l, 1, true)
		reserved(t, l, 1, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := l.reserve(ctx, 1, demand{background: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third download in the background: %v", err)
		}
		reserved(t, l, 1, false)
		client := reserved(t, l, 1, false)
		// A download that gives up waiting for a slot holds neither a slot nor room.
		first.done()
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		reserved(t, l, 1, false)
		if _, err := l.reserve(ctx, 1, demand{background: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a free slot: %v", err)
		}
		client.done()
		reserved(t, l, 1, true)
	})
}

// TestLimitsChange shows that, if the limits change while packages are in flight, these packages keep
// their reservations.
func TestLimitsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 2, MaxPerDay: 100})
		first := reserved(t, l, 40, false)
		reserved(t, l, 20, false)
		next := make(chan *reservation, 2)
		for range 2 {
			go func() {
				r, err := l.reserve(t.Context(), 5, demand{})
				if err != nil {
					t.Error(err)
				}
				next <- r
			}()
			synctest.Wait()
		}
		l.Set(Limits{MaxConcurrent: 3, MaxPerDay: 70})
		synctest.Wait()
		if u := l.Usage(); len(next) != 1 || u.Fetching != 3 || u.Today != 65 || u.Limits.MaxConcurrent != 3 {
			t.Errorf("with one more slot: %+v", u)
		}
		(<-next).done()
		synctest.Wait()
		last := <-next
		l.Set(Limits{MaxConcurrent: 1, MaxPerDay: 50})
		_, err := l.reserve(t.Context(), 1, demand{})
		wantBusy(t, err, "max_concurrent", retrySlot)
		first.done()
		last.done()
		if u := l.Usage(); u.Fetching != 1 || u.Today != 20 || u.Spool != 20 {
			t.Errorf("in use: %+v", u)
		}
		l.Set(Limits{MaxPerDay: 50})
		_, err = l.reserve(t.Context(), 31, demand{})
		wantBusy(t, err, "max_per_day", 24*time.Hour-time.Since(l.day).Truncate(time.Second))
		reserved(t, l, 30, false)
	})
}

func TestBytesPerDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // virtual time begins at midnight UTC
		l := NewBudget(Limits{MaxPerDay: 100})
		time.Sleep(18 * time.Hour)
		r := reserved(t, l, 60, false)
		_, err := l.reserve(t.Context(), 41, demand{})
		wantBusy(t, err, "max_per_day", 6*time.Hour)
		// Reserved bytes that were not sent do not count.
		if err := r.write(50); err != nil {
			t.Fatal(err)
		}
		r.done()
		if got := l.Usage(); got.Today != 50 || got.Spool != 50 || got.Fetching != 0 {
			t.Errorf("used is %+v", got)
		}
		unknown := reserved(t, l, -1, false)
		if err := unknown.write(50); err != nil {
			t.Errorf("the rest of the day's bytes: %v", err)
		}
		wantBusy(t, unknown.write(1), "max_per_day", 6*time.Hour)

		time.Sleep(6 * time.Hour)
		if got := l.Usage().Today; got != 0 {
			t.Errorf("the new day begins with %d", got)
		}
		next := reserved(t, l, 100, false)
		unknown.done() // bytes that were reserved yesterday are not subtracted from today's
		r.done()
		if got := l.Usage().Today; got != 100 {
			t.Errorf("today is %d", got)
		}
		next.done()
		if got := l.Usage().Today; got != 0 {
			t.Errorf("nothing was sent, and today is %d", got)
		}
	})
}

func TestMaxSize(t *testing.T) {
	l := NewBudget(Limits{MaxSize: 10})
	var large *SizeError
	if _, err := l.reserve(t.Context(), 11, demand{}); !errors.As(err, &large) || large.Size != 11 || large.Max != 10 {
		t.Errorf("announced: %v", err)
	}
	for _, size := range []int64{-1, 3} {
		r, err := l.reserve(t.Context(), size, demand{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.write(10); err != nil {
			t.Errorf("announced as %d: %v", size, err)
		}
		if err := r.write(1); !errors.As(err, &large) {
			t.Errorf("announced as %d, one more: %v", size, err)
		}
	}
}

func TestDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := int64(keepFree + 100)
		l := NewBudget(Limits{MaxSpool: 80, Free: func() (int64, error) { return free, nil }})
		r := reserved(t, l, 60, false)
		_, err := l.reserve(t.Context(), 21, demand{})
		wantBusy(t, err, "max_spool", retryRoom)
		if err := r.write(60); err != nil {
			t.Fatal(err)
		}
		free = keepFree + 19 // other programs use the disk, too
		_, err = l.reserve(t.Context(), 20, demand{})
		wantBusy(t, err, "disk", retryRoom)
		other := reserved(t, l, 19, false)
		wantBusy(t, other.write(20), "disk", retryRoom)
		// The reserved bytes of other downloads count until they are written.
		_, err = l.reserve(t.Context(), 1, demand{})
		wantBusy(t, err, "disk", retryRoom)
		other.drop()
		other.done()
		r.drop()
		r.done()
		if got := l.Usage(); got.Spool != 0 || l.ahead != 0 {
			t.Errorf("left is %+v, %d ahead", got, l.ahead)
		}
		l.limits.Free = func() (int64, error) { return 0, errors.ErrUnsupported }
		reserved(t, l, 80, false)
	})
}
