package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// logDelay is the maximum time that a line of the log waits in a buffer.
const logDelay = 100 * time.Millisecond

// maxLogBuffer is the number of buffered bytes at which Write flushes the buffer immediately.
const maxLogBuffer = 64 << 10

// logBuffer buffers lines of the log. Without it, a busy gateway would write to its output for each request.
type logBuffer struct {
	out io.Writer

	mu    sync.Mutex
	lines bytes.Buffer
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines.Len() == 0 {
		time.AfterFunc(logDelay, func() { _ = b.Flush() }) // if another flush comes first, this one writes only newer lines
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

// flushing is a [slog.Handler] that writes to a logBuffer. It flushes the buffer after each warning and each error.
type flushing struct {
	slog.Handler
	buffer *logBuffer
}

func (h flushing) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if err == nil && r.Level > slog.LevelInfo {
		err = h.buffer.Flush()
	}
	return err
}

func (h flushing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return flushing{h.Handler.WithAttrs(attrs), h.buffer}
}

func (h flushing) WithGroup(name string) slog.Handler {
	return flushing{h.Handler.WithGroup(name), h.buffer}
}

// openBuffered returns a buffered log whose lines contain the IDs of requests. The caller must call flush before the program
// exits.
func (f *logFlag) openBuffered(w io.Writer) (log *slog.Logger, flush func() error) {
	b := &logBuffer{out: w}
	return slog.New(telemetry.Handler(flushing{f.open(b).Handler(), b})), b.Flush
}

// maxHeldErrors is the maximum number of errors that heldErrors holds.
const maxHeldErrors = 20

// heldErrors holds the warnings and errors of a log, each once. Clients retry, so most errors occur several times.
type heldErrors struct {
	mu    sync.Mutex
	texts []string
	shown []string // texts that show has printed already
}

func (h *heldErrors) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.texts) < maxHeldErrors && !slices.Contains(h.texts, text) {
		h.texts = append(h.texts, text)
	}
}

// show writes a text to w at once, and makes print leave the text out.
func (h *heldErrors) show(w io.Writer, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown = append(h.shown, text)
	fmt.Fprint(w, linesText(terminalWidth(w), text))
}

// print writes the errors to w, each with its hint.
func (h *heldErrors) print(w io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range h.texts {
		if !slices.Contains(h.shown, text) {
			fmt.Fprint(w, linesText(terminalWidth(w), text))
		}
	}
}

// errorHandler is a [slog.Handler] that passes warnings and errors to a function, as texts.
type errorHandler struct {
	add   func(text string)
	attrs []slog.Attr
}

func (h errorHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (h errorHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
	kind := "error: "
	if r.Level < slog.LevelError {
		kind = "warning: "
	}
	h.add(kind + errorText(r.Message, attrs))
	return nil
}

func (h errorHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorHandler{h.add, slices.Concat(h.attrs, attrs)}
}

// WithGroup implements [slog.Handler]. Errors have no groups.
func (h errorHandler) WithGroup(string) slog.Handler { return h }

// errorText formats a record of the log like the program's own errors, without the word "error: ". It leaves out
// attributes such as the request's ID, which only operators need.
func errorText(message string, attrs []slog.Attr) string {
	var cause, help string
	var others []string
	for _, a := range attrs {
		value := hint.OneLine(a.Value.Resolve().String())
		switch a.Key {
		case "err":
			cause = ": " + value
		case "hint":
			help = value
		case "path", "status", "request_id", "refused_so_far":
		default:
			others = append(others, a.Key+" "+value)
		}
	}
	if len(others) > 0 {
		message += " (" + strings.Join(others, ", ") + ")"
	}
	if help != "" {
		help = "hint: " + help + "\n"
	}
	return message + cause + "\n" + help
}
