package files

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatched shows that the value changes when the files change. The value stays the same while a file is missing. It
// also stays the same while the files do not match because a user replaces them one after the other.
func TestWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		write(t, one, []byte("a"))
		write(t, two, []byte("a"))
		var log strings.Builder
		compiled := 0
		w, err := Watch(slog.New(slog.NewTextHandler(&log, nil)), func(contents [][]byte) (string, error) {
			compiled++
			if string(contents[0]) != string(contents[1]) {
				return "", errors.New("they differ")
			}
			return string(contents[0]), nil
		}, one, two)
		if err != nil {
			t.Fatal(err)
		}
		want := func(what, value string, times, errs, infos int) {
			t.Helper()
			if got := w.Get(); got != value || compiled != times || strings.Count(log.String(), "level=ERROR") != errs || strings.Count(log.String(), "level=INFO") != infos {
				t.Errorf("%s: %q, compiled %d times, with the log\n%s", what, got, compiled, log.String())
			}
		}
		time.Sleep(Interval)
		want("nothing has changed", "a", 1, 0, 0)
		write(t, one, []byte("b"))
		want("within the interval", "a", 1, 0, 0)
		time.Sleep(Interval)
		want("they differ", "a", 2, 1, 0)
		time.Sleep(Interval)
		want("they differ as before", "a", 2, 1, 0)
		write(t, two, []byte("b"))
		time.Sleep(Interval)
		want("they are equal", "b", 3, 1, 1)
		if err := os.Remove(two); err != nil {
			t.Fatal(err)
		}
		time.Sleep(Interval)
		want("one is gone", "b", 3, 2, 1)
		write(t, two, []byte("b"))
		time.Sleep(Interval)
		want("it is back", "b", 4, 2, 2)
	})
}

// TestWatchFails shows that Watch returns an error if a file is missing or its contents are
// invalid.
func TestWatchFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	refuse := func([][]byte) (int, error) { return 0, errors.New("refused") }
	if _, err := Watch(slog.New(slog.DiscardHandler), refuse, name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	write(t, name, nil)
	if _, err := Watch(slog.New(slog.DiscardHandler), refuse, name); err == nil || err.Error() != "refused" {
		t.Errorf("invalid contents: %v", err)
	}
}
