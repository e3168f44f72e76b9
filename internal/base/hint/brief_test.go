package hint_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestBrief(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	short := hint.Wrap(fmt.Errorf("open: %w", fs.ErrNotExist), "do this")
	if got := hint.Brief(short, io.EOF); got != short {
		t.Errorf("a short error becomes %v", got)
	}
	if got := hint.Brief(nil, io.EOF); got != nil {
		t.Errorf("no error becomes %v", got)
	}
	for name, err := range map[string]error{
		"long text":          hint.Wrap(fmt.Errorf("open %s: %w", long, fs.ErrNotExist), "do this"),
		"long hint":          hint.Wrap(fmt.Errorf("open: %w", fs.ErrNotExist), "do this %s", long),
		"long, without hint": fmt.Errorf("open %s: %w", long, fs.ErrNotExist),
	} {
		got := hint.Brief(err, io.EOF, fs.ErrNotExist)
		if again := hint.Brief(got); again != got {
			t.Errorf("%s: made brief again, it is %.80v", name, again)
		}
		if !errors.Is(got, fs.ErrNotExist) || errors.Is(got, io.EOF) {
			t.Errorf("%s: it is other errors: %v", name, got)
		}
		if text, help := got.Error(), hint.Of(got); len(text) > 2100 || len(help) > 2100 || !strings.HasPrefix(err.Error(), strings.TrimSuffix(text, "...")) {
			t.Errorf("%s: %d bytes of text and %d of hint", name, len(text), len(help))
		}
		if help, want := hint.Of(got), hint.Of(err); (help == "") != (want == "") {
			t.Errorf("%s: hint %q", name, help)
		}
	}
}

type holder struct{ words []byte }

func (holder) Error() string { return "no way" }

func TestFlatten(t *testing.T) {
	err := hint.Wrap(fmt.Errorf("open: %w: %w", holder{make([]byte, 10)}, fs.ErrNotExist), "do this")
	got := hint.Flatten(err, io.EOF, fs.ErrNotExist)
	var held holder
	if errors.As(got, &held) || !errors.Is(got, fs.ErrNotExist) || errors.Is(got, io.EOF) {
		t.Errorf("it is other errors: %v", got)
	}
	if got.Error() != err.Error() || hint.Of(got) != "do this" {
		t.Errorf("%v: %s", got, hint.Of(got))
	}
	if got := hint.Flatten(nil, io.EOF); got != nil {
		t.Errorf("no error becomes %v", got)
	}
}
