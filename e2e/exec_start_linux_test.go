package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestExecInterruptedEarly shows that exec does not begin the command after an interrupt, and leaves no file behind.
func TestExecInterruptedEarly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // exec waits for its answer before the command begins
	clients.Must(t, err)
	defer hanging.Close()
	cmd := s.ws.Command(t.Context(), s.bridge, append(append([]string{"exec"}, onlyFor(hanging.Addr(), "localhost:1")...), "--", "echo", "begun")...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	clients.Must(t, cmd.Start())
	conn, err := hanging.Accept()
	clients.Must(t, err)
	defer conn.Close()
	clients.Must(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	want := "error: interrupted before the command began\nhint: run it again\n"
	if got := cmd.ProcessState.ExitCode(); got != 130 || stdout.String() != "" || stderr.String() != want {
		t.Errorf("status %d, stdout %q, stderr %q", got, stdout.String(), stderr.String())
	}
	wantNoFile(t, s.ws)
}

// TestExecMissingFlags shows that the command which adds a missing provider needs the flags of exec.
func TestExecMissingFlags(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	config := filepath.Join(t.TempDir(), "ocibridge.hcl")
	clients.Must(t, os.WriteFile(config, []byte("pull_through {\n  enabled = false\n}\n"), 0o600))
	ws := s.user("", nullVersion)
	got := s.execIn(ws, "--data", s.data, "--config", config, "--", clients.Terraform(t).Path, "init", "-no-color")
	want := "hint: check the names of the repository and the provider; to add the newest version: ocibridge push '" + world.Null + "@>= 0', with the same --config, --data\n"
	if got.status != 1 || !strings.HasSuffix(got.stderr, want) {
		t.Errorf("status %d, stderr\n%s\nwant\n%s", got.status, got.stderr, want)
	}
}

// TestExecWarnings shows that exec prints warnings about the user's own files in any case, and all others only if the
// command fails.
func TestExecWarnings(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	clients.Must(t, err)
	dead.Close()
	s.ws.Env["TF_CLI_CONFIG_FILE"] = filepath.Join(t.TempDir(), "missing")
	for command, fails := range map[string]bool{"true": false, "false": true} {
		got := s.run(append(append([]string{"exec"}, onlyFor(dead.Addr(), "localhost:1")...), "--", command)...)
		if !strings.HasPrefix(got.stderr, "warning: ") || strings.Count(got.stderr, "/missing does not exist") != 1 {
			t.Errorf("%s: status %d, stderr %q", command, got.status, got.stderr)
		}
		if strings.Contains(got.stderr, "warning: the services of a host are unknown") != fails {
			t.Errorf("%s: status %d, stderr %q", command, got.status, got.stderr)
		}
	}
}
