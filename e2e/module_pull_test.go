package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
)

// asked returns the status and the body of a gateway's answer for the module NAME of the namespace platform.
func (p *publicModules) asked(gateway, path string) (int, string) {
	p.t.Helper()
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(p.CAFile)
	clients.Must(p.t, err)
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" + gateway + "/hosts/" + publicHost + "/v1/modules/platform/" + path)
	clients.Must(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	clients.Must(p.t, err)
	return resp.StatusCode, string(body)
}

// TestPulledModulesStay checks what a gateway that pulls through serves when origins change: a tag that moves, a history that is
// rewritten, a tag and a version that vanish, and an archive with other files leave the stored version as it is. Tags that differ
// are refused, and both commits are in the log. A failed origin is no 404. No token of a location is in the log or in the registry.
func TestPulledModulesStay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	first := p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 1\n"})
	p.git.Git(t, "vpc", "tag", "v1.0.0", "main")
	p.publish("vpc", "1.0.0", "git::https://user:secret@HOST/git/vpc?ref=v1.0.0")
	p.publish("arc", "1.0.0", "https://HOST/files/arc.tar.gz?token=secret")
	archive := func() {
		out := filepath.Join(t.TempDir(), "archive")
		p.git.Git(t, "vpc", "archive", "--format=tar.gz", "--output="+out, "main")
		var err error
		p.archives["/files/arc.tar.gz"], err = os.ReadFile(out)
		clients.Must(t, err)
	}
	archive()
	gateway := s.serve("--data", s.data, s.config("pull_through {\n  include = [\""+publicHost+"/*/*/*\"]\n}\n"))
	cli := p.block("https://" + authority(gateway) + "/hosts/" + publicHost + "/v1/modules/")
	configuration := callPublic("vpc", "vpc/aws", "1.0.0") + callPublic("arc", "arc/aws", "~> 1.0")
	expect := func(when string) {
		t.Helper()
		client := clients.Tofu(t)
		if got := p.installed(t, client, cli, configuration); got["vpc/main.tf"] != "# 1\n" || got["arc/main.tf"] != "# 1\n" {
			t.Errorf("%s: %q", when, got)
		}
	}
	expect("at first")
	before := s.mustRun("module", "list", "--data", s.data, "-o", "json")
	fetched := func() int { return strings.Count(strings.Join(p.log(), "\n"), "/git-upload-pack") }
	n := fetched()

	second := p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 2\n"})
	p.git.Git(t, "vpc", "tag", "-f", "v1.0.0", "main")
	archive()
	expect("a moved tag, and another archive")
	p.git.Git(t, "vpc", "update-ref", "-d", "refs/heads/main")
	rewritten := p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# rewritten\n"})
	p.git.Git(t, "vpc", "tag", "-f", "v1.0.0", "main")
	expect("a rewritten history")
	p.git.Git(t, "vpc", "tag", "-d", "v1.0.0")
	expect("a vanished tag")
	locations := p.locations["platform/vpc/aws"]
	delete(locations, "1.0.0")
	expect("a vanished version")
	if after := s.mustRun("module", "list", "--data", s.data, "-o", "json"); after != before || fetched() != n {
		t.Errorf("stored %s, before %s; %d fetches, before %d", after, before, fetched(), n)
	}

	// Versions that cannot be stored. A new gateway has no list in memory.
	clients.Must(t, gateway.Stop())
	p.git.Git(t, "vpc", "tag", "2.0.0", second)
	p.git.Git(t, "vpc", "tag", "v2.0.0", rewritten)
	p.publish("vpc", "2.0.0", "git::https://user:secret@HOST/git/vpc?ref=2.0.0")
	p.publish("vpc", "3.0.0", "git::https://HOST/git/vpc?ref=v3.0.0")
	p.publish("vpc", "4.0.0", "git::https://HOST/git/vpc?ref=main")
	var reached atomic.Int64
	p.publish("inside", "1.0.0", "git::https://"+s.https(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))+"/git/vpc?ref=main")
	gateway = s.serve("--data", s.data, s.config("pull_through {\n  include = [\""+publicHost+"/*/*/*\"]\n}\n"))
	for path, want := range map[string]int{
		"vpc/aws/2.0.0/download": 200, "vpc/aws/2.0.0/vpc-2.0.0.zip": 502, "vpc/aws/3.0.0/vpc-3.0.0.zip": 502,
		"vpc/aws/9.0.0/download": 404, "vpc/aws/9.0.0/vpc-9.0.0.zip": 404, "none/aws/versions": 404, "inside/aws/1.0.0/inside-1.0.0.zip": 502, "vpc/aws/1.0.0/vpc-1.0.0.zip": 200,
	} {
		if status, body := p.asked(authority(gateway), path); status != want || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %.200s, want %d", path, status, body, want)
		}
	}
	if reached.Load() > 0 {
		t.Error("the gateway has followed a location to another server on this machine")
	}
	p.gone.Store(true)
	for path, want := range map[string]int{"vpc/aws/4.0.0/vpc-4.0.0.zip": 502, "new/aws/versions": 502, "vpc/aws/1.0.0/vpc-1.0.0.zip": 200} {
		if status, body := p.asked(authority(gateway), path); status != want {
			t.Errorf("the origin is gone, %s: %d %.200s, want %d", path, status, body, want)
		}
	}
	log := gateway.Log()
	for _, want := range []string{"two tags for one version name different commits", second, rewritten, "no such tag, branch or commit"} {
		if !strings.Contains(log, want) {
			t.Errorf("there is no %q in the log:\n%s", want, log)
		}
	}
	if stored := s.mustRun("module", "inspect", "--data", s.data, publicHost+"/platform/vpc/aws@1.0.0"); !strings.Contains(stored, first) || strings.Contains(stored+log, "secret") {
		t.Errorf("stored: %s\nthe log: %s", stored, log)
	}
}

// TestExecPullsModules checks that exec pulls modules through, without a host block of the user.
func TestExecPullsModules(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.publicModules()
	p.git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# vpc\n"})
	p.publish("vpc", "1.0.0", "git::https://HOST/git/vpc?ref=main")
	file := s.configured("pull_through {\n  include = [\"" + publicHost + "/platform/*/*\"]\n}\n")
	both(t, func(t *testing.T, client clients.Client) {
		ws := p.workspace(p.block("https://" + p.at + "/v1/modules/"))
		clients.Must(t, ws.WriteConfig(callPublic("vpc", "vpc/aws", "1.0.0")))
		data := t.TempDir()
		if r := s.execIn(ws, "--config", file, "--data", data, "--", client.Path, "init", "-no-color"); r.status != 0 {
			t.Errorf("%s: %+v", client.Name, r)
		}
		if got := filesBelow(t, filepath.Join(ws.Dir, ".terraform", "modules")); got["vpc/main.tf"] != "# vpc\n" {
			t.Errorf("%s: %q", client.Name, got)
		}
		if listed := s.mustRun("module", "list", "--data", data); !strings.Contains(listed, publicHost+"/platform/vpc/aws") {
			t.Errorf("%s: stored %s", client.Name, listed)
		}
	})
}
