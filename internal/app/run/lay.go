package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// layWithin is how long a command waits for its packages. The command then begins, and gets the others from the gateway.
	layWithin = 30 * time.Second
	sayAfter  = 3 * time.Second // after which the user is told that the command waits
	// maxLooks is how many packages are looked up at once. Most of that time is the registry's.
	maxLooks = 8
	// temporary begins the names of the files and folders of unfinished copies.
	temporary = ".ocibridge-"
)

// layer lays locked packages into the folder in which the client installs providers, before the command begins. A client
// that finds a package there compares its h1: hash with the lock file, and does not download it.
//
// A package is laid only if the client would get the same package from the gateway now, and if the client would then leave
// the lock file as it is. All else is left to the gateway, and failures are only logged.
type layer struct {
	*Options
	merged   *cliconfig.Merged
	gateway  *serve.Local
	packages *archives.Cache
	needs    needs
	hosts    []svchost.Hostname // whose providers the gateway serves
	platform provider.Platform
	data     string // the client's data folder, such as .terraform
	installs bool   // the command mentions init
	fetches  bool   // the versions in the lock file are those that the command installs
	links    bool
	copies   copies
}

// initWord matches the command that installs providers, also in an argument such as "terraform init && terraform plan".
var initWord = regexp.MustCompile(`\binit\b`)

// lay lays the packages that the command's folder has locked. Links that clients would fail on go first, in any case.
func (o *Options) lay(ctx context.Context, merged *cliconfig.Merged, gateway *serve.Local, served *hosts) {
	store := config.StoreCopy
	if cache := o.Settings.Config.Gateway.Cache; cache != nil {
		store = cmp.Or(cache.Store, store)
	}
	args := o.Command[1:]
	data := dataFolder(o.Environment.Getenv, folderOf(args))
	l := &layer{
		Options: o, merged: merged, gateway: gateway, packages: gateway.Packages(), needs: served.needs, hosts: served.providers,
		platform: provider.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}, data: data, copies: copies{in: data},
		installs: slices.ContainsFunc(args, initWord.MatchString), fetches: !upgrades(args), links: store == config.StoreLink,
	}
	l.removeLinks()
	sweepCopies(data)
	if o.NoStore || store == config.StoreOff || gateway.Packages() == nil || l.hasPluginFolder() {
		return
	}
	// A client's command that installs nothing runs in a folder that is initialized, or does not need providers.
	if _, err := os.Stat(l.data); err != nil && !l.installs && slices.Contains([]string{"terraform", "tofu"}, clientName(o.Command[0])) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, layWithin)
	defer cancel()
	l.layAll(ctx, l.wanted())
}

// hasPluginFolder reports whether the client installs providers only from folders that an argument names.
func (l *layer) hasPluginFolder() bool {
	all := append(slices.Clone(l.Command[1:]), l.Environment.Getenv("TF_CLI_ARGS"), l.Environment.Getenv("TF_CLI_ARGS_init"))
	return slices.ContainsFunc(all, func(a string) bool { return strings.Contains(a, "-plugin-dir") })
}

// dataFolder returns the folder in which a client that works in dir keeps its data.
func dataFolder(getenv func(string) string, dir string) string {
	data := getenv("TF_DATA_DIR")
	switch {
	case data == "":
		return filepath.Join(dir, ".terraform")
	case filepath.IsAbs(data):
		return data
	}
	return filepath.Join(dir, data)
}

// target returns the folder in which the client installs a locked package.
func (l *layer) target(p lockfile.Provider) string {
	a := p.Address
	return filepath.Join(l.data, "providers", a.Hostname(), a.Namespace(), a.Type(), p.Version.String(), l.platform.String())
}

// wanted returns the locked packages that are not installed, and that the client would get only from the gateway.
func (l *layer) wanted() (out []lockfile.Provider) {
	for _, p := range l.needs.locked {
		if _, err := os.Lstat(l.target(p)); !errors.Is(err, fs.ErrNotExist) {
			if h, ok := ownLink(l.target(p)); ok {
				l.packages.UseLinked(h)
			}
			continue
		}
		if slices.Contains(l.hosts, p.Address.ServiceHost()) && l.isUsed(p.Address) && l.merged.InstallsFromHost(l.Environment, p.Address) {
			out = append(out, p)
		}
	}
	return out
}

