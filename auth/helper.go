package auth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// helperPrefix begins the name of every credential helper.
const helperPrefix = "docker-credential-"

const (
	// maxHelperOutput bounds a helper's answer; one is a JSON object of three
	// strings.
	maxHelperOutput = 64 << 10
	// maxHelperStderr bounds what of a helper's complaint is shown.
	maxHelperStderr = 1 << 10
	// helperKeep is how long an answer is used again. Tokens are asked for by
	// repository and action, so that one push needs the same answer many times;
	// the password in it lasts minutes to hours.
	helperKeep = time.Minute
	// helperFailureKeep is how long a failure is: as long as those who wait for
	// one that hangs would else each wait for their own.
	helperFailureKeep = 10 * time.Second
)

// helperRunner runs credential helpers by docker's protocol: "get" as argument,
// the server on standard input, JSON or a complaint on standard output.
//
// oras-go has this too, but it passes standard error through to the program's
// own, puts the output of a failed helper into errors, and waits for ever for
// the output of what a helper leaves running.
type helperRunner struct {
	limit time.Duration // for one run
	grace time.Duration // for its output, when it has ended or was killed
	now   func() time.Time

	mu      sync.Mutex
	answers map[helperQuestion]*helperAnswer
}

type helperQuestion struct {
	helper   string
	registry ociaddr.Registry
}

type helperAnswer struct {
	slot  // held while the helper runs or the fields are read
	cred  credential
	err   error
	until time.Time // when it is not to be used any more
}

func newHelperRunner(limit time.Duration) *helperRunner {
	return &helperRunner{limit: limit, grace: min(limit, time.Second), now: time.Now, answers: map[helperQuestion]*helperAnswer{}}
}

// get returns what the helper has for the registry, the zero credential where it
// has nothing. Of several callers at once one runs the helper.
func (h *helperRunner) get(ctx context.Context, helper string, registry ociaddr.Registry) (credential, error) {
	question := helperQuestion{helper, registry}
	h.mu.Lock()
	answer, ok := h.answers[question]
	if !ok {
		answer = &helperAnswer{slot: newSlot()}
		h.answers[question] = answer
	}
	h.mu.Unlock()

	if err := answer.lock(ctx); err != nil {
		return credential{}, err
	}
	defer answer.unlock()
	if h.now().Before(answer.until) {
		return answer.cred, answer.err
	}
	cred, err := h.ask(ctx, helper, registry)
	if err != nil && ctx.Err() != nil {
		return credential{}, err // the caller's own end is none of those who wait
	}
	keep := helperKeep
	if err != nil {
		keep = helperFailureKeep
	}
	answer.cred, answer.err, answer.until = cred, err, h.now().Add(keep)
	return cred, err
}

// ask tries each name that helpers know the registry by. A name that makes the
// helper fail does no harm if another one does not: scripts often know only one.
func (h *helperRunner) ask(ctx context.Context, helper string, registry ociaddr.Registry) (credential, error) {
	var first error
	for _, server := range serverNames(registry) {
		cred, err := h.run(ctx, helper, server)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return credential{}, err
		}
		if err == nil && !cred.empty() {
			return cred, nil
		}
		first = cmp.Or(first, err)
	}
	return credential{}, first
}

// serverNames returns what to ask a helper for: the URL, then the host that
// docker files a login under; for Docker Hub one key of old.
func serverNames(registry ociaddr.Registry) []string {
	if canonicalHost(string(registry)) == hub {
		return []string{hubKey}
	}
	return []string{"https://" + string(registry), string(registry)}
}

// run runs the helper once. Its error never holds what the helper put out.
func (h *helperRunner) run(ctx context.Context, helper, server string) (credential, error) {
	limited, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	stdout, stderr := cappedBuffer{max: maxHelperOutput}, cappedBuffer{max: maxHelperStderr}
	cmd := exec.CommandContext(limited, helperPrefix+helper, "get")
	cmd.Stdin = strings.NewReader(server)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A helper may leave a child behind that holds its output open.
	cmd.WaitDelay = h.grace

	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well, and left a child behind
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return credential{}, hint.Wrap(fmt.Errorf("%w: no such program on PATH", exec.ErrNotFound),
			"install %s%s, or take it out of the file that names it", helperPrefix, helper)
	case ctx.Err() != nil:
		return credential{}, ctx.Err()
	case limited.Err() != nil:
		return credential{}, hint.Wrap(fmt.Errorf("no answer within %s: %w", h.limit, limited.Err()),
			"it may be waiting for input: run %s", byHand(helper, server))
	case err != nil && saysNotFound(stdout.kept, stderr.kept):
		return credential{}, nil
	case err != nil:
		return credential{}, hint.Wrap(complaint(err, stderr.kept), "run it by hand: %s", byHand(helper, server))
	}
	cred, err := parseHelperAnswer(stdout)
	return cred, hint.Wrap(err, "that is no credential helper, or a damaged one: see what it says to %s", byHand(helper, server))
}

func byHand(helper, server string) string {
	return fmt.Sprintf("echo %s | %s%s get", server, helperPrefix, helper)
}

// saysNotFound knows the sentence by which helpers say that they have no login
// ("credentials not found in native keychain"). The protocol has it on standard
// output, and the exit status is the same as for a failure.
func saysNotFound(outputs ...[]byte) bool {
	return slices.ContainsFunc(outputs, func(b []byte) bool {
		return bytes.Contains(bytes.ToLower(b), []byte("credentials not found"))
	})
}

// complaint makes an error of how the helper ended and what it wrote to standard
// error, on one line.
func complaint(err error, stderr []byte) error {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(stderr), ""))
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}

func parseHelperAnswer(b cappedBuffer) (credential, error) {
	var answer struct{ Username, Secret string }
	if b.cut {
		return credential{}, fmt.Errorf("its answer is longer than %d bytes", b.max)
	}
	if err := json.Unmarshal(b.kept, &answer); err != nil {
		return credential{}, errors.New("its answer is not the JSON that credential helpers give")
	}
	if answer.Username == "<token>" {
		return newCredential(auth.Credential{RefreshToken: answer.Secret}), nil
	}
	return newCredential(auth.Credential{Username: answer.Username, Password: answer.Secret}), nil
}

// cappedBuffer keeps the first max bytes that are written to it, and takes the
// rest so that the writer ends as it would have.
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

// slot is a mutex whose wait a context ends.
type slot chan struct{}

func newSlot() slot { return make(slot, 1) }

func (s slot) lock(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slot) unlock() { <-s }
