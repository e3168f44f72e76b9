package bundle_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
)

// TestChecksum shows that sha256sum accepts the checksum file of an archive, whatever the archive's name is, and
// that the checksum file of an earlier archive is replaced.
func TestChecksum(t *testing.T) {
	for _, name := range []string{"providers.tar", "a b*.tar", "back\\slash\nline.tar"} {
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		write(t, file+".sha256", []byte("of an earlier archive"))
		b, err := bundle.Create(t.Context(), file, true)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, b, "1.0.0", widget)
		check := exec.Command("sha256sum", "--check", "--strict", "--status", name+".sha256")
		check.Dir = dir
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s", name, err, out)
		}
		contents(t, file, true)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("left: %v, %v", entries, err)
		}
	}
}

// TestChecksumDiffers shows that Open compares an archive with its checksum file, and which checksum files it
// accepts.
func TestChecksumDiffers(t *testing.T) {
	file := create(t, true)
	data, err := os.ReadFile(file + ".sha256")
	if err != nil {
		t.Fatal(err)
	}
	sum, _, _ := strings.Cut(string(data), " ")
	other := strings.Repeat("0", 64)
	for content, want := range map[string]string{
		sum:                                    "",
		strings.ToUpper(sum) + " *other.tar":   "",
		`\` + sum + `  back\\slash.tar` + "\n": "",
		other + "  bundle\n":                   fmt.Sprintf("incomplete bundle: its SHA-256 is %s, and bundle.sha256 gives %s", sum, other),
		"":                                     "is not a checksum file of one line",
		sum[2:] + "  bundle":                   "is not a checksum file of one line",
		sum + "  bundle\n" + sum + "  other":   "is not a checksum file of one line",
		strings.Repeat(sum, 1000):              "bundle.sha256: the document is too large",
	} {
		write(t, file+".sha256", []byte(content))
		b, err := bundle.Open(t.Context(), file, true)
		if err == nil {
			b.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", content, err, want)
		}
		if err != nil && strings.HasPrefix(want, "i") && (hint.Of(err) == "" || want[:10] == "incomplete" && !errors.Is(err, bundle.ErrIncomplete)) {
			t.Errorf("%.80q: %v, hint %q", content, err, hint.Of(err))
		}
	}
	if err := os.Remove(file + ".sha256"); err != nil {
		t.Fatal(err)
	}
	contents(t, file, true)
}

// TestChecksumEndsWithItsContext shows that an interrupt ends the comparison of a large archive.
func TestChecksumEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bundle.Open(ctx, create(t, true), true); !errors.Is(err, context.Canceled) || hint.Of(err) != "" {
		t.Errorf("%v", err)
	}
}

// TestChecksumIsLast shows that a failed rename of an archive leaves neither an archive nor a checksum file.
func TestChecksumIsLast(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle")
	b, err := bundle.Create(t.Context(), file, true)
	if err != nil {
		t.Fatal(err)
	}
	push(t, b, "1.0.0", widget)
	if err := os.MkdirAll(filepath.Join(file, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.Save(t.Context()); err == nil {
		t.Error("the archive replaced a folder")
	}
	b.Close()
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := os.Stat(file + ".sha256"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
