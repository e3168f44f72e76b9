package fill

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	abandon = 5 * time.Minute
	linger  = 10 * time.Second
)

// model is a simple implementation of the rules of a [File]. It predicts the state of a
// file.
type model struct {
	begun, verified, failed bool
	written, size           int64
	writer                  bool // the writer has not left
	readers                 int
	keep                    bool
	retired                 bool
	cancelled, closed       bool
	alone, idle             time.Time // when the last reader left, or the writer if it left later; alone is zero while there is a reader
}

// pass applies the timeouts that have expired.
func (m *model) pass(now time.Time) {
	if !m.alone.IsZero() && !m.keep && !m.verified && !m.failed && now.Sub(m.alone) >= abandon {
		m.cancelled, m.retired = true, true
	}
	if m.writer || m.readers > 0 {
		return
	}
	if m.retired || now.Sub(m.idle) >= linger {
		m.closed, m.retired = true, true
	}
}

// left updates the model after the writer or a reader has left.
func (m *model) left(now time.Time) {
	if m.readers == 0 {
		m.alone, m.idle = now, now
	}
}

// TestModel applies many random steps to a file and to the model, in virtual time. After
// each step, it compares whether they can be opened, which bytes are readable, and
// whether they are cancelled and closed.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { testModel(t, rand.New(rand.NewPCG(seed, 0))) })
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func testModel(t *testing.T, random *rand.Rand) {
	storage := &memory{}
	var cancelled, closed atomic.Int32
	f := New(Options{Abandon: abandon, Linger: linger, Limit: 1000, Cancel: func() { cancelled.Add(1) }, Closed: func() { closed.Add(1) }})
	m := model{writer: true, size: -1}
	var readers []*Reader
	var trace []string
	for range 40 {
		now := time.Now()
		step := random.IntN(12)
		finished := m.verified || m.failed
		switch {
		case step <= 2:
			r, ok := f.Open(t.Context())
			if trace = append(trace, fmt.Sprint("open ", ok)); ok == m.retired {
				t.Fatalf("%v: opened is %v", trace, ok)
			}
			if ok {
				readers = append(readers, r)
				m.readers++
				m.alone = time.Time{}
			}
		case step <= 4 && len(readers) > 0:
			i := random.IntN(len(readers))
			readers[i].Close()
			readers = slices.Delete(readers, i, i+1)
			m.readers--
			m.left(now)
			trace = append(trace, "leave")
		case step == 5:
			wait := time.Duration(1 + random.Int64N(int64([]time.Duration{2 * linger, 2 * abandon}[random.IntN(2)])))
			time.Sleep(wait)
			trace = append(trace, wait.String())
		case step == 6 && m.writer && !m.begun && !finished:
			m.begun, m.size = true, []int64{-1, 300}[random.IntN(2)]
			f.Begin(storage, m.size)
			trace = append(trace, fmt.Sprint("begin ", m.size))
		case step <= 8 && m.begun && !finished:
			p := make([]byte, random.IntN(200))
			limit := map[bool]int64{true: 300, false: 1000}[m.size >= 0]
			_, err := f.Write(p)
			trace = append(trace, fmt.Sprint("write ", len(p)))
			if fits := m.written+int64(len(p)) <= limit; fits != (err == nil) {
				t.Fatalf("%v: %v", trace, err)
			} else if fits {
				m.written += int64(len(p))
			}
		case step == 9 && m.writer && !finished:
			var err error
			if random.IntN(2) == 0 {
				err = errors.New("broken")
			}
			f.Finish(err)
			m.verified = err == nil && m.begun && m.written >= m.size
			m.failed = !m.verified
			m.retired = m.retired || m.failed
			trace = append(trace, fmt.Sprint("finish ", err))
		case step == 10 && m.writer && random.IntN(3) == 0:
			f.Close()
			if !finished {
				m.failed, m.retired = true, true
			}
			m.writer = false
			m.left(now)
			trace = append(trace, "close")
		case step == 11 && random.IntN(4) == 0:
			f.Keep()
			m.keep = true
			trace = append(trace, "keep")
		case step == 11 && random.IntN(4) == 0:
			f.Retire()
			m.retired = true
			trace = append(trace, "retire")
		}
		m.pass(time.Now())
		synctest.Wait()
		compare(t, trace, m, f, storage.closings(), int(cancelled.Load()), int(closed.Load()))
	}
	for _, r := range readers {
		r.Close()
	}
	if m.writer {
		f.Close()
	}
	time.Sleep(linger)
	synctest.Wait()
	if closed.Load() != 1 || m.begun && storage.closings() != 1 {
		t.Fatalf("%v: in the end it was closed %d times, its storage %d times", trace, closed.Load(), storage.closings())
	}
}

// compare compares a file with its model.
func compare(t *testing.T, trace []string, m model, f *File, closings, cancelled, closed int) {
	t.Helper()
	s := f.State()
	if s.Begun != m.begun || s.Verified != m.verified || (s.Err != nil) != m.failed || s.Written != m.written {
		t.Fatalf("%v: %+v, want %+v", trace, s, m)
	}
	users := m.readers
	if m.writer {
		users++
	}
	if s.Users != users {
		t.Fatalf("%v: %d users, want %d", trace, s.Users, users)
	}
	readable := m.written
	if !m.verified {
		readable = max(0, m.written-1)
	}
	if s.readable() != readable {
		t.Fatalf("%v: %d bytes are readable, want %d", trace, s.readable(), readable)
	}
	if (cancelled > 0) != m.cancelled || cancelled > 1 {
		t.Fatalf("%v: cancelled %d times, want %v", trace, cancelled, m.cancelled)
	}
	if (closed > 0) != m.closed || closed > 1 || m.begun && closings != closed {
		t.Fatalf("%v: closed %d times, its storage %d times, want %v", trace, closed, closings, m.closed)
	}
}
