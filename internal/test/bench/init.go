package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// The configuration that init initializes requires 12 providers. Each of their archives has 25 MB and cannot be
// compressed.
const (
	initProviders = 12
	initMiB       = 24
	initVersion   = "1.0.0"
)

// source is a place from which a client can install providers.
type source struct {
	name string
	// config is the CLI configuration that selects the source.
	config string
	// exec are the arguments of ocibridge that run the client. If it is nil, the client runs directly.
	exec []string
	lock []byte // the lock file, or nil if there is none
}

// inits compares how long a client's init takes through the gateway, from nginx, and from a filesystem_mirror.
// All of them serve the same files. There are two gateways: one with a cache of archives, and one without. Both
// gateways have served the same requests before. The workspace has no lock file and no installed provider.
func (b *bench) inits() error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Stop()
	template := reg.Host + "/providers/${hostname}/${namespace}/${type}"
	mirror, err := b.publishInit(template)
	if err != nil {
		return err
	}
	cached, _, err := b.startGateway(certFile, keyFile, template)
	if err != nil {
		return err
	}
	defer cached.stop()
	streaming, _, err := b.startStreaming(certFile, keyFile, template)
	if err != nil {
		return err
	}
	defer streaming.stop()
	root, err := b.subdir("init-root")
	if err != nil {
		return err
	}
	nginx, err := b.startNginx(root, certFile, keyFile)
	if err != nil {
		return err
	}
	if nginx == nil {
		return errors.New("nginx is not installed")
	}
	defer nginx.stop()
	if err := b.copyDocuments(cached, nginx, root); err != nil {
		return err
	}
	folder := source{name: "filesystem_mirror", config: fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)}
	for _, name := range []string{"tofu", "terraform"} {
		client, err := clients.Find(name)
		if err != nil {
			return err
		}
		for _, protocol := range []struct {
			name   string
			source func(*server) source
		}{{"network_mirror", networkMirror}, {"host", hostBlock}} {
			sources := []source{protocol.source(cached), protocol.source(streaming), protocol.source(nginx), folder}
			for _, pluginCache := range []bool{false, true} {
				if err := b.compareInits(client, protocol.name, sources, pluginCache); err != nil {
					return err
				}
			}
		}
	}
	return b.execs(template, nginx)
}

func networkMirror(s *server) source {
	return source{name: s.name, config: world.NetworkMirror(rootOf(s) + "/providers/")}
}

