package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
)

// TestModuleClosure stores a module with all modules that it calls: twelve modules in three levels, with submodules, a module
// in a folder of its repository, and constraints of which an older version is there for another reason. Another registry is
// filled by push --needed-by. Then the origin is gone, and both clients install everything through a gateway.
func TestModuleClosure(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	publish := func(name, version, folder string, tree gitserver.Tree) {
		repository := strings.ReplaceAll(name+"-"+version, ".", "-")
		p.git.Commit(t, repository, tree)
		p.publish(name, version, "git::https://HOST/git/"+repository+folder+"?ref=main")
	}
	leaf := func(name string) gitserver.Tree { return gitserver.Tree{"main.tf": "# " + name + "\n"} }
	publish("top", "1.0.0", "", gitserver.Tree{
		"main.tf":             callPublic("a", "a/aws", "~> 1.0") + callPublic("b", "b/aws//modules/sub", "2.0.0") + "module \"net\" {\n  source = \"./modules/net\"\n}\n",
		"modules/net/main.tf": callPublic("c", "c/aws", ">= 1.0, < 2.0"),
	})
	publish("a", "1.0.0", "", leaf("a"))
	publish("a", "1.4.0", "", gitserver.Tree{"main.tf": callPublic("a1", "a1/aws", "1.0.0") + callPublic("a2", "a2/aws", "1.0.0")})
	publish("a", "2.0.0", "", gitserver.Tree{"main.tf": callPublic("never", "never/aws", "1.0.0")})
	publish("b", "2.0.0", "", gitserver.Tree{"main.tf": callPublic("never", "never/aws", "1.0.0"), "modules/sub/main.tf": callPublic("b1", "b1/aws", "~> 1.0"), "modules/x/main.tf": "# x\n"})
	publish("c", "1.0.0", "//src", gitserver.Tree{"src/main.tf": "module \"d\" {\n  source = \"../d\"\n}\n", "d/main.tf.json": `{"module": {"c1": {"source": "` + publicHost + `/platform/c1/aws", "version": "1.0.0"}}}`})
	publish("a1", "1.0.0", "", gitserver.Tree{"main.tf": callPublic("e", "e/aws", "1.0.0")})
	publish("b1", "1.1.0", "", gitserver.Tree{"main.tf": callPublic("f", "f/aws", "1.0.0")})
	publish("c1", "1.0.0", "", gitserver.Tree{"main.tf": callPublic("g", "g/aws", ">= 1.0")})
	publish("g", "1.0.0", "", leaf("g"))
	publish("g", "1.2.0", "", gitserver.Tree{"main.tf": callPublic("h", "h/aws", "1.0.0")})
	for _, name := range []string{"a2", "e", "f", "h"} {
		publish(name, "1.0.0", "", leaf(name))
	}
	publish("git", "1.0.0", "", gitserver.Tree{"main.tf": "module \"x\" {\n  source = \"git::https://" + p.at + "/git/a2-1-0-0\"\n}\n"})
	top, configuration := publicHost+"/platform/top/aws@1.0.0", callPublic("top", "top/aws", "1.0.0")

	// What no client can be redirected for is named with file and line, and is an error with --strict.
	r := s.run("module", "push", "--data", s.data, "--closure", "--dry-run", publicHost+"/platform/git/aws@1.0.0")
	if want := "warning: not stored: " + publicHost + "/platform/git/aws 1.0.0, main.tf:1: git::https://"; r.status != 0 || !strings.Contains(r.stderr, want) {
		t.Errorf("there is no %q in %+v", want, r)
	}
	if r := s.run("module", "push", "--data", s.data, "--closure", "--strict", publicHost+"/platform/git/aws@1.0.0"); r.status != 1 || !strings.Contains(r.stderr, "main.tf:1") || strings.Contains(r.stdout, "pushed") {
		t.Errorf("--strict: %+v", r)
	}
	// An older version is there already, without its own closure.
	s.mustRun("module", "push", "--data", s.data, publicHost+"/platform/g/aws@1.0.0")
	out := s.mustRun("module", "push", "--data", s.data, "--closure", "--strict", top)
	if strings.Count(out, ": pushed, ") != 12 || strings.Contains(out, "never") || strings.Contains(out, "platform/g/aws 1.0.0") {
		t.Error(out)
	}
	if again := s.mustRun("module", "push", "--data", s.data, "--closure", top); strings.Count(again, ": unchanged, ") != 12 {
		t.Error(again)
	}
	// The same from a configuration.
	dir, needed := t.TempDir(), t.TempDir()
	clients.Must(t, os.WriteFile(filepath.Join(dir, "main.tf"), []byte(configuration), 0o600))
	if out := s.mustRun("push", "--data", needed, "--needed-by", dir); strings.Count(out, ": pushed, ") != 12 {
		t.Error(out)
	}
	p.gone.Store(true)
	p.requests.Store(0)
	for _, data := range []string{s.data, needed} {
		gateway := s.serve("--data", data)
		both(t, func(t *testing.T, client clients.Client) {
			got := p.installed(t, client, p.block("https://"+authority(gateway)+"/hosts/"+publicHost+"/v1/modules/"), configuration)
			if text := fmt.Sprint(got); !strings.Contains(text, "# h\n") || !strings.Contains(text, "# f\n") || strings.Contains(text, "# g\n") {
				t.Errorf("%s: %q", client.Name, got)
			}
		})
	}
	if n := p.requests.Load(); n > 0 {
		t.Errorf("%d requests to the origin", n)
	}
}
