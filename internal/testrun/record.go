package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// recordFile keeps what "make test" has left to "make test-all".
const recordFile = "bin/tests.json"

// left maps causes to the tests and subtests that a pass has left.
type left map[cause]chosen

// record is the content of [recordFile].
type record struct {
	State string // of the sources
	Race  bool   // whether the packages' tests ran under the race detector
	Left  left
}

// readRecord returns the record of a run on the same sources. The bool is false if there is none.
func readRecord(state string) (r record, ok bool) {
	data, err := os.ReadFile(recordFile)
	return r, err == nil && json.Unmarshal(data, &r) == nil && r.State == state && state != ""
}

func (r record) write() error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(recordFile), 0o755); err != nil {
		return err
	}
	return os.WriteFile(recordFile, data, 0o644)
}

// sourceState returns a checksum of the last commit, and of what differs from it, or "" where Git knows no commit.
func sourceState() string {
	sum := sha256.New()
	for _, args := range [][]string{{"rev-parse", "HEAD"}, {"diff", "HEAD"}, {"status", "--porcelain"}} {
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			return ""
		}
		sum.Write(out)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// add adds tests.
func (c chosen) add(more chosen) {
	for name, tests := range more {
		c[name] = append(c[name], tests...)
	}
}

func (l left) add(more left) {
	for c, tests := range more {
		if l[c] == nil {
			l[c] = chosen{}
		}
		l[c].add(tests)
	}
}

// summary says how many tests are left, and why.
func (l left) summary() string {
	n := map[cause]int{}
	for c, tests := range l {
		for _, names := range tests {
			n[c] += len(names)
		}
	}
	return fmt.Sprintf("make test-all also runs the %d tests and subtests that need more tools, the %d that measure without the race detector, and the other end-to-end tests.", n[lacksTool], n[underRace])
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
