package main

import (
	"bufio"
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/distribution/reference"
)

func newReader(data []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(data)) }

var exactVersion = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+([.+_-].*)?$`)

// pinned returns an error for an image that has neither a digest nor an exact version.
func pinned(image string) error {
	ref, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return fmt.Errorf("image %q: %w", image, err)
	}
	if _, ok := ref.(reference.Digested); ok {
		return nil
	}
	if tagged, ok := ref.(reference.Tagged); !ok || !exactVersion.MatchString(tagged.Tag()) {
		return fmt.Errorf("image %q names neither a digest nor an exact version", image)
	}
	return nil
}

var (
	uses         = regexp.MustCompile(`^\s*-?\s*uses:\s*(\S+)(?:\s+#\s*(\S+))?\s*$`)
	pinnedCommit = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
)

// pinnedAction returns an error for an action that is not pinned to a commit, or lacks a
// comment with its version.
func pinnedAction(line string) error {
	m := uses.FindStringSubmatch(line)
	switch {
	case m == nil:
		return nil
	case !pinnedCommit.MatchString(m[1]):
		return fmt.Errorf("%s is not pinned by a commit", m[1])
	case !exactVersion.MatchString(strings.TrimSpace(m[2])):
		return fmt.Errorf("%s: no comment says which version that is", m[1])
	}
	return nil
}
