package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
)

// publicHost is the host of the public modules.
const publicHost = "modules.acme.example"

// publicModules is a real Git server, and a module registry whose locations lead there.
type publicModules struct {
	*scene
	git       *gitserver.Server
	at        string                       // HOST:PORT of both
	locations map[string]map[string]string // by NAMESPACE/NAME/SYSTEM and version
	archives  map[string][]byte            // by path
	gone      atomic.Bool
	requests  atomic.Int64
	lock      sync.Mutex
	paths     []string // of all requests
}

// log returns the paths of all requests so far.
func (p *publicModules) log() []string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return slices.Clone(p.paths)
}

func (s *scene) publicModules() *publicModules {
	s.t.Helper()
	p := &publicModules{scene: s, git: gitserver.New(s.t, s.t.TempDir()), locations: map[string]map[string]string{}, archives: map[string][]byte{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/modules/{namespace}/{name}/{system}/versions", func(w http.ResponseWriter, r *http.Request) {
		var versions []string
		for _, v := range slices.Sorted(maps.Keys(p.locations[module(r)])) {
			versions = append(versions, fmt.Sprintf(`{"version":%q}`, v))
		}
		fmt.Fprintf(w, `{"modules":[{"versions":[%s]}]}`, strings.Join(versions, ","))
	})
	mux.HandleFunc("/v1/modules/{namespace}/{name}/{system}/{version}/download", func(w http.ResponseWriter, r *http.Request) {
		location, ok := p.locations[module(r)][r.PathValue("version")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Terraform-Get", strings.ReplaceAll(location, "HOST", p.at))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/files/", func(w http.ResponseWriter, r *http.Request) { w.Write(p.archives[r.URL.Path]) })
	mux.Handle("/git/", http.StripPrefix("/git", p.git))
	p.at = s.https(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		p.lock.Lock()
		p.paths = append(p.paths, r.URL.Path)
		p.lock.Unlock()
		if p.gone.Load() {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	s.ws.Env["GIT_SSL_CAINFO"] = s.CAFile
	clients.Must(s.t, s.ws.WriteCLIConfig(s.HostBlock()+p.block("https://"+p.at+"/v1/modules/")))
	return p
}

func module(r *http.Request) string {
	return r.PathValue("namespace") + "/" + r.PathValue("name") + "/" + r.PathValue("system")
}

// block returns a CLI configuration that sends requests for the public modules to a URL.
func (p *publicModules) block(url string) string {
	return fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = %q\n  }\n}\n", publicHost, url)
}

// publish adds a version of a module of the namespace platform to the registry.
func (p *publicModules) publish(name, version, location string) {
	key := "platform/" + name + "/aws"
	if p.locations[key] == nil {
		p.locations[key] = map[string]string{}
	}
	p.locations[key][version] = location
}

// callPublic returns a module block for a public module.
func callPublic(name, source, version string) string {
	return fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n}\n", name, publicHost+"/platform/"+source, version)
}

// installed makes a client get the modules of a configuration, and returns the files below .terraform/modules by path, without
// .git. The content of a file that its owner may execute has an ! before it. Links are followed.
func (p *publicModules) installed(t *testing.T, client clients.Client, cliConfig, configuration string) map[string]string {
	t.Helper()
	ws := p.workspace(cliConfig)
	ws.Env["GIT_SSL_CAINFO"] = p.CAFile
	clients.Must(t, ws.WriteConfig(configuration))
	ws.MustRun(t, client, "get", "-no-color")
	ws.MustRun(t, client, "init", "-no-color")
	return filesBelow(t, filepath.Join(ws.Dir, ".terraform", "modules"))
}

// filesBelow returns the files of a folder; see [publicModules.installed].
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	clients.Must(t, err)
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		info, err := os.Stat(at)
		clients.Must(t, err)
		switch {
		case e.Name() == ".git" || e.Name() == "modules.json":
		case info.IsDir():
			for name, content := range filesBelow(t, at) {
				out[e.Name()+"/"+name] = content
			}
		default:
			data, err := os.ReadFile(at)
			clients.Must(t, err)
			if out[e.Name()] = string(data); info.Mode()&0o100 != 0 {
				out[e.Name()] = "!" + string(data)
			}
		}
	}
	return out
}

