package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// shortKills is the number of times that the test kills the gateway if OCIBRIDGE_KILLS is not set.
const shortKills = 8

// TestGatewayKilled kills a gateway with an embedded registry and a cache at random moments while clients read.
// It also kills the pushes and syncs that write at the same time. It shows that no response is wrong. After
// each kill, the registry opens, every tag is complete, and every cached archive is correct or absent.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	seed := testkit.Number(t, "OCIBRIDGE_SEED", uint64(time.Now().UnixNano()))
	t.Logf("OCIBRIDGE_SEED=%d repeats this run's random choices", seed)
	k := newKilledGateway(t, rand.New(rand.NewPCG(seed, 0)))
	kills := int(testkit.Number(t, "OCIBRIDGE_KILLS", shortKills))
	for i := range kills {
		k.round(i)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	// At the end, every interrupted push can be completed.
	g := k.serve()
	for _, r := range k.releases {
		k.ws.MustRun(t, k.bridge, k.push(r.Version)...)
		if n := k.checkVersion(g, r); n != len(r.Packages) {
			t.Errorf("%s: %d platforms", r.Version, n)
		}
	}
	clients.Must(t, g.Stop())
	t.Logf("killed %d times, with %d answers before; of %d versions pushed under fire, %d were complete", kills, k.answers.Load(), kills, k.complete)
	if k.answers.Load() < int64(kills) {
		t.Error("there was too little load")
	}
}

// killedGateway is the state of TestGatewayKilled.
type killedGateway struct {
	*scene
	random   *rand.Rand
	config   string // the --config flag of serve
	sync     string // the --config flag of sync
	cache    string
	client   *http.Client
	releases []*release.Release // the last one is being pushed
	answers  atomic.Int64
	complete int
}

const killedProvider = world.Host + "/acme/shot"

func newKilledGateway(t *testing.T, random *rand.Rand) *killedGateway {
	k := &killedGateway{scene: newScene(t), random: random, cache: filepath.Join(t.TempDir(), "cache"), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	t.Cleanup(k.client.CloseIdleConnections)
	k.config = k.scene.config(fmt.Sprintf("gateway {\n  tag_ttl = \"0s\"\n  cache {\n    directory = %q\n  }\n}\n", k.cache))
	k.sync = k.scene.config(fmt.Sprintf("provider %q {\n  versions = \">= 1\"\n}\n", killedProvider))
	k.release(4 << 20)
	k.ws.MustRun(t, k.bridge, k.push(k.releases[0].Version)...)
	return k
}

// release adds another version to the origin.
func (k *killedGateway) release(size int) *release.Release {
	k.t.Helper()
	version := fmt.Sprintf("1.0.%d", len(k.releases))
	spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "shot", Version: version, Signer: k.Signer}
	for i, arch := range []string{"amd64", "arm64"} {
		content := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(len(k.releases)), byte(len(k.releases) >> 8), byte(i)}).Read(content)
		spec.Contents = append(spec.Contents, release.Content{OS: "linux", Arch: arch, Files: map[string][]byte{"terraform-provider-shot_v" + version: content}})
	}
	r := release.For(k.t, spec)
	k.Origin.Add(r)
	k.releases = append(k.releases, r)
	return r
}

func (k *killedGateway) push(version string) []string {
	return []string{"push", killedProvider + "@" + version, "--data", k.data}
}

func (k *killedGateway) serve() *world.Gateway {
	k.t.Helper()
	g, err := world.Serve(k.ws, "--http", "--data", k.data, "--log-level", "info", k.config)
	if err != nil {
		k.t.Fatalf("the embedded registry does not open: %v", err)
	}
	return g
}

