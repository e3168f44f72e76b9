package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// packed is an entry of a zip that has the content of a provider's program. A mode of 0 means an entry as DOS writes it,
// without a mode. A name with a slash at its end is that of a folder.
type packed struct {
	name string
	mode fs.FileMode
}

// TestProgramsThatClientsRun compares the warning of push and verify about a provider's program with the verdict of the
// clients: init fails if they find no program, and "providers schema" fails if they find one that they cannot run.
func TestProgramsThatClientsRun(t *testing.T) {
	t.Parallel()
	const program = "terraform-provider-null_v1.0.0"
	for shape, tc := range map[string]struct {
		entries   []packed
		init, run bool // the clients' verdict
		warning   string
	}{
		"usual":                   {entries: []packed{{program, 0o755}}, init: true, run: true},
		"a dot in the name":       {entries: []packed{{"terraform-provider-null.bin", 0o755}}, init: true, run: true},
		"in a folder":             {entries: []packed{{"dist/" + program, 0o755}}, warning: `its program "dist/` + program + `" is in a folder`},
		"in the folder .":         {entries: []packed{{"./" + program, 0o755}}, init: true, run: true},
		"under another name":      {entries: []packed{{"null-provider", 0o755}}, warning: "its zip has no program"},
		"with a hyphen":           {entries: []packed{{"terraform-provider-null-v1.0.0", 0o755}}, warning: "its zip has no program"},
		"absent":                  {warning: "its zip has no program"},
		"no execute bit":          {entries: []packed{{program, 0o644}}, init: true, warning: "is not executable: its mode in the zip is -rw-r--r--"},
		"private, no execute bit": {entries: []packed{{program, 0o600}}, init: true, warning: "is not executable: its mode in the zip is -rw-------"},
		"private":                 {entries: []packed{{program, 0o700}}, init: true, run: true},
		"set-user-ID":             {entries: []packed{{program, fs.ModeSetuid | 0o755}}, init: true, run: true},
		"set-user-ID, not to run": {entries: []packed{{program, fs.ModeSetuid | 0o644}}, init: true, warning: "is not executable"},
		"made on DOS":             {entries: []packed{{program, 0}}, init: true, warning: "is not executable: its mode in the zip is -rw-rw-rw-"},
		"a link":                  {entries: []packed{{program, fs.ModeSymlink | 0o777}}, init: true, warning: "is a link"},
		"below a backslash":       {entries: []packed{{`dist\` + program, 0o755}}, warning: "its zip has no program"},
		"before a backslash":      {entries: []packed{{program + `\bin`, 0o755}}, init: true, run: true},
		"with a slash before":     {entries: []packed{{"/" + program, 0o755}}, init: true, run: true},
		"in a folder of /":        {entries: []packed{{"/dist/" + program, 0o755}}, warning: "is in a folder"},
		"beside a folder":         {entries: []packed{{"docs/", 0o755}, {program, 0o755}}, init: true, run: true},
		"beside a folder twice":   {entries: []packed{{"docs/", 0o755}, {program, 0o755}, {"docs/", 0o755}}, init: true, run: true},
		"twice, the last to run":  {entries: []packed{{program, 0o644}, {program, 0o755}}, init: true, run: true},
		"twice, the first to run": {entries: []packed{{program, 0o755}, {program, 0o644}}, init: true, warning: "is not executable"},
	} {
		t.Run(shape, func(t *testing.T) {
			s := newScene(t)
			r := s.offer("1.0.0")
			host := hostPackage(t, r)
			clients.Must(t, r.Repack(host.OS, host.Arch, withProgram(t, host, tc.entries...), s.Signer))
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				ws := s.user("", "1.0.0")
				if out, err := ws.Run(client, "init", "-no-color"); (err == nil) != tc.init || err != nil && !strings.Contains(out, "terraform-provider-null") {
					t.Errorf("%s init: %v\n%s", client.Name, err, out)
				} else if err == nil {
					if out, err := ws.Run(client, "providers", "schema", "-json"); (err == nil) != tc.run {
						t.Errorf("%s providers schema: %v\n%.1000s", client.Name, err, out)
					}
				}
			}
			pushed := s.push(world.Null+"@1.0.0", "--platform="+host.OS+"_"+host.Arch)
			verified := s.ws.MustRun(t, s.bridge, "verify", "--packages", "--data", s.data)
			for what, got := range map[string]string{"push": pushed, "verify": verified} {
				want := 0
				if tc.warning != "" {
					want = 1
				}
				if n := strings.Count(got, "no client can run it"); n != want || !strings.Contains(got, tc.warning) {
					t.Errorf("%s: %s", what, got)
				}
			}
		})
	}
}

// TestEveryWayWarnsOfPrograms shows that a package whose program clients cannot run causes one warning on every way
// into a registry, a bundle or a mirror folder.
func TestEveryWayWarnsOfPrograms(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.offer("1.0.0")
	host := hostPackage(t, r)
	clients.Must(t, r.Repack(host.OS, host.Arch, withProgram(t, host, packed{"terraform-provider-null_v1.0.0", 0o644}), s.Signer))
	null := world.Null + "@1.0.0"
	const says = "the package for %s_%s unpacks, but no client can run it: its program \"terraform-provider-null_v1.0.0\" is not executable"
	want := fmt.Sprintf(says, host.OS, host.Arch)
	config := s.config(fmt.Sprintf("provider %q {\n  versions = \"1.0.0\"\n}\n", world.Null))
	dir := t.TempDir()
	bundle, mirror := "oci-archive:"+filepath.Join(dir, "providers.tar"), filepath.Join(dir, "mirror")
	for _, args := range [][]string{
		{"push", "--data", s.data, null},
		{"sync", "--data", t.TempDir(), config},
		{"copy", "--data", s.data, "--to", bundle, null},
		{"copy", "--from", bundle, "--to", "embedded", "--data", t.TempDir(), null},
		{"copy", "--data", s.data, "--to", "mirror:" + mirror, null},
		{"push", "--mirror-dir", mirror, "--allow-unsigned", "--data", t.TempDir()},
	} {
		got := s.run(args...)
		if text := got.stdout + got.stderr; got.status != 0 || strings.Count(text, want) != 1 || strings.Count(text, "no client can run it") != 1 {
			t.Errorf("%v: status %d\n%s", args, got.status, text)
		}
	}

	gateway := s.serve("--data", t.TempDir(), s.config(fmt.Sprintf("pull_through {\n  include = [\"%s/*/*\"]\n}\n", world.Host)))
	s.user(world.NetworkMirror(gateway.URL), "1.0.0").MustRun(t, clients.Tofu(t), "init", "-no-color")
	waitFor(t, gateway, "pulled through: a version is stored, with a warning", 1)
	if log := strings.ReplaceAll(gateway.Log(), `\"`, `"`); strings.Count(log, want) != 1 {
		t.Errorf("the gateway's log:\n%s", log)
	}
}

// withProgram returns a zip with a licence, and with the program of a package in each of the entries.
func withProgram(t *testing.T, p *release.Package, entries ...packed) []byte {
	t.Helper()
	old, err := zip.NewReader(bytes.NewReader(p.Data), p.Size)
	clients.Must(t, err)
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	_, err = w.Create("LICENSE")
	clients.Must(t, err)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		f, err := w.CreateHeader(h)
		clients.Must(t, err)
		if strings.HasSuffix(e.name, "/") {
			continue
		}
		var content io.Reader = strings.NewReader("dist/" + e.name) // the target of a link
		if e.mode&fs.ModeSymlink == 0 {
			content, err = old.File[0].Open()
			clients.Must(t, err)
		}
		_, err = io.Copy(f, content)
		clients.Must(t, err)
	}
	clients.Must(t, w.Close())
	return buf.Bytes()
}
