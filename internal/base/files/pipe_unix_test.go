//go:build !windows

package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// soon is far less than [PipeTimeout], and far more than any read without waiting takes.
const soon = 10 * time.Second

// finishes fails the test if call does not return soon.
func finishes(t *testing.T, what string, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
		t.Fatalf("%s hangs", what)
		return nil
	}
}

func namedPipe(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestPipesAreNoFiles shows that no function that wants a regular file waits for a named pipe.
func TestPipesAreNoFiles(t *testing.T) {
	name := namedPipe(t)
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for what, call := range map[string]func() error{
		"Read":        func() error { _, err := Read(name); return err },
		"Open":        func() error { _, _, err := Open(name); return err },
		"OpenRegular": func() error { _, _, err := OpenRegular(root, "pipe"); return err },
		"Snapshot":    func() error { _, err := (&Snapshot{}).ReadFile(name); return err },
	} {
		if err := finishes(t, what, call); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNullDevice shows that the null device is an empty file, also under another name.
func TestNullDevice(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{os.DevNull, link} {
		for what, read := range map[string]func(string) ([]byte, error){"Read": Read, "ReadGiven": readGiven(t.Context())} {
			if b, err := read(name); len(b) > 0 || err != nil {
				t.Errorf("%s of %s: %q, %v", what, name, b, err)
			}
		}
	}
	if _, err := Read("/dev/zero"); err == nil || !strings.Contains(err.Error(), "it is a device") {
		t.Errorf("another device: %v", err)
	}
}

func readGiven(ctx context.Context) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) { return ReadGiven(ctx, name) }
}

// TestReadGivenPipes shows what [ReadGiven] reads of pipes. The writers begin after the reader.
func TestReadGivenPipes(t *testing.T) {
	for what, tt := range map[string]struct {
		write string
		err   string
	}{
		"some text": {"key = 1\n", ""},
		"nothing":   {"", "nothing was written to it"},
		"too much":  {strings.Repeat("x", MaxSize+1), "it has more than 4 MiB"},
	} {
		name := namedPipe(t)
		go func() {
			f, err := os.OpenFile(name, os.O_WRONLY, 0) // waits for the reader
			if err == nil {
				_, _ = io.WriteString(f, tt.write) // fails if the reader stops at its limit
				f.Close()
			}
		}()
		var b []byte
		err := finishes(t, what, func() (err error) { b, err = ReadGiven(t.Context(), name); return err })
		switch {
		case tt.err == "" && (err != nil || string(b) != tt.write):
			t.Errorf("%s: %q, %v", what, b, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), name)):
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestReadGivenSubstitution reads a pipe by the name that a shell's <(...) gives it.
func TestReadGivenSubstitution(t *testing.T) {
	for what, text := range map[string]string{"some text": "a", "nothing": ""} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, _ = io.WriteString(w, text)
		w.Close()
		var b []byte
		s := &Snapshot{}
		err = finishes(t, what, func() (err error) {
			b, err = s.ReadGiven(t.Context(), fmt.Sprintf("/dev/fd/%d", r.Fd()))
			return err
		})
		if string(b) != text || (err == nil) != (text != "") {
			t.Errorf("%s: %q, %v", what, b, err)
		}
		if changed, _ := s.Changed(); len(changed) > 0 {
			t.Errorf("%s: a pipe is read twice: %q", what, changed)
		}
	}
}

// TestReadGivenEnds shows that the end of the context and the deadline end the wait for a pipe
// that no process writes to, and for one whose writer is silent.
func TestReadGivenEnds(t *testing.T) {
	silent, unopened := namedPipe(t), namedPipe(t)
	w, err := os.OpenFile(silent, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, name := range []string{silent, unopened} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := finishes(t, name, func() error { _, err := ReadGiven(ctx, name); return err }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		f, _, err := open(name)
		if err != nil {
			t.Fatal(err)
		}
		err = finishes(t, name, func() error {
			_, err := readBefore(t.Context(), time.Now().Add(2*pollInterval), f, make([]byte, 1))
			return err
		})
		if f.Close(); err == nil || !strings.Contains(err.Error(), "did not arrive within") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
