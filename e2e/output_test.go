package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestSyncOutputAtScale shows that a sync of 120 versions prints a line for each change, and one line that sums up
// all versions.
func TestSyncOutputAtScale(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const tiny = world.Host + "/acme/tiny"
	offer := func(version string) {
		s.Origin.Add(release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "tiny", Version: version, Signer: s.Signer,
			Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-tiny": []byte(version)}}}}))
	}
	for i := range 119 {
		offer(fmt.Sprintf("1.%d.0", i))
	}
	r := registry.For(t, registry.Options{})
	file := s.configure(r, `provider "`+tiny+`" {
  versions = ">= 1.0"
}`)
	got := s.run("sync", "--config", file, "--quiet")
	if lines := strings.Count(got.stdout, tiny+" 1."); got.status != 0 || lines != 119 || strings.Count(got.stdout, "\n") != 119 || got.stderr != "" {
		t.Fatalf("status %d, %d versions; stdout\n%s\nstderr\n%s", got.status, lines, got.stdout, got.stderr)
	}
	offer("1.119.0")
	if got := s.run("sync", "--config", file, "--dry-run", "--detailed-exitcode"); got.status != 3 ||
		!strings.HasPrefix(got.stdout, tiny+"\n  + 1.119.0  linux_amd64, ") || strings.Count(got.stdout, "\n") != 3 || !strings.Contains(got.stdout, "\nPlan: 1 to push (") {
		t.Errorf("dry run: %+v", got)
	}
	got = s.run("sync", "--config", file)
	if got.status != 0 || !strings.HasPrefix(got.stdout, tiny+" 1.119.0: pushed, 1 platform, ") || strings.Count(got.stdout, "\n") != 2 ||
		!strings.HasSuffix(got.stdout, "\nSync: 1 pushed, 119 in place\n") {
		t.Errorf("%+v", got)
	}
	if lines := strings.Count(got.stderr, "\n"); lines != 2 || !strings.HasPrefix(got.stderr, "Plan: 1 to push (") {
		t.Errorf("%d lines of progress:\n%s", lines, got.stderr)
	}
	want := result{stdout: "Sync: 120 in place\n"}
	if got := s.run("sync", "--config", file); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := s.run("sync", "--config", file, "--quiet"); got != (result{}) {
		t.Errorf("with --quiet: %+v", got)
	}
	if got := s.run("sync", "--config", file, "--dry-run", "--detailed-exitcode"); got.status != 0 {
		t.Errorf("dry run with nothing to do: %+v", got)
	}
}

// TestInterruptedOutput shows that an interrupted command names the versions that it completed, as text and as one
// JSON document, and that its exit status names the signal.
func TestInterruptedOutput(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		signal syscall.Signal
		args   []string // without the place
		status int
		stdout string // a line, for text
	}{
		"push, JSON": {syscall.SIGINT, []string{"push", "--output", "json", world.Null + "@3.2.5", world.Null + "@" + nullVersion}, 130, ""},
		"push":       {syscall.SIGTERM, []string{"push", world.Null + "@3.2.5", world.Null + "@" + nullVersion}, 143, world.Null + " 3.2.5: pushed, "},
		"sync, JSON": {syscall.SIGTERM, []string{"sync", "--output", "json"}, 143, ""},
		"sync":       {syscall.SIGINT, []string{"sync"}, 130, "\nSync: 1 pushed, 1 not done\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.offer("3.2.5")
			r := registry.For(t, registry.Options{})
			reached := make(chan struct{}, 10)
			s.Origin.Intercept(func(_ http.ResponseWriter, req *http.Request) bool {
				if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, nullVersion+"_linux_amd64.zip") {
					return false
				}
				reached <- struct{}{}
				<-req.Context().Done()
				return true
			})
			file := s.configure(r, "provider \""+world.Null+"\" {\n  versions = \">= 3\"\n}\n")
			cmd := s.ws.Command(t.Context(), s.bridge, append(tt.args, "--jobs", "1", "--config", file)...)
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			clients.Must(t, cmd.Start())
			<-reached
			clients.Must(t, cmd.Process.Signal(tt.signal))
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.HasSuffix(stderr.String(), "error: interrupted\nhint: completed versions and files stay; running the command again completes the others\n") {
				t.Errorf("status %d, want %d; stderr:\n%s", got, tt.status, stderr.String())
			}
			if tt.stdout != "" {
				if !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stdout.String(), world.Null+" 3.2.5: pushed, ") {
					t.Errorf("stdout:\n%s", stdout.String())
				}
				return
			}
			var doc struct {
				Results []struct{ Version, Status string }
				Error   struct{ Message string }
			}
			if err := json.Unmarshal([]byte(stdout.String()), &doc); err != nil {
				t.Fatalf("%v:\n%s", err, stdout.String())
			}
			if len(doc.Results) != 1 || doc.Results[0].Version != "3.2.5" || doc.Results[0].Status != "pushed" || doc.Error.Message != "interrupted" {
				t.Errorf("%+v", doc)
			}
		})
	}
}
