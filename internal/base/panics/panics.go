// Package panics keeps a bug that the bytes of another party reach from ending the process. net/http recovers a panic only in
// the goroutine of a request. Every other goroutine that works for requests needs [Catch] or a [Group].
//
// Invariants:
//
//   - A panic becomes an error only where [Catch] is called: the whole operation below it has failed, and its deferred functions
//     have run. A [Group] recovers nothing: it moves the panic of a goroutine to the goroutine that waits for the group.
//   - A panic is logged once, with the stack of the goroutine that panicked.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Message is the message of the log line about a panic.
const Message = "panic"

// Error is the error of an operation that has panicked.
type Error struct {
	Value any    // the value of the panic
	Stack string // the stack of the goroutine that panicked

	logged atomic.Bool
}

// Error implements error. The stack is not part of the message.
func (e *Error) Error() string {
	return "a bug ended the operation: panic: " + hint.OneLine(fmt.Sprintf("%.200v", e.Value))
}

const help = "please report it, with its stack"

// carried is the value with which [Group.Wait] panics. Without a recovery, the runtime prints the original stack.
type carried struct{ cause *Error }

func (c carried) Error() string { return c.cause.Error() + "\n\n" + c.cause.Stack }

// newError returns the error for a value that recover has returned. It must be called while the panic unwinds the stack.
func newError(value any) *Error {
	if c, ok := value.(carried); ok {
		return c.cause
	}
	return &Error{Value: value, Stack: string(debug.Stack())}
}

// Log logs a value that recover has returned, unless a panic with it was logged before.
func Log(ctx context.Context, log *slog.Logger, value any, attrs ...any) {
	newError(value).log(ctx, log, attrs...)
}

func (e *Error) log(ctx context.Context, log *slog.Logger, attrs ...any) {
	if log != nil && e.logged.CompareAndSwap(false, true) {
		log.ErrorContext(ctx, Message, append(attrs, "panic", e.Value, "stack", e.Stack)...)
	}
}

// Catch calls f, and returns its error. If f panics, Catch returns an [*Error] with a hint. It logs a panic of f, and also one that f
// returns as an error, unless the panic was logged before. If log is nil, an outer Catch logs the panic.
func Catch(ctx context.Context, log *slog.Logger, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = hint.Wrap(newError(p), help)
		}
		if e, ok := errors.AsType[*Error](err); ok {
			e.log(ctx, log)
		}
	}()
	return f()
}

// Group is an [errgroup.Group] whose Wait panics if one of its functions has panicked. The zero value is ready for use, has no
// limit, and cancels nothing.
type Group struct {
	group    errgroup.Group
	inner    *errgroup.Group // of [WithContext]; nil: group
	panicked atomic.Pointer[Error]
}

// WithContext returns a group, and a context that is cancelled when a function of the group returns an error or panics, or
// when Wait returns.
func WithContext(ctx context.Context) (*Group, context.Context) {
	inner, ctx := errgroup.WithContext(ctx)
	return &Group{inner: inner}, ctx
}

func (g *Group) errgroup() *errgroup.Group {
	if g.inner != nil {
		return g.inner
	}
	return &g.group
}

// SetLimit limits the number of functions that run at a time. It must be called before Go.
func (g *Group) SetLimit(n int) { g.errgroup().SetLimit(n) }

// Go calls f in a goroutine of its own, once the limit allows it.
func (g *Group) Go(f func() error) {
	g.errgroup().Go(func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				e := newError(p)
				g.panicked.CompareAndSwap(nil, e)
				err = e
			}
		}()
		return f()
	})
}

// Wait waits for all functions, and returns the first error. If a function has panicked, Wait panics with its value and stack.
func (g *Group) Wait() error {
	err := g.errgroup().Wait()
	if e := g.panicked.Load(); e != nil {
		panic(carried{e})
	}
	return err
}
