package hint

import (
	"errors"
	"slices"
	"strings"
)

// maxBrief is how many bytes of an error's text, and of its hint, [Brief] keeps.
const maxBrief = 2 << 10

// cut is the end of a shortened text.
const cut = "..."

// Brief returns a version of err for long-term storage. Other parties' words can make an error of any length:
// for a long one, Brief returns an error with only the beginning of its text and its hint, which matches, for
// [errors.Is], those of the targets that err matches. It returns its own results unchanged.
func Brief(err error, targets ...error) error {
	if err == nil || len(err.Error()) <= maxBrief && len(Of(err)) <= maxBrief {
		return err
	}
	return Flatten(err, targets...)
}

// Flatten is like [Brief], but also reduces a short error: an error can reference more than its text, such as
// the certificates that a client refused.
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

// beginning copies the result, so that the whole text can be freed.
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
