package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// moments are the times to kill the program, relative to a request.
var moments = []string{"before", "in the middle of", "after"}

// TestKilled kills pushes and syncs with kill -9 during their requests. It shows that no tag ever names an incomplete index,
// and that no files remain on the machine. The next run completes the interrupted work.
//
// It kills them in the middle of the first request of each kind that writes, and after the last one. With
// OCIBRIDGE_FAULTS=long, it kills them at each request.
func TestKilled(t *testing.T) {
	t.Parallel()
	k := newKilling(t, "0.9.0", "1.0.0", "1.1.0")
	push := func(repo, version string, platforms ...string) []string {
		args := []string{"push", world.Host + "/acme/killed@" + version, "--template", k.template(repo)}
		for _, p := range platforms {
			args = append(args, "--platform", p)
		}
		return args
	}
	for name, tc := range map[string]struct {
		prepare, run func(repo string) []string
		want         map[string]int // platforms by version, at the end
	}{
		"push":         {nil, func(repo string) []string { return push(repo, "1.0.0") }, map[string]int{"1.0.0": 3}},
		"partial push": {nil, func(repo string) []string { return push(repo, "1.0.0", "linux_amd64", "linux_riscv64") }, map[string]int{"1.0.0": 2}},
		"sync": {
			func(repo string) []string { return push(repo, "0.9.0", "linux_amd64") },
			func(repo string) []string {
				return []string{"sync", "--first", "--prune", "--prune-limit", "1", "--jobs", "1", "--template", k.template(repo), "--config", k.config}
			},
			map[string]int{"0.9.0": 0, "1.0.0": 1, "1.1.0": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			runs, kills := 0, 0
			prepared := func() (repo string) {
				runs++
				repo = fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), runs)
				k.recorder.Intercept(nil)
				if tc.prepare != nil {
					k.ws.MustRun(t, k.bridge, tc.prepare(repo)...)
				}
				return repo
			}
			complete := func(repo, when string) {
				k.recorder.Intercept(nil)
				k.ws.MustRun(t, k.bridge, tc.run(repo)...)
				for version, want := range tc.want {
					if found := k.platforms(t, repo, version); found != want {
						t.Errorf("%s: the tag %s names %d platforms, want %d", when, version, found, want)
					}
				}
			}
			killed := func(at killAt) bool {
				repo := prepared()
				reached := k.killAt(t, at, tc.run(repo))
				if reached {
					kills++
				}
				for version := range tc.want {
					k.platforms(t, repo, version)
				}
				complete(repo, fmt.Sprintf("completed after it was killed %s request %d %s", at.moment, at.n, at.kind))
				return reached
			}
			if os.Getenv("OCIBRIDGE_FAULTS") == "long" {
				for n := 1; killed(killAt{moment: moments[n%len(moments)], n: n}); n++ {
				}
			} else {
				repo := prepared()
				k.recorder.Reset()
				complete(repo, "never killed")
				for kind, n := range writes(k.recorder.Requests()) {
					if !killed(killAt{"in the middle of", kind, 1}) {
						t.Errorf("it sent no request %s", kind)
					}
					// Concurrent uploads of the same blob can send fewer requests than the last time.
					for ; !killed(killAt{"after", kind, n}) && n > 1; n-- {
					}
				}
			}
			t.Logf("killed %d times", kills)
			if kills < 10 {
				t.Error("that is too seldom")
			}
		})
	}
}

// killAt is the request at which the program is killed: the n-th of a kind, or the n-th of all if kind is "".
type killAt struct {
	moment string
	kind   string
	n      int
}

// varying matches the parts of a path that differ between requests of the same kind.
var varying = regexp.MustCompile(`^/v2/.*/acme/killed|sha256:[0-9a-f]+|uploads/.+|part\..+`)

// kindOf returns the kind of a request: its method, and its path without the repository, digests and other IDs.
func kindOf(method, path string) string { return method + " " + varying.ReplaceAllString(path, "*") }

// writes returns the number of requests of each kind that writes.
func writes(requests []recorder.Request) map[string]int {
	n := map[string]int{}
	for _, r := range requests {
		if recorder.Writes()(r) {
			n[kindOf(r.Method, r.Path)]++
		}
	}
	return n
}

