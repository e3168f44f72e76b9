package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/contents"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// tagged is a provider with four platforms, and its registry.
type tagged struct {
	*scene
	provider string
	registry *registry.Registry
	releases map[string]*release.Release
	foreign  map[digest.Digest]bool // manifests that another tool stored
	tags     []string               // tags that another tool stored
}

// newTagged starts a registry, and adds versions of a provider to the origin.
func newTagged(t *testing.T, program registry.Program, versions ...string) *tagged {
	t.Helper()
	g := &tagged{scene: newScene(t), registry: registry.For(t, registry.Options{Program: program}), releases: map[string]*release.Release{}, foreign: map[digest.Digest]bool{}}
	name := "tagged-" + string(program)
	g.provider = world.Host + "/acme/" + name
	for _, v := range versions {
		spec := release.Spec{Host: world.Host, Namespace: "acme", Type: name, Version: v, Signer: g.Signer}
		for _, p := range []string{"darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64"} {
			goos, arch, _ := strings.Cut(p, "_")
			file := map[string][]byte{"terraform-provider-" + name + "_v" + v: bytes.Repeat([]byte(p), 100)}
			spec.Contents = append(spec.Contents, release.Content{OS: goos, Arch: arch, Files: file})
		}
		g.releases[v] = release.For(t, spec)
		g.Origin.Add(g.releases[v])
	}
	return g
}

// contents returns the contents of the provider's repository.
func (g *tagged) contents() *contents.Contents {
	g.t.Helper()
	// The registry may still be writing content of a request that a gateway broke off when it ended.
	deadline := time.Now().Add(clients.DefaultTimeout)
	for {
		c, err := g.registry.Contents("providers/" + g.provider)
		if err == nil {
			return c
		}
		if time.Now().After(deadline) {
			g.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// check compares the repository's tags with the given versions and the tags of the other tool. A tag for the
// state is also allowed.
func (g *tagged) check(when string, versions ...string) {
	g.t.Helper()
	got := slices.DeleteFunc(g.contents().TagNames(), func(tag string) bool { return tag == "ocibridge-state" })
	want := slices.Sorted(slices.Values(slices.Concat(versions, g.tags)))
	if !slices.Equal(got, want) {
		g.t.Errorf("%s: tags %q, want %q", when, got, want)
	}
}

// attach stores artifacts as another tool does. It stores a manifest under a separate tag, and a referrer of a
// version's index.
func (g *tagged) attach(version string) {
	g.t.Helper()
	before := g.contents().TagNames()
	repo := repository(g.t, g.registry, g.provider)
	subject, err := repo.Resolve(g.t.Context(), version)
	clients.Must(g.t, err)
	empty := ocispec.DescriptorEmptyJSON
	empty.Data = nil
	for tag, of := range map[string]*ocispec.Descriptor{"release-notes": nil, "notes": &subject} {
		data, err := json.Marshal(ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/vnd.acme.notes",
			Config: empty, Layers: []ocispec.Descriptor{empty}, Subject: of,
		})
		clients.Must(g.t, err)
		desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
		clients.Must(g.t, repo.PushReference(g.t.Context(), desc, bytes.NewReader(data), tag))
		g.foreign[desc.Digest] = true
	}
	after := g.contents()
	g.tags = slices.DeleteFunc(after.TagNames(), func(tag string) bool { return slices.Contains(before, tag) })
	for _, tag := range g.tags { // a fallback tag lists the referrers
		g.foreign[after.Tags[tag]] = true
	}
}

// sync runs a sync with a provider block. The text block is the content of the provider block.
func (g *tagged) sync(block string, args ...string) {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "ocibridge.hcl")
	clients.Must(g.t, os.WriteFile(file, []byte(mirror(g.registry.Host)+"provider \""+g.provider+"\" {\n"+block+"\n}\n"), 0o600))
	g.ws.MustRun(g.t, g.bridge, append([]string{"sync", "--config", file}, args...)...)
}

// pull makes a gateway pull one platform of a version through. It waits until the registry contains the
// platform.
func (g *tagged) pull(version string) {
	g.t.Helper()
	gateway := g.serve(g.config(mirror(g.registry.Host) + fmt.Sprintf("pull_through {\n  include = [\"%s/acme/*\"]\n  platforms = [\"linux_amd64\"]\n}\n", world.Host)))
	pkg := g.releases[version].Package("linux", "amd64")
	resp, err := g.CA.HTTPClient().Get(gateway.URL + g.provider + "/" + version + "/linux_amd64/" + pkg.Filename)
	clients.Must(g.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	clients.Must(g.t, err)
	if resp.StatusCode != http.StatusOK || release.Sum(data) != pkg.SHA256 {
		g.t.Fatalf("%s: status %d, %d bytes", pkg.Filename, resp.StatusCode, len(data))
	}
	// The gateway responds before it has stored the version. It gives no signal when it has stored the version.
	deadline := time.Now().Add(clients.DefaultTimeout)
	for done := false; !done; time.Sleep(20 * time.Millisecond) {
		c, err := g.registry.Contents("providers/" + g.provider) // fails while content is half written
		if err == nil {
			tags := c.TagNames()
			done = slices.Contains(tags, version) && !slices.ContainsFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "ocibridge-part.") })
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%s is not stored: %v, contents %+v", version, err, c)
		}
	}
	clients.Must(g.t, gateway.Stop())
}

