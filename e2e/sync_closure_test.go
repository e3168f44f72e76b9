package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestSyncOfClosures shows that a module block with closure = true also stores the modules that its versions call. A prune keeps
// them. If the origin of a called module fails, the sync reports a failure and stores the rest, as module push does. Then the
// origin is gone, and both clients install everything.
func TestSyncOfClosures(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	clients.Must(t, s.ws.WriteCLIConfig(s.HostBlock()+p.block("https://"+p.at+"/v1/modules/")+"host \"down.acme.example\" {\n  services = {\n    \"modules.v1\" = \"https://127.0.0.1:1/\"\n  }\n}\n"))
	tree := func(name, version string, files gitserver.Tree) {
		repository := strings.ReplaceAll(name+"-"+version, ".", "-")
		p.git.Commit(t, repository, files)
		p.git.Git(t, repository, "tag", "v"+version, "main")
		p.publish(name, version, "git::https://HOST/git/"+repository+"?ref=v"+version)
	}
	leaf := func(name, version string) {
		tree(name, version, gitserver.Tree{"main.tf": "# " + name + " " + version + "\n"})
	}
	const top, called, deep = publicHost + "/platform/top/aws", publicHost + "/platform/called/aws", publicHost + "/platform/deep/aws"
	tree("top", "1.0.0", gitserver.Tree{"main.tf": callPublic("called", "called/aws", "~> 1.0")})
	tree("top", "1.1.0", gitserver.Tree{"main.tf": callPublic("called", "called/aws", "~> 1.0") + callPublic("sub", "called/aws//modules/sub", "1.1.0") + "module \"x\" {\n  source = \"git::https://" + p.at + "/git/x\"\n}\n"})
	tree("called", "1.1.0", gitserver.Tree{"main.tf": "# called\n", "modules/sub/main.tf": callPublic("deep", "deep/aws", "< 2.0")})
	for _, v := range []string{"1.0.0", "2.0.0"} {
		leaf("called", v)
		leaf("deep", v)
	}
	file := filepath.Join(s.ws.Dir, "ocibridge.hcl")
	configure := func(text string) { clients.Must(t, os.WriteFile(file, []byte(text), 0o600)) }
	block := func(address, arguments string) string {
		return fmt.Sprintf("module %q {\n  %s\n}\n", address, arguments)
	}
	synced := func(args ...string) result {
		return s.run(append([]string{"sync", "--config", file, "--data", s.data}, args...)...)
	}
	expect := func(name string, r result, status int, says ...string) {
		t.Helper()
		for _, want := range says {
			if r.status != status || !strings.Contains(r.stdout+r.stderr, want) {
				t.Errorf("%s: there is no %q in %+v", name, want, r)
			}
		}
	}
	closed := block(top, "latest = 1\n  closure = true")
	configure(closed)
	expect("dry run", synced("--dry-run"), 0, top+"\n  + 1.1.0", called+"\n  + 1.1.0", deep+"\n  + 1.0.0", "Plan: 3 to push", "warning: not stored: "+top+" 1.1.0, main.tf:9: git::https://")
	expect("output", synced("--dry-run", "-o", "json"), 0, `"missing": [`, `"line": 9`)
	before := len(p.log())
	expect("first sync", synced(), 0, deep+" 1.0.0: pushed", "Sync: 3 pushed")
	if n := strings.Count(strings.Join(p.log()[before:], "\n"), "/git-upload-pack"); n != 3 {
		t.Errorf("%d fetches of 3 versions:\n%s", n, strings.Join(p.log()[before:], "\n"))
	}
	before = len(p.log())
	expect("second sync", synced(), 0, "Sync: 3 in place")
	if log := strings.Join(p.log()[before:], "\n"); strings.Contains(log, "/git-upload-pack") {
		t.Errorf("the second sync fetched files:\n%s", log)
	}

	// A prune keeps what a closure has, and prunes nothing of a module without a block.
	s.mustRun("module", "push", "--data", s.data, called+"@2.0.0", called+"@1.0.0", deep+"@2.0.0")
	configure(closed + block(called, "versions = \"2.0.0\""))
	expect("one block of two", synced("--prune", called), 0, "no version of a module is pruned, because it is not known", "Sync: 1 in place")
	expect("prune, planned", synced("--prune", "--dry-run"), 0, called+"\n  - 1.0.0", "Plan: 1 to prune", "4 in place")
	expect("prune", synced("--prune"), 0, called+" 1.0.0: pruned", "Sync: 1 pruned, 4 in place")

	// The newest version that the constraint allows is followed, and a moved tag stays a failure of its own module.
	leaf("deep", "1.5.0")
	p.git.Commit(t, "called-1-1-0", gitserver.Tree{"main.tf": "# moved\n"})
	p.git.Git(t, "called-1-1-0", "tag", "-f", "v1.1.0", "main")
	expect("moved", synced("--prune"), 1, "the origin has changed the version", deep+" 1.5.0: pushed", "Sync: 1 pushed, 2 in place, 1 failed")

	// A host that cannot be reached stops nothing else.
	tree("top", "1.2.0", gitserver.Tree{"main.tf": callPublic("deep", "deep/aws", "2.0.0") + "module \"d\" {\n  source = \"down.acme.example/a/b/c\"\n}\n"})
	expect("a host is down", synced("--prune"), 1, "not stored: "+top+" 1.2.0, main.tf:5: down.acme.example/a/b/c: not available: ", "connection refused", top+" 1.2.0: pushed", "1 failed")
	push := func(args ...string) result {
		return s.run(append([]string{"module", "push", "--data", t.TempDir(), "--closure", top + "@1.2.0"}, args...)...)
	}
	expect("push", push(), 0, "not stored: "+top+" 1.2.0, main.tf:5: down.acme.example/a/b/c: not available: ", top+" 1.2.0: pushed", deep+" 2.0.0: pushed")
	expect("strict push", push("--strict"), 1, "nothing is stored", "main.tf:5")

	// With a cooldown, a called version waits, too.
	cool := t.TempDir()
	configure(block(top, "versions = \"1.0.0\"\n  closure = true\n  cooldown = \"7d\""))
	p.git.Git(t, "called-1-1-0", "tag", "-f", "v1.1.0", "main~1")
	expect("first sync with a cooldown", s.run("sync", "--config", file, "--data", cool), 0, called+" 1.1.0: pushed", "Sync: 2 pushed")
	leaf("called", "1.2.0")
	expect("young", s.run("sync", "--config", file, "--data", cool), 0, "Sync: 2 in place")

	// A pointer of Git LFS is refused, also in a called module, unless the block allows it.
	tree("large", "1.0.0", gitserver.Tree{"main.tf": "# large\n", "x.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12\n", ".gitattributes": "*.bin filter=lfs\n"})
	tree("caller", "1.0.0", gitserver.Tree{"main.tf": callPublic("large", "large/aws", "1.0.0")})
	const caller = publicHost + "/platform/caller/aws"
	configure(block(caller, "latest = 1\n  closure = true"))
	expect("a pointer", synced(), 0, "not stored: "+caller+" 1.0.0, main.tf:1: "+publicHost+"/platform/large/aws: ", "x.bin", "Sync: 1 pushed")
	configure(block(caller, "latest = 1\n  closure = true\n  allow_lfs_pointers = true"))
	expect("a pointer that is allowed", synced(), 0, publicHost+"/platform/large/aws 1.0.0: pushed", "Sync: 1 pushed, 1 in place")

	p.gone.Store(true)
	p.requests.Store(0)
	gateway := s.serve("--data", s.data)
	both(t, func(t *testing.T, client clients.Client) {
		got := p.installed(t, client, p.block("https://"+authority(gateway)+"/hosts/"+publicHost+"/v1/modules/"), callPublic("called", "called/aws", "~> 1.0")+callPublic("sub", "called/aws//modules/sub", "1.1.0"))
		if text := fmt.Sprint(got); !strings.Contains(text, "# called\n") || !strings.Contains(text, "# deep 1.5.0\n") {
			t.Errorf("%s: %q", client.Name, got)
		}
	})
	if n := p.requests.Load(); n > 0 {
		t.Errorf("%d requests to the origin", n)
	}
}

