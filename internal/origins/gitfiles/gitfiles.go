// Package gitfiles fetches one commit of a remote Git repository, and writes its files into a folder.
//
// The files are those that Git on Linux checks out for "terraform get" and "tofu get", if neither the system nor the user
// configures Git: names, contents, links, the executable bit, and submodules. Of the attributes in .gitattributes, text,
// crlf, eol, ident and working-tree-encoding change contents. The package applies them, or refuses the version and names the
// file and the attribute. Filters are not run. A pointer of Git LFS is refused, because a client with git-lfs gets another
// file. The folder has no .git.
//
// The files are those of a fresh checkout of the commit. Clients without a depth check out the default branch first, and then
// Git writes only the files whose blob differs in the wanted commit. So if the attributes of a file differ between the two
// commits, but its blob does not, a client keeps the content that the attributes of the default branch mean. The package does
// not detect this, because it would have to fetch the default branch as well.
//
// The remote repository and its files can be hostile. The package reads over HTTPS only, runs no program, writes nothing
// outside the folder, and follows no link. It keeps packs in temporary files, and limits their size, the number and size of
// files, and the work and memory that it spends on them. It refuses names and links that leave the folder, names that Git
// reserves, and names that differ only in case.
package gitfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

var (
	// ErrNoRepository means that a server has no Git repository at a URL, or hides it without a login.
	ErrNoRepository = errors.New("no Git repository")
	// ErrDenied means that a server wants a login, or refuses it. Some servers answer so if there is no repository.
	ErrDenied = errors.New("access denied")
	// ErrNoRef means that a repository has no tag, branch or commit of a name.
	ErrNoRef = errors.New("no such tag, branch or commit")
	// ErrRefused means that the content of a commit is the reason why its files are not written, or not all clients would
	// get the same files.
	ErrRefused = errors.New("refused")
)

// Options are the options of requests to Git servers.
type Options struct {
	// HTTP sends all requests. Its transport, which must not be nil, and its CheckRedirect decide which addresses and ports
	// are allowed.
	HTTP *http.Client
	// Login returns the login for a host. The host has a port unless it is 443. No login is sent if the user name and the
	// password are empty. Login may be nil. Each request gets the login of its own host, also after a redirect.
	Login func(host string) (user, password string)
	// Check returns an error if a repository may not name a submodule. from is the URL of the repository, and to is that of the
	// submodule, both without user and password. Fetch calls it before it sends a request for the submodule. Only Fetch needs
	// Check, which must not be nil.
	Check func(from, to *url.URL) error
	// AllowLFSPointers writes pointers of Git LFS, as clients without git-lfs do.
	AllowLFSPointers bool
	// Temp is the folder for temporary files; "" means the system's.
	Temp string
	// Meter counts the bytes of Fetch. It may be nil.
	Meter Meter
}

// Meter counts the bytes of a fetch, before they are on disk. An error ends the fetch, which returns it.
type Meter interface {
	// Received counts bytes that the server has sent.
	Received(n int64) error
	// Unpacked counts bytes of files.
	Unpacked(n int64) error
}

// metered is a writer that counts its bytes as received.
type metered struct {
	io.Writer
	meter  Meter
	failed error // of the meter
}

// Metered returns a writer to w that counts its bytes as received, and a function that returns the error of the meter. A nil
// meter counts nothing.
func Metered(w io.Writer, m Meter) (io.Writer, func() error) {
	if m == nil {
		return w, func() error { return nil }
	}
	out := &metered{Writer: w, meter: m}
	return out, func() error { return out.failed }
}

func (m *metered) Write(p []byte) (int, error) {
	if m.failed = m.meter.Received(int64(len(p))); m.failed != nil {
		return 0, m.failed
	}
	return m.Writer.Write(p)
}

// Request names a commit.
type Request struct {
	URL string // https; its user and password, if any, are sent to its host only
	Ref string // a tag, a branch, a full or abbreviated commit; "": what HEAD of the remote repository names
	// Depth is the number of commits that the client asks for (?depth=); 0 is all. It does not change the files. But with a
	// depth, clients prefer a branch to a tag of the same name, and find only tags and branches.
	Depth int
}

// Commit has the object IDs in hexadecimal.
type Commit struct {
	Commit    string
	Tree      string // "" if only references were read
	TagObject string // the annotated tag; "" for a lightweight tag, a branch and a commit
}

// limits are the limits on the cost of one Fetch, submodules included.
type limits struct {
	refs       int64 // bytes of all lists of references
	pack       int64 // bytes of packs
	objects    int64 // objects in one pack
	bytes      int64 // bytes of files
	entries    int   // files, links, folders and submodules
	submodules int
	constWork  int64 // see [budget]
	packWork   int64 // the work that each byte of a pack may cause
	rules      int64 // steps that match names against patterns in .gitattributes
}

