package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ocibridge/ocibridge/internal/app/run"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// The exit statuses, which docs/reference/output.md documents. A command that a signal has interrupted
// ends with exitSignal and the number of the signal.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitPending = 3
	exitSignal  = 128
)

// exitStatus is an exit status without a message. It is exitPending, or the status of the
// command that exec ran.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// statusOf returns the exit status of a command that has returned err.
func statusOf(ctx context.Context, err error) int {
	var own exitStatus
	var child *run.StatusError
	var cause interruption
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return int(own)
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, &child):
		return child.Status
	case errors.As(context.Cause(ctx), &cause):
		return exitSignal + int(cause.signal)
	}
	return exitFailed
}

// interruption is the cause of a context that a signal has cancelled.
type interruption struct{ signal syscall.Signal }

func (interruption) Error() string { return "interrupted" }

// Is lets [errors.Is] match an interruption with [context.Canceled], the error of a cancelled context.
func (interruption) Is(target error) bool { return target == context.Canceled }

// interruptible returns a context that the first SIGINT or SIGTERM cancels. The second signal
// kills the process.
func interruptible(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(interruption{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// explainInterrupt returns err as users see it. After an interrupt, errors that only say that
// the context was cancelled become one message.
func explainInterrupt(ctx context.Context, err error) error {
	if cause := (interruption{}); errors.As(context.Cause(ctx), &cause) && errors.Is(err, context.Canceled) {
		return hint.Wrap(cause, "completed versions and files stay; running the command again completes the others")
	}
	return err
}
