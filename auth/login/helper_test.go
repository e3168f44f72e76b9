package login

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
	"github.com/ocibridge/ocibridge/ociaddr"
)

func TestHelper(t *testing.T) {
	const answer = `echo '{"ServerURL": "x", "Username": "robot$x", "Secret": "p:w"}'`
	tests := []struct {
		name     string
		script   string
		registry ociaddr.Registry
		want     auth.Credential
		asked    string
	}{
		{"by URL", answer, "ghcr.io", auth.Credential{Username: "robot$x", Password: "p:w"}, "https://ghcr.io"},
		{"by host with a port", `[ "$server" = localhost:5000 ] || { echo "credentials not found in native keychain"; exit 1; }` + "\n" + answer, "localhost:5000",
			auth.Credential{Username: "robot$x", Password: "p:w"}, "https://localhost:5000 localhost:5000"},
		{"by host, the URL being an error", `[ "$server" = ghcr.io ] || { echo "unknown server" >&2; exit 1; }` + "\n" + answer, "ghcr.io",
			auth.Credential{Username: "robot$x", Password: "p:w"}, "https://ghcr.io ghcr.io"},
		{"Docker Hub", answer, "docker.io", auth.Credential{Username: "robot$x", Password: "p:w"}, "https://index.docker.io/v1/"},
		{"identity token", `echo '{"Username": "<token>", "Secret": "r"}'`, "ghcr.io", auth.Credential{RefreshToken: "r"}, "https://ghcr.io"},
		{"not found", `echo "Credentials not found in native keychain"; exit 1`, "ghcr.io", auth.EmptyCredential, "https://ghcr.io ghcr.io"},
		{"empty answer", `echo '{"Username": "", "Secret": ""}'`, "ghcr.io", auth.EmptyCredential, "https://ghcr.io ghcr.io"},
		{"child left behind", answer + "\nsleep 5 &", "ghcr.io", auth.Credential{Username: "robot$x", Password: "p:w"}, "https://ghcr.io"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked := loginfiles.Helper(t, "fake", tt.script)
			cred, err := newHelperRunner(time.Minute).get(t.Context(), "fake", tt.registry)
			if err != nil || cred.reveal() != tt.want {
				t.Errorf("credential %+v, %v; want %+v", cred.reveal(), err, tt.want)
			}
			if got := asked(); got != tt.asked {
				t.Errorf("asked for %q, want %q", got, tt.asked)
			}
		})
	}
}

func TestHelperFailures(t *testing.T) {
	tests := []struct {
		name, script, want string
	}{
		{"complaint", `echo s3cr3t; printf 'keychain is\n\033[31mlocked\n' >&2; exit 3`, "exit status 3: keychain is [31mlocked"},
		{"reason", `echo 'the keychain is locked'; exit 1`, "exit status 1: the keychain is locked"},
		{"login and failure", `echo '{"Username":"u", "Secret":"s3cr3t"}'; exit 1`, "exit status 1"},
		{"nothing to say", `echo s3cr3t; exit 1`, "exit status 1"},
		{"no JSON", `echo s3cr3t`, "not the JSON"},
		{"no object", `echo '["s3cr3t"]'`, "not the JSON"},
		{"endless answer", `yes s3cr3t | head -c 100000`, "longer than 65536 bytes"},
		{"endless complaint", `yes complaint | head -c 100000 >&2; exit 1`, "exit status 1: complaint complaint"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			loginfiles.Helper(t, "fake", tt.script)
			_, err := newHelperRunner(time.Minute).get(t.Context(), "fake", "ghcr.io")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			if hint.Of(err) == "" {
				t.Errorf("%v has no hint", err)
			}
			if s := err.Error() + hint.Of(err); strings.Contains(s, "s3cr3t") || strings.ContainsAny(s, "\n\x1b") || len(s) > 2000 {
				t.Errorf("the error shows too much: %.300q", s)
			}
		})
	}
}

func TestHelperThatIsNotThere(t *testing.T) {
	_, err := newHelperRunner(time.Minute).get(t.Context(), "surely-not-installed", "ghcr.io")
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(hint.Of(err), "docker-credential-surely-not-installed") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
}

func TestHelperThatHangs(t *testing.T) {
	for name, script := range map[string]string{
		"itself":               "exec sleep 5",
		"with a child":         "sleep 5",
		"deaf to its children": "sleep 5 & wait",
	} {
		t.Run(name, func(t *testing.T) {
			asked := loginfiles.Helper(t, "fake", script)
			_, err := newHelperRunner(500*time.Millisecond).get(t.Context(), "fake", "ghcr.io")
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 500ms") || hint.Of(err) == "" {
				t.Errorf("%v, hint %q", err, hint.Of(err))
			}
			if strings.Contains(asked(), " ") {
				t.Errorf("it was asked again: %q", asked())
			}
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		loginfiles.Helper(t, "fake", "exec sleep 5")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := newHelperRunner(time.Minute).get(ctx, "fake", "ghcr.io"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// TestHelperAnswersAreKeptForAWhile shows that the answer of a helper for a registry is
// cached for a limited time. It also shows that concurrent callers share one run of the
// helper.
func TestHelperAnswersAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		h := &helperRunner{answers: newHelperAnswers(time.Minute, func(_ context.Context, helper, server string) (credential, error) {
			mu.Lock()
			asked = append(asked, server)
			mu.Unlock()
			time.Sleep(time.Second)
			return newCredential(auth.Credential{Username: "u", Password: "p"}), nil
		})}
		get := func(registry ociaddr.Registry) {
			if cred, err := h.get(t.Context(), "fake", registry); err != nil || cred.empty() {
				t.Errorf("%s: %v", registry, err)
			}
		}
		expect := func(want string) {
			t.Helper()
			if got := strings.Join(asked, " "); got != want {
				t.Errorf("asked for %q, want %q", got, want)
			}
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { get("ghcr.io") })
		}
		wg.Wait()
		time.Sleep(helperTTL - 2*time.Second)
		get("ghcr.io")
		get("other.io")
		expect("https://ghcr.io https://other.io")
		time.Sleep(time.Second)
		get("ghcr.io")
		expect("https://ghcr.io https://other.io https://ghcr.io")
	})
}

// TestHelperFailuresAreKeptForAWhile shows that all callers that wait for a hanging helper
// get the same error. The error is cached for a limited time.
func TestHelperFailuresAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		h := &helperRunner{answers: newHelperAnswers(time.Minute, func(ctx context.Context, _, _ string) (credential, error) {
			runs++
			time.Sleep(time.Minute)
			return credential{}, fmt.Errorf("run %d: %w", runs, context.DeadlineExceeded)
		})}
		expect := func(want string) {
			t.Helper()
			if _, err := h.get(t.Context(), "fake", "ghcr.io"); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { expect("run 1: context deadline exceeded") })
		}
		wg.Wait()
		time.Sleep(helperFailureTTL - 1)
		expect("run 1: context deadline exceeded")
		time.Sleep(time.Nanosecond)
		expect("run 2: context deadline exceeded")
	})
}

// TestHelperIsRunOnce shows that concurrent callers share one run of a helper that hangs.
// The helper is a real program.
func TestHelperIsRunOnce(t *testing.T) {
	asked := loginfiles.Helper(t, "fake", "exec sleep 5")
	h := newHelperRunner(200 * time.Millisecond)
	var errs [8]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = h.get(t.Context(), "fake", "ghcr.io") })
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil || err != errs[0] {
			t.Errorf("it was run more than once: %q, %v", asked(), err)
		}
	}
}
