package gitfiles

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/text/unicode/norm"
)

// The kinds of entries in trees, as Git writes their modes.
const (
	modeFolder    = 0o040000
	modeFile      = 0o100644
	modeLink      = 0o120000
	modeSubmodule = 0o160000
	modeKind      = 0o170000
	executable    = 0o100
)

const (
	maxTarget  = 1024     // bytes of a link's target
	maxTargets = 16 << 20 // bytes of all targets
	// fileWork is the work that creating a file, a link or a folder costs.
	fileWork = 20_000
	// partWork is the work that each folder above a file costs, when the file is packed.
	partWork      = 5_000
	maxAttributes = 1 << 20   // bytes of a .gitattributes file
	maxModules    = 100 << 10 // bytes of .gitmodules
)

// entry is an entry of a tree.
type entry struct {
	name string
	mode uint32
	id   plumbing.Hash
}

// checkout writes the files of a commit.
type checkout struct {
	*fetcher
	pack       *pack
	at         place
	attributes attributes
	gitlinks   []entry // name is the path
	modules    []byte  // .gitmodules
	submodules []submodule
}

// files writes all files and links, and lists the submodules.
func (c *checkout) files(ctx context.Context, tree string) error {
	if err := c.folder(ctx, plumbing.NewHash(tree), c.at.folder, "", c.at.depth); err != nil {
		return err
	}
	var err error
	c.submodules, err = submodules(c.gitlinks, c.modules)
	return err
}

