// Package hint attaches a hint to an error. The hint says what the user can do about the error. The package
// also removes control characters from texts of other parties, for everything that people read.
//
// The command line prints the hint on its own line, after the error. Every package of the project may import
// this package, because it imports none of them.
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

// Hint returns the hint. Importers of the project's packages find the method with [errors.As].
func (h *hinted) Hint() string { return h.hint }

// Wrap returns err with a hint, which is formatted as by [fmt.Sprintf]. If err already has a hint, Wrap
// returns err unchanged, because the hint nearest to the cause is more specific. If err is nil, it returns
// nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil || Of(err) != "" {
		return err
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// Replace is like [Wrap], but replaces an existing hint. It is for callers that know more about the error
// than the function that caused it.
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

// Of returns the hint of err or of an error that err wraps. It returns "" if there is no hint.
func Of(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}
