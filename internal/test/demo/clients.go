package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"slices"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
	"github.com/ocibridge/ocibridge/provider"
)

// A client is a client of this machine.
type client struct {
	clients.Client
	version provider.Version
}

// findClients returns tofu and terraform, from .tools/bin or from PATH. It ignores programs that do not run with the
// environment of a workspace, such as the shims of version managers.
func findClients(dir string) (found []client, err error) {
	ws, err := clients.NewWorkspace(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"tofu", "terraform"} {
		c, err := clients.Find(name)
		if err != nil {
			c.Path, err = exec.LookPath(name)
		}
		if err != nil {
			continue
		}
		if version, err := c.Version(ws); err == nil {
			found = append(found, client{c, version})
		}
	}
	return found, nil
}

// A way is an installation method and its CLI configuration.
type way struct{ method, config string }

// ways returns the installation methods that the client supports.
func (c client) ways(g *world.Gateway) []way {
	ways := []way{{"network_mirror", world.NetworkMirror(g.URL)}}
	if c.Name == "tofu" && c.version.Compare(provider.MustParseVersion("1.10.0")) >= 0 {
		ways = append(ways, way{"oci_mirror, straight from the registry", world.OCIMirror(g.RepositoryTemplate)})
	}
	return ways
}

// platform is the platform whose package the demo requests.
var platform = runtime.GOOS + "_" + runtime.GOARCH

// request sends the requests of a client: for the versions, for the packages of a version, and for the package of this
// machine. It compares the package with its hash.
func (d *demo) request(g *world.Gateway, version string) error {
	base := g.URL + world.Null + "/"
	list, err := d.get(g, base+"index.json")
	if err != nil {
		return err
	}
	d.show(string(list))
	document, err := d.get(g, base+version+".json")
	if err != nil {
		return err
	}
	d.show(string(document))
	var packages struct {
		Archives map[string]struct {
			URL    string
			Hashes []string
		}
	}
	if err := json.Unmarshal(document, &packages); err != nil {
		return err
	}
	p, ok := packages.Archives[platform]
	if !ok {
		return fmt.Errorf("version %s has no package for %s", version, platform)
	}
	from, err := url.Parse(base)
	if err == nil {
		from, err = from.Parse(p.URL)
	}
	if err != nil {
		return err
	}
	data, err := d.get(g, from.String())
	if err != nil {
		return err
	}
	hash := fmt.Sprintf("zh:%x", sha256.Sum256(data))
	if !slices.Contains(p.Hashes, hash) {
		return fmt.Errorf("the package has the hash %s, not one of %v", hash, p.Hashes)
	}
	d.say("%d bytes, with the hash that was announced", len(data))
	return nil
}

// get returns a document or a package of the gateway.
func (d *demo) get(g *world.Gateway, url string) ([]byte, error) {
	d.say("GET %s", url)
	return tlsca.Get(d.ctx, g.CAFile, url)
}