// folder writes the files of a tree. name is the path of the folder in this repository.
func (c *checkout) folder(ctx context.Context, tree plumbing.Hash, to *os.Root, name string, depth int) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if depth > maxDepth {
		return refuseFile("%.80s... is below more than %d folders", name, maxDepth)
	}
	entries, err := c.entries(tree, name)
	if err != nil {
		return err
	}
	if err := c.attributesOf(entries, name); err != nil {
		return err
	}
	defer c.attributes.leave(name)
	for _, e := range entries {
		if err := c.budget.spend(fileWork + partWork*int64(depth)); err != nil {
			return err
		}
		switch full := path.Join(name, e.name); e.mode & modeKind {
		case modeFolder:
			err = c.subfolder(ctx, e, to, full, depth)
		case modeLink:
			err = c.link(e, to, full)
		case modeSubmodule:
			c.made++
			c.gitlinks = append(c.gitlinks, entry{full, e.mode, e.id})
		default:
			err = c.file(ctx, e, to, full)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entries reads a tree, and checks the names.
func (c *checkout) entries(tree plumbing.Hash, name string) ([]entry, error) {
	i, err := c.pack.get(tree, plumbing.TreeObject)
	if err != nil {
		return nil, err
	}
	raw, err := c.pack.read(i, maxTree)
	if err != nil {
		return nil, err
	}
	var out []entry
	twins := map[string]string{}
	for len(raw) > 0 {
		var e entry
		if e, raw, err = cutEntry(raw); err != nil {
			return nil, refuse("the tree of %s is malformed", shown(name))
		}
		if c.fetcher.entries++; c.fetcher.entries > c.limits.entries {
			return nil, refuseFile("it has more than %d files and folders", c.limits.entries)
		}
		full := path.Join(name, e.name)
		if err := checkName(e, full, path.Join(c.at.name, full)); err != nil {
			return nil, err
		}
		folded := norm.NFC.String(strings.ToLower(e.name))
		if other, twice := twins[folded]; twice {
			return nil, refuseFile("%q and %q differ only in case: on Windows and macOS, one replaces the other", path.Join(name, other), full)
		}
		twins[folded] = e.name
		out = append(out, e)
	}
	return out, nil
}

// cutEntry reads the first entry of a tree, and returns the rest.
func cutEntry(raw []byte) (entry, []byte, error) {
	mode, rest, found := bytes.Cut(raw, []byte(" "))
	name, rest, ended := bytes.Cut(rest, []byte{0})
	n, err := strconv.ParseUint(string(mode[:min(len(mode), 8)]), 8, 32)
	if !found || !ended || err != nil || len(mode) > 7 || len(rest) < 20 {
		return entry{}, nil, io.ErrUnexpectedEOF
	}
	e := entry{name: string(name), mode: uint32(n), id: plumbing.Hash(rest[:20])}
	switch e.mode & modeKind {
	case modeFolder, modeFile & modeKind, modeLink, modeSubmodule:
		return e, rest[20:], nil
	}
	return entry{}, nil, fmt.Errorf("mode %o", e.mode)
}

// checkName refuses names that Git refuses on any system, and names that are too long. full is the path in the repository,
// and whole is the path in the folder that the caller gave.
func checkName(e entry, full, whole string) error {
	switch {
	case len(e.name) > 255 || len(whole) > maxName:
		return refuseFile("%.80q... has a path of more than %d bytes, or a name of more than 255", whole, maxName)
	case e.name == "" || e.name == "." || e.name == ".." || strings.Contains(e.name, "/"):
		return refuseFile("a file has the name %q, and would leave the folder of the module", full)
	case isReserved(e.name, "git", "git~1"):
		return refuseFile("%q is a name that Git reserves", full)
	case e.mode&modeKind == modeLink && (isReserved(e.name, "gitmodules", "gitmod~1") || strings.EqualFold(e.name, ".gitattributes")):
		return refuseFile("%q is a link, which Git does not follow for this file", full)
	}
	return nil
}

// isReserved reports whether a file system can take a name for the name "." + after: because it ignores case, some
// characters (macOS), or dots and spaces at the end, or has short names (Windows).
func isReserved(name, after, short string) bool {
	for _, part := range strings.Split(strings.Map(visible, name), `\`) {
		part, _, _ = strings.Cut(part, ":")
		part = strings.TrimRight(part, " .")
		if strings.EqualFold(part, "."+after) || strings.EqualFold(part, short) {
			return true
		}
	}
	return false
}

// visible removes the characters that HFS+ ignores in names.
func visible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// shown returns the name of a folder for messages.
func shown(name string) string {
	if name == "" {
		return "the repository"
	}
	return strconv.Quote(name)
}

// attributesOf reads the .gitattributes file of a folder.
func (c *checkout) attributesOf(entries []entry, name string) error {
	for _, e := range entries {
		if name == "" && e.name == ".gitmodules" && e.mode&modeKind == modeFile&modeKind {
			i, err := c.pack.get(e.id, plumbing.BlobObject)
			if err != nil {
				return err
			}
			if c.modules, err = c.pack.read(i, maxModules); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
		if e.name != ".gitattributes" || e.mode&modeKind != modeFile&modeKind {
			continue
		}
		i, err := c.pack.get(e.id, plumbing.BlobObject)
		if err != nil {
			return err
		}
		text, err := c.pack.read(i, maxAttributes)
		if err != nil {
			return fmt.Errorf("%s: %w", path.Join(name, e.name), err)
		}
		if err := c.budget.spend(int64(10 * len(text))); err != nil {
			return err
		}
		if err := c.attributes.enter(name, text); err != nil {
			return err
		}
	}
	return nil
}

// subfolder writes a folder. Git creates no empty folders.
func (c *checkout) subfolder(ctx context.Context, e entry, in *os.Root, full string, depth int) error {
	if err := in.Mkdir(e.name, 0o755); err != nil {
		return err
	}
	if err := in.Chmod(e.name, 0o755); err != nil {
		return err
	}
	folder, err := in.OpenRoot(e.name)
	if err != nil {
		return err
	}
	defer folder.Close()
	before := c.made
	if err := c.folder(ctx, e.id, folder, full, depth+1); err != nil || c.made > before {
		return err
	}
	return in.Remove(e.name)
}

// link writes a link.
func (c *checkout) link(e entry, in *os.Root, full string) error {
	i, err := c.pack.get(e.id, plumbing.BlobObject)
	if err != nil {
		return err
	}
	target, err := c.pack.read(i, maxTarget)
	if err != nil {
		return fmt.Errorf("link %s: %w", full, err)
	}
	if len(target) == 0 || bytes.ContainsRune(target, 0) || !utf8.Valid(target) {
		return refuseFile("the link %s has the target %q, which is no path", full, target)
	}
	if c.targets += len(target) + len(full); c.targets > maxTargets {
		return refuseFile("its links have more than %d MiB", maxTargets>>20)
	}
	c.links[path.Join(c.at.name, full)] = string(target)
	c.made++
	return in.Symlink(string(target), e.name)
}

// file writes a file.
func (c *checkout) file(ctx context.Context, e entry, in *os.Root, full string) error {
	i, err := c.pack.get(e.id, plumbing.BlobObject)
	if err != nil {
		return err
	}
	c.made++
	size := c.pack.objects[i].size
	if err := c.grow(size); err != nil {
		return err
	}
	values, err := c.attributes.of(full, c.budget)
	if err != nil {
		return err
	}
	convert, err := newConversion(full, values)
	if err != nil {
		return err
	}
	if convert.filter == "lfs" && size < maxPointer && !c.options.AllowLFSPointers {
		text, err := c.pack.read(i, maxPointer)
		if err != nil {
			return err
		}
		if isPointer(text) {
			return refusePointer(full)
		}
	}
	mode := os.FileMode(0o644)
	if e.mode&executable != 0 {
		mode = 0o755
	}
	f, err := in.OpenFile(e.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err = f.Chmod(mode); err == nil {
		err = c.write(ctx, f, i, full, convert)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// write writes the content of a file.
func (c *checkout) write(ctx context.Context, to io.Writer, i int32, full string, convert conversion) error {
	o := c.pack.objects[i]
	if convert.isIdentity() {
		return c.pack.copy(i, contextWriter{ctx, to})
	}
	if convert.onlyText() {
		var s stats
		if err := c.pack.copy(i, &s); err != nil {
			return err
		}
		if !convert.changes(s) {
			return c.pack.copy(i, contextWriter{ctx, to})
		}
	}
	if o.size > maxConverted {
		return refuseFile("%s has %d bytes, and %s is applied to files of at most %d MiB", full, o.size, convert.name(), maxConverted>>20)
	}
	text, err := c.pack.read(i, maxConverted)
	if err != nil {
		return err
	}
	if err := c.budget.spend(8 * o.size); err != nil {
		return err
	}
	text, err = convert.apply(full, text, o.id.String())
	if err != nil {
		return err
	}
	if err := c.grow(int64(len(text)) - o.size); err != nil {
		return err
	}
	_, err = to.Write(text)
	return err
}

// grow counts the bytes of files.
func (c *checkout) grow(n int64) error {
	if c.written += n; c.written > c.limits.bytes {
		return refuseFile("its files have more than %d MiB", c.limits.bytes>>20)
	}
	if c.options.Meter != nil {
		return c.options.Meter.Unpacked(n)
	}
	return nil
}

// contextWriter is a writer that fails once its context ends.
type contextWriter struct {
	context.Context
	io.Writer
}

// Write implements [io.Writer].
func (w contextWriter) Write(p []byte) (int, error) {
	if err := context.Cause(w.Context); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// The limits on links that lead through other links.
const (
	maxHops    = 40       // as on Linux
	maxResults = 16 << 20 // bytes of all paths that links lead to
)

// checkLinks refuses links that leave the folder. A link can do so by way of other links. Links to nothing are allowed.
func checkLinks(links map[string]string, b *budget) error {
	r := resolver{links: links, to: map[string]result{}, budget: b}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if _, err := r.follow(name, 1); err != nil {
			return err
		}
	}
	return nil
}

// resolver follows links.
type resolver struct {
	links  map[string]string
	to     map[string]result // a result without a path while its link is followed
	size   int               // bytes of all paths in results
	budget *budget
}

// result is where a link leads.
type result struct {
	path string // without links, except for links that lead in a circle
	hops int    // the number of links on the way
}

// follow returns where a link leads. This is the link itself if it leads in a circle. depth is the number of links that are
// being followed.
func (r *resolver) follow(name string, depth int) (result, error) {
	if to, done := r.to[name]; done {
		if to.path == "" {
			return result{path: name}, nil
		}
		return to, nil
	}
	target := r.links[name]
	if path.IsAbs(target) {
		return result{}, refuseFile("the link %s leads to %.200q: a link must be relative, and stay in the repository", name, target)
	}
	r.to[name] = result{}
	at := result{path.Dir(name), 1}
	for part := range strings.SplitSeq(target, "/") {
		if err := r.budget.spend(int64(200 + len(at.path))); err != nil {
			return result{}, err
		}
		switch part {
		case "", ".":
			continue
		case "..":
			if at.path == "." {
				return result{}, refuseFile("the link %s leads to %.200q, which is outside the repository", name, target)
			}
			at.path = path.Dir(at.path)
			continue
		}
		at.path = path.Join(at.path, part)
		if _, isLink := r.links[at.path]; isLink && depth <= maxHops {
			next, err := r.follow(at.path, depth+1)
			if err != nil {
				return result{}, err
			}
			at.path, at.hops = next.path, at.hops+next.hops
		}
		switch {
		case depth > maxHops, at.hops > maxHops:
			return result{}, refuseFile("the link %s leads through more than %d links", name, maxHops)
		case len(at.path) > maxName:
			return result{}, refuseFile("the link %s leads to a path of more than %d bytes", name, maxName)
		}
	}
	if r.size += len(at.path); r.size > maxResults {
		return result{}, refuseFile("its links lead to paths of more than %d MiB", maxResults>>20)
	}
	r.to[name] = at
	return at, nil
}