// TestPublicModules pushes public modules by address: from Git and from archives, with submodules, links, modes, attributes,
// and in a folder of their package. Then the origin is gone. Both clients get the same files through a gateway as before from
// the origin itself.
//
//testrun:scene
func TestPublicModules(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	shared := p.git.Commit(t, "shared", gitserver.Tree{"shared.txt": "shared\n"})
	p.git.Commit(t, "vpc", gitserver.Tree{
		"main.tf":         callPublic("net", "net/aws", "~> 1.0") + callPublic("part", "part/aws//child", "1.0.0") + "output \"x\" { value = 1 }\n",
		"run.sh":          "#!/bin/sh\n",
		"windows.txt":     "a\nb\n",
		"ident.txt":       "$Id$\n",
		".gitattributes":  "windows.txt text eol=crlf\nident.txt ident\n*.skip export-ignore\n",
		"kept.skip":       "kept\n",
		"link.txt":        "-> docs/readme.txt",
		"copy":            "-> docs",
		"docs/readme.txt": "read\n", ".terraformignore": "docs\n",
		"ext":         "commit " + shared,
		".gitmodules": "[submodule \"ext\"]\n\tpath = ext\n\turl = ../shared\n",
	})
	p.git.Git(t, "vpc", "tag", "-a", "-m", "x", "v1.0.0", "main")
	p.publish("vpc", "1.0.0", "git::https://HOST/git/vpc?ref=v1.0.0")
	p.git.Commit(t, "net", gitserver.Tree{"main.tf": "# net\n", "run.sh": "#!/bin/sh\n", "x.skip": "x", ".gitattributes": "*.skip export-ignore\n", "link": "-> main.tf"})
	for name, format := range map[string]string{"/files/net-1.0.0.tar.gz": "tar.gz", "/files/net": "zip"} {
		out := filepath.Join(t.TempDir(), "archive")
		p.git.Git(t, "net", "archive", "--prefix=net-1.0.0/", "--format="+format, "--output="+out, "main")
		var err error
		p.archives[name], err = os.ReadFile(out)
		clients.Must(t, err)
	}
	p.publish("net", "1.0.0", "/files/net-1.0.0.tar.gz//net-1.0.0")
	p.publish("netzip", "1.0.0", "https://HOST/files/net//net-1.0.0?archive=zip")
	p.git.Commit(t, "part", gitserver.Tree{"a/main.tf": "module \"b\" {\n  source = \"../b\"\n}\n", "a/child/main.tf": "# child\n", "b/main.tf": "# b\n"})
	p.publish("part", "1.0.0", "git::https://HOST/git/part//a?ref=main&depth=1")
	configuration := callPublic("vpc", "vpc/aws", "1.0.0") + callPublic("netzip", "netzip/aws", "~> 1.0") + callPublic("part", "part/aws", "1.0.0")

	direct := map[string]map[string]string{}
	both(t, func(t *testing.T, client clients.Client) {
		direct[client.Name] = p.installed(t, client, p.block("https://"+p.at+"/v1/modules/"), configuration)
	})
	out := s.mustRun("module", "push", "--data", s.data, "--all",
		publicHost+"/platform/vpc/aws@1.0.0", publicHost+"/platform/net/aws@>= 1.0", publicHost+"/platform/netzip/aws@1.0.0", publicHost+"/platform/part/aws@1.0.0")
	if strings.Count(out, ": pushed, ") != 4 {
		t.Error(out)
	}
	shown := s.mustRun("module", "inspect", "--data", s.data, publicHost+"/platform/part/aws@1.0.0")
	for _, want := range []string{"git::https://" + p.at + "/git/part//a?depth=1&ref=main", "folder      a\n", "commit      " + p.git.Git(t, "part", "rev-parse", "main"), "tree        " + p.git.Git(t, "part", "rev-parse", "main^{tree}")} {
		if !strings.Contains(shown, want) {
			t.Errorf("there is no %q in\n%s", want, shown)
		}
	}
	p.gone.Store(true)
	p.requests.Store(0)
	gateway := s.serve("--data", s.data)
	both(t, func(t *testing.T, client clients.Client) {
		got := p.installed(t, client, p.block("https://"+authority(gateway)+"/hosts/"+publicHost+"/v1/modules/"), configuration)
		if len(direct[client.Name]) < 20 {
			t.Errorf("directly: only %d files", len(direct[client.Name]))
		}
		for _, name := range slices.Sorted(maps.Keys(merged(direct[client.Name], got))) {
			if want, have := direct[client.Name][name], got[name]; want != have {
				t.Errorf("%s: %s is %q, and %q directly", client.Name, name, have, want)
			}
		}
	})
	if n := p.requests.Load(); n > 0 {
		t.Errorf("%d requests to the origin", n)
	}
}

