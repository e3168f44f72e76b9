package modulezip

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// tree is a folder: contents by name. Names with a slash at the end are folders, and contents
// that begin with -> are links.
type tree map[string]string

// write writes the tree into a new folder, in the order of names.
func (files tree) write(tb testing.TB, names ...string) string {
	dir := tb.TempDir()
	for name := range files {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			tb.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(files[name], "->"); link {
			err = os.Symlink(target, at)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else {
			err = os.WriteFile(at, []byte(files[name]), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// pack packs a folder, and returns the entries of the zip.
func pack(tb testing.TB, dir string) (*Zip, []*zip.File) {
	tb.Helper()
	z, err := Pack(tb.Context(), dir)
	if err != nil {
		tb.Fatalf("%v (%s)", err, hint.Of(err))
	}
	tb.Cleanup(func() { z.Close() })
	r, err := zip.NewReader(z.file, z.Size)
	if err != nil {
		tb.Fatal(err)
	}
	return z, r.File
}

func namesOf(entries []*zip.File) (names []string) {
	for _, f := range entries {
		names = append(names, f.Name)
	}
	return names
}

var example = tree{
	"main.tf":               "variable \"name\" {}\n",
	"modules/child/main.tf": "output \"a\" { value = 1 }\n",
	"scripts/run.sh":        "#!/bin/sh\n",
	"empty/":                "",
	"empty.txt":             "",
	".git/HEAD":             "ref: refs/heads/main",
	".terraform/x":          "x",
	"modules/child/.git":    "gitdir: elsewhere",
	"linked":                "->modules/child",
	"modules/linked.tf":     "->../main.tf",
	"naïve.txt":             "ï",
}

// TestPack shows which files a zip has, that links are copies, and that every entry has the
// same time and mode.
func TestPack(t *testing.T) {
	z, entries := pack(t, example.write(t))
	want := []string{"empty.txt", "linked/main.tf", "main.tf", "modules/child/main.tf", "modules/linked.tf", "naïve.txt", "scripts/run.sh"}
	if got := namesOf(entries); !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
	for _, f := range entries {
		if f.Mode() != 0o755 || f.Method != zip.Store || !f.Modified.Equal(time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)) || f.Flags != 1<<11 {
			t.Errorf("%s: mode %v, method %d, time %v, flags %x", f.Name, f.Mode(), f.Method, f.Modified, f.Flags)
		}
		source := map[string]string{"linked/main.tf": "modules/child/main.tf", "modules/linked.tf": "main.tf"}[f.Name]
		if source == "" {
			source = f.Name
		}
		if got := contentOf(t, f); got != example[source] {
			t.Errorf("%s: %q, want %q", f.Name, got, example[source])
		}
	}
	if len(z.Files) != len(want) || len(z.Warnings) != 0 {
		t.Errorf("%d entries, warnings %q", len(z.Files), z.Warnings)
	}
	data, err := io.ReadAll(z.Open())
	if err != nil || int64(len(data)) != z.Size || z.Digest.Algorithm().FromBytes(data) != z.Digest {
		t.Errorf("%d bytes of %d, %v", len(data), z.Size, err)
	}
}

func contentOf(tb testing.TB, f *zip.File) string {
	tb.Helper()
	r, err := f.Open()
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// TestSameTreeSameDigest shows that two trees that are equal but for times, modes and the order
// in which they were written have one digest. The digest is that of every system and release.
func TestSameTreeSameDigest(t *testing.T) {
	files := tree{"main.tf": "a", "b/c.tf": "c", "b.tf": "b", "run.sh": "#!/bin/sh\n"}
	first, _ := pack(t, files.write(t, "main.tf", "b/c.tf", "b.tf", "run.sh"))
	other := files.write(t, "run.sh", "b.tf", "b/c.tf", "main.tf")
	if err := errors.Join(os.Chmod(filepath.Join(other, "run.sh"), 0o700), os.Chmod(filepath.Join(other, "main.tf"), 0o400),
		os.Chtimes(filepath.Join(other, "b.tf"), time.Unix(0, 0), time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	second, _ := pack(t, other)
	const digest, h1 = "sha256:b828bebbc371238e02810b3c7bee1b28dbf3c70e5c118835393ada2a87a21b91", "h1:2lc0wpEmCJGWA5CV22FYDFI7Fjjw1LUIy9HUGkiPAxY="
	for _, z := range []*Zip{first, second} {
		if z.Digest.String() != digest || z.H1.String() != h1 {
			t.Errorf("%s %s, want %s %s", z.Digest, z.H1, digest, h1)
		}
	}
}

// TestIgnore shows which files .terraformignore excludes.
func TestIgnore(t *testing.T) {
	all := tree{"main.tf": "", "a.log": "", "docs/a.md": "", "docs/keep.md": "", "sub/docs/b.md": "", "link": "->docs", "outside": "->/etc/hosts"}
	for _, tt := range []struct{ rules, want string }{
		{"outside\ndocs/\n", "main.tf a.log link/a.md link/keep.md"},
		{"outside\n/docs/\n", "main.tf a.log link/a.md link/keep.md sub/docs/b.md"},
		{"outside\n/link/\n*.log", "main.tf docs/a.md docs/keep.md sub/docs/b.md"},
		{"# comment\n\noutside\r\nlink/\ndocs/*\n!docs/keep.md\n", "main.tf a.log docs/keep.md"},
		{"outside\n[\nlink/**\n*.md", "main.tf a.log"},
	} {
		t.Run(tt.rules, func(t *testing.T) {
			files := tree{ignoreFile: tt.rules}
			for name, content := range all {
				files[name] = content
			}
			_, entries := pack(t, files.write(t))
			want := append(strings.Fields(tt.want), ignoreFile)
			slices.Sort(want)
			if got := namesOf(entries); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestRefusals shows what cannot be packed, and that .terraformignore can exclude it.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files tree
		err   string
	}{
		{"a link out of the folder", tree{"out": "->../other"}, "out is a link that leaves the folder"},
		{"an absolute link", tree{"out": "->/etc/hosts"}, "out is a link that leaves the folder"},
		{"a chain of links out of the folder", tree{"a": "->b", "b": "->.."}, "is a link that leaves the folder"},
		{"a link to nothing", tree{"out": "->none"}, "out is a link to a file that does not exist"},
		{"a link to itself", tree{"out": "->out"}, "out is a link that leaves the folder, or cannot be followed"},
		{"a link to the folder of Git", tree{".git/config": "token", "out": "->.git"}, "out is a link into .git or .terraform"},
		{"a link to a file of a client", tree{".terraform/modules/modules.json": "{}", "out": "->.terraform/modules/modules.json"}, "out is a link into .git or .terraform"},
		{"a link to its folder", tree{"sub/out": "->../sub"}, "sub/out is a link to a folder that contains the link"},
		{"two folders that link to each other", tree{"a/out": "->../b", "b/out": "->../a"}, "is a link to a folder that contains the link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.files["main.tf"] = ""
			refused(t, tt.files.write(t), tt.err)
			tt.files[ignoreFile] = "out\na\nb\n"
			pack(t, tt.files.write(t))
		})
	}
	t.Run("no files", func(t *testing.T) { refused(t, tree{"empty/": ""}.write(t), "it has no files") })
	t.Run("a long ignore file", func(t *testing.T) {
		refused(t, tree{"main.tf": "", ignoreFile: strings.Repeat("# ", maxIgnoreBytes)}.write(t), ".terraformignore has more than")
	})
	t.Run("a large file", func(t *testing.T) {
		dir := tree{"large": ""}.write(t)
		if err := os.Truncate(filepath.Join(dir, "large"), maxBytes+1); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, "its files have more than 2147483648 bytes")
	})
	for _, name := range []string{"a\\b", "a\nb", "\xff"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			notOnWindows(t)
			refused(t, tree{name: ""}.write(t), "has a name that not every client can unpack")
		})
	}
	t.Run("a socket", func(t *testing.T) {
		notOnWindows(t)
		dir := tree{"main.tf": ""}.write(t)
		t.Chdir(dir) // the path of a socket is short
		l, err := net.Listen("unix", "socket")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		refused(t, dir, "socket is neither a file, a folder nor a link")
	})
}

func notOnWindows(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no such file can be made here")
	}
}

// refused checks that a folder cannot be packed, and that the error has a hint.
func refused(t *testing.T, dir, want string) {
	t.Helper()
	z, err := Pack(t.Context(), dir)
	if err == nil {
		z.Close()
	}
	if !errors.Is(err, ErrUnpackable) || !strings.Contains(err.Error(), want) || hint.Of(err) == "" {
		t.Errorf("%v (hint %q), want %q", err, hint.Of(err), want)
	}
}

// TestManyLinks shows that links cannot multiply the files of a small folder without bound.
func TestManyLinks(t *testing.T) {
	testkit.LeaveToAll(t)
	files := tree{"5/main.tf": ""}
	for i := range 60 {
		files[fmt.Sprintf("%d/%d", i%5, i)] = fmt.Sprintf("->../%d", i%5+1)
	}
	refused(t, files.write(t), "it has more than 100000 files and folders")
}

// TestDeepFolder shows that a folder whose paths are too long is refused, unless .terraformignore excludes them.
func TestDeepFolder(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	deepen := func(levels int) {
		t.Helper()
		for range levels {
			if err := root.Mkdir("d", 0o755); err != nil {
				t.Fatal(err)
			}
			next, err := root.OpenRoot("d")
			if err != nil {
				t.Fatal(err)
			}
			root.Close()
			root = next
		}
	}
	dir := root.Name()
	deepen(maxName/2 - 4)
	if err := root.WriteFile("main.tf", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if z, _ := pack(t, dir); len(z.Files) != 1 {
		t.Errorf("%d files", len(z.Files))
	}
	deepen(20)
	refused(t, dir, "has a path of more than 1024 bytes")
	if err := os.WriteFile(filepath.Join(dir, ignoreFile), []byte("d/\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	pack(t, dir)
}

// call returns a module block.
func call(source string) string { return fmt.Sprintf("module \"m\" {\n  source = \"%s\"\n}\n", source) }

func TestWarnings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files tree
		want  string
	}{
		{"no configuration", tree{"README.md": "", "sub/main.tf": ""}, "no .tf or .tofu file in the folder itself"},
		{"JSON", tree{"main.tf.json": "{}"}, ""},
		{"OpenTofu's", tree{"main.tofu": ""}, ""},
		{"a local module", tree{"main.tf": call("./modules/a"), "modules/a/main.tf": call("../b/"), "modules/b/main.tofu": call("../../"), "examples/x/main.tf": call("../../../y")}, ""},
		{"a local module outside", tree{"main.tf": call("../labels")}, "main.tf calls ../labels, outside the folder: clients cannot install the module; push the folder that contains both"},
		{"a local module outside, through a local module", tree{"main.tf": call("./a"), "a/main.tf.json": `{"module": {"m": {"source": "../../labels"}}}`}, "a/main.tf.json calls ../labels, outside"},
		{"a submodule's call", tree{"main.tf": "", "modules/a/main.tf": call("../../..")}, "modules/a/main.tf calls .., outside"},
		{"a call below a folder without configuration", tree{"a/main.tf": call("../b"), "b/main.tf": call("../../c")}, "b/main.tf calls ../c, outside"},
		{"an excluded local module", tree{"main.tf": call("./a") + "\n" + call("./b"), "a/main.tf": "", "b/main.tf": "", ignoreFile: "/a/\nb/*.tf\n"}, "main.tf calls a, which has no .tf or .tofu file in the module (and 1 more like it): clients"},
		{"other sources", tree{"main.tf": call("acme/net/aws") + "\n" + call("${var.x}/y") + "\nmodule \"broken"}, ""},
		{"a state", tree{"main.tf": "", "terraform.tfstate": "{}"}, "terraform.tfstate is part of the module: a state can contain secrets"},
		{"an older state", tree{"main.tf": "", "terraform.tfstate.1700000000.backup": "{}"}, "a state can contain secrets"},
		{"a workspace's state", tree{"main.tf": "", "terraform.tfstate.d/prod/x": "{}"}, "a state can contain secrets"},
		{"a plan", tree{"main.tf": "", "prod.tfplan": ""}, "a plan can contain secrets"},
		{"a crash", tree{"main.tf": "", "crash.1.log": ""}, "a log can contain secrets"},
		{"values", tree{"main.tf": "", "a/prod.auto.tfvars": "", "b.tfvars.json": ""}, "a/prod.auto.tfvars and 1 more like it are part of the module: the values of variables"},
		{"variables", tree{"main.tf": "", ".env.local": ""}, ".env.local is part of the module"},
		{"an example of variables", tree{"main.tf": "", ".env.example": "", "prod.tfvars.example": ""}, ""},
		{"a CLI configuration", tree{"main.tf": "", ".terraformrc": ""}, ".terraformrc is part of the module: credentials"},
		{"SSH", tree{"main.tf": "", ".ssh/config": ""}, "a private key"},
		{"a key", tree{"main.tf": "", "tls/Server.PEM": ""}, "tls/Server.PEM is part of the module: a private key"},
		{"Terragrunt's cache", tree{"main.tf": "", ".terragrunt-cache/x/main.tf": ""}, "copies of modules"},
		{"Git's folder on Windows", tree{"main.tf": "", ".GIT/config": ""}, ".GIT/config is part of the module: on Windows and macOS, Git's own folder"},
		{"a name of Windows", tree{"main.tf": "", "aux.tf": ""}, "not every operating system can unpack aux.tf"},
		{"case", tree{"main.tf": "", "Main.tf": ""}, "Main.tf and main.tf differ only in case"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			z, _ := pack(t, tt.files.write(t))
			if got := strings.Join(z.Warnings, "\n"); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("warnings %q, want %q", got, tt.want)
			}
		})
	}
	many := make([]entry, wideEntries+1)
	for i := range many {
		many[i].name = fmt.Sprintf("%d.tf", i)
	}
	for _, got := range [][]string{warnings(many, nil, 0), warnings(many[:1], nil, wideBytes+1)} {
		if len(got) != 1 || !strings.Contains(got[0], "Terragrunt installs at most 10000 files and 512 MiB") {
			t.Errorf("warnings %q", got)
		}
	}
}

// TestCancelled shows that packing ends with its context.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Pack(ctx, tree{"main.tf": ""}.write(t)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzPack shows that the h1: hash of a zip is that of the folder, whatever its names and
// contents, and that .terraformignore only ever removes files.
func FuzzPack(f *testing.F) {
	f.Add("main.tf", []byte("a"), "sub/b.tf", []byte("b"), "*.log")
	f.Add("a\\b", []byte(""), "nul", []byte("\x00"), "!b\n\n[")
	f.Add(".git/config", []byte(""), "\u202e.tf", []byte("PK\x05\x06"), "**")
	f.Fuzz(func(t *testing.T, one string, a []byte, two string, b []byte, rules string) {
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		for name, content := range map[string][]byte{one: a, two: b} {
			if root.MkdirAll(filepath.Dir(name), 0o755) != nil || strings.Contains(name, ".git") || strings.Contains(name, ".terraform") || root.WriteFile(name, content, 0o644) != nil {
				return // no name of a file
			}
		}
		whole, err := Pack(t.Context(), dir)
		if errors.Is(err, ErrUnpackable) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		defer whole.Close()
		if h1, err := dirhash.HashDir(dir, "", dirhash.Hash1); err != nil || h1 != whole.H1.String() {
			t.Errorf("h1 %s, the folder has %s, %v", whole.H1, h1, err)
		}
		if err := root.WriteFile(ignoreFile, []byte(rules), 0o644); err != nil {
			t.Fatal(err)
		}
		part, err := Pack(t.Context(), dir)
		if errors.Is(err, ErrUnpackable) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		defer part.Close()
		if len(part.Files) > len(whole.Files)+1 {
			t.Errorf("%d entries, without rules %d", len(part.Files), len(whole.Files))
		}
	})
}
