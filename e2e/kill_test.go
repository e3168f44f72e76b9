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
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// moments are when, relative to a request, the program is killed.
var moments = []string{"before", "in the middle of", "after"}

// TestKilled kills pushes, as kill -9 does, at each of their requests in turn. The
// tag never names an incomplete index, nothing is left behind on the machine, and
// the next push completes the version.
func TestKilled(t *testing.T) {
	s := newScene(t)
	spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "killed", Version: "1.0.0", Signer: s.Signer}
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		content := bytes.Repeat([]byte(arch), 1000)
		spec.Contents = append(spec.Contents, release.Content{OS: "linux", Arch: arch, Files: map[string][]byte{"terraform-provider-killed_v1.0.0": content}})
	}
	s.Origin.Add(release.For(t, spec))
	k := &killing{scene: s, reg: registry.For(t, registry.Options{})}
	var err error
	if k.proxy, err = k.reg.Handler(); err != nil {
		t.Fatal(err)
	}
	k.recorder = recorder.New(k.proxy)
	server := httptest.NewServer(k.recorder)
	defer server.Close()
	k.host = strings.TrimPrefix(server.URL, "http://")

	kills := 0
	for _, platforms := range [][]string{nil, {"linux_amd64", "linux_riscv64"}} {
		want := 3
		if platforms != nil {
			want = len(platforms)
		}
		for n, reached := 1, true; reached; n++ {
			moment := moments[n%len(moments)]
			repo := fmt.Sprintf("killed-%d-%d", want, n)
			if reached = k.killAt(repo, n, moment, platforms); reached {
				kills++
			}
			if found := k.platforms(repo); found != 0 && found != want {
				t.Errorf("killed %s request %d: the tag names %d platforms", moment, n, found)
			}
			k.recorder.Intercept(nil)
			s.ws.MustRun(t, s.bridge, k.args(repo, platforms)...)
			if found := k.platforms(repo); found != want {
				t.Errorf("completed after it was killed %s request %d: the tag names %d platforms", moment, n, found)
			}
		}
	}
	t.Logf("killed %d times", kills)
	if kills < 25 {
		t.Error("that is too seldom")
	}
}

// killing is a registry in front of which the program is killed.
type killing struct {
	*scene
	reg      *registry.Registry
	proxy    http.Handler
	recorder *recorder.Recorder
	host     string
}

func (k *killing) args(repo string, platforms []string) []string {
	args := []string{"push", world.Host + "/acme/killed@1.0.0", "--template", k.host + "/" + repo + "/${namespace}/${type}"}
	for _, p := range platforms {
		args = append(args, "--platform", p)
	}
	return args
}

// killAt runs a push that is killed at its n-th request, and reports whether there
// was one.
func (k *killing) killAt(repo string, n int, moment string, platforms []string) bool {
	k.t.Helper()
	temp := k.t.TempDir()
	cmd := k.ws.Command(k.t.Context(), k.bridge, k.args(repo, platforms)...)
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	var mu sync.Mutex
	requests, reached := 0, false
	k.recorder.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if requests++; requests < n {
			return false
		}
		if requests == n {
			reached = true
			k.kill(cmd, moment, r)
		}
		panic(http.ErrAbortHandler) // it is dead, whatever came of it before
	})
	err := cmd.Run()
	mu.Lock()
	defer mu.Unlock()
	if reached != (err != nil) {
		k.t.Errorf("request %d reached: %v; push: %v", n, reached, err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 0 {
		k.t.Errorf("it left %v, %v", left, err)
	}
	return reached
}

// kill kills the program, and lets the registry have none of a request, half of
// it, or all.
func (k *killing) kill(cmd *exec.Cmd, moment string, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		k.t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		k.t.Error(err)
	}
	if moment == moments[0] {
		return
	}
	if moment == moments[1] {
		body = body[:len(body)/2]
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	defer func() { _ = recover() }() // the proxy's, where half a body is not what was announced
	k.proxy.ServeHTTP(httptest.NewRecorder(), r)
}

// platforms returns how many platforms the tag names, all of which must be there
// in full; 0 for no tag.
func (k *killing) platforms(repo string) int {
	k.t.Helper()
	type descriptor struct {
		Digest   string          `json:"digest"`
		Platform json.RawMessage `json:"platform"`
	}
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	base := k.reg.URL + "/v2/" + repo + "/acme/killed/"
	if !k.get(base+"manifests/1.0.0", &index) {
		return 0
	}
	n := 0
	for _, m := range index.Manifests {
		var manifest struct {
			Config descriptor   `json:"config"`
			Layers []descriptor `json:"layers"`
		}
		if !k.get(base+"manifests/"+m.Digest, &manifest) {
			k.t.Errorf("%s: the tag names a manifest that is not there", repo)
		}
		for _, blob := range append(manifest.Layers, manifest.Config) {
			if !k.get(base+"blobs/"+blob.Digest, nil) {
				k.t.Errorf("%s: the tag names a blob that is not there", repo)
			}
		}
		if m.Platform != nil {
			n++
		}
	}
	return n
}

// get reports whether the registry has something, and decodes it.
func (k *killing) get(url string, into any) bool {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return false
	case resp.StatusCode != http.StatusOK:
		k.t.Fatalf("%s: %s", url, resp.Status)
	case into != nil:
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			k.t.Fatal(err)
		}
	}
	return true
}

// TestSecondPushAsksThreeTimes counts what a push asks of a registry that has all.
func TestSecondPushAsksThreeTimes(t *testing.T) {
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