func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// TestPublicModuleMoves checks what happens if the tag of a stored version moves, if an archive changes, and if the tags 1.2.3
// and v1.2.3 differ: the push is refused and names both sides, and the stored version stays. Two machines store the same
// digest.
func TestPublicModuleMoves(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	const vpc, arc = publicHost + "/platform/vpc/aws", publicHost + "/platform/arc/aws"
	first := p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 1\n"})
	p.git.Git(t, "vpc", "tag", "v1.0.0", "main")
	p.publish("vpc", "1.0.0", "git::https://user:secret@HOST/git/vpc?ref=v1.0.0")
	p.publish("arc", "1.0.0", "https://HOST/files/arc.tar.gz?token=secret")
	archive := func(tree string) {
		out := filepath.Join(t.TempDir(), "archive")
		p.git.Git(t, "vpc", "archive", "--format=tar.gz", "--output="+out, tree)
		var err error
		p.archives["/files/arc.tar.gz"], err = os.ReadFile(out)
		clients.Must(t, err)
	}
	archive("main")
	push := func(args ...string) result {
		return s.run(append([]string{"module", "push", "--data", s.data}, args...)...)
	}
	digests := func(data string) string {
		return s.mustRun("module", "list", "--data", data, "-o", "json")
	}
	for _, data := range []string{s.data, t.TempDir()} {
		s.mustRun("module", "push", "--data", data, vpc+"@1.0.0", arc+"@1.0.0")
	}
	before := digests(s.data)
	if strings.Contains(before, "secret") {
		t.Errorf("a secret is stored: %s", before)
	}
	if r := push(vpc+"@1.0.0", arc+"@1.0.0", "--dry-run", "--detailed-exitcode"); r.status != 0 || strings.Count(r.stdout, "unchanged") != 2 {
		t.Errorf("again: %+v", r)
	}

	second := p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 2\n"})
	p.git.Git(t, "vpc", "tag", "-f", "v1.0.0", "main")
	archive("main")
	for name, tc := range map[string]struct {
		args []string
		says []string
	}{
		"moved tag":            {[]string{vpc + "@1.0.0"}, []string{"the origin has changed the version", first, second, "--force"}},
		"moved tag, planned":   {[]string{vpc + "@1.0.0", "--dry-run"}, []string{"the origin has changed the version", first, second}},
		"other archive":        {[]string{arc + "@1.0.0"}, []string{"conflict", "/files/arc.tar.gz has h1:", "--force"}},
		"a version not listed": {[]string{vpc + "@9.0.0"}, []string{"version not found", "offers 1.0.0"}},
		"no match":             {[]string{vpc + "@~> 2.0"}, []string{"nothing that it offers matches"}},
	} {
		r := push(tc.args...)
		for _, want := range tc.says {
			if r.status != 1 || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "secret") {
				t.Errorf("%s: there is no %q in %+v", name, want, r)
			}
		}
	}
	p.git.Git(t, "vpc", "tag", "2.0.0", first)
	p.git.Git(t, "vpc", "tag", "v2.0.0", second)
	p.publish("vpc", "2.0.0", "git::https://HOST/git/vpc?ref=2.0.0")
	p.git.Git(t, "vpc", "tag", "x", first)
	p.publish("twin", "2.0.0", "git::https://HOST/git/vpc?ref=x")
	p.publish("twin", "v2.0.0", "git::https://HOST/git/vpc?ref=main")
	for _, name := range []string{"vpc", "twin"} {
		r := push(publicHost + "/platform/" + name + "/aws@2.0.0")
		if r.status != 1 || !strings.Contains(r.stderr, "two tags for one version") || !strings.Contains(r.stderr, first) || !strings.Contains(r.stderr, second) {
			t.Errorf("twins of %s: %+v", name, r)
		}
	}
	if after := digests(s.data); after != before {
		t.Errorf("stored %s, before %s", after, before)
	}
	if r := push(vpc+"@1.0.0", "--force"); r.status != 0 || !strings.Contains(r.stdout, "replaced") || !strings.Contains(r.stderr, first) {
		t.Errorf("--force: %+v", r)
	}
}

