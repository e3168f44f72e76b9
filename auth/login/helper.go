package login

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

	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/helper"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// helperPrefix is the prefix of every credential helper's program name.
const helperPrefix = "docker-credential-"

const (
	// helperTTL is how long the answer of a helper is cached. A push requests many tokens, and
	// each request needs the answer. The password in it is valid for minutes to hours.
	helperTTL = time.Minute
	// helperFailureTTL is how long the failure of a helper is cached. Without this cache,
	// each caller that has waited for a hanging helper would run the helper again.
	helperFailureTTL = 10 * time.Second
)

// helperRunner runs credential helpers by docker's protocol. oras-go's own runner is not
// suitable. It writes the helper's standard error to the standard error of this process, and
// puts the output of a failed helper into errors. It also waits forever if the helper leaves a
// child process that keeps the output open.
type helperRunner struct {
	limit   time.Duration // the maximum duration of one run
	grace   time.Duration // the maximum wait for the output after the helper has exited or was killed
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

// newHelperAnswers returns the cache of the answers of helpers. The function run must run a
// helper once, and stop it after limit.
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

// askHelper runs the helper with each server name of the registry until the helper returns a
// credential. Scripts often recognise only one name, and fail for the others.
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

// serverNames returns the names under which helpers may know the registry: first its URL,
// then the host. Docker Hub has a single, historical name.
func serverNames(registry ociaddr.Registry) []string {
	if registry.Canonical() == ociaddr.DockerHub {
		return []string{hubKey}
	}
	return []string{"https://" + string(registry), string(registry)}
}

// run runs the helper once.
func (h *helperRunner) run(ctx context.Context, name, server string) (credential, error) {
	var answer struct{ Username, Secret string }
	found, err := h.command(name, "get", server).Get(ctx, &answer)
	switch {
	case err != nil || !found:
		return credential{}, helperMissing(name, err)
	case answer.Username == "<token>":
		return newCredential(auth.Credential{RefreshToken: answer.Secret}), nil
	}
	return newCredential(auth.Credential{Username: answer.Username, Password: answer.Secret}), nil
}

// store passes a login to the helper.
func (h *helperRunner) store(ctx context.Context, name, server, username string, password Secret) error {
	login, err := json.Marshal(map[string]string{"ServerURL": server, "Username": username, "Secret": password.Reveal()})
	if err != nil {
		return err
	}
	_, err = h.command(name, "store", string(login)).Run(ctx)
	if err != nil && strings.Contains(err.Error(), password.Reveal()) {
		err = hint.New("it failed, with an error that contains the password", "%s", hint.Of(err))
	}
	return helperMissing(name, err)
}

// erase removes a login from the helper. It is no error if the helper has no such login.
func (h *helperRunner) erase(ctx context.Context, name, server string) error {
	_, err := h.command(name, "erase", server).Run(ctx)
	return helperMissing(name, err)
}

// command returns a command that runs the helper with an action: get, store or erase. Its hint
// shows the input, except for store, whose input is secret.
func (h *helperRunner) command(name, action, input string) helper.Command {
	c := helper.Command{Path: helperPrefix + name, Args: []string{action}, Stdin: input, Limit: h.limit, Grace: h.grace, ReasonOnStdout: true}
	c.NotFound, c.ByHand = saysNotFound, fmt.Sprintf("run it by hand: echo %s | %s%s %s", input, helperPrefix, name, action)
	if action == "store" {
		c.NotFound, c.ByHand = nil, fmt.Sprintf("to check the helper, run: %s%s list", helperPrefix, name)
	}
	return c
}

// helperMissing adds a hint to err if err means that the helper is not on PATH.
func helperMissing(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return hint.Replace(fmt.Errorf("%w: no such program on PATH", exec.ErrNotFound),
			"install %s%s, or take it out of the file that names it", helperPrefix, name)
	}
	return err
}

// saysNotFound reports whether the output of a helper says that it has no login ("credentials
// not found in native keychain"). Only the message tells this case from a failure, because the
// exit status is the same. The protocol puts the message on standard output.
func saysNotFound(stdout, stderr []byte) bool {
	return bytes.Contains(bytes.ToLower(slices.Concat(stdout, stderr)), []byte("credentials not found"))
}
