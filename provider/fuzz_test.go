package provider

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"
)

func FuzzParsePlatform(f *testing.F) {
	for _, s := range []string{"linux_amd64", "linux_amd64_v2", "_", "Linux_amd64", "linux_../x", "linux\x00_amd64", "ünix_amd64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePlatform(s)
		if err != nil {
			return
		}
		// The platform becomes a part of paths, file names and tags.
		if p.String() != s || strings.ContainsAny(s, "/\\.:+ ") || strings.Count(s, "_") != 1 {
			t.Errorf("%q is %+v", s, p)
		}
		if again, err := NewPlatform(p.OS, p.Arch); err != nil || again != p {
			t.Errorf("%q: %+v, %v", s, again, err)
		}
	})
}

func FuzzParseHash(f *testing.F) {
	for _, s := range []string{"zh:" + strings.Repeat("0", 64), "zh:" + strings.Repeat("A", 64), "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=",
		"h1:\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "h2:x", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHash(s)
		if err != nil {
			return
		}
		// Hashes are compared as texts, so each hash must have a single text.
		want := 47
		if h.IsZip() {
			want = 67
		}
		if h.String() != s || len(s) != want || h.IsZip() != strings.HasPrefix(s, "zh:") || strings.ContainsAny(s, "\r\n ") {
			t.Errorf("%q is %q", s, h)
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"*/*/*", "registry.opentofu.org/hashicorp/*", "hashicorp/*", "*/hashicorp/*", "испытание.com/a/*", "example.com:443/a/b", "a/b/c/d", "example.com/*/b"} {
		f.Add(s, "registry.opentofu.org/hashicorp/null")
	}
	f.Fuzz(func(t *testing.T, s, address string) {
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Fatalf("%q is %q, which parses to %v, %v", s, p, again, err)
		}
		a, err := ParseAddress(address)
		if err != nil {
			return
		}
		// The expected result, computed from the texts of the pattern and the address.
		parts, of := strings.Split(p.String(), "/"), strings.Split(a.String(), "/")
		want := true
		for i, part := range parts {
			want = want && (part == "*" || part == of[i])
		}
		if got := (Selector{Include: []Pattern{p}}).Selects(a); got != want {
			t.Errorf("%q selects %s: %t, want %t", s, a, got, want)
		}
		if got := (Selector{Exclude: []Pattern{p}}).Selects(a); got == want {
			t.Errorf("%q excludes %s: %t", s, a, !got)
		}
	})
}

// FuzzH1 compares H1 and HashFiles with the hash of the unpacked folder.
func FuzzH1(f *testing.F) {
	add := func(entries ...entry) {
		var buf bytes.Buffer
		z := zip.NewWriter(&buf)
		for _, e := range entries {
			h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
			if e.mode != 0 {
				h.SetMode(e.mode)
			}
			if w, err := z.CreateHeader(h); err == nil {
				w.Write([]byte(e.content))
			}
		}
		z.Close()
		f.Add(buf.Bytes())
	}
	add(entry{"terraform-provider-null_v3.2.4", "binary", 0o755}, entry{"docs/index.md", "# null", 0})
	add(entry{"a", "x", 0}, entry{"A", "x", 0})
	add(entry{"a", "x", 0}, entry{"a/b", "x", 0})
	add(entry{"a", "x", 0}, entry{"./a", "x", 0})
	add(entry{"docs/", "", fs.ModeDir | 0o755}, entry{"docs/index.md", "# null", 0}, entry{"empty/", "", fs.ModeDir | 0o755})
	add()
	f.Add([]byte("PK"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := H1(t.Context(), bytes.NewReader(data), int64(len(data)))
		files, ferr := HashFiles(t.Context(), bytes.NewReader(data), int64(len(data)))
		for _, err := range []error{err, ferr} {
			if err != nil && !errors.Is(err, ErrNoH1) {
				t.Errorf("%v", err)
			}
		}
		if err == nil && files.H1 != h {
			t.Errorf("it has the hash %s, its files have %s, %v", h, files.H1, ferr)
		}
		if ferr != nil {
			return
		}
		h = files.H1
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatalf("it has the hash %s, and is no zip: %v", h, err)
		}
		dir := t.TempDir()
		for _, file := range z.File {
			name := filepath.Join(dir, filepath.FromSlash(file.Name))
			folder, isFolder := filepath.Dir(name), strings.HasSuffix(file.Name, "/")
			if isFolder {
				folder = name
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return // a file and a folder have the same name, and no client can unpack the zip
			}
			if isFolder {
				continue
			}
			r, err := file.Open()
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatalf("it has the hash %s, and does not unpack: %v", h, err)
			}
			out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return
			}
			out.Write(content)
			out.Close()
		}
		if want, err := dirhash.HashDir(dir, "", dirhash.Hash1); err != nil || want != h.String() {
			t.Errorf("it has the hash %s, and what it unpacks to %s, %v", h, want, err)
		}
	})
}
