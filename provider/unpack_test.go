package provider

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

// unpacked is what a zip is unpacked into, by name. The name of an executable file ends in *.
type unpacked map[string]string

func (u unpacked) create(name string, executable bool) (io.WriteCloser, error) {
	if executable {
		name += "*"
	}
	return &memoryFile{into: u, name: name}, nil
}

type memoryFile struct {
	bytes.Buffer
	into unpacked
	name string
}

func (f *memoryFile) Close() error {
	f.into[f.name] = f.String()
	return nil
}

// TestUnpack shows what is unpacked, and that the hash is that of H1.
func TestUnpack(t *testing.T) {
	z := makeZip(t, entry{"terraform-provider-null_v3.2.4", "binary", 0o755}, entry{"LICENSE.txt", "text", 0}, entry{"docs/index.md", "# null", 0o644})
	want, err := H1(t.Context(), z, z.Size())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := OpenZip(t.Context(), z, z.Size())
	if err != nil {
		t.Fatal(err)
	}
	if opened.Size() != int64(len("binary"+"text"+"# null")) {
		t.Errorf("size %d", opened.Size())
	}
	out := unpacked{}
	got, err := opened.Unpack(out.create)
	if err != nil || got != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if !maps.Equal(out, unpacked{"terraform-provider-null_v3.2.4*": "binary", "LICENSE.txt": "text", "docs/index.md": "# null"}) {
		t.Errorf("%v", slices.Sorted(maps.Keys(out)))
	}
}

// TestNotPlain shows which zips are not unpacked, because clients would have other files.
func TestNotPlain(t *testing.T) {
	for name, entries := range map[string][]entry{
		"directory entry":    {{"docs/", "", fs.ModeDir | 0o755}, {"docs/a", "x", 0}},
		"duplicate name":     {{"a", "x", 0}, {"a", "y", 0}},
		"link":               {{"a", "b", fs.ModeSymlink | 0o777}},
		"backslash":          {{`docs\a`, "x", 0}},
		"dot":                {{"./a", "x", 0}},
		"outside":            {{"../a", "x", 0}},
		"set-user-ID":        {{"a", "x", fs.ModeSetuid | 0o755}},
		"set-group-ID":       {{"a", "x", fs.ModeSetgid | 0o755}},
		"sticky":             {{"a", "x", fs.ModeSticky | 0o755}},
		"unreadable":         {{"a", "x", 0o200}},
		"second of two":      {{"a", "x", 0o644}, {"b", "x", fs.ModeSetuid | 0o755}},
		"not even permitted": {{"/a", "x", 0}},
	} {
		z := makeZip(t, entries...)
		if _, err := OpenZip(t.Context(), z, z.Size()); !errors.Is(err, ErrNotPlain) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenZip(t.Context(), strings.NewReader("no zip"), 6); !errors.Is(err, ErrNotPlain) || !errors.Is(err, ErrNotZip) {
		t.Errorf("no zip: %v", err)
	}
}

// TestUnpackFails shows which errors are returned unchanged, and that a damaged entry is an error.
func TestUnpackFails(t *testing.T) {
	z := makeZip(t, entry{"a", strings.Repeat("text", 1000), 0o644})
	open := func(r io.ReaderAt) *Zip {
		t.Helper()
		opened, err := OpenZip(t.Context(), r, z.Size())
		if err != nil {
			t.Fatal(err)
		}
		return opened
	}
	full := errors.New("full")
	for name, create := range map[string]func(string, bool) (io.WriteCloser, error){
		"create": func(string, bool) (io.WriteCloser, error) { return nil, full },
		"write":  func(string, bool) (io.WriteCloser, error) { return brokenFile{write: full}, nil },
		"close":  func(string, bool) (io.WriteCloser, error) { return brokenFile{close: full}, nil },
	} {
		if _, err := open(z).Unpack(create); err != full {
			t.Errorf("%s: %v", name, err)
		}
	}
	raw := make([]byte, z.Size())
	if _, err := z.ReadAt(raw, 0); err != nil {
		t.Fatal(err)
	}
	raw[40] ^= 1 // in the compressed content
	if _, err := open(bytes.NewReader(raw)).Unpack(unpacked{}.create); !errors.Is(err, ErrNotZip) {
		t.Errorf("a damaged entry: %v", err)
	}
}

type brokenFile struct{ write, close error }

func (f brokenFile) Write(p []byte) (int, error) { return len(p), f.write }
func (f brokenFile) Close() error                { return f.close }