// pushJobs pushes a release folder by two jobs with one platform each, concurrently or in turn.
func (g *tagged) pushJobs(concurrently bool, version string) {
	g.t.Helper()
	dir, key := g.t.TempDir(), filepath.Join(g.t.TempDir(), "key.asc")
	clients.Must(g.t, g.releases[version].WriteDir(dir))
	clients.Must(g.t, os.WriteFile(key, []byte(g.Signer.ArmoredPublicKey()), 0o600))
	var jobs sync.WaitGroup
	for _, p := range []string{"linux_amd64", "darwin_arm64"} {
		jobs.Go(func() {
			out, err := g.ws.Run(g.bridge, "push", "--template", template(g.registry), "--release-dir", dir, "--as", g.provider+"@"+version, "--public-key", key, "--platform", p)
			if err != nil {
				g.t.Errorf("push %s: %v\n%s", p, err, out)
			}
		})
		if !concurrently {
			jobs.Wait()
		}
	}
	jobs.Wait()
	c := g.contents()
	if index := c.Manifests[c.Tags[version]]; len(index) != 3 {
		g.t.Errorf("the index of %s names %d manifests, want 2 platforms and the evidence", version, len(index))
	}
}

// TestTagsOfConcurrentJobs pushes one version by two jobs concurrently, and then prunes it. The test does not look at
// manifests without a tag, because tags have no compare-and-swap: one job can replace the state of the other job without a
// note.
func TestTagsOfConcurrentJobs(t *testing.T) {
	t.Parallel()
	for _, program := range registry.Programs {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			g := newTagged(t, program, "1.0.0", "1.1.0")
			g.sync(`versions = "1.0.0"`)
			g.pushJobs(true, "1.1.0")
			g.check("two jobs", "1.0.0", "1.1.0")
			g.sync(`versions = "< 0.0.0"`, "--prune", "--prune-limit", "2")
			g.check("everything")
			if _, ok := g.contents().Tags["ocibridge-state"]; ok {
				t.Error("the state is left")
			}
		})
	}
}

// TestTagsInTheEnd runs each operation of the program that writes tags. It shows that, after each step, the
// only tags are the versions, at most one state, and the other tool's tags. A prune of everything leaves
// exactly the other tool's content.
func TestTagsInTheEnd(t *testing.T) {
	t.Parallel()
	for _, program := range registry.Programs {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			g := newTagged(t, program, "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0")
			// 1. A sync of some platforms.
			g.sync(`versions = "1.0.0"
platforms = ["linux_amd64", "darwin_arm64"]`)
			g.check("a sync of 2 of 4 platforms", "1.0.0")
			g.attach("1.0.0")
			// 2. A release folder, pushed by two jobs in turn.
			g.pushJobs(false, "1.1.0")
			g.check("a release folder by two jobs", "1.0.0", "1.1.0")
			// 3. One platform by pull-through, and then the others.
			g.pull("1.2.0")
			g.check("pull-through", "1.0.0", "1.1.0", "1.2.0")
			g.ws.MustRun(t, g.bridge, "push", "--template", template(g.registry), g.provider+"@1.2.0")
			g.check("completed", "1.0.0", "1.1.0", "1.2.0")
			// 4. A cooldown for the newest 5.
			g.sync("cooldown = \"1h\"\nlatest = 5", "--first", "--prune")
			g.check("a cooldown", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0")
			if _, ok := g.contents().Tags["ocibridge-state"]; !ok {
				t.Error("no state keeps the ages")
			}
			if left := g.contents().Unreachable(); len(left) > 1 { // an older state
				t.Errorf("without a tag: %q", left)
			}
			// 5. Everything.
			g.sync(`versions = "< 0.0.0"`, "--prune", "--prune-limit", "5")
			g.check("everything")
			c := g.contents()
			if _, ok := c.Tags["ocibridge-state"]; ok {
				t.Error("the state is left")
			}
			for d := range c.Manifests {
				if !g.foreign[d] {
					t.Errorf("%s is left, under the tags %q", d, c.TagsOf(d))
				}
			}
			for d := range g.foreign {
				if _, ok := c.Manifests[d]; !ok {
					t.Errorf("%s is the other tool's, and is gone", d)
				}
			}
		})
	}
}
