package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

const (
	atOnce      = 8  // workspaces that are initialized at once
	workspaces  = 50 // workspaces whose disk space is measured
	onceRuns    = 3  // runs of what is initialized at once
	noStoreName = "exec --no-store"
)

// stored is a way to initialize a workspace whose lock file names all packages. wanted and wantedAtOnce are targets for the
// ratio to exec without the store, or 0.
type stored struct {
	source
	cache                string // the folder of exec's cache, or ""
	pluginCache          string // the client's own cache, or ""
	wanted, wantedAtOnce float64
}

// store compares init by exec, which lays unpacked packages, with exec --no-store, with nginx, and with the client's own
// plugin cache. All of them have the packages from earlier runs. The workspaces have lock files.
func (b *bench) store() error {
	reg, err := registry.Start(b.ctx, registry.Options{})
	if err != nil {
		return err
	}
	defer reg.Stop()
	template := reg.Host + "/providers/${hostname}/${namespace}/${type}"
	nginx, err := b.initNginx(template)
	if err != nil {
		return err
	}
	defer nginx.stop()
	dir, err := b.subdir("store")
	if err != nil {
		return err
	}
	// Each way has a cache of its own. --no-store is what exec did before it had a store.
	exec := func(name, packages, store string) stored {
		file, cache := filepath.Join(dir, packages+"-"+store+".hcl"), filepath.Join(dir, packages+"-"+store)
		text := fmt.Sprintf("oci_mirror {\n  repository_template = \"%s\"\n}\ngateway {\n  cache {\n    directory = %q\n    store = %q\n  }\n}\n", template, cache, store)
		err = errors.Join(err, os.WriteFile(file, []byte(text), 0o600))
		return stored{source: source{name: name, config: b.HostBlock(), exec: []string{"exec", "--config", file, "--"}}, cache: cache}
	}
	execs := func(packages string) []stored {
		return []stored{exec(noStoreName, packages, "off"), exec("exec, copies", packages, "copy"), exec("exec, links", packages, "link")}
	}
	ways, ofReal := append(execs("large"), stored{source: hostBlock(nginx)}, stored{source: hostBlock(nginx), pluginCache: filepath.Join(dir, "plugins")}), execs("real")
	ways[1].wanted, ways[1].wantedAtOnce = 0.45, 0.5
	ways[2].wanted, ways[2].wantedAtOnce = 0.36, 0.33
	ways[3].name, ways[4].name = "nginx", "nginx and the client's plugin cache"
	if err != nil {
		return err
	}
	real, err := b.publishReal(template)
	if err != nil {
		return err
	}
	for _, name := range []string{"tofu", "terraform"} {
		client, err := clients.Find(name)
		if err != nil {
			return err
		}
		large := installed{fmt.Sprintf("%d x %d MB", initProviders, initMiB<<20/1_000_000), initNames()}
		spaces, err := b.compareStored(client, large, ways)
		if err == nil {
			err = b.disk(client, spaces, ways[2])
		}
		if err == nil {
			_, err = b.compareStored(client, installed{"null and time (compressed)", real}, ofReal)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// installed are the providers that init installs.
type installed struct {
	what  string
	names []string
}

// publishReal pushes providers whose packages are compressed, as those of publishers are. It returns their names.
func (b *bench) publishReal(template string) (names []string, err error) {
	for name, find := range map[string]func() ([]clients.Binary, error){"null": clients.NullProvider, "time": clients.TimeProvider} {
		programs, err := find()
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(programs, func(p clients.Binary) bool { return p.OS == runtime.GOOS && p.Arch == runtime.GOARCH })
		if i < 0 {
			return nil, fmt.Errorf("no %s provider for this platform", name)
		}
		if err := b.offer(name, release.Content{Binary: programs[i].Path}); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, b.pushed(template, names)
}

// compareStored adds the rows of one client and one configuration. It returns workspaces with the configuration.
func (b *bench) compareStored(client clients.Client, what installed, ways []stored) (spaces []*clients.Workspace, err error) {
	for range workspaces {
		ws, err := b.Workspace("")
		if err == nil {
			err = ws.WriteConfig(use(what.names))
		}
		if err != nil {
			return nil, err
		}
		spaces = append(spaces, ws)
	}
	return spaces, b.compareIn(spaces, client, what.what, ways)
}

// compareIn adds the rows of one client in these workspaces.
func (b *bench) compareIn(spaces []*clients.Workspace, client clients.Client, installs string, ways []stored) error {
	first := spaces[0]
	if _, err := b.timedInit(first, client, ways[0].source, false); err != nil {
		return err
	}
	lock, err := os.ReadFile(filepath.Join(first.Dir, clients.LockFileName))
	if err != nil {
		return err
	}
	for i, way := range ways {
		ways[i].lock = lock
		if way.pluginCache != "" {
			dir := way.pluginCache + "-" + client.Name
			ways[i].config = fmt.Sprintf("plugin_cache_dir = %q\n", dir) + way.config
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	what := fmt.Sprintf("%s init of %s with a lock file", client.Name, installs)
	one := func(way stored) (time.Duration, error) { return b.timedInit(first, client, way.source, false) }
	if err := b.addStored(what, ways, runs, one, func(s stored) float64 { return s.wanted }); err != nil {
		return err
	}
	many := func(way stored) (time.Duration, error) { return b.initAll(spaces[:atOnce], client, way.source) }
	if err := b.addStored(fmt.Sprintf("%d at once: %s", atOnce, what), ways, onceRuns, many, func(s stored) float64 { return s.wantedAtOnce }); err != nil {
		return err
	}
	cold := func(way stored) (time.Duration, error) {
		if err := os.RemoveAll(way.cache); err != nil {
			return 0, err
		}
		return one(way)
	}
	return b.addStored("nothing cached: "+what, ways[:2], runs, cold, func(s stored) float64 {
		if client.Name == "terraform" && s.wanted > 0 {
			return 0.7
		}
		return 0
	})
}

// addStored measures each way in several runs, and adds a row for each but the first one, whose time the others are compared
// with. The first run only fills caches.
func (b *bench) addStored(what string, ways []stored, runs int, measure func(stored) (time.Duration, error), wanted func(stored) float64) error {
	took := make([][]time.Duration, len(ways))
	for run := range runs + 2 {
		for i := range ways {
			k := (i + run) % len(ways)
			t, err := measure(ways[k])
			if err != nil {
				return fmt.Errorf("%s: %w", ways[k].name, err)
			}
			if run > 1 { // exec unpacks a package when it is locked for the first time
				took[k] = append(took[k], t)
			}
		}
	}
	for k, way := range ways[1:] {
		r := row{
			what: what + ", " + way.name, figure: fmt.Sprintf("%.2f s", median(took[k+1]).Seconds()),
			ratio: medianRatio(took[k+1], took[0]), than: ways[0].name, wanted: nothing,
		}
		if most := wanted(way); most > 0 {
			r.wanted, r.reached = fmt.Sprintf("<= %.2f", most), r.ratio <= most
		}
		b.rows = append(b.rows, r)
	}
	return nil
}

// initAll returns how long init takes in several workspaces at once.
func (b *bench) initAll(spaces []*clients.Workspace, client clients.Client, from source) (time.Duration, error) {
	var all sync.WaitGroup
	errs := make([]error, len(spaces))
	start := time.Now()
	for i, ws := range spaces {
		all.Go(func() { _, errs[i] = b.timedInit(ws, client, from, false) })
	}
	all.Wait()
	return time.Since(start), errors.Join(errs...)
}

// disk adds a row with the disk space of many workspaces whose packages are links, and of the cache. It is compared with one
// unpacked copy of the packages.
func (b *bench) disk(client clients.Client, spaces []*clients.Workspace, links stored) error {
	for _, ws := range spaces {
		if _, err := b.timedInit(ws, client, links.source, false); err != nil {
			return err
		}
	}
	var used int64
	seen := map[uint64]bool{}
	roots := []string{filepath.Join(links.cache, "archives", "unpacked")}
	for _, ws := range spaces {
		roots = append(roots, ws.Dir)
	}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if id, bytes := onDisk(info); !seen[id] {
				seen[id] = true
				used += bytes
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	one := float64(initProviders * initMiB << 20)
	r := row{
		what: fmt.Sprintf("disk of %d workspaces of %s, links, without zips", workspaces, client.Name), figure: fmt.Sprintf("%d MB", used/1_000_000),
		ratio: float64(used) / one, than: "one unpacked copy", wanted: "<= 1.05",
	}
	r.reached = r.ratio <= 1.05
	b.rows = append(b.rows, r)
	return nil
}
