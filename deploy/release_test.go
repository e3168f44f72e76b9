package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestRelease shows that two builds of a release for this platform, in different folders, are identical and
// complete.
func TestRelease(t *testing.T) {
	t.Parallel()
	var sums [2]string
	var dist string
	t.Run("builds", func(t *testing.T) {
		for i, folder := range []string{"a", "another/and/longer"} {
			src := filepath.Join(t.TempDir(), folder)
			copyTree(t, src, nil)
			out := filepath.Join(src, "dist")
			if i == 0 {
				dist = t.TempDir()
				out = dist
			}
			cmd := command(t, "release", "build", "-root", src, "-out", out, "-version", "v1.2.3", "-platforms", runtime.GOOS+"_"+runtime.GOARCH)
			cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1767323045")
			if progress, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(progress), "release: "+runtime.GOOS+"_"+runtime.GOARCH+", 1 of 1\n") {
				t.Fatalf("%v\n%s", err, progress)
			}
			text, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
			if err != nil {
				t.Fatal(err)
			}
			sums[i] = string(text)
			if i == 0 {
				examineRelease(t, dist, sums[0])
			}
		}
	})
	if sums[0] != sums[1] {
		t.Errorf("%s\nand\n%s", sums[0], sums[1])
	}
}

func examineRelease(t *testing.T, dist, sums string) {
	t.Helper()
	name := fmt.Sprintf("ocibridge_1.2.3_%s_%s", runtime.GOOS, runtime.GOARCH)
	archive, err := os.ReadFile(filepath.Join(dist, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(sums, fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256(archive), name)) {
		t.Errorf("the archive is not in SHA256SUMS:\n%s", sums)
	}
	files := untar(t, archive)
	for _, file := range []string{"README.md", "LICENSE", "docs/README.md", "docs/developers/licences.md", "docs/reference/configuration.md", "docs/reference/ocibridge.hcl", "docs/reference/output.schema.json", "docs/images/page.png", "completions/ocibridge.bash", "completions/ocibridge.zsh", "man/man1/ocibridge.1", "man/man1/ocibridge-module-push.1", "THIRD-PARTY-LICENCES.txt", "systemd/ocibridge.service"} {
		if len(files[name+"/"+file]) == 0 && !(runtime.GOOS != "linux" && strings.HasPrefix(file, "systemd/")) {
			t.Errorf("%s is not in the archive", file)
		}
	}
	if page := files[name+"/man/man1/ocibridge-push.1"]; !bytes.Contains(page, []byte(`"ocibridge v1.2.3"`)) || bytes.Contains(page, []byte(dist)) {
		t.Errorf("the manual page of push:\n%.200s", page)
	}
	program := filepath.Join(t.TempDir(), "ocibridge")
	if err := os.WriteFile(program, files[name+"/ocibridge"], 0o755); err != nil {
		t.Fatal(err)
	}
	if out := string(output(t, exec.CommandContext(t.Context(), program, "version"))); !strings.HasPrefix(out, "ocibridge v1.2.3 ") {
		t.Errorf("it says %q", out)
	}
	bom, err := os.ReadFile(filepath.Join(dist, name+".cdx.json"))
	if err != nil || !bytes.Contains(bom, []byte(`"pkg:golang/oras.land/oras-go/v2@v`)) {
		t.Errorf("%v: no oras-go in the SBOM", err)
	}
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err == nil {
			files[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLicences shows that docs/developers/licences.md lists the program's modules, and that all their licences are
// allowed.
func TestLicences(t *testing.T) {
	t.Parallel()
	cmd := command(t, "release", "licences", "-root", "..")
	cmd.Env = os.Environ()
	output(t, cmd)
}
