package moduleorigin_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
)

var vpc = module.MustParseAddress("registry.acme.example/platform/vpc/aws")

// serve serves a handler over TLS on loopback. It returns the server's host and an origin that reaches it.
func serve(t *testing.T, h http.Handler) (host string, o *moduleorigin.Origin) {
	t.Helper()
	ca := tlsca.For(t)
	host = serveTLS(t, ca, h)
	transport := ca.HTTPClient().Transport.(*http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	registry := origin.NewRegistry(origin.RegistryOptions{Transport: transport})
	t.Cleanup(registry.HTTP().CloseIdleConnections)
	return host, &moduleorigin.Origin{Registry: registry}
}

// serveTLS serves a handler with a certificate of the given authority, and returns the server's host.
func serveTLS(t *testing.T, ca *tlsca.CA, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	var err error
	if server.TLS, err = ca.ServerConfig("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// fetch serves an archive and fetches it. query are parameters of the location.
func fetch(t *testing.T, path string, archive []byte, query string) (files map[string]string, err error) {
	t.Helper()
	host, o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(archive) }))
	l, err := moduleorigin.ParseLocation("https://user:secret@" + host + path + query)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := o.Fetch(t.Context(), l, dir); err != nil {
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error contains the login: %v", err)
		}
		return nil, err
	}
	return read(t, dir), nil
}

// read returns the files of a folder: their content, after a ! if their owner may execute them.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if info.Mode()&0o100 != 0 {
			data = append([]byte("!"), data...)
		}
		name, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// entry is an entry of an archive.
type entry struct {
	name, content string
	kind          byte // as in package tar; 0 means a file
	mode          int64
}

func tarGz(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode}
		switch e.kind {
		case 0, tar.TypeReg:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.content))
		case tar.TypeXGlobalHeader:
			h.PAXRecords = map[string]string{"comment": e.content}
		default:
			h.Linkname = e.content
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			io.WriteString(w, e.content)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		mode := fs.FileMode(e.mode)
		if e.kind == tar.TypeSymlink {
			mode |= fs.ModeSymlink
		}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, e.content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchives shows what archives unpack to.
func TestArchives(t *testing.T) {
	module := []entry{{name: "vpc-1/", kind: tar.TypeDir, mode: 0o755}, {name: "vpc-1/main.tf", content: "# vpc", mode: 0o664}, {name: "./vpc-1/run.sh", content: "#!", mode: 0o775}}
	files := map[string]string{"vpc-1/main.tf": "# vpc", "vpc-1/run.sh": "!#!"}
	with := func(more map[string]string) map[string]string {
		out := maps.Clone(files)
		maps.Copy(out, more)
		return out
	}
	plain := tarGz(t, module...)
	for name, tc := range map[string]struct {
		path    string
		archive []byte
		query   string
		want    map[string]string
	}{
		"tar.gz":              {"/v.tar.gz", plain, "", files},
		"tgz of git archive":  {"/v.tgz", tarGz(t, slices.Concat([]entry{{content: "abc", kind: tar.TypeXGlobalHeader}}, module)...), "", files},
		"by its parameter":    {"/v", plain, "?archive=tar.gz", files},
		"with a folder":       {"/v.tar.gz//vpc-1", plain, "", files},
		"zip":                 {"/v.zip", zipped(t, module...), "", files},
		"links in tar":        {"/v.tgz", tarGz(t, append(module, entry{"vpc-1/l", "main.tf", tar.TypeSymlink, 0o777}, entry{"vpc-1/h", "vpc-1/main.tf", tar.TypeLink, 0o644})...), "", with(map[string]string{"vpc-1/l": "!", "vpc-1/h": ""})},
		"link in zip":         {"/v.zip", zipped(t, append(module, entry{"vpc-1/l", "../../etc/passwd", tar.TypeSymlink, 0o777})...), "", with(map[string]string{"vpc-1/l": "!../../etc/passwd"})},
		"twice":               {"/v.tgz", tarGz(t, append(module, entry{"vpc-1/main.tf", "2", 0, 0o755})...), "", with(map[string]string{"vpc-1/main.tf": "!2"})},
		"no write permission": {"/v.tgz", tarGz(t, append(module, entry{"vpc-1/r/", "", tar.TypeDir, 0o500}, entry{"vpc-1/r/x", "x", 0, 0o400})...), "", with(map[string]string{"vpc-1/r/x": "x"})},
		"checksum":            {"/v.tgz", plain, fmt.Sprintf("?checksum=sha256:%x", sha256.Sum256(plain)), files},
		"checksum alone":      {"/v.tgz", plain, fmt.Sprintf("?checksum=%X", sha256.Sum256(plain)), files},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fetch(t, tc.path, tc.archive, tc.query)
			if err != nil || !maps.Equal(got, tc.want) {
				t.Errorf("%q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// TestLinksAreEmpty shows that a warning names the links of a tar.gz, because clients unpack them as empty files.
func TestLinksAreEmpty(t *testing.T) {
	archive := tarGz(t, entry{name: "main.tf", content: "# vpc", mode: 0o644}, entry{"l", "main.tf", tar.TypeSymlink, 0o777}, entry{"h", "main.tf", tar.TypeLink, 0o644})
	host, o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(archive) }))
	var warnings []string
	o.Warn = func(text string) { warnings = append(warnings, text) }
	l, err := moduleorigin.ParseLocation("https://" + host + "/v.tgz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Fetch(t.Context(), l, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if want := "l is a link in the archive (and 1 more like it): clients unpack it as an empty file, and so it is stored"; len(warnings) != 1 || warnings[0] != want {
		t.Errorf("%q, want %q", warnings, want)
	}
}

// TestArchivesRefused shows the archives that are refused.
func TestArchivesRefused(t *testing.T) {
	file := entry{name: "main.tf", content: "# vpc", mode: 0o644}
	one := func(name string) []byte { return tarGz(t, file, entry{name: name, content: "x", mode: 0o644}) }
	long := strings.Repeat("x", 100) + "/"
	for name, tc := range map[string]struct {
		path    string
		archive []byte
		query   string
		says    string
	}{
		"parent":              {"/v.tgz", one("../x"), "", `the part ".."`},
		"parent inside":       {"/v.tgz", one("a/../x"), "", `the part ".."`},
		"parent in zip":       {"/v.zip", zipped(t, file, entry{name: "../x"}), "", `the part ".."`},
		"absolute":            {"/v.tgz", one("/x"), "", "absolute name"},
		"backslash":           {"/v.tgz", one(`a\..\..\x`), "", "not every client"},
		"control character":   {"/v.tgz", one("a\nb"), "", "not every client"},
		"git folder":          {"/v.tgz", one("a/.GIT/config"), "", `the part ".GIT"`},
		"case twins":          {"/v.tgz", one("MAIN.tf"), "", "only in case"},
		"case twins, folders": {"/v.tgz", tarGz(t, entry{name: "a/x", mode: 0o644}, entry{name: "A/y", mode: 0o644}), "", "only in case"},
		"long name":           {"/v.tgz", one(strings.Repeat(long, 11) + "x"), "", "more than 1024 bytes"},
		"device":              {"/v.tgz", tarGz(t, file, entry{name: "x", kind: tar.TypeChar}), "", "neither a file, a folder nor a link"},
		"empty":               {"/v.tgz", tarGz(t, entry{name: "a/", kind: tar.TypeDir, mode: 0o755}), "", "no files"},
		"cut off":             {"/v.tgz", one("x")[:60], "", "does not unpack"},
		"no archive":          {"/v.zip", []byte("<html>"), "", "does not unpack"},
		"other format":        {"/v.zip", one("x"), "", "does not unpack"},
		"bomb":                {"/v.tgz", tarGz(t, entry{name: "x", content: string(make([]byte, 96<<20)), mode: 0o644}), "", "too many bytes"},
		"bomb in zip":         {"/v.zip", zipped(t, entry{name: "x", content: string(make([]byte, 96<<20)), mode: 0o644}), "", "too many bytes"},
		"other checksum":      {"/v.tgz", one("x"), fmt.Sprintf("?checksum=sha256:%x", sha256.Sum256(nil)), "the registry announces"},
		"no folder":           {"/v.tgz//sub", one("x"), "", "lacks the folder"},
		"a file as folder":    {"/v.tgz//x", one("x"), "", "lacks the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fetch(t, tc.path, tc.archive, tc.query)
			if err == nil || !strings.Contains(err.Error(), tc.says) || hint.Of(err) == "" {
				t.Errorf("%v, want %q and a hint", err, tc.says)
			}
		})
	}
}

