package hint

import (
	"errors"
	"slices"
	"strings"
)

// maxBrief is how many bytes of an error's text, and of its hint, [Brief] keeps.
const maxBrief = 2 << 10

// cut ends a text that was cut off.
const cut = "..."

// Brief returns err for those who keep it for long. The words of other parties can
// make an error of any length: of a long one, Brief returns the beginning of its text
// and its hint, as an error that is, by [errors.Is], each of the given targets that err
// is, and nothing else. Brief returns its own results unchanged.
func Brief(err error, targets ...error) error {
	if err == nil {
		return nil
	}
	text, help := err.Error(), Of(err)
	if len(text) <= maxBrief && len(help) <= maxBrief {
		return err
	}
	return flatten(err, text, help, targets)
}

// Flatten is like [Brief], but of a short error, too, it keeps nothing else: an error
// can hold more than its text says, such as the certificates that a client refused.
func Flatten(err error, targets ...error) error {
	if err == nil {
		return nil
	}
	return flatten(err, err.Error(), Of(err), targets)
}

func flatten(err error, text, help string, targets []error) error {
	is := slices.DeleteFunc(slices.Clone(targets), func(target error) bool { return !errors.Is(err, target) })
	short := &brief{beginning(text), is}
	if help == "" {
		return short
	}
	return &hinted{short, beginning(help)}
}

// beginning copies what it returns, so that the whole text is not kept.
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
