package modulezip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// entry is a file of the module.
type entry struct {
	name       string // relative to the folder, with slashes
	refused    error  // the reason why the file cannot be packed; nil: it can
	executable bool   // its owner may execute it
	linked     bool   // the name leads through a link
}

// list returns the files of a folder that the rules do not exclude, sorted by name. It follows links inside the folder. If
// whole is set, it includes private files, too.
func list(ctx context.Context, root *os.Root, rules *ignoreRules, whole bool) ([]entry, error) {
	l := lister{ctx: ctx, root: root, rules: rules, whole: whole}
	if err := l.folder(".", nil, false); err != nil {
		return nil, err
	}
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return l.entries, nil
}

// lister lists the files of a folder.
type lister struct {
	ctx     context.Context
	root    *os.Root
	rules   *ignoreRules
	whole   bool
	seen    int // files and folders
	entries []entry
}

// folder lists a folder. above are the folders that contain it. linked reports whether its name leads through a link.
func (l *lister) folder(name string, above []fs.FileInfo, linked bool) error {
	self, names, err := l.read(name)
	if err != nil {
		return readError(err, "exclude it by a rule in .terraformignore that ends with a slash")
	}
	if slices.ContainsFunc(above, func(dir fs.FileInfo) bool { return os.SameFile(dir, self) }) {
		return l.refuse(name, "replace the link by the files that the module needs", "%s is a link to a folder that contains the link", name)
	}
	if l.seen += len(names); l.seen > maxEntries {
		return refuse("exclude folders by rules in .terraformignore that end with a slash, or push from a clean checkout", "it has more than %d files and folders", maxEntries)
	}
	for _, n := range names {
		if !l.whole && isPrivate(n.Name()) {
			continue
		}
		if err := context.Cause(l.ctx); err != nil {
			return err
		}
		if err := l.add(path.Join(name, n.Name()), n, append(above, self), linked); err != nil {
			return err
		}
	}
	return nil
}

// isPrivate reports whether a file or folder is never part of a module. It may contain credentials.
func isPrivate(name string) bool { return name == ".git" || name == ".terraform" }

// isPrivateLink reports whether a link leads to private files of the module's folder.
func (l *lister) isPrivateLink(name string) bool {
	base, err := filepath.EvalSymlinks(l.root.Name())
	to, toErr := filepath.EvalSymlinks(filepath.Join(base, filepath.FromSlash(name)))
	inside, relErr := filepath.Rel(base, to)
	return errors.Join(err, toErr, relErr) != nil || slices.ContainsFunc(strings.Split(filepath.ToSlash(inside), "/"), isPrivate)
}

// read returns a folder's own FileInfo and its entries: at most one more than [maxEntries] allows. It closes the folder
// before it returns, because a deep tree would otherwise need too many open files.
func (l *lister) read(name string) (fs.FileInfo, []fs.DirEntry, error) {
	f, err := l.root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	self, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	names, err := f.ReadDir(maxEntries + 1 - l.seen)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return self, names, err
}

// add lists a file, a folder or a link. linked reports whether the folder's name leads through a link.
func (l *lister) add(name string, of fs.DirEntry, above []fs.FileInfo, linked bool) error {
	kind := of.Type()
	if len(name) > maxName {
		return l.refuse(name, "shorten the names of the folders, or name one of them in .terraformignore", "%.80s... has a path of more than %d bytes", name, maxName)
	}
	var info fs.FileInfo
	var err error
	if kind&fs.ModeSymlink != 0 {
		linked = true
		info, err = l.root.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return l.refuse(name, "remove the link, or name it in .terraformignore", "%s is a link to a file that does not exist", name)
		case err != nil:
			return l.refuse(name, "copy the file into the folder in place of the link, or name the link in .terraformignore; a link inside the folder must be relative",
				"%s is a link that leaves the folder, or cannot be followed: %v", name, err)
		case !l.whole && l.isPrivateLink(name):
			return l.refuse(name, "remove the link, or name it in .terraformignore", "%s is a link into .git or .terraform, which are not part of a module", name)
		}
		kind = info.Mode().Type()
	}
	switch {
	case kind.IsDir():
		if skipped, err := l.rules.skips(l.ctx, name); skipped || err != nil {
			return err
		}
		return l.folder(name, above, linked)
	case kind.IsRegular():
		if info == nil {
			if info, err = of.Info(); err != nil {
				return readError(err, "name it in .terraformignore")
			}
		}
		return l.include(entry{name: name, executable: info.Mode()&0o100 != 0, linked: linked})
	}
	return l.refuse(name, "remove it, or name it in .terraformignore", "%s is neither a file, a folder nor a link (%v)", name, kind)
}

// refuse lists a file that cannot be packed. It is no error if .terraformignore excludes it.
func (l *lister) refuse(name, help, format string, args ...any) error {
	return l.include(entry{name: name, refused: refuse(help, format, args...)})
}

// include lists a file unless the rules exclude it.
func (l *lister) include(e entry) error {
	excluded, err := l.rules.excludes(l.ctx, e.name)
	if !excluded && err == nil {
		l.entries = append(l.entries, e)
	}
	return err
}

// readError returns the error about a file or folder that cannot be read. The parameter instead says what the user can
// do if the file stays unreadable.
func readError(err error, instead string) error {
	err = fmt.Errorf("read the module: %w", err)
	if errors.Is(err, fs.ErrPermission) {
		return hint.Wrap(err, "let this user read it, or %s", instead)
	}
	return err
}
