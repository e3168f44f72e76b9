// Package hint attaches hints to errors. A hint says what the user can do about the error. The command line prints it on
// its own line. The package also removes control characters from texts of other parties, for everything that people read.
package hint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint returns the hint. Importers of the project's packages find the method with [errors.As].
func (h *hinted) Hint() string { return h.hint }

// Wrap returns err with a hint, which is formatted as by [fmt.Sprintf]. If err is nil or already has a hint, Wrap returns
// err unchanged, because the hint nearest to the cause is more specific.
func Wrap(err error, format string, args ...any) error {
	if Of(err) != "" {
		return err
	}
	return Replace(err, format, args...)
}

// Replace is like [Wrap], but replaces an existing hint. It is for callers that know more about the error than the
// function that caused it.
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
	if h, ok := errors.AsType[*hinted](err); ok {
		return h.hint
	}
	return ""
}

// maxBrief is the maximum length in bytes of the text and of the hint of an error that [Brief] returns.
const maxBrief = 2 << 10

// cut marks the end of a shortened text.
const cut = "..."

// Brief returns err in a form that is small enough to cache for a long time. An error can contain text of any length from
// other parties. Brief replaces a long error with a new error that has only the beginnings of the text and of the hint.
// With [errors.Is], the new error matches those of the given targets that err matches, and no other error. Brief returns
// short errors and its own results unchanged.
func Brief(err error, targets ...error) error {
	if err == nil || len(err.Error()) <= maxBrief && len(Of(err)) <= maxBrief {
		return err
	}
	return Flatten(err, targets...)
}

// Flatten is like [Brief], but also replaces short errors. Even these can keep large values in memory, such as the
// certificates that a client refused.
func Flatten(err error, targets ...error) error {
	if err == nil {
		return nil
	}
	is := slices.DeleteFunc(slices.Clone(targets), func(target error) bool { return !errors.Is(err, target) })
	short := &brief{beginning(err.Error()), is}
	if help := Of(err); help != "" {
		return &hinted{short, beginning(help)}
	}
	return short
}

// beginning returns the first maxBrief bytes of a text. It copies them, so that they do not keep the whole text in
// memory.
func beginning(text string) string {
	if len(text) <= maxBrief {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:maxBrief-len(cut)], "") + cut
}

type brief struct {
	text string
	is   []error
}

func (b *brief) Error() string   { return b.text }
func (b *brief) Unwrap() []error { return b.is }
