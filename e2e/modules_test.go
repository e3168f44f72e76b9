package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

const vpc = "registry.acme.example/platform/vpc/aws"

// vpcFiles is a module with a submodule, which it also calls, and with a script and a link. Its
// output comes from all of them.
var vpcFiles = map[string]string{
	"main.tf": `variable "name" { type = string }
module "child" {
  source = "./modules/child"
  name   = var.name
}
output "all" { value = join(" ", [module.child.greeting, fileexists("${path.module}/.git/HEAD"), file("${path.module}/linked.txt")]) }
`,
	"modules/child/main.tf": "variable \"name\" { type = string }\noutput \"greeting\" { value = \"hello ${var.name}\" }\n",
	"notes.txt":             "notes",
	".git/HEAD":             "ref: refs/heads/main\n",
}

// moduleFolder writes the module into a new folder.
func (s *scene) moduleFolder() string {
	s.t.Helper()
	dir := s.t.TempDir()
	for name, text := range vpcFiles {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := os.Symlink("notes.txt", filepath.Join(dir, "linked.txt")); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

func moduleTemplate(r *registry.Registry) string {
	return r.Host + "/modules/${hostname}/${namespace}/${name}/${system}"
}

// installsModule makes OpenTofu install and apply the module from an oci:// address, and its submodule from
// another.
func (s *scene) installsModule(repo, reference string) {
	s.t.Helper()
	ws := s.workspace("")
	if err := ws.WriteConfig(fmt.Sprintf("module \"vpc\" {\n  source = \"oci://%s?%s\"\n  name = \"you\"\n}\nmodule \"child\" {\n  source = \"oci://%s//modules/child?%s\"\n  name = \"me\"\n}\n"+
		"output \"all\" { value = \"${module.vpc.all}, ${module.child.greeting}\" }\n", repo, reference, repo, reference)); err != nil {
		s.t.Fatal(err)
	}
	tofu := clients.Tofu(s.t)
	ws.MustRun(s.t, tofu, "init", "-no-color")
	ws.MustRun(s.t, tofu, "apply", "-no-color", "-auto-approve")
	out, err := ws.Stdout(tofu, "output", "-raw", "all")
	if want := "hello you false notes, hello me"; err != nil || string(out) != want {
		s.t.Errorf("%s?%s: %q, want %q, %v", repo, reference, out, want, err)
	}
}

// TestModuleByOCI shows that OpenTofu installs a module that module push has stored: from two versions of
// distribution, by tag and by digest, and from a copy that the ORAS CLI has made.
func TestModuleByOCI(t *testing.T) {
	forEachProgram(t, func(t *testing.T, program registry.Program) {
		s := newScene(t)
		r := s.tlsRegistryOf(program)
		var pushed struct {
			Results []struct{ Digest, Repository, Tag, Status string }
		}
		out := s.run("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0+b1", "--template", moduleTemplate(r), "--output", "json").stdout
		if err := json.Unmarshal([]byte(out), &pushed); err != nil || len(pushed.Results) != 1 || pushed.Results[0].Status != "pushed" {
			t.Fatalf("%v: %s", err, out)
		}
		version := pushed.Results[0]
		if version.Repository != r.Host+"/modules/"+vpc || version.Tag != "1.0.0_b1" {
			t.Errorf("%+v", version)
		}
		s.installsModule(version.Repository, "tag="+version.Tag)
		s.installsModule(version.Repository, "digest="+version.Digest)
		// A copy by the ORAS CLI works too, also under a tag with a leading v. Another push of the folder finds it
		// unchanged.
		copies := r.Host + "/copies/" + vpc
		s.workspace("").MustRun(t, clients.ORAS(t), "cp", "--from-plain-http=false", "--to-plain-http=false", version.Repository+":"+version.Tag, copies+":v1.0.0_b1")
		s.installsModule(copies, "tag=v1.0.0_b1")
		out = s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0+b1", "--template", strings.Replace(moduleTemplate(r), "/modules/", "/copies/", 1))
		if !strings.Contains(out, ": unchanged, ") || !strings.Contains(out, ":v1.0.0_b1\n") {
			t.Errorf("the copy: %s", out)
		}
	})
}

// TestModuleByORAS shows that a push of the same files keeps a module that the ORAS CLI pushed by OpenTofu's recipe. The
// module has no h1: hash, and a compressed zip. Other files are a conflict, and --force replaces the module.
func TestModuleByORAS(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	ws := s.workspace("")
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
	f, err := w.Create("main.tf")
	clients.Must(t, err)
	_, err = f.Write([]byte(vpcFiles["modules/child/main.tf"]))
	clients.Must(t, errors.Join(err, w.Close(), os.WriteFile(filepath.Join(ws.Dir, "vpc.zip"), zipped.Bytes(), 0o600)))
	ws.MustRun(t, clients.ORAS(t), "push", "--plain-http=false", "--artifact-type", "application/vnd.opentofu.modulepkg", r.Host+"/modules/"+vpc+":1.0.0", "vpc.zip:archive/zip")
	same := s.t.TempDir()
	clients.Must(t, os.WriteFile(filepath.Join(same, "main.tf"), []byte(vpcFiles["modules/child/main.tf"]), 0o600))
	if out := s.mustRun("module", "push", same, "--as", vpc+"@1.0.0", "--template", moduleTemplate(r)); !strings.Contains(out, ": unchanged, ") {
		t.Error(out)
	}
	args := []string{"module", "push", s.moduleFolder(), "--as", vpc + "@1.0.0", "--template", moduleTemplate(r)}
	if got := s.run(args...); got.status != 1 || !strings.Contains(got.stderr, "conflict: ") || !strings.Contains(got.stderr, "has no h1: hash, and the zip sha256:") {
		t.Errorf("%d: %s", got.status, got.stderr)
	}
	if out := s.mustRun(append(args, "--force")...); !strings.Contains(out, ": replaced, ") {
		t.Error(out)
	}
	s.installsModule(r.Host+"/modules/"+vpc, "tag=1.0.0")
}
