package providerdoc_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/providerdoc"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// folder returns a folder with the given files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func pack(t *testing.T, files map[string]string) []byte {
	t.Helper()
	data, warnings, err := providerdoc.Pack(t.Context(), folder(t, files))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %q", err, warnings)
	}
	return data
}

func TestPagesAreDescribed(t *testing.T) {
	data := pack(t, map[string]string{
		"index.md":                  "---\npage_title: \"Provider: Acme\"\nsubcategory: \"\"\ndescription: |-\n  Of * & Acme: [a\n---\n# Acme Provider\n",
		"resources/widget.md":       "---\r\npage_title: \"acme_widget Resource - acme\"\r\nsubcategory: \"Shop & Floor\"\r\n---\r\n\r\n# acme_widget (Resource)\r\n\r\ntext\r\n",
		"resources/gadget.md":       "# `acme_gadget`\n",
		"resources/other.md":        "no heading\n",
		"data-sources/widget.md":    "---\nsubcategory: [a, list]\npage_title: 7\n---\n# acme\\_widget (Data Source)\n",
		"guides/upgrade-to-2.0.md":  "---\npage_title: 'Upgrade to 2.0'\n---\n# Upgrade\n",
		"guides/second.md":          "# The second\n",
		"functions/add.md":          "---\npage_title: never closed\n# add\n",
		"ephemeral-resources/t.md":  "# acme_t (Ephemeral Resource)\n",
		"list-resources/l.md":       "# acme_l (List Resource)\n",
		"actions/restart_widget.md": "# acme_restart_widget (Action)\n",
	})
	docs, err := providerdoc.Read(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range docs.Pages {
		got = append(got, fmt.Sprintf("%s: %s [%s]", p.Path, p.Title, p.Subcategory))
	}
	want := []string{
		"index: Overview []", "guides/second: The second []", "guides/upgrade-to-2.0: Upgrade to 2.0 []",
		"resources/gadget: acme_gadget []", "resources/other: other []", "resources/widget: acme_widget [Shop & Floor]",
		"data-sources/widget: acme_widget []", "ephemeral-resources/t: acme_t []", "list-resources/l: acme_l []", "actions/restart_widget: acme_restart_widget []", "functions/add: add []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if p := docs.Page("resources/gadget"); p == nil || p.Kind != providerdoc.Resource || docs.Page("resources/none") != nil {
		t.Errorf("%+v", p)
	}
}

func TestText(t *testing.T) {
	data := pack(t, map[string]string{"index.md": "---\npage_title: x\n---\n\n# Acme\n\n-> **Note:** one\nline\n\n~> two\n!> three\n\n```hcl\n~> four\n```\n  ~> five\n->six\n"})
	got, err := providerdoc.Text(data, "index")
	if want := "\n> **Note:** one\nline\n\n> two\n> three\n\n```hcl\n~> four\n```\n> five\n->six\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, err := providerdoc.Text(data, "resources/x"); !errors.Is(err, providerdoc.ErrZip) {
		t.Errorf("a page that is not there: %v", err)
	}
}

// TestPackIsReproducible shows that the zip depends on the pages only.
func TestPackIsReproducible(t *testing.T) {
	files := map[string]string{"index.md": "# A\n", "resources/a.md": "a", "resources/a-b.md": "b", "guides/a.md": ""}
	one := pack(t, files)
	dir := folder(t, files)
	for name := range files {
		if err := os.Chmod(filepath.Join(dir, filepath.FromSlash(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, more := range []string{"resources/a.md.bak", "images/x.png", "contributing/b.md", ".hidden", "README.md"} {
		path := filepath.Join(dir, filepath.FromSlash(more))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	two, warnings, err := providerdoc.Pack(t.Context(), dir)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("%v, %d and %d bytes", err, len(one), len(two))
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], `".hidden" and 4 more`) {
		t.Errorf("warnings %q", warnings)
	}
}

func TestRefusedFolders(t *testing.T) {
	many := map[string]string{}
	for i := range providerdoc.MaxPages + 1 {
		many[fmt.Sprintf("resources/r%d.md", i)] = ""
	}
	big := map[string]string{}
	for i := range providerdoc.MaxZip / providerdoc.MaxPage {
		big[fmt.Sprintf("resources/r%d.md", i)] = strings.Repeat("x", providerdoc.MaxPage)
	}
	for name, tc := range map[string]struct {
		files  map[string]string
		change func(dir string) error
		want   string
	}{
		"no pages":           {files: map[string]string{"images/x.png": ""}, want: "it has no pages"},
		"a long page":        {files: map[string]string{"index.md": strings.Repeat("x", providerdoc.MaxPage+1)}, want: "index.md has 1048577 bytes"},
		"many pages":         {files: many, want: "more than 5000 pages"},
		"many bytes":         {files: big, want: "its pages have more than 16777216 bytes"},
		"a strange name":     {files: map[string]string{"index.md": "", "guides/a b.md": ""}, want: `"guides/a b.md" has other characters`},
		"a folder as a page": {files: map[string]string{"index.md": "", "guides/a.md/x": ""}, want: "guides/a.md is not a regular file"},
		"a link": {files: map[string]string{"index.md": ""}, want: "resources/x.md is not a regular file", change: func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "resources"), 0o755); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(dir, "index.md"), filepath.Join(dir, "resources", "x.md"))
		}},
		"a folder outside": {files: map[string]string{"index.md": ""}, want: "escapes", change: func(dir string) error { return os.Symlink("/", filepath.Join(dir, "guides")) }},
		"no folder":        {want: "no such file", change: os.RemoveAll},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, tc.files)
			if tc.change != nil {
				if err := tc.change(dir); err != nil {
					t.Fatal(err)
				}
			}
			data, _, err := providerdoc.Pack(t.Context(), dir)
			if err == nil || data != nil || !strings.Contains(err.Error(), tc.want) || hint.Of(err) == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("%d bytes, %v (hint %q)", len(data), err, hint.Of(err))
			}
		})
	}
}

