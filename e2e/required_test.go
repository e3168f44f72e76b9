package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// compromised is a registry that an attacker controls. The registry contains an honest version of the null
// provider.
type compromised struct {
	*scene
	registry  *registry.Registry
	namespace string
	repo      string
	evil      []byte // the attacker's package
}

const (
	ourKeys     = "io.github.ocibridge."
	layerDigest = ourKeys + "layer.digest"
	layerSize   = ourKeys + "layer.size"
)

func newCompromised(t *testing.T) *compromised {
	c := &compromised{scene: newScene(t), registry: registry.For(t, registry.Options{})}
	var err error
	if c.evil, err = release.Zip(map[string][]byte{"terraform-provider-null_v" + nullVersion: []byte("#!/bin/sh\necho evil\n")}); err != nil {
		t.Fatal(err)
	}
	c.pushTo(c.registry, world.Null+"@"+nullVersion)
	return c.in("acme")
}

// in returns the same registry for attacks on the null provider in another namespace.
func (c *compromised) in(namespace string) *compromised {
	out := *c
	out.namespace, out.repo = namespace, c.registry.Host+"/providers/"+null(namespace)
	return &out
}

// file writes a file for the attacker's tools, and returns its name.
func (c *compromised) file(name string, data []byte) string {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.ws.Dir, name), data, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return name
}

// entry is the entry of a platform in an index.
type entry struct {
	m           map[string]any
	annotations map[string]any
}

// forge changes the index that a tag names, and stores the changed index under the version's tag.
func (c *compromised) forge(from string, change func(index map[string]any, host, other entry)) {
	c.t.Helper()
	index := c.fetch(c.repo + ":" + from)
	var host, other entry
	for _, m := range index["manifests"].([]any) {
		e := entry{m: m.(map[string]any)}
		p, ok := e.m["platform"].(map[string]any)
		if !ok {
			continue // the evidence
		}
		e.annotations = e.m["annotations"].(map[string]any)
		if p["os"] == runtime.GOOS && p["architecture"] == runtime.GOARCH {
			host = e
		} else {
			other = e
		}
	}
	change(index, host, other)
	c.store(index, nullVersion)
}

