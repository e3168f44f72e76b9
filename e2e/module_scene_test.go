package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
)

// moduleTree publishes twelve modules in three levels, and returns a configuration that installs them. Among them are modules in
// folders, a submodule of Git, an archive, tags with and without a v, links, executable files and attributes. A submodule that no
// module calls has a Git source, which no client can be redirected for.
func (p *publicModules) moduleTree(t *testing.T) (configuration string) {
	t.Helper()
	publish := func(name, tag, location string, tree gitserver.Tree) {
		p.git.Commit(t, name, tree)
		if tag != "main" {
			p.git.Git(t, name, "tag", "-a", "-m", "x", tag, "main")
		}
		p.publish(name, "1.0.0", "git::https://HOST/git/"+name+location+"?ref="+tag)
	}
	shared := p.git.Commit(t, "shared", gitserver.Tree{"shared.txt": "shared\n"})
	publish("root", "v1.0.0", "", gitserver.Tree{
		"main.tf":                callPublic("a", "a/aws", "~> 1.0") + callPublic("b", "b/aws//modules/sub", "1.0.0") + callPublic("c", "c/aws", ">= 1.0, < 2.0") + "module \"own\" {\n  source = \"./modules/own\"\n}\n",
		"modules/own/main.tf":    callPublic("d", "d/aws", "1.0.0"),
		"modules/legacy/main.tf": "# not called\nmodule \"x\" {\n  source = \"git::https://" + p.at + "/git/shared\"\n}\n",
	})
	publish("a", "1.0.0", "", gitserver.Tree{
		"main.tf": callPublic("e", "e/aws", "1.0.0") + callPublic("f", "f/aws", "~> 1.0"),
		"run.sh":  "#!/bin/sh\n", "windows.txt": "a\nb\n", "ident.txt": "$Id$\n", "text.txt": "a\r\nb\r\n", "utf16.txt": "caf\xc3\xa9\n", "kept.skip": "kept\n",
		".gitattributes": "windows.txt text eol=crlf\nident.txt ident\ntext.txt text eol=lf\nutf16.txt text working-tree-encoding=UTF-16LE\n*.skip export-ignore\n",
	})
	publish("b", "v1.0.0", "", gitserver.Tree{
		"main.tf": "# b\n", "modules/sub/main.tf": callPublic("g", "g/aws", "1.0.0"), "ext": "commit " + shared,
		".gitmodules": "[submodule \"ext\"]\n\tpath = ext\n\turl = ../shared\n",
	})
	publish("c", "main", "//src", gitserver.Tree{
		"src/main.tf": "module \"near\" {\n  source = \"../near\"\n}\n" + callPublic("h", "h/aws", "1.0.0"), "near/main.tf": callPublic("i", "i/aws", "1.0.0"),
		"src/link.tf": "-> ../near/extra.tf", "near/extra.tf": "# extra\n", "src/folder": "-> ../docs", "docs/readme.txt": "read\n",
	})
	for _, name := range []string{"d", "e", "f", "g", "h", "i"} {
		publish(name, "v1.0.0", "", gitserver.Tree{"main.tf": "# " + name + "\n"})
	}
	publish("k", "v1.0.0", "", gitserver.Tree{"main.tf": "# k\n"})
	p.git.Git(t, "k", "tag", "1.0.0", "main") // the same commit
	p.git.Commit(t, "j", gitserver.Tree{"main.tf": "# j\n", "run.sh": "#!/bin/sh\n", "x.skip": "x", ".gitattributes": "*.skip export-ignore\n"})
	out := filepath.Join(t.TempDir(), "archive")
	p.git.Git(t, "j", "archive", "--prefix=j-1.0.0/", "--format=tar.gz", "--output="+out, "main")
	var err error
	p.archives["/files/j-1.0.0.tar.gz"], err = os.ReadFile(out)
	clients.Must(t, err)
	p.publish("j", "1.0.0", "/files/j-1.0.0.tar.gz//j-1.0.0")
	return callPublic("root", "root/aws", "1.0.0") + callPublic("j", "j/aws", "~> 1.0") + callPublic("k", "k/aws", "1.0.0")
}

// moduleTreeNames are the modules of moduleTree: root and eleven others.
var moduleTreeNames = strings.Split("root a b c d e f g h i j k", " ")

// TestModuleTree fills three registries with the modules of a configuration, once by push --closure, once by sync and once by
// pull-through. Then the origin is gone, and both clients install from each, without a request to another place. They get the
// same files as from the origin itself.
func TestModuleTree(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	configuration := p.moduleTree(t)
	direct := map[string]map[string]string{}
	both(t, func(t *testing.T, client clients.Client) {
		direct[client.Name] = p.installed(t, client, p.block("https://"+p.at+"/v1/modules/"), configuration)
	})

	pushed, synced, pulled := t.TempDir(), t.TempDir(), t.TempDir()
	r := s.run("module", "push", "--data", pushed, "--closure", publicHost+"/platform/root/aws@1.0.0", publicHost+"/platform/j/aws@1.0.0", publicHost+"/platform/k/aws@1.0.0")
	if want := "not stored: " + publicHost + "/platform/root/aws 1.0.0, modules/legacy/main.tf:2: git::https://"; r.status != 0 || !strings.Contains(r.stderr, want) {
		t.Errorf("there is no %q in %+v", want, r)
	}
	var blocks strings.Builder
	for _, name := range moduleTreeNames {
		fmt.Fprintf(&blocks, "module %q {\n  versions = \"1.0.0\"\n}\n", publicHost+"/platform/"+name+"/aws")
	}
	config := filepath.Join(t.TempDir(), "ocibridge.hcl")
	clients.Must(t, os.WriteFile(config, []byte(blocks.String()), 0o600))
	s.mustRun("sync", "--config", config, "--data", synced)
	gateway := s.serve("--data", pulled, s.config("pull_through {\n  include = [\""+publicHost+"/*/*/*\"]\n}\n"))
	at := func(url string) string { return p.block("https://" + url + "/hosts/" + publicHost + "/v1/modules/") }
	both(t, func(t *testing.T, client clients.Client) {
		p.same(t, client, "by pull-through", p.installed(t, client, at(authority(gateway)), configuration), direct[client.Name])
	})
	clients.Must(t, gateway.Stop())

	p.gone.Store(true)
	p.requests.Store(0)
	before := ""
	for how, data := range map[string]string{"push": pushed, "sync": synced, "pull-through": pulled} {
		listed := s.mustRun("module", "list", "--data", data, "-o", "json")
		if n := strings.Count(listed, `"digest"`); n == 0 || before != "" && listed != before {
			t.Errorf("%s stored %s, and another way %s", how, listed, before)
		}
		before = listed
		g := s.serve("--data", data)
		both(t, func(t *testing.T, client clients.Client) {
			p.same(t, client, "after "+how, p.installed(t, client, at(authority(g)), configuration), direct[client.Name])
		})
	}
	if n := p.requests.Load(); n > 0 {
		t.Errorf("%d requests to the origin", n)
	}
}

// same checks that a client has got the files that it gets from the origin.
func (p *publicModules) same(t *testing.T, client clients.Client, how string, got, direct map[string]string) {
	t.Helper()
	if len(direct) < 30 {
		t.Errorf("directly: only %d files", len(direct))
	}
	for _, name := range slices.Sorted(maps.Keys(merged(direct, got))) {
		if want, have := direct[name], got[name]; want != have {
			t.Errorf("%s, %s: %s is %q, and %q directly", client.Name, how, name, have, want)
		}
	}
}
