package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestNamesThatClientsTake shows that a release whose file names spell the version otherwise, and one whose names do not
// contain it, are installed by clients from the origin, and then through a gateway that pulls them through. With
// required evidence, only a name that contains the version is served.
func TestNamesThatClientsTake(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for version, name := range map[string]string{
		"1.0.0": "terraform-provider-null_v1.0.0",
		"1.1.0": "terraform-provider-null-1.1.0",
		"1.2.0": "null",
	} {
		r := s.offer(version)
		for i := range r.Packages {
			p := &r.Packages[i]
			p.Filename = name + "_" + p.OS + "_" + p.Arch + ".zip"
		}
		clients.Must(t, r.Seal(s.Signer))
	}
	pull := fmt.Sprintf("trust \"%s/*/*\" {\n  keys = [%q]\n}\npull_through {\n  include = [\"%[1]s/*/*\"]\n}\n", world.Host, s.Signer.Fingerprint())
	open := s.serve("--data", s.data, s.config(pull))
	strict := s.serve("--data", t.TempDir(), s.config(pull+"gateway {\n  verify = \"required\"\n}\n"))
	protocol := hostBlock(world.Host, strings.TrimSuffix(strict.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/")
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		for version, signed := range map[string]bool{"1.0.0": true, "1.1.0": true, "1.2.0": false} {
			t.Run(client.Name+" "+version, func(t *testing.T) {
				s.user("", version).MustRun(t, client, "init", "-no-color")
				s.user(world.NetworkMirror(open.URL), version).MustRun(t, client, "init", "-no-color")
				mirrored, direct := s.user(world.NetworkMirror(strict.URL), version), s.user("", version)
				clients.Must(t, direct.WriteCLIConfig(protocol))
				for _, ws := range []*clients.Workspace{mirrored, direct} {
					if signed {
						ws.MustRun(t, client, "init", "-no-color")
					} else {
						ws.MustFail(t, client, "init", "-no-color")
					}
				}
			})
		}
	}
	// The strict gateway has requested no package that it would not serve.
	if !strings.Contains(strict.Log(), "not listed in SHA256SUMS: none of its packages is") {
		t.Errorf("the log does not say why 1.2.0 is refused")
	}
}

// shapes are zips in which the entries beside the provider's program have an unusual shape.
var shapes = map[string][]zip.FileHeader{
	"folders":         {{Name: "docs/"}, {Name: "docs/index.md"}},
	"a folder twice":  {{Name: "docs/"}, {Name: "docs/index.md"}, {Name: "docs/"}},
	"the folder .":    {{Name: "./"}, {Name: "./README.md"}},
	"a slash before":  {{Name: "/README.md"}},
	"two of one name": {{Name: "README.md"}, {Name: "README.md", Comment: "the second"}},
	"a link":          {{Name: "README.md", ExternalAttrs: uint32(0o120777) << 16, CreatorVersion: 3 << 8}},
	"a backslash":     {{Name: `docs\index.md`}},
}

// shaped replaces the package of the machine's platform by a zip with the given further entries.
func (s *scene) shaped(r *release.Release, entries []zip.FileHeader) {
	s.t.Helper()
	p := hostPackage(s.t, r)
	old, err := zip.NewReader(bytes.NewReader(p.Data), p.Size)
	clients.Must(s.t, err)
	var buf bytes.Buffer
	buf.Grow(len(p.Data) + 1<<10)
	w := zip.NewWriter(&buf)
	for _, f := range old.File {
		clients.Must(s.t, w.Copy(f))
	}
	for _, h := range entries {
		f, err := w.CreateHeader(&h)
		clients.Must(s.t, err)
		if !strings.HasSuffix(h.Name, "/") {
			_, err = f.Write([]byte(h.Name + h.Comment))
			clients.Must(s.t, err)
		}
	}
	clients.Must(s.t, w.Close())
	clients.Must(s.t, r.Repack(p.OS, p.Arch, buf.Bytes(), s.Signer))
}

// TestZipsThatClientsTake shows that lock, push --lock-file and push --mirror-dir accept the h1: hashes that clients compute
// of unusual zips: that of the unpacked folder in lock files, and that of the zip in the JSON of "terraform providers
// mirror". The clients accept the completed lock file. Each shape is a provider, and every error names the provider.
func TestZipsThatClientsTake(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var namespaces, versions []string
	packages := 0
	for shape, entries := range shapes {
		name := namespace(shape)
		r := s.offerIn(name, "1.0.0")
		s.shaped(r, entries)
		namespaces, versions, packages = append(namespaces, name), append(versions, null(name)+"@1.0.0"), len(r.Packages)
	}
	const platform = "-platform=" + hostPlatform
	s.push(versions...)
	gateway := s.serve("--data", s.data)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		t.Run(client.Name, func(t *testing.T) {
			// A lock file with only the h1: hashes that the client computes.
			ws := s.workspace(world.NetworkMirror(gateway.URL))
			clients.Must(t, ws.WriteConfig(useNulls("1.0.0", namespaces...)))
			ws.MustRun(t, client, "init", "-no-color")
			file := filepath.Join(ws.Dir, clients.LockFileName)
			var lines []string
			for line := range strings.Lines(lockFile(t, ws)) {
				if !strings.Contains(line, `"zh:`) {
					lines = append(lines, line)
				}
			}
			clients.Must(t, os.WriteFile(file, []byte(strings.Join(lines, "")), fs.FileMode(0o600)))
			s.ws.MustRun(t, s.bridge, "push", "--lock-file", file, "-"+platform, "--data", t.TempDir())
			s.ws.MustRun(t, s.bridge, "lock", ws.Dir, "--data", s.data)
			for _, name := range namespaces {
				zips := slices.DeleteFunc(slices.Clone(ws.MustLock(t)[null(name)].Hashes), func(h string) bool { return !strings.HasPrefix(h, "zh:") })
				if len(zips) != packages {
					t.Errorf("%s: locked %v", name, zips)
				}
			}
			ws.MustRun(t, client, "init", "-no-color", "-lockfile=readonly")

			// A folder that the client's providers mirror has written.
			dir, direct := t.TempDir(), s.workspace("")
			clients.Must(t, direct.WriteConfig(useNulls("1.0.0", namespaces...)))
			direct.MustRun(t, client, "providers", "mirror", "-no-color", platform, dir)
			pushed := s.ws.MustRun(t, s.bridge, "push", "--mirror-dir", dir, "--allow-unsigned", "--data", t.TempDir())
			for _, name := range namespaces {
				if !strings.Contains(pushed, null(name)+" 1.0.0: pushed, 1 platform") {
					t.Errorf("%s: push --mirror-dir:\n%s", name, pushed)
				}
			}
		})
	}
}
