// Package hint attaches to an error what its reader can do about it.
//
// The command line prints the hint on a line of its own, after the error. Every
// package may import this one; it imports nothing of ours.
package hint

import (
	"errors"
	"fmt"
)

type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Wrap returns err with a hint, formatted as by [fmt.Sprintf]. A hint that err
// carries already stays: the one nearest to the cause knows more. Wrap(nil) is
// nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil || Of(err) != "" {
		return err
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// Replace is like [Wrap], but its hint takes the place of one that err carries:
// for a caller that knows more than the cause does.
func Replace(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// New returns an error with the text msg and a hint.
func New(msg, format string, args ...any) error {
	return Wrap(errors.New(msg), format, args...)
}

// Of returns the hint that err or an error it wraps carries, or "".
func Of(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}
