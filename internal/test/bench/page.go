package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// The catalogs that the pages show. Every provider and module has pageVersions versions.
const (
	manyProviders, manyModules = 1_000, 2_000
	fewOfEach                  = 20
	pageVersions               = 3

	pageWanted   = 1.5 // the target for the ratio of the CPU times
	perNamespace = 50  // providers, and modules, of one namespace
)

// pages compares the CPU time that the server takes for its pages with a large and with a small catalog.
func (b *bench) pages() error {
	large, err := b.startPages(manyProviders, manyModules)
	if err != nil {
		return err
	}
	defer large.stop()
	small, err := b.startPages(fewOfEach, fewOfEach)
	if err != nil {
		return err
	}
	defer small.stop()
	shown := "/m/" + pageModule(0).Path()
	for _, page := range []struct {
		what     string
		paths    []string
		requests int // in one run
	}{
		{"front page", []string{"/"}, 300},
		{"search while typing", typed("subnet1", "acme/dns2", "gateway", "aws"), 2_000},
		{"module page", []string{shown}, 300},
	} {
		if err := b.comparePages(page.what, page.paths, page.requests, large, small); err != nil {
			return fmt.Errorf("%s: %w", page.what, err)
		}
	}
	return b.pagesMemory(large)
}

// typed returns the paths of the searches while somebody types words.
func typed(words ...string) (paths []string) {
	for _, word := range words {
		for end := 1; end <= len(word); end++ {
			paths = append(paths, "/search?suggest&q="+url.QueryEscape(word[:end]))
		}
	}
	return paths
}

// comparePages adds a row with the ratio of the CPU times for the given pages. Both servers have answered each request before.
func (b *bench) comparePages(what string, paths []string, requests int, large, small *pageServer) error {
	servers := []*pageServer{large, small}
	took := make([][]time.Duration, len(servers))
	for run := range runs + 1 {
		for i := range servers {
			k := (i + run) % len(servers) // the order changes with each run
			t, err := b.askPages(servers[k], paths, requests)
			if err != nil {
				return err
			}
			if run > 0 { // the first run only fills caches
				took[k] = append(took[k], t)
			}
		}
	}
	ratio := medianRatio(took[0], took[1])
	b.rows = append(b.rows, row{
		what:   fmt.Sprintf("%s with %d providers and %d modules", what, manyProviders, manyModules),
		figure: fmt.Sprintf("%.2f ms of CPU time", float64(median(took[0]).Microseconds())/1e3/float64(requests)),
		ratio:  ratio, than: fmt.Sprintf("the time with %d of each", fewOfEach), wanted: fmt.Sprintf("<= %.2f", pageWanted), reached: ratio <= pageWanted,
	})
	return nil
}

// askPages requests the given pages in turn, and returns the CPU time that the server took.
func (b *bench) askPages(s *pageServer, paths []string, requests int) (time.Duration, error) {
	c := b.connect(false)
	defer c.close()
	before, err := usedCPU(s.process.PID())
	if err != nil {
		return 0, err
	}
	for i := range requests {
		if err := c.page(b.ctx, s.url+paths[i%len(paths)]); err != nil {
			return 0, err
		}
	}
	after, err := usedCPU(s.process.PID())
	return after - before, err
}

// page requests a page or suggestions, whose size the server need not announce.
func (c *client) page(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// pagesMemory adds a row with the peak memory of a server, after it has also shown every provider and module once.
func (b *bench) pagesMemory(s *pageServer) error {
	c := b.connect(false)
	defer c.close()
	for page := 1; page <= (manyProviders+manyModules)/50+1; page++ {
		if err := c.page(b.ctx, s.url+"/search?q=&page="+strconv.Itoa(page)); err != nil {
			return err
		}
	}
	peak, err := highWater(s.process.PID())
	if err != nil {
		return err
	}
	b.rows = append(b.rows, row{
		what:   fmt.Sprintf("memory: pages of %d providers and %d modules", manyProviders, manyModules),
		figure: fmt.Sprintf("%d MiB", peak>>20), ratio: float64(peak) / allowedPeak, than: "128 MiB", wanted: "< 1.00", reached: peak < allowedPeak,
	})
	return nil
}

// pageServer is a gateway in front of a registry whose content is made up.
type pageServer struct {
	url     string // of the front page, without a slash at the end
	process *world.Gateway
	stop    func()
}

// startPages starts a gateway in front of a registry with a number of providers and modules.
func (b *bench) startPages(providers, modules int) (*pageServer, error) {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return nil, err
	}
	content, err := newPageRegistry(providers, modules)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	registry := &http.Server{Handler: content}
	go registry.Serve(l)
	gateway, process, err := b.startGatewayWith(certFile, keyFile, l.Addr().String()+"/p/${hostname}/${namespace}/${type}", func(dir string) string {
		return fmt.Sprintf("module_mirror {\n  repository_template = \"%s/m/${hostname}/${namespace}/${name}/${system}\"\n}\ngateway {\n  cache {\n    directory = %q\n  }\n}\n",
			l.Addr(), filepath.Join(dir, "cache"))
	})
	if err != nil {
		registry.Close()
		return nil, err
	}
	return &pageServer{rootOf(gateway), process, func() {
		gateway.stop()
		registry.Close()
	}}, nil
}

