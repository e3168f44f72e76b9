package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
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

func removeRecord() error {
	if err := os.Remove(recordFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sourceState returns a checksum of the last commit, of what differs from it, and of the untracked files, or "" where Git
// knows no commit.
func sourceState() string {
	sum := sha256.New()
	for _, args := range [][]string{{"rev-parse", "HEAD"}, {"diff", "HEAD"}} {
		out, err := git(args...)
		if err != nil {
			return ""
		}
		sum.Write(out)
	}
	untracked, err := git("ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return ""
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(untracked), "\x00"), "\x00") {
		content, err := contentOf(name)
		if err != nil {
			return ""
		}
		fmt.Fprintf(sum, "%q %q\n", name, content)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// contentOf returns the content of a file, or the target of a link. Of anything else, such as another repository, it returns
// nothing.
func contentOf(name string) (string, error) {
	info, err := os.Lstat(name)
	switch {
	case name == "": // there is no untracked file
		return "", nil
	case err != nil:
		return "", err
	case info.Mode().IsRegular():
		data, err := os.ReadFile(name)
		return string(data), err
	case info.Mode().Type() == fs.ModeSymlink:
		return os.Readlink(name)
	}
	return "", nil
}

// git runs Git, also in a checkout that belongs to another user.
func git(args ...string) ([]byte, error) {
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Env = testkit.GitEnv(os.Environ())
	return cmd.Output()
}

// add adds tests.
func (c chosen) add(more chosen) {
	for name, tests := range more {
		c[name] = append(c[name], tests...)
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
	return fmt.Sprintf("make test-all also runs the %d tests and subtests that need more tools, the %d that take too long for make test, and the other end-to-end tests.", n[lacksTool], n[leftToAll])
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