func hostBlock(s *server) source {
	return source{name: s.name, config: fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", world.Host, rootOf(s)+registryPath)}
}

// registryPath is the path of the provider registry protocol for the world's host.
const registryPath = "/hosts/" + world.Host + "/v1/providers/"

// rootOf returns a server's URL without the path of the network mirror.
func rootOf(s *server) string { return strings.TrimSuffix(s.url, "/providers") }

func initProvider(i int) string { return fmt.Sprintf("init%d", i) }

// publishInit pushes the providers into the registry. It also writes their archives into a folder, in the layout
// of a filesystem_mirror, and returns the folder.
func (b *bench) publishInit(template string) (mirror string, err error) {
	for i, name := range initNames() {
		dir, err := b.subdir(filepath.Join("init-mirror", world.Host, "acme", name))
		if err != nil {
			return "", err
		}
		zip := filepath.Join(dir, fmt.Sprintf("terraform-provider-%s_%s_%s_%s.zip", name, initVersion, runtime.GOOS, runtime.GOARCH))
		if _, err := release.WriteBigZip(zip, "terraform-provider-"+name+"_v"+initVersion, initMiB, uint64(i)); err != nil {
			return "", err
		}
		if err := b.offer(name, release.Content{Zip: zip}); err != nil {
			return "", err
		}
	}
	return filepath.Join(b.Dir, "init-mirror"), b.pushed(template, initNames())
}

// offer makes the origin offer a provider for this platform.
func (b *bench) offer(name string, content release.Content) error {
	content.OS, content.Arch = runtime.GOOS, runtime.GOARCH
	r, err := release.Build(release.Spec{
		Host: world.Host, Namespace: "acme", Type: name, Version: initVersion, Signer: b.Signer, Contents: []release.Content{content},
	})
	if err == nil {
		b.Origin.Add(r)
	}
	return err
}

// pushed pushes providers that the origin offers.
func (b *bench) pushed(template string, names []string) error {
	args := []string{"push", "--all", "--template", template}
	for _, name := range names {
		args = append(args, world.Host+"/acme/"+name+"@"+initVersion)
	}
	_, err := b.ws.Run(b.bridge, args...)
	return err
}

// copyDocuments copies the gateway's responses into root, which is the folder of the static server to. Its
// requests have the static server's host in the Host header. Therefore the URLs in the copied responses lead to
// the static server.
func (b *bench) copyDocuments(from, to *server, root string) error {
	c := b.connect(false)
	defer c.close()
	for i := range initProviders {
		base := "acme/" + initProvider(i) + "/"
		mirror, direct := "/providers/"+world.Host+"/"+base, registryPath+base
		var version struct {
			Archives map[string]struct{ URL string }
		}
		var download map[string]any
		err := errors.Join(
			b.copyDocument(c, from, to, root, mirror+"index.json", nil),
			b.copyDocument(c, from, to, root, mirror+initVersion+".json", &version),
			b.copyDocument(c, from, to, root, direct+"versions", nil),
			b.copyDocument(c, from, to, root, direct+initVersion+"/download/"+runtime.GOOS+"/"+runtime.GOARCH, &download),
		)
		if err != nil {
			return err
		}
		paths := []string{mirror + version.Archives[runtime.GOOS+"_"+runtime.GOARCH].URL}
		for _, key := range []string{"download_url", "shasums_url", "shasums_signature_url"} {
			url, _ := download[key].(string)
			path, ok := strings.CutPrefix(url, to.url)
			if !ok {
				return fmt.Errorf("%s of %s is %q", key, base, url)
			}
			paths = append(paths, path)
		}
		for _, path := range paths {
			if err := b.copyDocument(c, from, to, root, path, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyDocument copies the response for one path. If into is not nil, copyDocument also decodes the response as
// JSON.
func (b *bench) copyDocument(c *client, from, to *server, root, path string, into any) error {
	name := filepath.Join(root, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, rootOf(from)+path, nil)
	if err != nil {
		return err
	}
	req.Host = strings.TrimPrefix(to.url, "https://")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	data, err := io.ReadAll(resp.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// compareInits measures init in several runs, and adds a row for each gateway and for the folder. A row contains
// the median duration. It also contains the median of the ratio between this duration and nginx's duration in
// the same run. The order of sources is: the gateway with a cache, the gateway without one, nginx, the folder.
func (b *bench) compareInits(client clients.Client, protocol string, sources []source, pluginCache bool) error {
	ws, err := b.Workspace("")
	if err != nil {
		return err
	}
	if err := ws.WriteConfig(use(initNames())); err != nil {
		return err
	}
	took := make([][]time.Duration, len(sources))
	for run := range runs + 1 {
		for i := range sources {
			k := (i + run) % len(sources) // the order changes with each run
			t, err := b.timedInit(ws, client, sources[k], pluginCache)
			if err != nil {
				return fmt.Errorf("%s: %w", sources[k].name, err)
			}
			if run > 0 { // the first run only fills caches
				took[k] = append(took[k], t)
			}
		}
	}
	how := protocol
	if pluginCache {
		how += ", plugin cache"
	}
	nginx, folder := took[2], took[3]
	for k, gateway := range []string{"cache", "no cache"} {
		r := row{
			what:   fmt.Sprintf("%s init of %d x %d MB by %s, %s", client.Name, initProviders, initMiB<<20/1_000_000, how, gateway),
			figure: fmt.Sprintf("%.2f s", median(took[k]).Seconds()), ratio: medianRatio(took[k], nginx), than: "nginx's time", wanted: nothing,
		}
		if gateway == "cache" {
			r.wanted, r.reached = "<= 1.10", r.ratio <= 1.1
		}
		b.rows = append(b.rows, r)
	}
	b.rows = append(b.rows, row{
		what:   fmt.Sprintf("%s init of the same by filesystem_mirror, beside %s", client.Name, how),
		figure: fmt.Sprintf("%.2f s", median(folder).Seconds()), ratio: medianRatio(folder, nginx), than: "nginx's time", wanted: nothing,
	})
	return nil
}

// medianRatio returns the median of the ratios times[i]/of[i]. times[i] and of[i] were measured in the same run.
func medianRatio(times, of []time.Duration) float64 {
	var all []float64
	for i := range times {
		all = append(all, times[i].Seconds()/of[i].Seconds())
	}
	return median(all)
}

// timedInit returns how long init takes in a clean workspace. If pluginCache is set, init uses an empty plugin
// cache.
func (b *bench) timedInit(ws *clients.Workspace, client clients.Client, from source, pluginCache bool) (time.Duration, error) {
	if err := ws.Clean(); err != nil {
		return 0, err
	}
	config := from.config
	if pluginCache {
		dir := filepath.Join(ws.Home, "plugins")
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return 0, err
		}
		config = fmt.Sprintf("plugin_cache_dir = %q\n", dir) + config
	}
	if err := ws.WriteCLIConfig(config); err != nil {
		return 0, err
	}
	if from.lock != nil {
		if err := os.WriteFile(filepath.Join(ws.Dir, clients.LockFileName), from.lock, 0o644); err != nil {
			return 0, err
		}
	}
	args := []string{"init", "-input=false", "-no-color"}
	if from.exec != nil {
		args, client = slices.Concat(from.exec, []string{client.Path}, args), b.bridge
	}
	start := time.Now()
	_, err := ws.Run(client, args...)
	return time.Since(start), err
}

// initNginx pushes the providers, and starts nginx with a copy of the gateway's documents and packages.
func (b *bench) initNginx(template string) (*server, error) {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return nil, err
	}
	if _, err := b.publishInit(template); err != nil {
		return nil, err
	}
	gateway, _, err := b.startGateway(certFile, keyFile, template)
	if err != nil {
		return nil, err
	}
	defer gateway.stop()
	root, err := b.subdir("init-root")
	if err != nil {
		return nil, err
	}
	nginx, err := b.startNginx(root, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	if nginx == nil {
		return nil, errors.New("nginx is not installed")
	}
	if err := b.copyDocuments(gateway, nginx, root); err != nil {
		nginx.stop()
		return nil, err
	}
	return nginx, nil
}

// initNames returns the names of the providers that init installs.
func initNames() (out []string) {
	for i := range initProviders {
		out = append(out, initProvider(i))
	}
	return out
}

// use returns a configuration that requires providers of the given names.
func use(names []string) string {
	var out strings.Builder
	out.WriteString("terraform {\n  required_providers {\n")
	for _, name := range names {
		fmt.Fprintf(&out, "    %s = {\n      source  = %q\n      version = %q\n    }\n", name, world.Host+"/acme/"+name, initVersion)
	}
	out.WriteString("  }\n}\n")
	return out.String()
}
