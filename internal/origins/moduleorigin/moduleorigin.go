// Package moduleorigin fetches the versions of modules from where a module registry says that they are. The result is a
// folder with the files that clients would get.
//
// A registry answers with a location in the syntax of go-getter, the library of the clients. [ParseLocation] reads the two
// kinds of locations that public registries use: Git repositories over https, and archives (tar.gz and zip) over https. It
// refuses every other kind, and says so. A location can contain a token: [Location.String] omits it, and no error contains
// it.
//
// A location can name a folder of the package. The whole package is fetched, because a module may call a module next to its
// own folder. [Origin.Fetch] checks that the folder exists.
//
// Everything that an origin sends is bounded: the bytes of an archive, the number, the names and the bytes of its files,
// and how far it expands. Archives are unpacked as go-getter does it, except for entries that could leave the folder, or
// that not every client can unpack: these are errors.
package moduleorigin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// Origin fetches modules. It is safe for concurrent use.
type Origin struct {
	Registry *origin.Registry // sends all requests
	// AllowLFSPointers writes pointers of Git LFS, as clients without git-lfs do. Otherwise, a pointer is an error.
	AllowLFSPointers bool
	// References, if it is not nil, lets Resolve use lists of references again that it has read.
	References *References
	// Warn, if it is not nil, is called with what users should know about the files that Fetch has written.
	Warn func(string)
	// Temp is the folder for temporary files; "" means the system's.
	Temp string
	// Meter counts the bytes of Fetch. It may be nil.
	Meter gitfiles.Meter
}

var (
	// ErrNoFolder means that a package lacks the folder that its location names.
	ErrNoFolder = errors.New("the package lacks the folder that its location names")
	// ErrTwins means that the tags 1.2.3 and v1.2.3 name different commits.
	ErrTwins = errors.New("two tags for one version name different commits")
)

// CheckSystem returns an error if public modules cannot be fetched on an operating system, which is a value of runtime.GOOS.
// Files on Windows have no executable bit, so the stored module would differ from that of other machines.
func CheckSystem(goos string) error {
	if goos != "windows" {
		return nil
	}
	return hint.New("public modules cannot be fetched on Windows, which does not keep the executable bit of their files",
		"run ocibridge module push on Linux, on macOS or in WSL: every machine then stores the same version")
}

// Locate returns the location of a version. spelling is the version, or the form in which the origin lists it.
func (o *Origin) Locate(ctx context.Context, a module.Address, spelling string) (Location, error) {
	raw, err := o.Registry.ModuleLocation(ctx, a, spelling)
	if err != nil {
		return Location{}, err
	}
	l, err := ParseLocation(raw)
	l.registry = &url.URL{Scheme: "https", Host: a.Hostname()}
	if err == nil {
		err = o.Registry.CheckReference(l.registry, l.url)
	}
	if err != nil {
		return Location{}, fmt.Errorf("%s %s: %w", a, spelling, err)
	}
	return l, nil
}

// Resolve returns the commit at a location in a Git repository, without its tree. It reads only the list of references. The
// result is zero if the list does not tell: for an abbreviated commit, and for an archive. The error wraps [ErrTwins] if the
// reference is a version whose twin, with or without a leading v, names another commit.
func (o *Origin) Resolve(ctx context.Context, l Location) (gitfiles.Commit, error) {
	if !l.Git || shortCommit.MatchString(l.Ref) {
		return gitfiles.Commit{}, nil
	}
	refs, err := o.references(ctx, l)
	if err != nil {
		return gitfiles.Commit{}, fmt.Errorf("%s: %w", l, err)
	}
	commit, err := refs.Resolve(l.Ref, l.Depth)
	if err != nil {
		return gitfiles.Commit{}, fmt.Errorf("%s: %w", l, err)
	}
	if name := twin(l.Ref); name != "" {
		if other, err := refs.Resolve(name, l.Depth); err == nil && other.Commit != commit.Commit {
			return gitfiles.Commit{}, TwinError(l, l.Ref, commit.Commit, name, other.Commit)
		}
	}
	return commit, nil
}

// references returns the references of a repository.
func (o *Origin) references(ctx context.Context, l Location) (*gitfiles.Refs, error) {
	repository := l.url.String()
	return o.References.of(ctx, repository, func(ctx context.Context) (*gitfiles.Refs, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, resolveTimeout, errSlow)
		defer cancel()
		return gitfiles.List(ctx, o.git(l), repository)
	})
}

// Pins reports whether a location names a commit by its ID or by the first seven digits or more, so that it cannot lead to
// another commit later.
func (l Location) Pins(commit string) bool {
	return l.Git && len(l.Ref) >= 7 && strings.HasPrefix(commit, strings.ToLower(l.Ref))
}

