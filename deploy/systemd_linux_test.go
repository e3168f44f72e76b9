package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// exposure is the maximum score of a service in systemd-analyze security, in tenths. A score of 100 means no
// restrictions.
const exposure = 15

// units writes copies of the units, and returns the paths of the copies. The copies contain the path of the
// built program.
func units(t *testing.T) map[string]string {
	t.Helper()
	program, err := clients.Bridge()
	clients.Must(t, err)
	folder, paths := t.TempDir(), map[string]string{}
	for _, name := range []string{"ocibridge.service", "ocibridge-sync.service", "ocibridge-sync.timer", "ocibridge-gc.service", "ocibridge-gc.timer"} {
		text, err := os.ReadFile(filepath.Join("systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		paths[name] = filepath.Join(folder, name)
		if err := os.WriteFile(paths[name], []byte(strings.ReplaceAll(string(text), "/usr/local/bin/ocibridge", program.Path)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func analyze(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), clients.Program(t, "systemd-analyze").Path, args...)
}

// verify returns systemd's complaints about a unit. For unknown settings, systemd only warns and exits with 0.
func verify(t *testing.T, unit string) string {
	t.Helper()
	out, err := analyze(t, "verify", "--man=no", unit).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for name, unit := range units(t) {
		if problems := verify(t, unit); problems != "" {
			t.Errorf("%s: %s", name, problems)
		}
	}
}

func TestUnitsAreHardened(t *testing.T) {
	t.Parallel()
	for name, unit := range units(t) {
		if filepath.Ext(name) != ".service" {
			continue
		}
		out, err := analyze(t, "security", "--offline=true", "--no-pager", "--threshold="+strconv.Itoa(exposure), unit).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestUnitChecks shows that the checks of units find errors.
func TestUnitChecks(t *testing.T) {
	t.Parallel()
	unit := units(t)["ocibridge.service"]
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(from, to string) {
		if !strings.Contains(string(text), from) {
			t.Fatalf("%s is not in the unit", from)
		}
		if err := os.WriteFile(unit, []byte(strings.Replace(string(text), from, to, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spoil("ProtectClock=", "ProtectClocks=")
	if problems := verify(t, unit); !strings.Contains(problems, "ProtectClocks") {
		t.Errorf("an unknown setting is accepted: %q", problems)
	}
	spoil("CapabilityBoundingSet=\n", "\n")
	if err := analyze(t, "security", "--offline=true", "--threshold="+strconv.Itoa(exposure), unit).Run(); err == nil {
		t.Error("a unit with every capability is within the threshold")
	}
}

// TestUnitStopTimeout shows that the unit's timeout is long enough for running downloads to complete.
func TestUnitStopTimeout(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("systemd/ocibridge.service")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=([0-9]+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no TimeoutStopSec")
	}
	if seconds, _ := strconv.Atoi(string(m[1])); seconds <= shutdownSeconds {
		t.Errorf("TimeoutStopSec is %d, want more than %d", seconds, shutdownSeconds)
	}
}
