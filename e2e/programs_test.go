package e2e

import (
	"archive/zip"
	"bytes"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// TestProgramsThatClientsRun compares the warning of push and verify about a provider's program with the verdict of the
// clients: init fails if they find no program, and "providers schema" fails if they find one that they cannot run.
func TestProgramsThatClientsRun(t *testing.T) {
	t.Parallel()
	const program = "terraform-provider-null_v1.0.0"
	for shape, tc := range map[string]struct {
		name      string
		mode      fs.FileMode // 0 means a zip as DOS writes it, without modes
		init, run bool        // the clients' verdict
		warning   string
	}{
		"usual":              {name: program, mode: 0o755, init: true, run: true},
		"a dot in the name":  {name: "terraform-provider-null.bin", mode: 0o755, init: true, run: true},
		"in a folder":        {name: "dist/" + program, mode: 0o755, warning: `its program "dist/` + program + `" is in a folder`},
		"in the folder .":    {name: "./" + program, mode: 0o755, init: true, run: true},
		"under another name": {name: "null-provider", mode: 0o755, warning: "its zip has no program"},
		"with a hyphen":      {name: "terraform-provider-null-v1.0.0", mode: 0o755, warning: "its zip has no program"},
		"absent":             {warning: "its zip has no program"},
		"no execute bit":     {name: program, mode: 0o644, init: true, warning: "is not executable: its mode in the zip is -rw-r--r--"},
		"made on DOS":        {name: program, init: true, warning: "is not executable: its mode in the zip is -rw-rw-rw-"},
		"a link":             {name: program, mode: fs.ModeSymlink | 0o777, init: true, warning: "is a link"},
	} {
		t.Run(shape, func(t *testing.T) {
			s := newScene(t)
			r := s.offer("1.0.0")
			host := hostPackage(t, r)
			clients.Must(t, r.Repack(host.OS, host.Arch, withProgram(t, host, tc.name, tc.mode), s.Signer))
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				ws := s.user("", "1.0.0")
				if !tc.init {
					if got := ws.MustFail(t, client, "init", "-no-color"); !strings.Contains(got, "terraform-provider-null") {
						t.Errorf("%s: %s", client.Name, got)
					}
					continue
				}
				ws.MustRun(t, client, "init", "-no-color")
				if tc.run {
					ws.MustRun(t, client, "providers", "schema", "-json")
				} else {
					ws.MustFail(t, client, "providers", "schema", "-json")
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

// withProgram returns a zip with a licence and, unless name is empty, with the program of a package under a name.
func withProgram(t *testing.T, p *release.Package, name string, mode fs.FileMode) []byte {
	t.Helper()
	old, err := zip.NewReader(bytes.NewReader(p.Data), p.Size)
	clients.Must(t, err)
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	_, err = w.Create("LICENSE")
	clients.Must(t, err)
	if name != "" {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		if mode != 0 {
			h.SetMode(mode)
		}
		f, err := w.CreateHeader(h)
		clients.Must(t, err)
		var content io.Reader = strings.NewReader("dist/" + name) // the target of a link
		if mode&fs.ModeSymlink == 0 {
			content, err = old.File[0].Open()
			clients.Must(t, err)
		}
		_, err = io.Copy(f, content)
		clients.Must(t, err)
	}
	clients.Must(t, w.Close())
	return buf.Bytes()
}