// TwinError returns an error that wraps [ErrTwins], and names two tags and what they name.
func TwinError(l Location, tag, commit, other, otherCommit string) error {
	return hint.Wrap(fmt.Errorf("%s: %w: %s names %s, and %s names %s", l, ErrTwins, tag, commit, other, otherCommit),
		"nothing was stored, because nobody can tell which of them the version is: ask the publisher of the module to delete one. ocibridge module push --force stores what clients get today")
}

const (
	resolveTimeout = 60 * time.Second // for a list of references, like other lists of an origin
	fetchTimeout   = 30 * time.Minute // for one Fetch
)

// errSlow means that a server needs more time than it has.
var errSlow = hint.New("the server takes too long", "is it overloaded? Try again later")

// shortCommit matches names that can be abbreviated commits.
var shortCommit = regexp.MustCompile(`^[0-9a-fA-F]{4,39}$`)

// twin returns the other tag that can name the version of a tag: 1.2.3 for v1.2.3, and the reverse. It keeps refs/tags/ and
// tags/ before the tag. It returns "" for a reference that is no version.
func twin(ref string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(ref, "refs/"), "tags/")
	bare, hasV := strings.CutPrefix(name, "v")
	if _, err := provider.ParseVersion(bare); err != nil {
		return ""
	}
	before := strings.TrimSuffix(ref, name)
	if hasV {
		return before + bare
	}
	return before + "v" + bare
}

// Fetch writes the files at a location into an empty folder. Links of a Git repository stay links. Of the files' modes, only
// the owner's bits are meaningful. The commit is zero for an archive.
func (o *Origin) Fetch(ctx context.Context, l Location, dir string) (commit gitfiles.Commit, err error) {
	if !l.Git {
		_, err := o.FetchArchive(ctx, l, dir, "")
		return gitfiles.Commit{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, errSlow)
	defer cancel()
	commit, err = gitfiles.Fetch(ctx, o.git(l), gitfiles.Request{URL: l.url.String(), Ref: l.Ref, Depth: l.Depth}, dir)
	if err == nil {
		err = checkFolder(dir, l.Folder)
	}
	if err != nil {
		return gitfiles.Commit{}, fmt.Errorf("%s: %w", l, err)
	}
	return commit, nil
}

// Probe finds out whether a location can be reached. It reads the list of references of a Git repository, as [Origin.Resolve]
// does, or the beginning of an archive.
func (o *Origin) Probe(ctx context.Context, l Location) (gitfiles.Commit, error) {
	if l.Git {
		return o.Resolve(ctx, l)
	}
	body, err := o.Registry.Archive(ctx, l.url, "")
	if err == nil {
		_, err = io.ReadFull(body, make([]byte, 1))
		body.Close()
	}
	if err != nil {
		return gitfiles.Commit{}, fmt.Errorf("%s: %w", l, err)
	}
	return gitfiles.Commit{}, nil
}

// FetchArchive is like [Origin.Fetch], for a location that is not in a Git repository. It returns the ETag of the archive, or ""
// if the server sends none. known is such an ETag, or "". If the server says that the archive still has it, nothing is written,
// and the error wraps [origin.ErrNotModified].
func (o *Origin) FetchArchive(ctx context.Context, l Location, dir, known string) (etag string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, errSlow)
	defer cancel()
	if etag, err = o.fetchArchive(ctx, l, dir, known); err == nil {
		err = checkFolder(dir, l.Folder)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", l, err)
	}
	return etag, nil
}

// git returns the options of requests to Git servers. They have the logins of the .netrc file, as those of clients, which use
// the program git.
func (o *Origin) git(l Location) gitfiles.Options {
	login := func(host string) (user, password string) {
		of, err := o.Registry.Login(&url.URL{Scheme: "https", Host: host})
		if err != nil || of == nil { // without a login, the server says what is missing
			return "", ""
		}
		password, _ = of.Password()
		return of.Username(), password
	}
	// A submodule may lead to this machine only if the registry and the repository may.
	check := func(from, to *url.URL) error {
		if l.registry != nil {
			if err := o.Registry.CheckReference(l.registry, to); err != nil {
				return err
			}
		}
		return o.Registry.CheckReference(from, to)
	}
	return gitfiles.Options{HTTP: o.Registry.HTTP(), Login: login, Check: check, AllowLFSPointers: o.AllowLFSPointers, Temp: o.Temp, Meter: o.Meter}
}

// checkFolder returns [ErrNoFolder] if a package lacks a folder.
func checkFolder(dir, folder string) error {
	if folder == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Stat(folder); err != nil || !info.IsDir() {
		return hint.Wrap(fmt.Errorf("%w: %q", ErrNoFolder, folder),
			"clients cannot install this version either, because they look for a folder of exactly this name: ask the operator of the registry")
	}
	return nil
}
