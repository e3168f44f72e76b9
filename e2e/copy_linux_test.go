package e2e

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestCopyMemoryDoesNotGrowWithThePackage compares the peak resident memory of copies of 150 MiB and 1 MiB. It
// does not run in parallel with other tests. The reason is that the program's peak includes the memory of the
// test process at the program's start.
func TestCopyMemoryDoesNotGrowWithThePackage(t *testing.T) {
	const allowed = 64 << 20
	s := newScene(t)
	small, large := s.copyPeaks(1), s.copyPeaks(150)
	for way, peak := range small {
		t.Logf("%s: %d MiB for 1 MiB, %d MiB for 150 MiB", way, peak>>20, large[way]>>20)
		if large[way] > peak+allowed {
			t.Errorf("%s: %d MiB more", way, (large[way]-peak)>>20)
		}
	}
}

// copyPeaks pushes a package of mib MiB, copies it in every way, and returns the peak resident memory of each
// copy in bytes.
func (s *scene) copyPeaks(mib int) map[string]int64 {
	s.t.Helper()
	big := filepath.Join(s.t.TempDir(), "big.zip")
	if _, err := release.WriteBigZip(big, "terraform-provider-big_v1.0.0", mib, uint64(mib)); err != nil {
		s.t.Fatal(err)
	}
	const address = world.Host + "/acme/big"
	s.Origin.Add(release.For(s.t, release.Spec{Host: world.Host, Namespace: "acme", Type: "big", Version: "1.0.0", Signer: s.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: big}}}))
	r := registry.For(s.t, registry.Options{})
	s.pushTo(r, address+"@1.0.0")
	dir := s.t.TempDir()
	archive, folder, mirror := "oci-archive:"+filepath.Join(dir, "a.tar"), "oci:"+filepath.Join(dir, "folder"), "mirror:"+filepath.Join(dir, "mirror")
	return map[string]int64{
		"registry to archive":  s.copyPeak("--from", template(r), "--to", archive, address),
		"archive to registry":  s.copyPeak("--from", archive, "--to", remapped(r)),
		"registry to registry": s.copyPeak("--from", template(r), "--to", r.Host+"/third/${hostname}/${namespace}/${type}", address),
		"archive to folder":    s.copyPeak("--from", archive, "--to", folder),
		"folder to mirror":     s.copyPeak("--from", folder, "--to", mirror),
	}
}

// copyPeak runs a copy, and returns the copy's peak memory in bytes. The peak is at least the memory of the
// test process, because the system begins to measure before it loads the program.
func (s *scene) copyPeak(args ...string) int64 {
	s.t.Helper()
	cmd := s.ws.Command(s.t.Context(), s.bridge, append([]string{"copy"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("copy %v: %v\n%s", args, err, out)
	}
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}
