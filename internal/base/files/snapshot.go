package files

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// Snapshot reads files and folders, and records a digest of each result, including errors. It can later report which of
// the files and folders have changed. The zero value is an empty snapshot. A nil Snapshot reads files but records
// nothing.
type Snapshot struct {
	mu   sync.Mutex
	sums map[string][sha256.Size]byte // by file name; a folder's name ends in a slash
}

// ReadFile reads a file as [Read] does.
func (s *Snapshot) ReadFile(name string) ([]byte, error) {
	b, err := Read(name)
	s.note(name, sumOf(b, err))
	return b, err
}

// ReadGiven reads a file as [ReadGiven] does. It does not record pipes and devices, because
// they cannot be read twice.
func (s *Snapshot) ReadGiven(ctx context.Context, name string) ([]byte, error) {
	b, err := ReadGiven(ctx, name)
	if info, serr := os.Stat(name); serr != nil || info.Mode().IsRegular() || info.IsDir() || isNull(name, info) {
		s.note(name, sumOf(b, err))
	}
	return b, err
}

// ReadDir reads a folder as [os.ReadDir] does.
func (s *Snapshot) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(name)
	s.note(name+"/", sumOfDir(entries, err))
	return entries, err
}

// Add adds the records of another snapshot.
func (s *Snapshot) Add(other *Snapshot) {
	for name, sum := range other.sums {
		s.note(name, sum)
	}
}

func (s *Snapshot) note(name string, sum [sha256.Size]byte) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil {
		s.sums = map[string][sha256.Size]byte{}
	}
	s.sums[name] = sum
}

// Changed reads all recorded files and folders again. It returns the sorted names of the
// changed files and folders, and a digest of the changes. The name of a folder ends in a
// slash. The same changes have the same digest.
func (s *Snapshot) Changed() (names []string, digest [sha256.Size]byte) {
	s.mu.Lock()
	before := maps.Clone(s.sums)
	s.mu.Unlock()
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		var now [sha256.Size]byte
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			now = sumOfDir(os.ReadDir(dir)) // without the slash, because the sum of an error contains the name
		} else {
			now = sumOf(Read(name))
		}
		if now != before[name] {
			names = append(names, name)
			fmt.Fprintf(all, "%q %x", name, now)
		}
	}
	all.Sum(digest[:0])
	return names, digest
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
