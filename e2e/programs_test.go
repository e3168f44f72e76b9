package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// packed is an entry of a zip that has the content of a provider's program. A mode of 0 means an entry as DOS writes it,
// without a mode. A name with a slash at its end is that of a folder.
type packed struct {
	name string
	mode fs.FileMode
}

// TestProgramsThatClientsRun compares the warning of push and verify about a provider's program with the verdict of the
// clients: init fails if they find no program, and "providers schema" fails if they find one that they cannot run. Each row
// is a provider.
func TestProgramsThatClientsRun(t *testing.T) {
	t.Parallel()
	const program = "terraform-provider-null_v1.0.0"
	rows := map[string]struct {
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
	}
	s := newScene(t)
	var installed, refused, versions []string // the first two are namespaces
	for shape, row := range rows {
		name := namespace(shape)
		versions = append(versions, null(name)+"@1.0.0")
		if row.init {
			installed = append(installed, name)
		} else {
			refused = append(refused, name)
		}
		r := s.offerIn(name, "1.0.0")
		host := hostPackage(t, r)
		clients.Must(t, r.Repack(host.OS, host.Arch, withProgram(t, host, row.entries...), s.Signer))
	}
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		// Both commands go on after a provider that fails, and name each of these providers at their end.
		ws := s.workspace("")
		clients.Must(t, ws.WriteConfig(useNulls("1.0.0", refused...)))
		failed := strings.Join(strings.Fields(ws.MustFail(t, client, "init", "-no-color")), " ")
		ws = s.workspace("")
		clients.Must(t, ws.WriteConfig(useNulls("1.0.0", installed...)))
		ws.MustRun(t, client, "init", "-no-color")
		notStarted := ws.MustFail(t, client, "providers", "schema", "-json")
		for shape, row := range rows {
			address := null(namespace(shape))
			if got := !strings.Contains(failed, "Error while installing "+address+" v1.0.0: provider binary not found"); got != row.init {
				t.Errorf("%s, %s: init: %v\n%s", client.Name, shape, got, failed)
			}
			if got := row.init && !strings.Contains(notStarted, `"`+address+`"`); got != row.run {
				t.Errorf("%s, %s: providers schema: %v\n%s", client.Name, shape, got, notStarted)
			}
		}
	}
	pushed := s.push(append(versions, "--platform="+hostPlatform)...)
	verified := s.ws.MustRun(t, s.bridge, "verify", "--packages", "--data", s.data)
	for shape, row := range rows {
		address := null(namespace(shape))
		_, section, _ := strings.Cut("\n"+verified, "\n"+address+" 1.0.0: ok")
		section, _, _ = strings.Cut(section, "\n"+world.Host)
		for what, got := range map[string]string{"push": linesWith(pushed, address+" 1.0.0: "), "verify": section} {
			want := 0
			if row.warning != "" {
				want = 1
			}
			if n := strings.Count(got, "no client can run it"); n != want || !strings.Contains(got, row.warning) || got == "" {
				t.Errorf("%s: %s: %q", shape, what, got)
			}
		}
	}
}

// linesWith returns the lines of a text that contain part.
func linesWith(text, part string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// namespace returns the namespace of the provider of a row.
func namespace(row string) string {
	return "row-" + strings.ToLower(strings.Trim(notInNames.ReplaceAllString(row, "-"), "-"))
}

// notInNames matches what a namespace must not contain.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

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
	buf.Grow(len(entries)*len(p.Data) + 1<<10)
	w := zip.NewWriter(&buf)
	_, err = w.Create("LICENSE")
	clients.Must(t, err)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		switch {
		case strings.HasSuffix(e.name, "/"):
			_, err = w.CreateHeader(h)
			clients.Must(t, err)
		case e.mode&fs.ModeSymlink != 0:
			f, err := w.CreateHeader(h)
			clients.Must(t, err)
			_, err = io.WriteString(f, "dist/"+e.name) // the target
			clients.Must(t, err)
		default: // compressing the program takes long, so it stays compressed
			program := *old.File[0]
			program.Name, program.ExternalAttrs, program.CreatorVersion = h.Name, h.ExternalAttrs, h.CreatorVersion
			clients.Must(t, w.Copy(&program))
		}
	}
	clients.Must(t, w.Close())
	return buf.Bytes()
}
