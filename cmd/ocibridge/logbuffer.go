package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// logBuffer gathers lines of the log, of which a busy gateway writes one a request:
// to format and write each by itself, on the small stack of a request, would cost
// more than the answer. A line waits for a tenth of a second at most, and none does
// behind a warning.
type logBuffer struct {
	out io.Writer

	mu      sync.Mutex
	waiting []waitingLine
	timer   *time.Timer // nil: nothing waits

	writing sync.Mutex // guards the following, and keeps lines in order
	spare   []waitingLine
	attrs   []slog.Attr  // of the line that is being formatted
	lines   bytes.Buffer // formatted
}

// waitingLine is a line and what formats it into the buffer's lines.
type waitingLine struct {
	handler slog.Handler
	record  *slog.Record // nil: it is made of the rest
	time    time.Time
	level   slog.Level
	msg     string
	attrs   gateway.LateAttrs
}

// write formats a line. A buffer takes everything.
func (b *logBuffer) write(l *waitingLine) {
	if l.record != nil {
		_ = l.handler.Handle(context.Background(), *l.record)
		return
	}
	b.attrs = l.attrs.AppendAttrs(b.attrs[:0])
	r := slog.NewRecord(l.time, l.level, l.msg, 0)
	// One without a name: a record has room for few by itself.
	r.AddAttrs(slog.Attr{Value: slog.GroupValue(b.attrs...)})
	_ = l.handler.Handle(context.Background(), r)
	clear(b.attrs)
}

const (
	logBufferLines = 256
	logDelay       = 100 * time.Millisecond
	// maxLogBuffer bounds what is kept for the next lines: they are seldom as long.
	maxLogBuffer = 1 << 20
)

// add has a line wait.
func (b *logBuffer) add(l waitingLine) error {
	b.mu.Lock()
	b.waiting = append(b.waiting, l)
	full := len(b.waiting) >= logBufferLines
	if b.timer == nil {
		b.timer = time.AfterFunc(logDelay, func() { b.Flush() })
	}
	b.mu.Unlock()
	if full {
		return b.Flush()
	}
	return nil
}

// Flush writes what waits.
func (b *logBuffer) Flush() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	lines := b.waiting
	b.waiting = b.spare[:0]
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.mu.Unlock()
	for i := range lines {
		b.write(&lines[i])
	}
	clear(lines)
	b.spare = lines
	if b.lines.Len() == 0 {
		return nil
	}
	_, err := b.out.Write(b.lines.Bytes())
	b.lines.Reset()
	if b.lines.Cap() > maxLogBuffer {
		b.lines = bytes.Buffer{}
	}
	return err
}

// buffered is a handler whose lines wait in a logBuffer.
type buffered struct {
	slog.Handler
	buffer *logBuffer
}

// Handle implements [slog.Handler].
func (h buffered) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	telemetry.Tag(ctx, &r)
	err := h.buffer.add(waitingLine{handler: h.Handler, record: &r})
	if r.Level > slog.LevelInfo {
		err = errors.Join(err, h.buffer.Flush())
	}
	return err
}

// HandleLate implements [gateway.LateHandler].
func (h buffered) HandleLate(t time.Time, level slog.Level, msg string, attrs gateway.LateAttrs) {
	_ = h.buffer.add(waitingLine{handler: h.Handler, time: t, level: level, msg: msg, attrs: attrs}) // as a Logger does
}

var _ gateway.LateHandler = buffered{}

// WithAttrs implements [slog.Handler].
func (h buffered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return buffered{h.Handler.WithAttrs(attrs), h.buffer}
}

// WithGroup implements [slog.Handler].
func (h buffered) WithGroup(name string) slog.Handler {
	return buffered{h.Handler.WithGroup(name), h.buffer}
}

// openBuffered returns the log of a program that writes much to it, and what
// writes the rest of it at the end. What is logged must not change afterwards.
func (f *logFlag) openBuffered(w io.Writer) (log *slog.Logger, flush func() error) {
	b := &logBuffer{out: w}
	return slog.New(buffered{f.open(&b.lines).Handler(), b}), b.Flush
}
