package main

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedBuffer may be read while it is written to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestLogBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		f := logFlag{level: slog.LevelInfo}
		log, flush := f.openBuffered(&out)
		lines := func() int { return strings.Count(out.String(), "\n") }
		want := func(n int, when string) {
			t.Helper()
			synctest.Wait()
			if lines() != n {
				t.Errorf("%s: %d lines, want %d", when, lines(), n)
			}
		}
		log.Info("one")
		log.With("a", 1).WithGroup("g").Info("two", "b", 2)
		want(0, "at once")
		time.Sleep(99 * time.Millisecond)
		want(0, "before a tenth of a second")
		time.Sleep(time.Millisecond)
		want(2, "after it")
		log.Info("three")
		log.With("a", 1).Warn("four")
		want(4, "after a warning")
		log.Debug("none")
		time.Sleep(time.Second)
		want(4, "after what is not logged")
		for range 300 {
			log.Info(strings.Repeat("x", 100))
		}
		if lines() < 100 {
			t.Errorf("%d lines of many", lines())
		}
		if err := flush(); err != nil {
			t.Error(err)
		}
		want(304, "at the end")
	})
}
