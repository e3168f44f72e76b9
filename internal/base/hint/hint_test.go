package hint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestOf(t *testing.T) {
	cause := errors.New("cause")
	hinted := hint.Wrap(cause, "do %s", "this")
	for name, tc := range map[string]struct {
		err        error
		hint, text string
	}{
		"no hint":                      {cause, "", "cause"},
		"formatted":                    {hinted, "do this", "cause"},
		"new":                          {hint.New("50% done", "wait %d%%", 5), "wait 5%", "50% done"},
		"below a wrapping":             {fmt.Errorf("push: %w", hinted), "do this", "push: cause"},
		"below two causes":             {fmt.Errorf("%w: %w", errors.New("absent"), hinted), "do this", "absent: cause"},
		"joined to others":             {errors.Join(cause, hinted), "do this", "cause\ncause"},
		"the innermost stays":          {hint.Wrap(fmt.Errorf("push: %w", hinted), "do that"), "do this", "push: cause"},
		"the one of joined ones stays": {hint.Wrap(errors.Join(cause, hinted), "do that"), "do this", "cause\ncause"},
		"the first of joined ones":     {errors.Join(hinted, hint.New("other", "do that")), "do this", "cause\nother"},
		"lost where identity is":       {fmt.Errorf("push: %v", hinted), "", "push: cause"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hint.Of(tc.err); got != tc.hint {
				t.Errorf("hint %q, want %q", got, tc.hint)
			}
			if got := tc.err.Error(); got != tc.text {
				t.Errorf("text %q, want %q", got, tc.text)
			}
		})
	}
}

func TestOfNothing(t *testing.T) {
	if err := hint.Wrap(nil, "do this"); err != nil {
		t.Errorf("Wrap(nil) = %v", err)
	}
	if got := hint.Of(nil); got != "" {
		t.Errorf("Of(nil) = %q", got)
	}
}

func TestWrapKeepsTheCause(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	err := hint.Wrap(fmt.Errorf("read: %w", path), "look elsewhere")
	var got *fs.PathError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &got) || got != path {
		t.Errorf("%#v lost its cause", err)
	}
}