// TestHostileZips shows that Read refuses what Pack does not write.
func TestHostileZips(t *testing.T) {
	valid := pack(t, map[string]string{"index.md": "# A\n", "resources/a.md": "a"})
	of := func(files map[string][]byte) []byte {
		data, err := release.Zip(files)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	stored := func(names ...string) []byte {
		var out bytes.Buffer
		w := zip.NewWriter(&out)
		for _, n := range names {
			if _, err := w.CreateRaw(&zip.FileHeader{Name: n, Method: zip.Store}); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		return out.Bytes()
	}
	many := make([]string, providerdoc.MaxPages+1)
	for i := range many {
		many[i] = fmt.Sprintf("resources/%05d.md", i)
	}
	for name, data := range map[string][]byte{
		"no zip": []byte("no zip"), "empty": stored(), "cut off": valid[:len(valid)-5], "wrong bytes": bytes.Replace(valid, []byte("# A"), []byte("# B"), 1),
		"compressed": of(map[string][]byte{"index.md": []byte(strings.Repeat("a", 9000))}), "of something else": of(map[string][]byte{"main.tf": nil}),
		"outside": stored("../index.md"), "nested": stored("resources/a/b.md"), "absolute": stored("/index.md"), "hidden": stored("guides/.md"),
		"twice": stored("index.md", "index.md"), "unsorted": stored("resources/a.md", "index.md"), "many entries": stored(many...),
		"large": make([]byte, providerdoc.MaxZip+1),
	} {
		if docs, err := providerdoc.Read(t.Context(), data); !errors.Is(err, providerdoc.ErrZip) {
			t.Errorf("%s: %+v, %v", name, docs, err)
		}
	}
}

// TestRealProvider packs the documentation of a real provider.
func TestRealProvider(t *testing.T) {
	dir, err := clients.ProviderDocs()
	clients.Must(t, err)
	data, warnings, err := providerdoc.Pack(t.Context(), dir)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %q", err, warnings)
	}
	docs, err := providerdoc.Read(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	for path, title := range map[string]string{"index": "Overview", "resources/offset": "time_offset", "functions/rfc3339_parse": "rfc3339_parse"} {
		if p := docs.Page(path); p == nil || p.Title != title {
			t.Errorf("%s: %+v", path, p)
		}
	}
}

func FuzzRead(f *testing.F) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	text := []byte("---\npage_title: &a [*a]\nsubcategory: s\n---\n# T\n-> n\n")
	to, err := w.CreateHeader(&zip.FileHeader{Name: "index.md", Method: zip.Store})
	if err == nil {
		_, err = to.Write(text)
	}
	if err != nil {
		f.Fatal(err)
	}
	w.Close()
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := providerdoc.Read(t.Context(), data)
		if err != nil {
			if !errors.Is(err, providerdoc.ErrZip) {
				t.Fatal(err)
			}
			return
		}
		for _, p := range docs.Pages {
			if p.Title == "" || len([]rune(p.Title)) > 200 || strings.ContainsAny(p.Title+p.Subcategory, "\n\r") || docs.Page(p.Path) == nil {
				t.Fatalf("%+v", p)
			}
			if _, err := providerdoc.Text(data, p.Path); err != nil {
				t.Fatal(err)
			}
		}
	})
}
