package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// readings read files and folders and remember what was there, or that nothing was,
// to find out when that changes. They follow links, so that it does not matter how a
// file is replaced. The nil pointer reads, too, and remembers nothing.
type readings struct {
	mu   sync.Mutex
	sums map[string][sha256.Size]byte // by the name of a file, or that of a folder with a slash
}

// readFile reads a file as readBounded does.
func (r *readings) readFile(name string) ([]byte, error) {
	b, err := readBounded(name)
	r.note(name, sumOf(b, err))
	return b, err
}

// readDir reads a folder as [os.ReadDir] does.
func (r *readings) readDir(name string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(name)
	r.note(name+"/", sumOfDir(entries, err))
	return entries, err
}

// add remembers what another one does, too.
func (r *readings) add(other *readings) {
	for name, sum := range other.sums {
		r.note(name, sum)
	}
}

func (r *readings) note(name string, sum [sha256.Size]byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sums == nil {
		r.sums = map[string][sha256.Size]byte{}
	}
	r.sums[name] = sum
}

// changed returns which of what was read is otherwise now, sorted, and a sum that is
// the same for the same changes.
func (r *readings) changed() (names []string, sum [sha256.Size]byte) {
	r.mu.Lock()
	before := maps.Clone(r.sums)
	r.mu.Unlock()
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		var now [sha256.Size]byte
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			now = sumOfDir(os.ReadDir(dir)) // by its name as before, which an error has
		} else {
			now = sumOf(readBounded(name))
		}
		if now != before[name] {
			names = append(names, name)
			fmt.Fprintf(all, "%q %x", name, now)
		}
	}
	all.Sum(sum[:0])
	return names, sum
}

func sumOf(b []byte, err error) [sha256.Size]byte {
	if err != nil {
		b = []byte(err.Error())
	}
	return sha256.Sum256(fmt.Appendf(nil, "%t %s", err == nil, b))
}

func sumOfDir(entries []fs.DirEntry, err error) [sha256.Size]byte {
	var names []byte
	for _, e := range entries {
		names = fmt.Appendf(names, "%q", e.Name())
	}
	return sumOf(names, err)
}
