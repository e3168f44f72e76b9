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
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/fresh"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// helperPrefix is the prefix of every credential helper's program name.
const helperPrefix = "docker-credential-"

const (
	// maxHelperOutput bounds a helper's answer in bytes. An answer is a JSON object of
	// three strings.
	maxHelperOutput = 64 << 10
	// maxHelperStderr bounds how many bytes of a helper's standard error are shown.
	maxHelperStderr = 1 << 10
	// helperTTL is how long an answer is cached. Each token is for one repository and
	// action, so one push needs the same answer many times. The password in an answer
	// is valid for minutes to hours.
	helperTTL = time.Minute
	// helperFailureTTL is how long a failure is cached. Without that, the callers that
	// wait for a hanging helper would each wait for a run of their own.
	helperFailureTTL = 10 * time.Second
)

// helperRunner runs credential helpers by docker's protocol: "get" as the argument,
// the server on standard input, JSON or an error message on standard output.
//
// oras-go has a runner too. But it passes the helper's standard error through to the
// program's own, puts the output of a failed helper into errors, and waits forever if
// the helper leaves a child process that holds its output open.
type helperRunner struct {
	limit   time.Duration // for one run
	grace   time.Duration // for reading the output after the helper exits or is killed
	answers *fresh.Cache[helperQuestion, credential]
}

type helperQuestion struct {
	helper   string
	registry ociaddr.Registry
}

func (q helperQuestion) String() string { return q.helper + " " + string(q.registry) }

func newHelperRunner(limit time.Duration) *helperRunner {
	h := &helperRunner{limit: limit, grace: min(limit, time.Second)}
	h.answers = newHelperAnswers(limit, h.run)
	return h
}

// newHelperAnswers returns the cache of helpers' answers.
func newHelperAnswers(limit time.Duration, run func(ctx context.Context, helper, server string) (credential, error)) *fresh.Cache[helperQuestion, credential] {
	return fresh.New(fresh.Options[helperQuestion, credential]{
		Key: helperQuestion.String,
		Fetch: func(ctx context.Context, q helperQuestion, _ *fresh.Answer[credential]) (fresh.Answer[credential], error) {
			cred, err := askHelper(ctx, q, run)
			return fresh.Answer[credential]{Value: cred, TTL: helperTTL}, err
		},
		Timeout: 4 * limit, FailureTTL: helperFailureTTL, // each run has its own limit
	})
}

// get returns the helper's credential for the registry, or the zero credential if the
// helper has none. Concurrent callers share one run of the helper.
func (h *helperRunner) get(ctx context.Context, helper string, registry ociaddr.Registry) (credential, error) {
	a, err := h.answers.Get(ctx, helperQuestion{helper, registry})
	if err != nil {
		return credential{}, err
	}
	return a.Value, nil
}

// askHelper tries each server name that helpers use for the registry. The helper may fail for
// one name and answer for another: scripts often recognise only one of them.
func askHelper(ctx context.Context, q helperQuestion, run func(ctx context.Context, helper, server string) (credential, error)) (credential, error) {
	var first error
	for _, server := range serverNames(q.registry) {
		cred, err := run(ctx, q.helper, server)
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

// serverNames returns the server names to ask a helper for: first the URL, then the
// host that docker stores a login under. Docker Hub has a single, historical name.
func serverNames(registry ociaddr.Registry) []string {
	if canonicalHost(string(registry)) == hub {
		return []string{hubKey}
	}
	return []string{"https://" + string(registry), string(registry)}
}

// run runs the helper once. The error never contains the helper's standard output.
func (h *helperRunner) run(ctx context.Context, helper, server string) (credential, error) {
	limited, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	stdout, stderr := cappedBuffer{max: maxHelperOutput}, cappedBuffer{max: maxHelperStderr}
	cmd := exec.CommandContext(limited, helperPrefix+helper, "get")
	cmd.Stdin = strings.NewReader(server)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A helper may leave a child process that holds its output open.
	cmd.WaitDelay = h.grace

	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the helper succeeded, and left a child process behind
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
	return cred, hint.Wrap(err, "the program is not a credential helper, or is damaged: check the output of %s", byHand(helper, server))
}

func byHand(helper, server string) string {
	return fmt.Sprintf("echo %s | %s%s get", server, helperPrefix, helper)
}

// saysNotFound recognises the message by which a helper says that it has no login
// ("credentials not found in native keychain"). The protocol puts the message on
// standard output, and the exit status is the same as for a failure.
func saysNotFound(outputs ...[]byte) bool {
	return slices.ContainsFunc(outputs, func(b []byte) bool {
		return bytes.Contains(bytes.ToLower(b), []byte("credentials not found"))
	})
}

// complaint returns an error with the helper's exit status and its standard error,
// on one line.
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

// cappedBuffer keeps the first max bytes that are written to it. It discards the rest,
// so that the writer never blocks or fails.
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
