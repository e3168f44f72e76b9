package providerdoc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// maxEntries is the maximum number of entries that are read in a folder.
const maxEntries = 20_000

// otherLanguages is a folder of generated pages that repeat the others, with examples in the languages of CDKTF.
const otherLanguages = "cdktf"

const helpFolder = "name the folder docs as tfplugindocs generate writes it, with the page index and folders such as resources; nothing was stored"

// Pack returns the zip of the pages in a folder, and warnings for the user. It leaves out what is no page: files that do not
// end in .md, and folders that are not in [Kinds]. It does not warn of the folder cdktf. The error wraps [ErrFolder] if the contents of the folder are the reason.
func Pack(ctx context.Context, dir string) (zip []byte, warnings []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, hint.Wrap(fmt.Errorf("folder of the documentation: %w", err), helpFolder)
	}
	defer root.Close()
	p := &packer{root: root}
	if err := p.list(ctx); err != nil {
		return nil, nil, err
	}
	if zip, err = write(p.files); err != nil {
		return nil, nil, err
	}
	if _, err := Read(ctx, zip); err != nil { // what is stored can be read
		return nil, nil, p.refuse("%v", err)
	}
	if len(p.left) > 0 {
		slices.Sort(p.left)
		text := fmt.Sprintf("the documentation leaves out %.200q", p.left[0])
		if more := len(p.left) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		warnings = append(warnings, text+": only the page index, and the pages in "+kindNames()+", whose names end in .md, are shown")
	}
	return zip, warnings, nil
}

// packer collects the pages of a folder.
type packer struct {
	root  *os.Root
	files []file
	bytes int
	left  []string // what is no page
}

// list reads the pages.
func (p *packer) list(ctx context.Context) error {
	if err := p.folder(ctx, ""); err != nil {
		return err
	}
	for _, k := range Kinds {
		if err := p.folder(ctx, k); err != nil {
			return err
		}
	}
	if len(p.files) == 0 {
		return p.refuse("it has no pages")
	}
	slices.SortFunc(p.files, func(a, b file) int { return strings.Compare(a.path+".md", b.path+".md") })
	return nil
}

// folder reads the pages of one kind, or index.md.
func (p *packer) folder(ctx context.Context, kind Kind) error {
	entries, err := p.entries(kind)
	if errors.Is(err, fs.ErrNotExist) && kind != Overview {
		return nil
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("folder of the documentation: %w", err), helpFolder)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		at := strings.TrimPrefix(string(kind)+"/"+e.Name(), "/")
		name, markdown := strings.CutSuffix(at, ".md")
		_, _, ok := split(name)
		switch {
		case kind == Overview && (at == otherLanguages || slices.Contains(Kinds, Kind(at))):
		case !markdown || kind == Overview && !ok:
			p.left = append(p.left, at)
		case !ok:
			return p.refuse("%.200q has other characters than letters, digits, dots, dashes and underscores, or more than %d", at, maxName)
		default:
			if err := p.add(ctx, at, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// entries returns the entries of a folder.
func (p *packer) entries(kind Kind) ([]fs.DirEntry, error) {
	name := string(kind)
	if name == "" {
		name = "."
	}
	f, err := p.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries + 1)
	switch {
	case len(entries) > maxEntries:
		return nil, p.refuse("%s has more than %d entries", name, maxEntries)
	case len(entries) == 0: // ReadDir then returns io.EOF
		return nil, nil
	}
	return entries, err
}

// add reads one page.
func (p *packer) add(ctx context.Context, at, path string) error {
	if info, err := p.root.Lstat(at); err == nil && !info.Mode().IsRegular() {
		return p.refuse("%s is not a regular file", at)
	}
	f, size, err := files.OpenRegular(p.root, at)
	if err != nil {
		return hint.Wrap(fmt.Errorf("folder of the documentation: %w", err), helpFolder)
	}
	defer f.Close()
	if size > MaxPage {
		return p.refuse("%s has %d bytes, and the maximum of a page is %d", at, size, MaxPage)
	}
	data, err := document.ReadAll(files.ContextReader{Context: ctx, Reader: f}, MaxPage)
	if err != nil {
		return p.refuse("%s: %v", at, err)
	}
	p.files = append(p.files, file{path, data})
	// Each entry has two headers, with its name.
	if p.bytes += len(data) + 2*len(at) + 128; p.bytes > MaxZip {
		return p.refuse("its pages have more than %d bytes", MaxZip)
	}
	if len(p.files) > MaxPages {
		return p.refuse("it has more than %d pages", MaxPages)
	}
	return nil
}

// refuse returns an error that wraps [ErrFolder], with a hint.
func (p *packer) refuse(format string, args ...any) error {
	return hint.Wrap(fmt.Errorf("%s: %w: %s", p.root.Name(), ErrFolder, fmt.Sprintf(format, args...)), helpFolder)
}

func kindNames() string {
	var names []string
	for _, k := range Kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}
