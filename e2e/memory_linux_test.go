package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestMemoryDoesNotGrowWithThePackage shows that a push of 200 MiB needs at most 64 MiB more memory than a push
// of 1 MiB.
func TestMemoryDoesNotGrowWithThePackage(t *testing.T) {
	t.Parallel()
	const allowed = 64 << 20
	for name, destination := range map[string]func(*scene) []string{
		"embedded registry": func(s *scene) []string { return []string{"--data", s.t.TempDir()} },
		"registry": func(s *scene) []string {
			return []string{"--template", template(registry.For(s.t, registry.Options{}))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			small := s.peak(t, 1, destination(s))
			large := s.peak(t, 200, destination(s))
			t.Logf("peak resident memory: %d MiB for 1 MiB, %d MiB for 200 MiB", small>>20, large>>20)
			if large > small+allowed {
				t.Errorf("%d MiB more", (large-small)>>20)
			}
		})
	}
}

// TestMemoryOfManyPackages shows that a push of 12 platforms with 50 MB each, four at once, needs at most 128 MiB of memory.
func TestMemoryOfManyPackages(t *testing.T) {
	t.Parallel()
	const allowed = 128 << 20
	s := newScene(t)
	spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "many", Version: "1.0.0", Signer: s.Signer}
	for i := range 12 {
		zip := filepath.Join(t.TempDir(), fmt.Sprintf("%d.zip", i))
		if _, err := release.WriteBigZip(zip, "terraform-provider-many_v1.0.0", 48, uint64(i)); err != nil { // 50.3 MB
			t.Fatal(err)
		}
		spec.Contents = append(spec.Contents, release.Content{OS: "linux", Arch: fmt.Sprintf("arch%d", i), Zip: zip})
	}
	s.Origin.Add(release.For(t, spec))
	for name, destination := range map[string][]string{
		"embedded registry": {"--data", s.data},
		"registry":          {"--template", template(registry.For(t, registry.Options{}))},
	} {
		t.Run(name, func(t *testing.T) {
			peak, out := s.peakOf(t, append([]string{"push", "--jobs", "4", world.Host + "/acme/many@1.0.0"}, destination...)...)
			t.Logf("peak resident memory: %d MiB", peak>>20)
			if peak > allowed {
				t.Error("that is too much")
			}
			if n := strings.Count(out, ": stored, "); n != 12 {
				t.Errorf("%d packages were stored", n)
			}
		})
	}
}

// peak pushes a package of mib MiB and returns the program's peak resident memory in bytes.
func (s *scene) peak(t *testing.T, mib int, destination []string) int64 {
	t.Helper()
	big := filepath.Join(t.TempDir(), "big.zip")
	if _, err := release.WriteBigZip(big, "terraform-provider-big_v1.0.0", mib, uint64(mib)); err != nil {
		t.Fatal(err)
	}
	s.Origin.Add(release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "big", Version: "1.0.0", Signer: s.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: big}}}))
	peak, _ := s.peakOf(t, append([]string{"push", world.Host + "/acme/big@1.0.0"}, destination...)...)
	return peak
}

// peakOf runs the program, and returns the program's peak resident memory in bytes and its output. It reads the
// peak while the program runs. The system's figure after the exit would include the memory of the test process.
func (s *scene) peakOf(t *testing.T, args ...string) (int64, string) {
	t.Helper()
	cmd := s.ws.Command(t.Context(), s.bridge, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	peak := int64(0)
	for {
		// Read the peak immediately, because the program might exit before the next read on a busy machine.
		if now, err := highWater(cmd.Process.Pid); err == nil { // otherwise the program has just exited
			peak = now
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if peak == 0 {
				t.Fatal("the program exited before its memory could be read")
			}
			return peak, out.String()
		case <-tick.C:
		}
	}
}

var vmHWM = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// highWater returns the peak resident memory of a running process in bytes.
func highWater(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	m := vmHWM.FindSubmatch(status)
	if m == nil {
		return 0, fmt.Errorf("no VmHWM in %s", status)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	return kib << 10, err
}