// TestSyncGoesOnBesideTwins shows that a version that was stored in spite of its twin stays a failure of each sync, and that the
// other modules and providers are stored meanwhile.
func TestSyncGoesOnBesideTwins(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	var commits []string
	for _, text := range []string{"# 1\n", "# 2\n"} {
		commits = append(commits, p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": text}))
	}
	p.git.Git(t, "vpc", "tag", "v1.0.0", commits[0])
	p.git.Git(t, "vpc", "tag", "1.0.0", commits[1])
	p.publish("vpc", "1.0.0", "git::https://HOST/git/vpc?ref=v1.0.0")
	p.publish("net", "1.0.0", "git::https://HOST/git/vpc?ref=main")
	const vpc, net = publicHost + "/platform/vpc/aws", publicHost + "/platform/net/aws"
	s.mustRun("module", "push", "--data", s.data, "--force", vpc+"@1.0.0")
	before := s.mustRun("module", "list", "--data", s.data, "-o", "json", vpc)
	file := s.configured(fmt.Sprintf("module %q {\n  versions = \"1.0.0\"\n  closure  = true\n}\nmodule %q {\n  latest = 1\n}\nprovider %q {\n  latest    = 1\n  platforms = [\"linux_amd64\"]\n}\n", vpc, net, world.Null))
	r := s.run("sync", "--config", file, "--data", s.data, "--prune")
	for _, want := range []string{net + " 1.0.0: pushed", world.Null + " " + nullVersion + ": pushed", "Sync: 2 pushed, 1 failed", "two tags for one version name different commits", commits[0], commits[1], "the stored version stays", "excludes it (!= 1.0.0)"} {
		if r.status != 1 || !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("there is no %q in %+v", want, r)
		}
	}
	if after := s.mustRun("module", "list", "--data", s.data, "-o", "json", vpc); after != before {
		t.Errorf("stored %s, before %s", after, before)
	}
}
