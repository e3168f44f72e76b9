package modulezip_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
)

// writeFetched writes a fetched module: files by their names, links with a -> before their target, and programs whose content
// begins with #!.
func writeFetched(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(content, "-> ")
		mode := os.FileMode(0o600)
		if strings.HasPrefix(content, "#!") {
			mode = 0o700
		}
		err := error(nil)
		if link {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(content), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPackFetched checks that a fetched module is packed whole, with the modes of its files, and that the digest depends on
// neither the umask nor the time.
func TestPackFetched(t *testing.T) {
	files := map[string]string{
		"main.tf": "# x\n", ".terraformignore": "*.sh\n", "run.sh": "#!/bin/sh\n", ".terraform/kept": "k", "sub/.git/kept": "g",
		"sub/link.tf": "-> ../main.tf", "again": "-> sub", "terraform.tfstate": "{}",
	}
	dir := writeFetched(t, files)
	z, err := modulezip.PackFetched(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	body, _ := io.ReadAll(z.Open())
	r, err := zip.NewReader(bytes.NewReader(body), z.Size)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.File {
		got = append(got, f.Mode().String()+" "+f.Name)
	}
	want := `-rw-r--r-- .terraform/kept
-rw-r--r-- .terraformignore
-rw-r--r-- again/.git/kept
-rw-r--r-- again/link.tf
-rw-r--r-- main.tf
-rwxr-xr-x run.sh
-rw-r--r-- sub/.git/kept
-rw-r--r-- sub/link.tf
-rw-r--r-- terraform.tfstate`
	if strings.Join(got, "\n") != want || len(z.Warnings) > 0 {
		t.Errorf("%s\n%v", strings.Join(got, "\n"), z.Warnings)
	}
	other := writeFetched(t, files)
	for _, name := range []string{"main.tf", "run.sh"} {
		at := filepath.Join(other, name)
		info, _ := os.Stat(at)
		if err := errors.Join(os.Chmod(at, info.Mode()|0o077), os.Chtimes(at, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
			t.Fatal(err)
		}
	}
	again, err := modulezip.PackFetched(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Digest != z.Digest || again.H1 != z.H1 {
		t.Error("another umask and time give another digest")
	}
}

// TestPackFetchedRefuses checks links that a zip cannot carry.
func TestPackFetchedRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		says  string
	}{
		"link out":       {map[string]string{"main.tf": "", "out": "-> ../../etc/passwd"}, "leaves the folder"},
		"absolute link":  {map[string]string{"main.tf": "", "out": "-> /etc/passwd"}, "leaves the folder"},
		"dangling link":  {map[string]string{"main.tf": "", "out": "-> nothing"}, "does not exist"},
		"link in circle": {map[string]string{"main.tf": "", "a/up": "-> .."}, "contains the link"},
		"nothing":        {map[string]string{}, "no files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := modulezip.PackFetched(t.Context(), writeFetched(t, tc.files))
			if !errors.Is(err, modulezip.ErrUnpackable) || !strings.Contains(err.Error(), tc.says) || strings.Contains(hint.Of(err), "terraformignore") {
				t.Errorf("%v (%s)", err, hint.Of(err))
			}
		})
	}
}