var standard = limits{
	refs:       12 << 20,
	pack:       2 << 30,
	objects:    400_000,
	bytes:      2 << 30, // the size and the names of files are limited as in package modulezip
	entries:    25_000,  // fewer than there, because each needs memory
	submodules: 100,
	constWork:  256 << 20,
	packWork:   400,
	rules:      50_000_000,
}

const (
	maxName       = 1024 // bytes of a path
	maxDepth      = 100  // folders that contain each other
	maxSubmodules = 10   // submodules that contain each other
)

// Fetch writes the files of a commit into a new or empty folder. Their modes are 0644 and 0755. After an error, the folder
// can contain some files. Errors wrap [ErrNoRepository], [ErrDenied], [ErrNoRef] or [ErrRefused] if these are the reason.
func Fetch(ctx context.Context, o Options, r Request, dir string) (Commit, error) {
	return fetch(ctx, o, standard, r, dir)
}

func fetch(ctx context.Context, o Options, l limits, r Request, dir string) (Commit, error) {
	if o.Check == nil {
		return Commit{}, errors.New("gitfiles: Options.Check is nil")
	}
	root, err := files.MakeRoot(dir)
	if err != nil {
		return Commit{}, err
	}
	defer root.Close()
	f := &fetcher{options: o, limits: l, budget: &budget{work: l.constWork, rules: l.rules}, links: map[string]string{}}
	commit, err := f.repository(ctx, r, place{folder: root})
	if err == nil {
		err = checkLinks(f.links, f.budget)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return Commit{}, fmt.Errorf("fetch %s: %w", display(r.URL), err)
	}
	return commit, nil
}

// Resolve returns the commit that a request names, without its tree. It reads only the references of the repository. So an
// abbreviated commit is an error, and whether a full commit exists is not checked.
func Resolve(ctx context.Context, o Options, r Request) (Commit, error) {
	refs, err := List(ctx, o, r.URL)
	if err != nil {
		return Commit{}, err
	}
	return refs.Resolve(r.Ref, r.Depth)
}

// fetcher writes a repository and its submodules.
type fetcher struct {
	options Options
	limits  limits
	budget  *budget

	lists      int64 // bytes of lists of references
	packs      int64 // bytes
	written    int64 // bytes
	entries    int
	made       int               // files, links and submodules
	links      map[string]string // the targets, by path
	targets    int               // bytes of links
	submodules int
}

// place is where the files of a repository go.
type place struct {
	folder *os.Root
	name   string // the path of the folder, with slashes; "" for the repository itself
	depth  int    // the number of folders that contain it
	level  int    // the number of repositories that contain it
}

// repository writes one repository with its submodules.
func (f *fetcher) repository(ctx context.Context, r Request, at place) (Commit, error) {
	// 1. Find the commit.
	remote, err := connect(ctx, f.options, f.limits.refs-f.lists, r.URL)
	if err != nil {
		return Commit{}, err
	}
	f.lists += remote.listed
	if err := f.budget.spend(listWork * remote.listed); err != nil {
		return Commit{}, err
	}
	wanted, err := remote.refs.choose(r.Ref, r.Depth)
	if err != nil {
		return Commit{}, err
	}
	from := remote.url
	// 2. Fetch its objects.
	p, id, err := f.objects(ctx, remote, wanted)
	if err != nil {
		return Commit{}, err
	}
	defer p.close()
	commit, err := p.commit(id)
	if err != nil {
		return Commit{}, err
	}
	// 3. Write its files.
	out := checkout{fetcher: f, pack: p, at: at}
	if err := out.files(ctx, commit.Tree); err != nil {
		return Commit{}, err
	}
	p.close()
	// 4. Write its submodules. The objects and references of this repository are no longer in memory.
	for _, s := range out.submodules {
		if err := f.submodule(ctx, from, s, at); err != nil {
			return Commit{}, err
		}
	}
	return commit, nil
}

// refuse returns an error that wraps [ErrRefused].
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// refuseFile returns an error about a file that wraps [ErrRefused], with the hint for a file that clients do not need.
func refuseFile(format string, args ...any) error {
	return hint.Wrap(refuse(format, args...), "ask the authors of the module to change it, or push a corrected copy of the folder")
}

const helpHistory = "name a tag, a branch or a full commit, so that its history is not needed; or push a folder that has the files"

// budget limits the work that a server causes. One unit of work is about what hashing a byte costs.
type budget struct {
	work  int64
	rules int64
}

func (b *budget) spend(work int64) error {
	if work < 0 || work > b.work {
		b.work = 0
		return hint.Wrap(refuse("its objects cost too much work for their size"), helpHistory)
	}
	b.work -= work
	return nil
}

func (b *budget) match(steps int64) error {
	if b.rules -= steps; b.rules < 0 {
		return refuseFile("the patterns in its .gitattributes cost too much work")
	}
	return nil
}