// TestPublicModulesRefused checks that a version is refused whose location or content clients would not all get alike, and that
// nothing is stored. Both clients fail for a folder with a wildcard.
func TestPublicModulesRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 1\n"})
	p.git.Commit(t, "lfs", gitserver.Tree{"main.tf": "# 1\n", "big.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12\n", ".gitattributes": "*.bin filter=lfs\n"})
	p.git.Commit(t, "out", gitserver.Tree{"main.tf": "# 1\n", "out": "-> ../../../etc/passwd"})
	archive := filepath.Join(t.TempDir(), "archive")
	p.git.Git(t, "vpc", "archive", "--format=zip", "--prefix=vpc/", "--output="+archive, "main")
	var err error
	p.archives["/files/vpc.zip"], err = os.ReadFile(archive)
	clients.Must(t, err)
	var reached atomic.Int64
	elsewhere := s.https(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		http.NotFound(w, r)
	}))
	p.git.Commit(t, "sub", gitserver.Tree{
		"main.tf": "# 1\n", "sub": "commit " + strings.Repeat("1", 40),
		".gitmodules": "[submodule \"sub\"]\n\tpath = sub\n\turl = https://" + elsewhere + "/git/vpc\n",
	})
	for name, tc := range map[string]struct{ location, says string }{
		"star":   {"https://HOST/files/vpc.zip//*?archive=zip", "do not expand"},
		"ssh":    {"git::ssh://git@HOST/git/vpc?ref=main", `"git::ssh", not https`},
		"inside": {"git::https://" + elsewhere + "/git/vpc", "an origin on another machine refers to it"},
		"sub":    {"git::https://HOST/git/sub", "an origin on another machine refers to it"},
		"space":  {"git::https://HOST/git/vpc//a b", "not a path that every client reads alike"},
		"absent": {"git::https://HOST/git/vpc?ref=v9", "no such tag, branch or commit"},
		"gone":   {"git::https://HOST/git/none?ref=v9", "no Git repository"},
		"folder": {"git::https://HOST/git/vpc//none", "lacks the folder"},
		"lfs":    {"git::https://HOST/git/lfs", "big.bin"},
		"out":    {"git::https://HOST/git/out", "out"},
	} {
		p.publish(name, "1.0.0", tc.location)
		r := s.run("module", "push", "--data", s.data, publicHost+"/platform/"+name+"/aws@1.0.0")
		if r.status != 1 || !strings.Contains(r.stderr, tc.says) || !strings.Contains(r.stderr, "hint: ") || strings.Count(r.stderr, "platform/"+name+"/aws 1.0.0") != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests to the server inside", n)
	}
	if out := s.mustRun("module", "list", "--data", s.data); strings.Contains(out, publicHost) {
		t.Errorf("stored: %s", out)
	}
	s.mustRun("module", "push", "--data", s.data, publicHost+"/platform/lfs/aws@1.0.0", "--allow-lfs-pointers")
	both(t, func(t *testing.T, client clients.Client) {
		ws := p.workspace(p.block("https://" + p.at + "/v1/modules/"))
		clients.Must(t, ws.WriteConfig(callPublic("star", "star/aws", "1.0.0")))
		if out := ws.MustFail(t, client, "get", "-no-color"); !strings.Contains(out, "*") {
			t.Error(out)
		}
	})
}

