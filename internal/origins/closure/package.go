package closure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// The limits of one package.
const (
	maxFiles  = 20_000   // configuration files
	maxBytes  = 32 << 20 // of all configuration files together
	maxParsed = 400_000  // tokens of all configuration files together; see [calls.File]
	maxKept   = 1 << 20  // bytes of the texts of all declarations together
)

// Package is what the configuration files of one version declare, by their folders.
type Package struct {
	root    string                   // the folder of the module, with slashes; "." is the root of the package
	folders map[string]*calls.Folder // those with configuration files
	kept    int                      // an upper bound for the bytes of the texts of all declarations
}

// Read reads the configuration files of a package: the files that clients get, such as those of a stored zip. root is the
// folder of the module in the package; "" is the package itself.
func Read(ctx context.Context, fsys fs.FS, root string) (*Package, error) {
	p := &Package{root: path.Clean(root), folders: map[string]*calls.Folder{}}
	byFolder := map[string][]*calls.File{}
	files, size, parsed := 0, 0, 0
	var src bytes.Buffer // nothing that is read from a file refers to it
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || d.IsDir() || !calls.IsFile(name) {
			return err
		}
		if err := readFile(&src, fsys, name); err != nil {
			return err
		}
		files, size = files+1, size+src.Len()
		if files > maxFiles || size > maxBytes {
			return tooLarge("it has more than %d configuration files, or more than %d MiB of them", maxFiles, maxBytes>>20)
		}
		f := calls.Read(name, src.Bytes())
		parsed, p.kept = parsed+f.Parsed, p.kept+textOf(f)
		if parsed > maxParsed || p.kept > maxKept {
			return tooLarge("its calls and requirements have more than %d words and signs, or more than %d KiB", maxParsed, maxKept>>10)
		}
		byFolder[path.Dir(name)] = append(byFolder[path.Dir(name)], f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for dir, files := range byFolder {
		p.folders[dir] = calls.Merge(files)
	}
	return p, nil
}

// ErrTooLarge means that a closure, or a package in it, exceeds a limit.
var ErrTooLarge = errors.New("the closure is too large")

func tooLarge(format string, args ...any) error {
	return hint.Wrap(fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...)), "push this module without --closure, and the modules that it calls by their addresses")
}

// readFile replaces the content of a buffer by that of a file. Of a file that is too large, it reads so much that [calls.Read]
// says so.
func readFile(to *bytes.Buffer, fsys fs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	to.Reset()
	_, err = to.ReadFrom(io.LimitReader(f, calls.MaxFile+1))
	return err
}

// textOf returns an upper bound for the size of declarations in bytes.
func textOf(f *calls.File) (n int) {
	const each = 100
	for _, c := range f.Calls {
		n += each + len(c.Name) + len(c.Source.Text) + len(c.Version.Text)
	}
	for _, r := range f.Required {
		n += each + len(r.Name) + len(r.Source.Text) + len(r.Version.Text)
	}
	return n + each*(len(f.Uses)+len(f.Skipped))
}

// submodules returns the folders directly below the folder modules of the module: other modules can call them.
func (p *Package) submodules() (out []string) {
	for dir := range p.folders {
		if path.Dir(dir) == path.Join(p.root, "modules") {
			out = append(out, dir)
		}
	}
	return out
}

// reach returns the folders that clients read if they read the given ones, and a problem for each call that leads nowhere. It
// leaves out the folders that are seen already, and adds the others to them.
func (p *Package) reach(seen map[string]bool, from ...string) (folders []string, problems []localProblem) {
	queue := from
	for len(queue) > 0 {
		dir := queue[0]
		queue = queue[1:]
		f := p.folders[dir]
		if f == nil || seen[dir] {
			continue
		}
		seen[dir] = true
		folders = append(folders, dir)
		for _, c := range f.Calls {
			if !calls.IsLocal(c.Source.Text) {
				continue
			}
			to := path.Join(dir, c.Source.Text)
			switch {
			case to == ".." || strings.HasPrefix(to, "../"):
				problems = append(problems, localProblem{c, "it is outside the module's package"})
			case p.folders[to] == nil:
				problems = append(problems, localProblem{c, "the module's package has no .tf or .tofu file there"})
			default:
				queue = append(queue, to)
			}
		}
	}
	return folders, problems
}

// localProblem is a call of a folder that is not there.
type localProblem struct {
	call   calls.Call
	reason string
}
