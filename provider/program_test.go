package provider

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TestCheckProgram shows in which zips clients find a program that they can run. End-to-end tests show the verdict of
// the real clients.
func TestCheckProgram(t *testing.T) {
	const name = "terraform-provider-null_v1.0.0"
	for what, tc := range map[string]struct {
		entries  []entry
		platform string
		err      string
	}{
		"usual":                       {entries: []entry{{"LICENSE", "", 0o644}, {name, "", 0o755}}},
		"without a version":           {entries: []entry{{"terraform-provider-null", "", 0o755}}},
		"with a suffix":               {entries: []entry{{"terraform-provider-null.bin", "", 0o755}}},
		"another version":             {entries: []entry{{"terraform-provider-null_v0.9.0_x5", "", 0o755}}},
		"in a folder":                 {entries: []entry{{"dist/" + name, "", 0o755}}, err: `its program "dist/` + name + `" is in a folder`},
		"in the folder .":             {entries: []entry{{"./LICENSE", "", 0o644}, {"./" + name, "", 0o755}}},
		"in a folder of .":            {entries: []entry{{"./dist/" + name, "", 0o755}}, err: `its program "./dist/` + name + `" is in a folder`},
		"the first of two, one in .":  {entries: []entry{{"./terraform-provider-null_v2", "", 0o755}, {name, "", 0o644}}, err: "is not executable"},
		"the last of equal, one in .": {entries: []entry{{name, "", 0o755}, {"./" + name, "", 0o644}}, err: "is not executable"},
		"under another name":          {entries: []entry{{"provider", "", 0o755}}, err: "its zip has no program"},
		"under another type":          {entries: []entry{{"terraform-provider-nullable_v1.0.0", "", 0o755}}, err: "its zip has no program"},
		"the type with a capital":     {entries: []entry{{"terraform-provider-Null_v1.0.0", "", 0o755}}, err: "its zip has no program"},
		"absent":                      {entries: []entry{{"LICENSE", "", 0o644}}, err: "its zip has no program"},
		"a folder with its name":      {entries: []entry{{name + "/", "", fs.ModeDir | 0o755}}, err: "its zip has no program"},
		"no execute bit":              {entries: []entry{{name, "", 0o644}}, err: "is not executable: its mode in the zip is -rw-r--r--"},
		"private, no execute bit":     {entries: []entry{{name, "", 0o600}}, err: "is not executable: its mode in the zip is -rw-------"},
		"private":                     {entries: []entry{{name, "", 0o700}}},
		"set-user-ID":                 {entries: []entry{{name, "", fs.ModeSetuid | 0o755}}},
		"set-user-ID, not to run":     {entries: []entry{{name, "", fs.ModeSetuid | 0o644}}, err: "is not executable"},
		"below a backslash":           {entries: []entry{{`dist\` + name, "", 0o755}}, err: "its zip has no program"},
		"before a backslash":          {entries: []entry{{name + `\bin`, "", 0o755}}},
		"with a slash before":         {entries: []entry{{"/" + name, "", 0o755}}},
		"in a folder of /":            {entries: []entry{{"/dist/" + name, "", 0o755}}, err: "is in a folder"},
		"beside a folder twice":       {entries: []entry{{"docs/", "", fs.ModeDir | 0o755}, {name, "", 0o755}, {"docs/", "", fs.ModeDir | 0o755}}},
		"others may execute":          {entries: []entry{{name, "", 0o655}}, err: "is not executable"},
		"made without modes":          {entries: []entry{{name, "", 0}}, err: "is not executable"},
		"a link":                      {entries: []entry{{name, "bin/x", fs.ModeSymlink | 0o777}}, err: "is a link"},
		"windows, no execute bit":     {entries: []entry{{name + ".exe", "", 0o644}}, platform: "windows_amd64"},
		"windows, no extension":       {entries: []entry{{"terraform-provider-null", "", 0o755}}, platform: "windows_amd64", err: "has no extension"},
		"windows, no .exe":            {entries: []entry{{name, "", 0o755}}, platform: "windows_amd64"},
		"windows, in a folder":        {entries: []entry{{"dist/" + name + ".exe", "", 0o644}}, platform: "windows_amd64", err: "is in a folder"},
		"the first of two":            {entries: []entry{{"terraform-provider-null_v2", "", 0o755}, {name, "", 0o644}}, err: "is not executable"},
		"the second of two":           {entries: []entry{{"terraform-provider-null_v2", "", 0o644}, {name, "", 0o755}}},
		"the last of equal names":     {entries: []entry{{name, "", 0o755}, {name, "", 0o644}}, err: "is not executable"},
		"a second one in a folder":    {entries: []entry{{name, "", 0o755}, {"dist/" + name, "", 0o644}}},
		"a file beside the program":   {entries: []entry{{"terraform-provider-null-docs", "", 0o644}, {name, "", 0o755}}},
		"a file before the program":   {entries: []entry{{"terraform-provider-null.txt", "", 0o644}, {name, "", 0o755}}, err: `"terraform-provider-null.txt" is not executable`},
		"an executable in its stead":  {entries: []entry{{"terraform-provider-null_README", "", 0o755}}},
	} {
		t.Run(what, func(t *testing.T) {
			p := MustParsePlatform("linux_amd64")
			if tc.platform != "" {
				p = MustParsePlatform(tc.platform)
			}
			z := makeZip(t, tc.entries...)
			err := CheckProgram(t.Context(), z, z.Size(), "null", p)
			if tc.err == "" {
				if err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, ErrNoProgram) || !strings.Contains(err.Error(), tc.err) || hint.Of(err) == "" {
				t.Errorf("%v (hint %q), want %q", err, hint.Of(err), tc.err)
			}
		})
	}
	t.Run("made on DOS", func(t *testing.T) {
		var buf bytes.Buffer
		z := zip.NewWriter(&buf)
		if _, err := z.CreateHeader(&zip.FileHeader{Name: name, ExternalAttrs: 0x20}); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		err := CheckProgram(t.Context(), bytes.NewReader(buf.Bytes()), int64(buf.Len()), "null", MustParsePlatform("linux_amd64"))
		if !errors.Is(err, ErrNoProgram) || !strings.Contains(err.Error(), "its mode in the zip is -rw-rw-rw-") {
			t.Error(err)
		}
	})
	t.Run("not a zip", func(t *testing.T) {
		if err := CheckProgram(t.Context(), strings.NewReader("text"), 4, "null", MustParsePlatform("linux_amd64")); !errors.Is(err, ErrNotZip) || errors.Is(err, ErrNoProgram) {
			t.Error(err)
		}
	})
}