// round starts a gateway with clients, and a push or a sync. It kills both processes.
func (k *killedGateway) round(i int) {
	g := k.serve()
	defer k.end("the gateway that was killed", g)
	known := k.releases
	if left, err := os.ReadDir(filepath.Join(k.cache, "archives", "tmp")); err != nil || len(left) != 0 {
		k.t.Errorf("the last one left %v, %v", left, err)
	}
	next := k.release(100 << 10)
	ctx, stop := context.WithCancel(k.t.Context())
	defer stop()
	var all sync.WaitGroup
	for c := range 4 {
		random := rand.New(rand.NewPCG(k.random.Uint64(), uint64(c)))
		all.Go(func() {
			for ctx.Err() == nil {
				k.read(ctx, g, known[random.IntN(len(known))], random.IntN(2))
			}
		})
	}
	args := k.push(next.Version)
	if i%3 == 2 {
		args = []string{"sync", "--jobs", "2", "--data", k.data, k.sync}
	}
	writer := k.ws.Command(ctx, k.bridge, args...)
	var out bytes.Buffer
	writer.Stdout, writer.Stderr = &out, &out
	clients.Must(k.t, writer.Start())
	if i%2 == 0 { // in other rounds, the gateway can be killed before its first response
		k.answered(2)
	}
	// Some pushes and syncs end before they are killed.
	pauses := []time.Duration{time.Duration(k.random.IntN(400)) * time.Millisecond, time.Duration(k.random.IntN(200)) * time.Millisecond}
	time.Sleep(pauses[0])
	if k.random.IntN(2) == 0 {
		clients.Must(k.t, g.Kill())
		time.Sleep(pauses[1])
		_ = writer.Process.Kill() // the writer might have exited
	} else {
		_ = writer.Process.Kill()
		time.Sleep(pauses[1])
		clients.Must(k.t, g.Kill())
	}
	stop()
	all.Wait()
	_ = writer.Wait() // the result does not matter
	defer func() {
		if k.t.Failed() {
			k.t.Logf("the output of the killed push or sync:\n%s", out.String())
		}
	}()
	k.checkCache()
	again := k.serve()
	defer k.end("the one after it", again)
	switch n := k.checkVersion(again, next); n {
	case 0: // not tagged
	case len(next.Packages):
		k.complete++
	default:
		k.t.Errorf("%s has %d platforms", next.Version, n)
	}
	if k.checkVersion(again, k.releases[0]) != len(k.releases[0].Packages) {
		k.t.Error("a version that was there is not whole")
	}
}

// answered waits until clients have received n more packages. On a busy machine, this can take longer than the
// random pauses before a kill.
func (k *killedGateway) answered(n int64) {
	k.t.Helper()
	enough := k.answers.Load() + n
	for deadline := time.Now().Add(clients.DefaultTimeout); k.answers.Load() < enough; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			k.t.Error("the gateway answers nothing")
			return
		}
	}
}

// end stops a gateway if it is still running, and logs its output if the test has failed.
func (k *killedGateway) end(which string, g *world.Gateway) {
	err := g.Stop()
	if err != nil {
		k.t.Errorf("%s does not stop: %v", which, err)
	}
	if k.t.Failed() {
		k.t.Logf("the log of %s:\n%s", which, g.Log())
	}
}

// read sends the requests of a client. It accepts missing and incomplete responses. A wrong response fails the
// test.
func (k *killedGateway) read(ctx context.Context, g *world.Gateway, r *release.Release, platform int) {
	p := r.Packages[platform]
	status, body, err := k.get(ctx, g, r.Version+"/"+p.OS+"_"+p.Arch+"/"+p.Filename)
	switch {
	case err != nil || status == http.StatusNotFound: // the gateway was killed, or the version was never tagged
	case status != http.StatusOK:
		k.t.Errorf("%s: status %d", p.Filename, status)
	case !bytes.Equal(body, p.Data):
		k.t.Errorf("%s: %d wrong bytes", p.Filename, len(body))
	default:
		k.answers.Add(1)
	}
	if status, body, err = k.get(ctx, g, "index.json"); err == nil && (status != http.StatusOK || !bytes.Contains(body, []byte(`"1.0.0"`))) {
		k.t.Errorf("index.json: %d %s", status, body)
	}
}

func (k *killedGateway) get(ctx context.Context, g *world.Gateway, path string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL+killedProvider+"/"+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// checkVersion returns the number of platforms of a release that the gateway offers. It checks that the gateway
// serves the packages of these platforms.
func (k *killedGateway) checkVersion(g *world.Gateway, r *release.Release) int {
	k.t.Helper()
	status, body, err := k.get(k.t.Context(), g, r.Version+".json")
	var found struct {
		Archives map[string]struct{ URL string } `json:"archives"`
	}
	if err == nil {
		err = json.Unmarshal(body, &found)
	}
	if err != nil || status != http.StatusOK {
		k.t.Errorf("%s: %d, %v", r.Version, status, err)
	}
	for _, p := range r.Packages {
		a, ok := found.Archives[p.OS+"_"+p.Arch]
		if !ok {
			continue
		}
		if status, data, err := k.get(k.t.Context(), g, a.URL); err != nil || status != http.StatusOK || !bytes.Equal(data, p.Data) {
			k.t.Errorf("%s: %d with %d bytes, %v", p.Filename, status, len(data), err)
		}
	}
	return len(found.Archives)
}

// checkCache checks the hashes of the cached files that the gateway would serve.
func (k *killedGateway) checkCache() {
	k.t.Helper()
	err := filepath.WalkDir(filepath.Join(k.cache, "archives", "sha256"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, ".meta") {
			return err
		}
		data, err := os.ReadFile(path)
		if sum := release.Sum(data); err == nil && sum != filepath.Base(path) {
			k.t.Errorf("the cache has %d bytes with the SHA-256 %s as %s", len(data), sum, filepath.Base(path))
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		k.t.Error(err)
	}
}