// pageWords are the names of providers and modules, each with a number.
var pageWords = []string{"subnet", "database", "gateway", "queue", "dns", "bucket", "cluster", "network", "policy", "monitor"}

func pageNames(i int) (namespace, name string) {
	namespace = "acme"
	if n := i / perNamespace; n > 0 {
		namespace = fmt.Sprintf("team%d", n)
	}
	return namespace, fmt.Sprintf("%s%d", pageWords[i%len(pageWords)], i)
}

func pageProvider(i int) provider.Address {
	namespace, name := pageNames(i)
	return provider.MustParseAddress(world.Host + "/" + namespace + "/" + name)
}

func pageModule(i int) module.Address {
	namespace, name := pageNames(i)
	return module.MustParseAddress(world.Host + "/" + namespace + "/" + name + "/aws")
}

// pageRegistry serves providers and modules that would take too long to push. The content is the same as if they had been
// pushed. All modules have the same zip. Packages of providers cannot be downloaded.
type pageRegistry struct {
	repositories []string
	manifests    map[string]artifact.Blob // by the path of the tag, without /v2/
	zip          []byte
}

func newPageRegistry(providers, modules int) (*pageRegistry, error) {
	zip, err := describedZip()
	if err != nil {
		return nil, err
	}
	r := &pageRegistry{manifests: map[string]artifact.Blob{}, zip: zip}
	add := func(repository, tag string, manifest artifact.Blob, err error) error {
		for _, reference := range []string{tag, string(manifest.Descriptor.Digest)} {
			r.manifests[repository+"/manifests/"+reference] = manifest
		}
		return err
	}
	for i := range max(providers, modules) {
		p, m := "p/"+pageProvider(i).Path(), "m/"+pageModule(i).Path()
		if i < providers {
			r.repositories = append(r.repositories, p)
		}
		if i < modules {
			r.repositories = append(r.repositories, m)
		}
		for n := range pageVersions {
			v := catalogVersion(n)
			if i < providers {
				of := artifact.Version{Owner: pageProvider(i), Version: v, Protocols: []string{"5.0"}}
				for k := range platforms {
					of.Packages = append(of.Packages, packageOf(pageProvider(i), v, k))
				}
				index, err := artifact.EncodeIndex(of)
				if err := add(p, v.String(), index, err); err != nil {
					return nil, err
				}
			}
			if i < modules {
				of := artifact.Version{Owner: pageModule(i), Version: v, Packages: []artifact.Package{{Digest: digest.FromBytes(zip), Size: int64(len(zip))}}}
				manifest, err := artifact.EncodeZip(of)
				if err := add(m, v.String(), manifest, err); err != nil {
					return nil, err
				}
			}
		}
	}
	return r, nil
}

// describedZip returns the zip of a module with a README, inputs and outputs.
func describedZip() ([]byte, error) {
	var readme, inputs strings.Builder
	readme.WriteString("# The module\n\n")
	for i := range 40 {
		fmt.Fprintf(&readme, "## Part %d\n\nThis part has `code`, *emphasis* and a [link](https://example.com/%[1]d).\n\n- one\n- two\n\n", i)
		fmt.Fprintf(&inputs, "variable \"input%d\" {\n  description = \"The input %[1]d\"\n  type        = map(object({ name = string, size = optional(number, 1) }))\n  default     = {}\n}\n\n", i)
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, file := range []struct{ name, content string }{{"README.md", readme.String()}, {"variables.tf", inputs.String()}, {"outputs.tf", "output \"id\" {\n  value = \"id\"\n}\n"}} {
		f, err := w.Create(file.name)
		if err == nil {
			_, err = io.WriteString(f, file.content)
		}
		if err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// ServeHTTP implements [http.Handler].
func (r *pageRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	h := w.Header()
	switch manifest, ok := r.manifests[path]; {
	case path == "_catalog":
		h.Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"repositories": r.repositories})
	case strings.HasSuffix(path, "/tags/list"):
		var tags []string
		for n := range pageVersions {
			tags = append(tags, catalogVersion(n).String())
		}
		h.Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"name": strings.TrimSuffix(path, "/tags/list"), "tags": tags})
	case ok:
		h.Set("Content-Type", manifest.Descriptor.MediaType)
		h.Set("Docker-Content-Digest", manifest.Descriptor.Digest.String())
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(manifest.Data))
	case strings.HasSuffix(path, "/blobs/"+digest.FromBytes(r.zip).String()):
		h.Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(r.zip))
	default:
		http.NotFound(w, req)
	}
}