// newKilling starts a registry, and adds versions of a provider to the origin.
func newKilling(t *testing.T, versions ...string) *killing {
	t.Helper()
	k := &killing{scene: newScene(t), reg: registry.For(t, registry.Options{}), config: filepath.Join(t.TempDir(), "ocibridge.hcl")}
	for _, v := range versions {
		spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "killed", Version: v, Signer: k.Signer}
		for _, arch := range []string{"amd64", "arm64", "riscv64"} {
			content := bytes.Repeat([]byte(arch), 1000)
			spec.Contents = append(spec.Contents, release.Content{OS: "linux", Arch: arch, Files: map[string][]byte{"terraform-provider-killed_v" + v: content}})
		}
		k.Origin.Add(release.For(t, spec))
	}
	block := "provider \"" + world.Host + "/acme/killed\" {\n  versions = \">= 1\"\n  platforms = [\"linux_amd64\"]\n  cooldown = \"1h\"\n}\n"
	if err := os.WriteFile(k.config, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if k.proxy, err = k.reg.Handler(); err != nil {
		t.Fatal(err)
	}
	k.recorder = recorder.New(k.proxy)
	server := httptest.NewServer(k.recorder)
	t.Cleanup(server.Close)
	k.host = strings.TrimPrefix(server.URL, "http://")
	return k
}

// killing is a scene with a registry. The program is killed during its requests to the registry.
type killing struct {
	*scene
	reg      *registry.Registry
	proxy    http.Handler
	recorder *recorder.Recorder
	host     string
	config   string // ocibridge.hcl, with the providers for sync
}

func (k *killing) template(repo string) string {
	return k.host + "/" + repo + "/${namespace}/${type}"
}

// killAt runs the program, and kills the program at a request. It reports whether the program sent that request.
func (k *killing) killAt(t *testing.T, at killAt, args []string) bool {
	t.Helper()
	temp := t.TempDir()
	cmd := k.ws.Command(t.Context(), k.bridge, args...)
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	var mu sync.Mutex
	requests, reached := 0, false
	k.recorder.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if !reached {
			if at.kind != "" && at.kind != kindOf(r.Method, r.URL.Path) {
				return false
			}
			if requests++; requests < at.n {
				return false
			}
			reached = true
			k.kill(t, cmd, at.moment, r)
		}
		panic(http.ErrAbortHandler) // the program is dead, so the response does not matter
	})
	err := cmd.Run()
	mu.Lock()
	defer mu.Unlock()
	if reached != (err != nil) {
		t.Errorf("request %d %s reached: %v; it ended with %v", at.n, at.kind, reached, err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 0 {
		t.Errorf("the program left %v, %v", left, err)
	}
	return reached
}

// kill kills the program. Depending on moment, the registry receives nothing of the request, half of the
// request, or the whole request.
func (k *killing) kill(t *testing.T, cmd *exec.Cmd, moment string, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if moment == moments[0] {
		return
	}
	if moment == moments[1] {
		body = body[:len(body)/2]
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	defer func() { _ = recover() }() // the proxy panics about a truncated body
	k.proxy.ServeHTTP(httptest.NewRecorder(), r)
}

// platforms returns the number of platforms in the index that the version's tag names. It returns 0 if there is
// no tag. It checks that all platforms are complete.
func (k *killing) platforms(t *testing.T, repo, version string) int {
	t.Helper()
	type descriptor struct {
		Digest   string          `json:"digest"`
		Platform json.RawMessage `json:"platform"`
	}
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	base := k.reg.URL + "/v2/" + repo + "/acme/killed/"
	if !k.get(t, base+"manifests/"+version, &index) {
		return 0
	}
	n := 0
	for _, m := range index.Manifests {
		var manifest struct {
			Config descriptor   `json:"config"`
			Layers []descriptor `json:"layers"`
		}
		if !k.get(t, base+"manifests/"+m.Digest, &manifest) {
			t.Errorf("%s: the tag names a manifest that is not there", repo)
		}
		for _, blob := range append(manifest.Layers, manifest.Config) {
			if !k.get(t, base+"blobs/"+blob.Digest, nil) {
				t.Errorf("%s: the tag names a blob that is not there", repo)
			}
		}
		if m.Platform != nil {
			n++
		}
	}
	return n
}

// get decodes the JSON document at a URL of the registry, and reports whether the document exists.
func (k *killing) get(t *testing.T, url string, into any) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return false
	case resp.StatusCode != http.StatusOK:
		t.Fatalf("%s: %s", url, resp.Status)
	case into != nil:
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// TestSecondPushAsksThreeTimes shows that, if the registry already has the version, a push sends at most three
// requests.
func TestSecondPushAsksThreeTimes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	reg := registry.For(t, registry.Options{})
	proxy, err := reg.Handler()
	if err != nil {
		t.Fatal(err)
	}
	rec := recorder.New(proxy)
	server := httptest.NewServer(rec)
	defer server.Close()
	push := []string{"push", world.Null + "@" + nullVersion, "--template", strings.TrimPrefix(server.URL, "http://") + "/providers/${namespace}/${type}"}
	s.ws.MustRun(t, s.bridge, push...)
	rec.Reset()
	if out := s.ws.MustRun(t, s.bridge, push...); !strings.Contains(out, "unchanged") {
		t.Errorf("output %s", out)
	}
	if n := rec.Count(); n > 3 {
		t.Errorf("%d requests: %v", n, rec.Requests())
	}
}