// isUsed reports whether the client can use the lock of a provider. In a lock file that the other client wrote, providers
// without a host in their source are at that client's registry.
func (l *layer) isUsed(a provider.Address) bool {
	defaults := defaultHosts(l.Command[0])
	if !slices.Contains(publicHosts, a.ServiceHost()) || slices.Contains(defaults, a.ServiceHost()) {
		return true
	}
	return slices.ContainsFunc(l.needs.required, func(r requirement) bool { return !r.isShort && r.provider == a })
}

// layAll lays packages, several at once. Meanwhile, the gateway reads the lists of versions for which a client that installs
// providers asks one after the other.
func (l *layer) layAll(ctx context.Context, wanted []lockfile.Provider) {
	defer l.copies.remove()
	if l.Waiting != nil && len(wanted) > 0 {
		defer time.AfterFunc(sayAfter, func() { l.Waiting(len(wanted), layWithin) }).Stop()
	}
	var all panics.Group
	all.SetLimit(maxLooks)
	for _, p := range l.needs.locked {
		if l.installs && slices.Contains(l.hosts, p.Address.ServiceHost()) && l.isUsed(p.Address) {
			all.Go(func() error { l.gateway.Prefetch(ctx, p.Address); return nil })
		}
	}
	for _, p := range wanted {
		all.Go(func() error {
			if err := l.layOne(ctx, p); err != nil {
				l.Log.DebugContext(ctx, "a package is left to the gateway", "provider", p.Address.String(), "version", p.Version.String(), "err", err)
			}
			return nil
		})
	}
	_ = all.Wait() // its functions return nil
}

// errIncomplete means that the client would add hashes to the lock file if it installed a package.
var errIncomplete = errors.New("the lock file lacks hashes")

// layOne lays a package.
func (l *layer) layOne(ctx context.Context, p lockfile.Provider) error {
	offer, err := l.gateway.Offer(ctx, p.Address, p.Version, l.platform)
	if err != nil {
		return err
	}
	if err := l.checkLock(p, offer); err != nil {
		return err
	}
	// A damaged package is removed, and a package can be evicted at any time.
	for range 2 {
		if err = l.place(ctx, p, offer); !errors.Is(err, archives.ErrDigest) && !errors.Is(err, archives.ErrNotCached) {
			break
		}
	}
	if err == nil {
		l.gateway.Took()
	}
	return err
}

// checkLock returns an error if a client that installed the package could add a hash to the lock file.
func (l *layer) checkLock(p lockfile.Provider, offer *serve.Offer) error {
	known := p.Known()
	if len(known) != len(p.Hashes) {
		return errors.New("the lock file has hashes of unknown schemes, which clients remove")
	}
	if len(h1sOf(p)) == 0 {
		return fmt.Errorf("%w: an h1: hash", errIncomplete)
	}
	adds := slices.Clone(offer.Signed)
	adds = append(adds, offer.ZipHash())
	if !offer.H1.IsZero() {
		adds = append(adds, offer.H1)
	}
	if p.Address.ServiceHost() == openTofuHost {
		adds = append(adds, offer.Listed...)
	}
	for _, h := range adds {
		if !slices.Contains(known, h) {
			return fmt.Errorf("%w: %s", errIncomplete, h)
		}
	}
	return nil
}

// h1sOf returns the h1: hashes of a locked provider.
func h1sOf(p lockfile.Provider) []provider.Hash {
	return slices.DeleteFunc(p.Known(), provider.Hash.IsZip)
}

// place unpacks a package unless it is stored unpacked, and copies or links it.
func (l *layer) place(ctx context.Context, p lockfile.Provider, offer *serve.Offer) error {
	h1s, target := h1sOf(p), l.target(p)
	h, stored := l.packages.Unpacked(offer.Digest, h1s)
	if !stored {
		var err error
		if h, err = l.unpack(ctx, offer, h1s); err != nil {
			return err
		}
	}
	if !l.packages.Runs(h, p.Address.Type()) {
		return errors.New("clients find no program in it")
	}
	if l.links {
		return l.link(ctx, h, target)
	}
	temp, err := l.copies.next()
	if err == nil {
		err = l.packages.Lay(ctx, h, temp)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(target), 0o755)
	}
	if err != nil {
		return err
	}
	return os.Rename(temp, target) // fails if the target exists by now
}

// link makes a link to an unpacked package.
func (l *layer) link(ctx context.Context, h provider.Hash, target string) error {
	to, err := l.packages.Linked(ctx, h)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(target), 0o755)
	}
	if err != nil {
		return err
	}
	err = os.Symlink(to, target)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		l.Notices.Warn("store = \"link\" has no effect: this user cannot make symbolic links here", "err", err)
	}
	return err
}

