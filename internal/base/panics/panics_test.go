package panics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
)

func parse([]byte) error { panic("index out of range\n\x1b[31m") }

// newLog returns a log, and a function that returns its text.
func newLog() (*slog.Logger, func() string) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, nil)), out.String
}

// TestCatch shows that a panic becomes an error with a hint. The panic passes two groups and two calls of Catch. The log has it
// once, with the stack of the goroutine that panicked.
func TestCatch(t *testing.T) {
	log, text := newLog()
	err := panics.Catch(t.Context(), log, func() error {
		return panics.Catch(t.Context(), nil, func() error {
			var outer panics.Group
			outer.SetLimit(1)
			outer.Go(func() error {
				inner, _ := panics.WithContext(t.Context())
				inner.Go(func() error { return parse(nil) })
				return inner.Wait()
			})
			return fmt.Errorf("wrapped: %w", outer.Wait())
		})
	})
	if _, ok := errors.AsType[*panics.Error](err); !ok || strings.ContainsAny(err.Error(), "\n\x1b") || hint.Of(err) == "" {
		t.Errorf("%q, hint %q", err, hint.Of(err))
	}
	again := panics.Catch(t.Context(), log, func() error { return fmt.Errorf("wrapped: %w", err) })
	if !errors.Is(again, err) || strings.Count(text(), "msg=panic") != 1 || !strings.Contains(text(), "panics_test.parse") {
		t.Errorf("%v\n%s", again, text())
	}
}

// TestCatchWithoutPanic shows that other errors pass unchanged, and are not logged.
func TestCatchWithoutPanic(t *testing.T) {
	log, text := newLog()
	want := errors.New("a failure")
	if err := panics.Catch(t.Context(), log, func() error { return want }); err != want || text() != "" {
		t.Errorf("%v %s", err, text())
	}
}

// TestGroupCancels shows that a panic cancels the other functions of a group, and that Wait waits for them before it panics. The
// value of that panic has the original stack, which the runtime prints if nothing recovers the panic.
func TestGroupCancels(t *testing.T) {
	group, ctx := panics.WithContext(t.Context())
	ended := false
	group.Go(func() error { <-ctx.Done(); ended = true; return context.Cause(ctx) })
	group.Go(func() error { return parse(nil) })
	defer func() {
		p := recover()
		if err, ok := p.(error); !ok || !ended || !strings.Contains(err.Error(), "panics_test.parse") {
			t.Errorf("ended %t, panic %v", ended, p)
		}
	}()
	t.Errorf("Wait returned %v", group.Wait())
}
