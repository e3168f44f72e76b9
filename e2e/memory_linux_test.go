package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// TestMemoryDoesNotGrowWithThePackage compares the peak resident memory of a push
// of 500 MiB with that of 1 MiB.
func TestMemoryDoesNotGrowWithThePackage(t *testing.T) {
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
			large := s.peak(t, 500, destination(s))
			t.Logf("peak resident memory: %d MiB for 1 MiB, %d MiB for 500 MiB", small>>20, large>>20)
			if large > small+allowed {
				t.Errorf("%d MiB more", (large-small)>>20)
			}
		})
	}
}

// peak pushes a package of so many MiB and returns the program's peak resident
// memory in bytes. It is read while the program waits for the origin to send a
// second, tiny version.
func (s *scene) peak(t *testing.T, mib int, destination []string) int64 {
	t.Helper()
	big := filepath.Join(t.TempDir(), "big.zip")
	if _, err := release.WriteBigZip(big, "terraform-provider-big_v1.0.0", mib, uint64(mib)); err != nil {
		t.Fatal(err)
	}
	s.Origin.Add(release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "big", Version: "1.0.0", Signer: s.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: big}}}))
	s.Origin.Add(release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "big", Version: "1.0.1", Signer: s.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"x": nil}}}}))

	cmd := s.ws.Command(t.Context(), s.bridge, append([]string{"push", "--all", world.Host + "/acme/big@>= 1.0"}, destination...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	peak := int64(0)
	s.Origin.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "_1.0.1_linux_amd64.zip") {
			var err error
			if peak, err = highWater(cmd.Process.Pid); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	defer s.Origin.Intercept(nil)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if peak == 0 {
		t.Fatal("the second version was not asked for")
	}
	return peak
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