// fetch returns a manifest or an index.
func (c *compromised) fetch(ref string) map[string]any {
	c.t.Helper()
	data, err := c.ws.Stdout(clients.ORAS(c.t), "manifest", "fetch", "--plain-http", ref)
	if err != nil {
		c.t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// store stores a manifest or an index under a tag, and returns its bytes.
func (c *compromised) store(manifest map[string]any, tag string) []byte {
	c.t.Helper()
	data, err := json.Marshal(manifest)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ws.MustRun(c.t, clients.ORAS(c.t), "manifest", "push", "--plain-http", "--media-type", manifest["mediaType"].(string), c.repo+":"+tag, c.file("manifest.json", data))
	return data
}

// isEvidence reports whether an index's entry has no platform.
func isEvidence(entry any) bool { return entry.(map[string]any)["platform"] == nil }

// plant stores the attacker's package, and changes an entry to describe this package.
func (c *compromised) plant(e entry) {
	c.t.Helper()
	c.upload()
	e.annotations[layerDigest] = fmt.Sprintf("sha256:%x", sha256.Sum256(c.evil))
	e.annotations[layerSize] = fmt.Sprint(len(c.evil))
}

// upload stores the attacker's package.
func (c *compromised) upload() {
	c.t.Helper()
	c.ws.MustRun(c.t, clients.ORAS(c.t), "blob", "push", "--plain-http", c.repo, c.file("evil.zip", c.evil))
}

// gateway serves the registry in its current state. If required is set, the gateway requires evidence, and the
// publisher's key is pinned.
func (c *compromised) gateway(required bool) *world.Gateway {
	c.t.Helper()
	config := ""
	if required {
		config = fmt.Sprintf("trust %q {\n  keys = [%q]\n}\ngateway {\n  verify = \"required\"\n  tag_ttl = \"0s\"\n  cache {\n    directory = %q\n  }\n}\n",
			world.Host+"/*/*", c.Signer.Fingerprint(), filepath.Join(c.data, "cache"))
	}
	name := filepath.Join(c.t.TempDir(), "ocibridge.hcl")
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return c.serve("--config", name, "--template", template(c.registry))
}

// installs returns the clients that the tests try to deceive.
func installs(t *testing.T) []clients.Client {
	return []clients.Client{clients.Tofu(t), clients.Terraform(t)}
}

// TestRequiredInstalls shows that, if evidence is required, clients can install signed packages by every
// installation method.
func TestRequiredInstalls(t *testing.T) {
	t.Parallel()
	c := newCompromised(t)
	gateway := c.gateway(true)
	for _, client := range installs(t) {
		ws := c.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.MustRun(t, client, "init", "-no-color")
		if got := hashesOf(t, ws, "h1:"); len(got) != 1 {
			t.Errorf("%s locks %v", client.Name, got)
		}
		if out := ws.MustRun(t, client, "apply", "-auto-approve", "-no-color"); !strings.Contains(out, "1 added") {
			t.Errorf("%s: %s", client.Name, out)
		}
		ws = c.user("", nullVersion)
		ws.MustRun(t, client, "providers", "lock", "-no-color", "-net-mirror="+gateway.URL, "-platform=linux_amd64", "-platform=darwin_arm64")
		if got := hashesOf(t, ws, "h1:"); len(got) != 2 {
			t.Errorf("%s locks %v", client.Name, got)
		}
	}
}

// TestForgedH1 forges the h1: hashes in an index. It shows that clients get none of these hashes. They get only
// the hash that the gateway has computed from the package.
func TestForgedH1(t *testing.T) {
	t.Parallel()
	const forged = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	c := newCompromised(t)
	c.forge(nullVersion, func(_ map[string]any, host, other entry) {
		for _, e := range []entry{host, other} {
			if e.annotations[ourKeys+"h1"] == nil {
				t.Error("there is no h1 to forge")
			}
			e.annotations[ourKeys+"h1"] = forged
		}
	})
	if got := servedHashes(t, c.scene, c.gateway(false).URL)["h1:"]; !slices.Contains(got, forged) {
		t.Errorf("without verification %v is served: the forgery does nothing", got)
	}
	gateway := c.gateway(true)
	if got := servedHashes(t, c.scene, gateway.URL)["h1:"]; len(got) != 0 {
		t.Errorf("served %v", got)
	}
	var right []string
	for _, client := range installs(t) {
		honest := c.user("", nullVersion)
		honest.MustRun(t, client, "init", "-no-color") // from the origin
		ws := c.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.MustRun(t, client, "init", "-no-color")
		if got, want := hashesOf(t, ws, "h1:"), hashesOf(t, honest, "h1:"); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s locks %v, want %v", client.Name, got, want)
		}
		right = hashesOf(t, honest, "h1:")
	}
	clients.Must(t, gateway.Stop())
	if got := servedHashes(t, c.scene, c.gateway(true).URL)["h1:"]; strings.Join(got, " ") != strings.Join(right, " ") {
		t.Errorf("once the package was there, %v is served, want %v", got, right)
	}
}

// TestCompromisedRegistry shows for each attack that neither client gets the attacker's package. The lock files
// of the clients stay unchanged, and the log gives the reason. Each attack is on a provider in a namespace of its own.
func TestCompromisedRegistry(t *testing.T) {
	t.Parallel()
	attacks := map[string]struct {
		attack func(*compromised)
		log    string
		// installable says that a client without verification installs the attacker's package.
		installable bool
		// live says that the gateway that served the honest version keeps running.
		live bool
	}{
		"altered zip with its h1": {func(c *compromised) {
			c.forge(nullVersion, func(_ map[string]any, host, _ entry) {
				c.plant(host)
				delete(host.annotations, ourKeys+"h1")
			})
		}, "checksum mismatch", true, false},
		"altered manifest": {func(c *compromised) {
			c.upload()
			c.forge(nullVersion, func(index map[string]any, host, _ entry) {
				manifest := c.fetch(c.repo + "@" + host.m["digest"].(string))
				layer := manifest["layers"].([]any)[0].(map[string]any)
				layer["digest"], layer["size"] = fmt.Sprintf("sha256:%x", sha256.Sum256(c.evil)), len(c.evil)
				data := c.store(manifest, "altered")
				host.m["digest"], host.m["size"] = fmt.Sprintf("sha256:%x", sha256.Sum256(data)), len(data)
				// Without annotations, the manifests describe the packages.
				for _, m := range index["manifests"].([]any) {
					if !isEvidence(m) {
						delete(m.(map[string]any), "annotations")
					}
				}
			})
		}, "checksum mismatch", true, false},
		"replaced index": {func(c *compromised) {
			c.forge(nullVersion, func(index map[string]any, host, _ entry) {
				c.plant(host)
				delete(host.annotations, ourKeys+"h1")
				index["manifests"] = slices.DeleteFunc(index["manifests"].([]any), func(m any) bool {
					return !isEvidence(m) && m.(map[string]any)["digest"] != host.m["digest"]
				})
			})
		}, "checksum mismatch", true, true},
		"evidence of another provider": {func(c *compromised) {
			// The attacker's package is part of another release by the same publisher.
			gadget := release.For(c.t, release.Spec{Host: world.Host, Namespace: "acme", Type: "gadget", Version: nullVersion, Protocols: []string{"5.0"}, Signer: c.Signer,
				Contents: []release.Content{{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-null_v" + nullVersion: []byte("#!/bin/sh\necho evil\n")}}}})
			if p := hostPackage(c.t, gadget); p.SHA256 != fmt.Sprintf("%x", sha256.Sum256(c.evil)) {
				c.t.Fatal("the other release contains a different package")
			}
			c.Origin.Add(gadget)
			c.pushTo(c.registry, world.Host+"/acme/gadget@"+nullVersion)
			from := c.registry.Host + "/providers/" + world.Host + "/acme/gadget"
			c.forge(nullVersion, func(index map[string]any, host, _ entry) {
				c.plant(host)
				delete(host.annotations, ourKeys+"h1")
				all := index["manifests"].([]any)
				theirs := c.fetch(from + ":" + nullVersion)["manifests"].([]any)
				evidence := theirs[slices.IndexFunc(theirs, isEvidence)].(map[string]any)
				c.ws.MustRun(c.t, clients.ORAS(c.t), "cp", "--from-plain-http", "--to-plain-http", from+"@"+evidence["digest"].(string), c.repo+":evidence")
				all[slices.IndexFunc(all, isEvidence)] = evidence
			})
		}, "not listed in SHA256SUMS", true, false},
		"another platform's zip": {func(c *compromised) {
			c.forge(nullVersion, func(_ map[string]any, host, other entry) {
				for _, key := range []string{layerDigest, layerSize, ourKeys + "h1"} {
					host.annotations[key] = other.annotations[key]
				}
			})
		}, "checksum mismatch", false, false}, // the package has no program for this platform
		"no evidence": {func(c *compromised) {
			c.forge(nullVersion, func(index map[string]any, host, _ entry) {
				c.plant(host)
				delete(host.annotations, ourKeys+"h1")
				index["manifests"] = slices.DeleteFunc(index["manifests"].([]any), isEvidence)
			})
		}, "stored without evidence", true, false},
		"another version, with its evidence": {func(c *compromised) {
			c.offerIn(c.namespace, "3.2.3")
			c.pushTo(c.registry, null(c.namespace)+"@3.2.3")
			c.forge("3.2.3", func(index map[string]any, _, _ entry) {
				index["annotations"].(map[string]any)[ourKeys+"version"] = nullVersion
			})
		}, "not listed in SHA256SUMS", false, false}, // the package has no program of this version
		"evidence by another key": {func(c *compromised) {
			mallory := pgp.For(c.t, "Mallory")
			r := c.offerIn(c.namespace, nullVersion)
			p := hostPackage(c.t, r)
			p.Path, p.Data, p.Size, p.SHA256 = "", c.evil, int64(len(c.evil)), fmt.Sprintf("%x", sha256.Sum256(c.evil))
			if err := r.Seal(mallory); err != nil {
				c.t.Fatal(err)
			}
			c.pushTo(c.registry, "--force", null(c.namespace)+"@"+nullVersion)
		}, "none of the pinned keys", true, false},
	}
	c := newCompromised(t)
	var live, stopped, installable []string // namespaces
	for name, attack := range attacks {
		at := namespace(name)
		c.offerIn(at, nullVersion)
		c.pushTo(c.registry, null(at)+"@"+nullVersion)
		if attack.live {
			live = append(live, at)
		} else {
			stopped = append(stopped, at)
		}
		if attack.installable {
			installable = append(installable, at)
		}
	}
	all := slices.Concat(live, stopped)
	honest := map[string]*clients.Workspace{}
	before := c.gateway(true)
	for _, client := range installs(t) {
		ws := c.workspace(world.NetworkMirror(before.URL))
		clients.Must(t, ws.WriteConfig(useNulls(nullVersion, all...)))
		ws.MustRun(t, client, "init", "-no-color")
		honest[client.Name] = ws
	}
	for name, attack := range attacks {
		attack.attack(c.in(namespace(name)))
	}
	plain := c.workspace(world.NetworkMirror(c.gateway(false).URL))
	clients.Must(t, plain.WriteConfig(useNulls(nullVersion, installable...)))
	plain.MustRun(t, clients.Tofu(t), "init", "-no-color")

	logs := map[string]string{} // by namespace
	for _, g := range []struct {
		*world.Gateway
		attacked []string
	}{{before, live}, {c.gateway(true), stopped}} {
		mirror := c.HostBlock() + world.NetworkMirror(g.URL)
		for _, client := range installs(t) {
			ws := c.workspace("")
			clients.Must(t, ws.WriteCLIConfig(mirror))
			wantRefused(t, client, ws, g.attacked)
			if _, err := ws.Lock(); err == nil {
				t.Errorf("%s left a lock file", client.Name)
			}
			// The clients have a lock file, but no installed providers.
			ws = honest[client.Name]
			lock := lockFile(t, ws)
			clients.Must(t, ws.WriteCLIConfig(mirror))
			wantRefused(t, client, ws, g.attacked)
			if lockFile(t, ws) != lock {
				t.Errorf("%s changed the lock file", client.Name)
			}
		}
		clients.Must(t, g.Stop())
		log, n := g.Log(), len(g.attacked)
		for _, want := range []string{fmt.Sprintf("refused_so_far=%d", n), fmt.Sprintf(" refused=%d packages_withheld=0", n)} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		}
		for _, at := range g.attacked {
			logs[at] = linesWith(linesWith(log, "level=ERROR"), null(at))
		}
		if got := strings.Count(log, "level=ERROR"); got != n {
			t.Errorf("the log has %d errors, want %d:\n%s", got, n, log)
		}
	}
	for name, attack := range attacks {
		if log := logs[namespace(name)]; strings.Count(log, "\n") != 1 || !strings.Contains(log, attack.log) {
			t.Errorf("%s: the log does not say %q once: %s", name, attack.log, log)
		}
	}
}

// wantRefused checks that init installs none of the null providers in the namespaces, and names each of them in an error. A
// client that fails to find a provider downloads no other one, so wantRefused runs it again for providers that it has not named.
func wantRefused(t *testing.T, client clients.Client, ws *clients.Workspace, namespaces []string) {
	t.Helper()
	for left := namespaces; len(left) > 0; {
		clients.Must(t, os.RemoveAll(filepath.Join(ws.Dir, ".terraform")))
		clients.Must(t, ws.WriteConfig(useNulls(nullVersion, left...)))
		out := ws.MustFail(t, client, "init", "-no-color")
		_, errors, _ := strings.Cut(out, "Error: ")
		next := slices.DeleteFunc(slices.Clone(left), func(n string) bool { return strings.Contains(errors, null(n)) })
		if strings.Contains(out, "- Installed ") || len(next) == len(left) {
			t.Fatalf("%s: of %q:\n%s", client.Name, left, out)
		}
		left = next
	}
}
