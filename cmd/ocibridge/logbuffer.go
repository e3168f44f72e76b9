package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
)

// logBuffer gathers lines of the log, of which a busy gateway writes one a request:
// to write each by itself would cost more than the answer. A line waits for a tenth
// of a second at most, and none does behind a warning.
type logBuffer struct {
	out io.Writer

	mu    sync.Mutex
	lines []byte
	timer *time.Timer // nil: nothing waits
}

const (
	logBufferSize = 32 << 10
	logDelay      = 100 * time.Millisecond
)

// Write implements [io.Writer].
func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line...)
	switch {
	case len(b.lines) >= logBufferSize:
		return len(line), b.flush()
	case b.timer == nil:
		b.timer = time.AfterFunc(logDelay, func() { b.Flush() })
	}
	return len(line), nil
}

// Flush writes what waits.
func (b *logBuffer) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

func (b *logBuffer) flush() error {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if len(b.lines) == 0 {
		return nil
	}
	_, err := b.out.Write(b.lines)
	b.lines = b.lines[:0]
	return err
}

// flushing is a handler that writes to a logBuffer.
type flushing struct {
	slog.Handler
	buffer *logBuffer
}

// Handle implements [slog.Handler].
func (h flushing) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level > slog.LevelInfo {
		err = errors.Join(err, h.buffer.Flush())
	}
	return err
}

// WithAttrs implements [slog.Handler].
func (h flushing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return flushing{h.Handler.WithAttrs(attrs), h.buffer}
}

// WithGroup implements [slog.Handler].
func (h flushing) WithGroup(name string) slog.Handler {
	return flushing{h.Handler.WithGroup(name), h.buffer}
}

// openBuffered returns the log of a program that writes much to it, and what
// writes the rest of it at the end.
func (f *logFlag) openBuffered(w io.Writer) (log *slog.Logger, flush func() error) {
	b := &logBuffer{out: w}
	return slog.New(flushing{f.open(b).Handler(), b}), b.Flush
}