// unpack unpacks a cached zip whose hash is among h1s. For a command that installs providers, it fetches the zip if it is not
// cached.
func (l *layer) unpack(ctx context.Context, offer *serve.Offer, h1s []provider.Hash) (provider.Hash, error) {
	if h, ok := l.packages.H1(offer.Digest); ok && !slices.Contains(h1s, h) {
		return h, fmt.Errorf("%w: %s", errIncomplete, h)
	}
	h, err := l.packages.Unpack(ctx, offer.Digest, offer.Size)
	if errors.Is(err, archives.ErrNotCached) && l.installs && l.fetches {
		h, err = l.fetch(ctx, offer)
	}
	if err == nil && !slices.Contains(h1s, h) {
		err = fmt.Errorf("%w: %s", errIncomplete, h)
	}
	return h, err
}

// fetch fetches a zip into the cache and unpacks it.
func (l *layer) fetch(ctx context.Context, offer *serve.Offer) (provider.Hash, error) {
	if limit := l.packages.Size().Limit; offer.Size > limit {
		return provider.Hash{}, hint.New(fmt.Sprintf("its zip has %d bytes, and the cache may have %d", offer.Size, limit), "raise max_size in the cache block")
	}
	if err := l.gateway.Download(ctx, offer); err != nil {
		return provider.Hash{}, err
	}
	return l.packages.Unpack(ctx, offer.Digest, offer.Size)
}

// ownLink returns the h1: hash of the package to which a link of exec leads. The bool is false for everything else.
func ownLink(path string) (provider.Hash, bool) {
	to, err := os.Readlink(path)
	if err != nil {
		return provider.Hash{}, false
	}
	return archives.UnpackedHash(to)
}

// removeLinks removes links of exec to packages that are gone, or that the lock file does not name with their hash. Clients
// fail on a dangling link, and some refuse to install over a link.
func (l *layer) removeLinks() {
	found, _ := filepath.Glob(filepath.Join(globEscape(l.data), "providers", "*", "*", "*", "*", "*")) // the pattern is valid
	for _, path := range found {
		h, own := ownLink(path)
		locked := slices.ContainsFunc(l.needs.locked, func(p lockfile.Provider) bool { return l.target(p) == path && slices.Contains(p.Known(), h) })
		if _, err := os.Stat(path); own && (err != nil || !locked) {
			if err := os.Remove(path); err != nil {
				l.Log.Warn("a link to a package cannot be removed", "link", path, "err", err)
			}
		}
	}
}

// globEscape returns a pattern that matches only the path.
func globEscape(path string) string {
	if runtime.GOOS == "windows" {
		return path // a backslash separates there
	}
	return regexp.MustCompile(`[\\*?\[]`).ReplaceAllString(path, `\$0`)
}

// copies is a folder for unfinished copies in a client's data folder. It is made when it is needed. A file with the folder's
// name, but for its suffix, is locked until the folder is removed.
type copies struct {
	in string

	mu     sync.Mutex
	lock   *os.File // nil if there is no folder yet
	number int
}

// next returns a new path in the folder.
func (c *copies) next() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock == nil {
		if err := c.make(); err != nil {
			return "", err
		}
	}
	c.number++
	return filepath.Join(c.lock.Name()+".d", strconv.Itoa(c.number)), nil
}

func (c *copies) make() error {
	if err := os.MkdirAll(c.in, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.in, temporary)
	if err != nil {
		return err
	}
	if err = files.Lock(f); err == nil {
		err = os.Mkdir(f.Name()+".d", 0o755)
	}
	if err != nil {
		f.Close()
		return errors.Join(err, os.Remove(f.Name()))
	}
	c.lock = f
	return nil
}

// remove removes the folder. The next command removes what is left.
func (c *copies) remove() {
	if c.lock != nil {
		_ = os.RemoveAll(c.lock.Name() + ".d")
		c.lock.Close()
		_ = os.Remove(c.lock.Name())
	}
}

// sweepCopies removes what commands have left behind that were killed.
func sweepCopies(in string) {
	found, _ := filepath.Glob(filepath.Join(globEscape(in), temporary+"*")) // the pattern is valid
	for _, path := range found {
		lock := strings.TrimSuffix(path, ".d")
		info, err := os.Lstat(lock)
		switch {
		case err == nil && lock == path && time.Since(info.ModTime()) < time.Minute: // it may be about to be locked
		case errors.Is(err, fs.ErrNotExist) || files.IsAbandoned(lock):
			_ = os.RemoveAll(lock + ".d")
			_ = os.Remove(lock)
		}
	}
}