// TestMissingArchive shows the error for an archive that the server does not have.
func TestMissingArchive(t *testing.T) {
	host, o := serve(t, http.NotFoundHandler())
	l, err := moduleorigin.ParseLocation("https://" + host + "/x.zip?token=secret")
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Fetch(t.Context(), l, t.TempDir())
	if !errors.Is(err, origin.ErrVersionNotFound) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestManyFiles checks the bounds on the number and the names of an archive's files, and the memory that they take.
func TestManyFiles(t *testing.T) {
	testkit.LeaveToAll(t)
	for name, tc := range map[string]struct {
		entries int
		name    string
		says    string
	}{
		"many files": {25_001, strings.Repeat("a", 100) + "%d", "files and folders"},
		"long names": {20_000, strings.Repeat("a", 200) + "/" + strings.Repeat("b", 200) + "/" + strings.Repeat("c", 200) + "%d", "the names of its files"},
		"deep files": {20_000, strings.Repeat("a/", 500) + "%d", "in too many folders"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []entry
			for i := range tc.entries {
				all = append(all, entry{name: fmt.Sprintf(tc.name, i), kind: tar.TypeDir, mode: 0o755})
			}
			_, err := fetch(t, "/v.tgz", tarGz(t, all...), "")
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
	// Nothing is unpacked of a zip whose directory is too large.
	for says, tc := range map[string]struct {
		entries int
		name    string
	}{
		"its directory has more than":              {24_000, "%0250d"},
		"it has more than 25000 files and folders": {30_000, "%0100d"},
	} {
		var all []entry
		for i := range tc.entries {
			all = append(all, entry{name: fmt.Sprintf(tc.name, i), mode: 0o644, content: "x"})
		}
		archive := zipped(t, all...)
		host, o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(archive) }))
		m := &cost.Meter{MayReceive: 1 << 30, MayUnpack: 1 << 30}
		o.Meter = m
		l, err := moduleorigin.ParseLocation("https://" + host + "/v.zip")
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.Fetch(t.Context(), l, t.TempDir())
		if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, moduleorigin.ErrArchive) || m.Disk > 0 {
			t.Errorf("%v, want %q; %d bytes were unpacked", err, says, m.Disk)
		}
	}
}
