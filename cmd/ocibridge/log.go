package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// logDelay is the maximum time that a line of the log waits in a buffer.
const logDelay = 100 * time.Millisecond

// maxLogBuffer is the number of buffered bytes at which Write flushes the buffer immediately.
const maxLogBuffer = 64 << 10

// logBuffer buffers lines of the log. Without the buffer, a busy gateway would write to its
// output for each request.
type logBuffer struct {
	out io.Writer

	mu    sync.Mutex
	lines bytes.Buffer
}

// Write implements [io.Writer].
func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines.Len() == 0 {
		time.AfterFunc(logDelay, func() { _ = b.Flush() }) // if the buffer has been flushed in the meantime, this writes only newer lines
	}
	b.lines.Write(line)
	if b.lines.Len() >= maxLogBuffer {
		return len(line), b.flush()
	}
	return len(line), nil
}

// Flush writes the buffered lines.
func (b *logBuffer) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

func (b *logBuffer) flush() error {
	if b.lines.Len() == 0 {
		return nil
	}
	_, err := b.out.Write(b.lines.Bytes())
	b.lines.Reset()
	return err
}

// flushing is a [slog.Handler] that writes to a logBuffer. It flushes the buffer after each
// warning and each error.
type flushing struct {
	slog.Handler
	buffer *logBuffer
}

// Handle implements [slog.Handler].
func (h flushing) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if err == nil && r.Level > slog.LevelInfo {
		err = h.buffer.Flush()
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

// openBuffered returns a buffered log whose lines contain the IDs of requests. The caller must
// call flush before the program exits.
func (f *logFlag) openBuffered(w io.Writer) (log *slog.Logger, flush func() error) {
	b := &logBuffer{out: w}
	return slog.New(telemetry.Handler(flushing{f.open(b).Handler(), b})), b.Flush
}
