// Package helper runs credential helpers: Docker's, which provide logins for registries, and those of Terraform and
// OpenTofu, which provide API tokens for hosts. A helper is a program that prints one JSON object.
//
// Invariants:
//
//   - No error contains the standard output of a helper that succeeds, because the output is a secret. If a helper fails,
//     and [Command.ReasonOnStdout] is set, the error contains a sentence of the output, with likely secrets redacted.
//   - A run ends within its limit plus its grace period. The output of a run takes at most 64 KiB of memory.
package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	// maxOutput is the maximum length in bytes of a helper's standard output, an object with a few short strings.
	maxOutput = 64 << 10
	// maxStderr and maxReason are the maximum lengths in bytes of the parts of a helper's standard error and standard
	// output that an error shows.
	maxStderr, maxReason = 1 << 10, 1 << 10
)

// Command is one call of a helper.
type Command struct {
	Path  string // the path of a file, or a name that is looked up in PATH
	Args  []string
	Stdin string
	// Limit is the maximum duration of the run.
	Limit time.Duration
	// Grace is the maximum wait for the output after the helper has exited or was killed. A child process that the helper
	// leaves behind may keep the output open.
	Grace time.Duration
	// ByHand tells a user how to run the helper, such as "run x get". Hints contain it.
	ByHand string
	// NotFound reports whether the output of a helper that failed says that the helper has no credential. If NotFound is
	// nil, every failure is an error.
	NotFound func(stdout, stderr []byte) bool
	// ReasonOnStdout is set if helpers print the reason of a failure on standard output.
	ReasonOnStdout bool
}

// Get runs the helper and decodes the JSON object that it prints into answer. It returns false without an error if NotFound
// says that the helper has no credential. The error wraps [exec.ErrNotFound] if the program is not on PATH, and
// [context.DeadlineExceeded] if the run exceeds its limit.
func (c Command) Get(ctx context.Context, answer any) (bool, error) {
	stdout, found, err := c.run(ctx)
	if err != nil || !found {
		return false, err
	}
	return true, hint.Wrap(decode(stdout, answer), "the program is not a credential helper, or is damaged; to check the output of the program, %s", c.ByHand)
}

// Run is like [Command.Get], but ignores the output of a helper that succeeds.
func (c Command) Run(ctx context.Context) (bool, error) {
	_, found, err := c.run(ctx)
	return found, err
}

// run is like Get, but returns the output instead of the answer.
func (c Command) run(ctx context.Context) (cappedBuffer, bool, error) {
	limited, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	stdout, stderr := cappedBuffer{max: maxOutput}, cappedBuffer{max: maxStderr}
	cmd := exec.CommandContext(limited, c.Path, c.Args...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, c.Grace

	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the helper succeeded, and left a child process behind
	}
	switch {
	case ctx.Err() != nil:
		return stdout, false, ctx.Err()
	case limited.Err() != nil:
		return stdout, false, hint.Wrap(fmt.Errorf("no answer within %s: %w", c.Limit, limited.Err()), "it may be waiting for input: %s", c.ByHand)
	case err != nil && c.NotFound != nil && c.NotFound(stdout.kept, stderr.kept):
		return stdout, false, nil
	case err != nil:
		if reason := reasonOf(stdout.kept); c.ReasonOnStdout && reason != "" {
			err = fmt.Errorf("%w: %s", err, reason)
		}
		if complaint := hint.OneLine(string(stderr.kept)); complaint != "" {
			err = fmt.Errorf("%w: %s", err, complaint)
		}
		return stdout, false, hint.Wrap(err, "%s", c.ByHand)
	}
	return stdout, true, nil
}

// decode decodes the output of a helper into answer. The error quotes nothing from the output.
func decode(b cappedBuffer, answer any) error {
	if b.cut {
		return fmt.Errorf("its answer is longer than %d bytes", b.max)
	}
	if json.Unmarshal(b.kept, answer) != nil {
		return errors.New("its answer is not the JSON object that credential helpers print")
	}
	return nil
}

// cappedBuffer keeps the first max bytes that are written to it. It discards further bytes without an error, so that a
// helper that prints too much does not block.
type cappedBuffer struct {
	kept []byte
	max  int
	cut  bool
}

func (b *cappedBuffer) Write(p []byte) (int, error) {
	n := len(p)
	if room := b.max - len(b.kept); n > room {
		p, b.cut = p[:room], true
	}
	b.kept = append(b.kept, p...)
	return n, nil
}

var (
	namedSecret = regexp.MustCompile(`(?i)\b(password|passwd|secret|token)(["']?\s*[=:]\s*|\s+is\s+)\S+`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S+`)
	userinfo    = regexp.MustCompile(`://[^\s/@]+@`)
	// longWord matches a long word. The parts of host names, paths and ARNs are shorter, or have no digits.
	longWord = regexp.MustCompile(`[A-Za-z0-9+=_~-]{20,}`)
)

// reasonOf returns the reason for a failure that a helper has printed on its standard output, as one printable line. It
// returns "" for an output that is not a sentence, such as a login in JSON or a bare password. It redacts the words that
// may be secrets.
func reasonOf(stdout []byte) string {
	const redacted = "[redacted]"
	text := hint.OneLine(string(stdout[:min(len(stdout), maxReason)]))
	if strings.Contains(text, "{") || !strings.Contains(text, " ") {
		return ""
	}
	text = namedSecret.ReplaceAllString(text, "${1}${2}"+redacted)
	text = bearer.ReplaceAllString(text, "${1} "+redacted)
	text = userinfo.ReplaceAllString(text, "://"+redacted+"@")
	return longWord.ReplaceAllStringFunc(text, func(word string) string {
		if !strings.ContainsAny(word, "0123456789") {
			return word
		}
		return redacted
	})
}