// TestSyncOfPublicModules syncs public modules by module blocks. A second sync writes nothing,
// and sends the origin no requests but those for lists and locations. Then tags move, vanish and get a twin: sync names what it found,
// and clients get the stored versions as before.
func TestSyncOfPublicModules(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	const vpc, arc = publicHost + "/platform/vpc/aws", publicHost + "/platform/arc/aws"
	var commits []string
	for _, v := range []string{"1.0.0", "1.1.0", "2.0.0"} {
		commits = append(commits, p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# " + v + "\n"}))
		p.git.Git(t, "vpc", "tag", "v"+v, "main")
		p.publish("vpc", v, "git::https://HOST/git/vpc?ref=v"+v)
	}
	out := filepath.Join(t.TempDir(), "archive")
	p.git.Git(t, "vpc", "archive", "--format=tar.gz", "--output="+out, "main")
	var err error
	p.archives["/files/arc.tar.gz"], err = os.ReadFile(out)
	clients.Must(t, err)
	p.publish("arc", "1.0.0", "https://HOST/files/arc.tar.gz")
	p.publish("arc", "1.1.0", "git::https://HOST/git/vpc?ref="+commits[0])
	config := filepath.Join(t.TempDir(), "ocibridge.hcl")
	configure := func(vpcBlock string) {
		clients.Must(t, os.WriteFile(config, []byte("module \""+vpc+"\" {\n"+vpcBlock+"\n}\nmodule \""+arc+"\" {\n  versions = \">= 0\"\n}\n"), 0o600))
	}
	synced := func(args ...string) result {
		t.Helper()
		return s.run(append([]string{"sync", "--config", config, "--data", s.data}, args...)...)
	}
	expect := func(name string, r result, status int, says ...string) {
		t.Helper()
		for _, want := range says {
			if r.status != status || !strings.Contains(r.stdout+r.stderr, want) {
				t.Errorf("%s: there is no %q in %+v", name, want, r)
			}
		}
	}
	configure("  versions = \"~> 1.0\"")
	expect("dry run", synced("--dry-run"), 0, vpc+"\n  + 1.1.0  size unknown\n  + 1.0.0", "Plan: 4 to push (size unknown)")
	expect("first sync", synced(), 0, vpc+" 1.1.0: pushed", "Sync: 4 pushed")
	listed := p.log()
	expect("second sync", synced(), 0, "Sync: 4 in place")
	for _, path := range p.log()[len(listed):] {
		if strings.Contains(path, "git-upload-pack") && !strings.HasSuffix(path, "/info/refs") {
			t.Errorf("the second sync sent %s", path)
		}
	}
	if n := strings.Count(strings.Join(p.log()[len(listed):], "\n"), "/info/refs"); n != 1 {
		t.Errorf("%d lists of references, not one for both versions of a repository", n)
	}
	before := s.mustRun("module", "list", "--data", s.data, "-o", "json")

	configure("  versions = \"~> 1.1\"")
	expect("prune, planned", synced("--prune", "--dry-run"), 0, "  - 1.0.0")
	p.git.Git(t, "vpc", "tag", "-f", "v1.1.0", commits[2])
	expect("moved tag", synced("--prune"), 1, vpc+" 1.1.0: ", commits[1], commits[2], "the stored version stays", "Sync: 2 in place, 1 failed, 1 not done")
	expect("moved tag, planned", synced("--dry-run"), 1, commits[1], commits[2])
	p.git.Git(t, "vpc", "tag", "-d", "v1.1.0")
	expect("vanished tag", synced("--prune"), 1, vpc+" 1.1.0: ", "no such tag", "The stored version stays")
	p.git.Git(t, "vpc", "tag", "v1.1.0", commits[1])
	p.git.Git(t, "vpc", "tag", "1.1.0", commits[2])
	expect("twin", synced("--prune"), 1, "two tags for one version name different commits", commits[1], commits[2])
	p.git.Git(t, "vpc", "tag", "-d", "1.1.0")
	p.archives["/files/arc.tar.gz"] = nil
	expect("damaged archive", synced(), 1, arc+" 1.0.0: ")
	p.archives["/files/arc.tar.gz"], err = os.ReadFile(out)
	clients.Must(t, err)
	versions := p.locations["platform/vpc/aws"]
	p.locations["platform/vpc/aws"] = map[string]string{"2.0.0": versions["2.0.0"]}
	expect("vanished version", synced(), 0, "Sync: 3 in place")
	p.gone.Store(true)
	expect("origin gone", synced("--prune"), 1, "Sync: 2 failed")
	if after := s.mustRun("module", "list", "--data", s.data, "-o", "json"); after != before {
		t.Errorf("stored %s, before %s", after, before)
	}
	p.gone.Store(false)
	p.locations["platform/vpc/aws"] = versions
	expect("prune", synced("--prune"), 0, vpc+" 1.0.0: pruned", "Sync: 1 pruned, 3 in place")
	p.gone.Store(true)
	gateway := s.serve("--data", s.data)
	both(t, func(t *testing.T, client clients.Client) {
		got := p.installed(t, client, p.block("https://"+authority(gateway)+"/hosts/"+publicHost+"/v1/modules/"), callPublic("vpc", "vpc/aws", "1.1.0")+callPublic("arc", "arc/aws", "1.0.0"))
		if got["vpc/main.tf"] != "# 1.1.0\n" || got["arc/main.tf"] != "# 2.0.0\n" {
			t.Errorf("%s: %q", client.Name, got)
		}
	})
}
