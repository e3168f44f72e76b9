package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

// The lock of a data folder consists of files in lockFolder. Each writer creates a file that says what the writer does, and
// keeps this file locked while it writes. In addition, each writer locks the gate for a moment when it begins. A garbage
// collection locks the gate until it has ended. Therefore, no other writer can begin while the garbage collection waits
// for the writers that have begun.
const (
	lockFolder   = "locks"
	gateName     = "gate"
	writerPrefix = "writer-"
	// maxWriterText is the maximum number of bytes that are read from the file of a writer.
	maxWriterText = 512
	// writersInterval is the time between two checks whether all writers have ended.
	writersInterval = 20 * time.Millisecond
)

// ErrBusy means that a garbage collection has waited too long for the writers of the data folder.
var ErrBusy = errors.New("the data folder is in use")

// Lock locks the data folder for a writer. Several writers may hold the lock concurrently, also in other processes. No
// writer holds it while [Registry.GC] deletes content without a tag. Therefore, a writer must lock before it first
// checks which content the registry has, and must unlock after it has written its tag. doing says what the writer does,
// such as "push of registry.acme.example/acme/widget 1.0.0".
//
// Lock waits until a running garbage collection has ended, or until ctx ends. The caller must call unlock.
func (r *Registry) Lock(ctx context.Context, doing string) (unlock func(), err error) {
	if err := r.present(); err != nil {
		return nil, err
	}
	gate, err := privatefolder.LockUntil(ctx, r.lockFile(gateName))
	switch {
	case err == nil:
		defer gate.Close()
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, errors.ErrUnsupported):
		return func() {}, nil // on a file system without locks, GC fails
	default:
		return nil, fmt.Errorf("embedded registry: lock the data folder: %w", err)
	}
	unlock, err = r.enter(doing)
	if err != nil {
		return nil, fmt.Errorf("embedded registry: lock the data folder: %w", err)
	}
	return unlock, nil
}

// lockAlone locks the data folder against all writers and against other garbage collections. It waits at most the given
// time. If that is too short, the error wraps [ErrBusy] and names the writers.
func (r *Registry) lockAlone(ctx context.Context, wait time.Duration) (unlock func(), err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, wait, ErrBusy)
	defer cancel()
	gate, err := privatefolder.LockUntil(waiting, r.lockFile(gateName))
	if errors.Is(err, privatefolder.ErrLocked) {
		return nil, r.busy(ctx, wait)
	}
	if err != nil {
		return nil, err
	}
	for {
		writers, err := r.writers()
		if err != nil {
			gate.Close()
			return nil, err
		}
		if len(writers) == 0 {
			leave, err := r.enter("garbage collection")
			if err != nil { // the disk may be full, and the gate is sufficient
				leave = func() {}
			}
			return func() { leave(); gate.Close() }, nil
		}
		r.beforeFile("wait", lockFolder)
		select {
		case <-time.After(writersInterval):
		case <-waiting.Done():
			err := r.busy(ctx, wait)
			gate.Close()
			return nil, err
		}
	}
}

// enter creates and locks the file of a writer. The caller must hold the gate.
func (r *Registry) enter(doing string) (leave func(), err error) {
	name := r.lockFile(writerPrefix + rand.Text())
	f, err := files.CreateNew(name)
	if err != nil {
		return nil, err
	}
	leave = func() {
		_ = os.Remove(name) // before its lock ends; after an error, the next garbage collection removes it
		f.Close()
	}
	if err := files.Lock(f); err != nil {
		leave()
		return nil, err
	}
	// Without the text, for example on a full disk, the lock holds nevertheless.
	_, _ = fmt.Fprintf(f, "process %d: %.*s\n", os.Getpid(), maxWriterText/4, doing)
	return leave, nil
}

// writers returns what the writers that hold the lock do. It removes the files that writers have left behind. The caller
// must hold the gate. Without the gate, the check of a file could keep the writer of the file from locking it.
func (r *Registry) writers() (doing []string, err error) {
	return r.readWriters(func(name string) bool {
		if !files.IsAbandoned(name) {
			return true
		}
		_ = os.Remove(name)
		return false
	})
}

// readWriters returns what the writers do. It skips a writer if holds returns false for its file.
func (r *Registry) readWriters(holds func(name string) bool) (doing []string, err error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, lockFolder))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := r.lockFile(e.Name())
		if !strings.HasPrefix(e.Name(), writerPrefix) || !holds(name) {
			continue
		}
		text, err := readText(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the writer has ended
		}
		if err != nil {
			return nil, err
		}
		doing = append(doing, cmp.Or(text, "another process"))
	}
	slices.Sort(doing)
	return doing, nil
}

// readText returns what the file of a writer says, on one line.
func readText(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxWriterText))
	return hint.OneLine(strings.TrimSpace(string(text))), err
}

// busy returns the error of a garbage collection that has waited too long.
func (r *Registry) busy(ctx context.Context, wait time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	doing, err := r.readWriters(func(string) bool { return true })
	if err != nil || len(doing) == 0 {
		doing = []string{"another process has begun to write"}
	}
	const shown = 3
	more := ""
	if len(doing) > shown {
		more = fmt.Sprintf(" and %d more", len(doing)-shown)
		doing = doing[:shown]
	}
	return hint.Wrap(fmt.Errorf("%w after %s: %s%s", ErrBusy, wait, strings.Join(doing, "; "), more),
		"nothing was deleted: run ocibridge gc again when that is done, or let it wait longer with --wait")
}

func (r *Registry) lockFile(name string) string { return filepath.Join(r.dir, lockFolder, name) }
