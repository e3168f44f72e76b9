// Package providerdoc packs and reads the documentation of a provider: the folder docs, as terraform-plugin-docs writes it.
//
//	index.md
//	resources/NAME.md, and likewise the folders in [Kinds]
//
// [Pack] makes a zip of the pages. The same pages give the same bytes, because the entries are sorted by name, have no time, and
// are stored without compression. [Read] reads such a zip.
//
// A zip can come from other parties. Its bytes must be verified beforehand, because the pages are as trustworthy as they are. Read
// accepts what Pack writes, and nothing else: a zip that exceeds a limit is refused. It unpacks nothing to the disk.
package providerdoc

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"strings"
)

const (
	// MaxZip is the maximum size of a zip in bytes, because it is read into memory.
	MaxZip = 16 << 20
	// MaxPages is the maximum number of pages.
	MaxPages = 5000
	// MaxPage is the maximum size of a page in bytes.
	MaxPage = 1 << 20
	maxName = 128      // the maximum length of the name of a page in bytes
	maxHead = 16 << 10 // the maximum size of the front matter in bytes
	maxText = 200      // the maximum number of characters in a title or a subcategory
)

var (
	// ErrFolder means that a folder cannot be packed.
	ErrFolder = errors.New("not the documentation of a provider")
	// ErrZip means that a zip is too large, or is not a zip that [Pack] can have written.
	ErrZip = errors.New("no zip of documentation")
)

// Kind is a kind of pages: the name of their folder.
type Kind string

// The kinds of pages, in the order in which they are listed.
const (
	Overview  Kind = "" // the page index.md
	Guide     Kind = "guides"
	Resource  Kind = "resources"
	Data      Kind = "data-sources"
	Ephemeral Kind = "ephemeral-resources"
	List      Kind = "list-resources"
	Action    Kind = "actions"
	Function  Kind = "functions"
)

// Kinds are the kinds of pages that have a folder, in the order in which they are listed.
var Kinds = []Kind{Guide, Resource, Data, Ephemeral, List, Action, Function}

// Docs are the pages of a provider, without their texts.
type Docs struct {
	Pages []Page // by kind, then by subcategory, then by name
}

// Page describes a page.
type Page struct {
	Path        string // such as resources/NAME; "index" for the overview
	Kind        Kind
	Name        string // the name of the file without .md
	Title       string // for people; never ""
	Subcategory string // may be ""
}

// Page returns the page with the given path, or nil.
func (d *Docs) Page(at string) *Page {
	i := slices.IndexFunc(d.Pages, func(p Page) bool { return p.Path == at })
	if i < 0 {
		return nil
	}
	return &d.Pages[i]
}

// Size is roughly the memory that the docs take, in bytes.
func (d *Docs) Size() int64 {
	n := int64(64)
	for _, p := range d.Pages {
		n += 128 + int64(len(p.Path)+len(p.Name)+len(p.Title)+len(p.Subcategory))
	}
	return n
}

// file is the source of a page.
type file struct {
	path string // without .md
	data []byte
}

// write returns the zip of files. Their paths are sorted.
func write(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{
			Name: f.path + ".md", Method: zip.Store, CRC32: crc32.ChecksumIEEE(f.data),
			CompressedSize64: uint64(len(f.data)), UncompressedSize64: uint64(len(f.data)),
			ReaderVersion: 20,
		}
		to, err := w.CreateRaw(h)
		if err != nil {
			return nil, err
		}
		to.Write(f.data) // a bytes.Buffer never fails
	}
	err := w.Close()
	return out.Bytes(), err
}

// Read returns the pages in a zip. The error wraps [ErrZip], unless ctx has ended.
func Read(ctx context.Context, data []byte) (*Docs, error) {
	files, err := entries(data)
	if err != nil {
		return nil, err
	}
	d := &Docs{}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		text, err := contents(f)
		if err != nil {
			return nil, err
		}
		kind, name, _ := split(strings.TrimSuffix(f.Name, ".md"))
		d.Pages = append(d.Pages, describe(kind, name, text))
	}
	slices.SortStableFunc(d.Pages, func(a, b Page) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(a.Subcategory, b.Subcategory), cmp.Compare(a.Name, b.Name))
	})
	return d, nil
}

// Text returns the Markdown of the page at a path, without its front matter and its first heading. Callouts of the registries,
// such as -> and ~>, become quotes. The error wraps [ErrZip].
func Text(data []byte, at string) ([]byte, error) {
	files, err := entries(data)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Name == at+".md" {
			text, err := contents(f)
			if err != nil {
				return nil, err
			}
			_, body := cutHead(text)
			_, body = cutHeading(body)
			return callouts(body), nil
		}
	}
	return nil, fmt.Errorf("%w: it has no page %.200q", ErrZip, at)
}

// entries returns the entries of a zip, after their names and sizes are checked.
func entries(data []byte) ([]*zip.File, error) {
	if len(data) > MaxZip {
		return nil, fmt.Errorf("%w: it has %d bytes, and the maximum is %d", ErrZip, len(data), MaxZip)
	}
	// Each entry has such a signature. zip.NewReader would allocate memory for all of them.
	if n := bytes.Count(data, []byte("PK\x01\x02")); n > MaxPages {
		return nil, fmt.Errorf("%w: it has %d entries, and the maximum is %d", ErrZip, n, MaxPages)
	}
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrZip, err)
	}
	if len(r.File) == 0 || len(r.File) > MaxPages {
		return nil, fmt.Errorf("%w: it has %d entries, want 1 to %d", ErrZip, len(r.File), MaxPages)
	}
	total, last := uint64(0), ""
	for _, f := range r.File {
		at, markdown := strings.CutSuffix(f.Name, ".md")
		_, _, ok := split(at)
		total += f.UncompressedSize64
		switch {
		case !markdown || !ok:
			return nil, fmt.Errorf("%w: it has the entry %.200q", ErrZip, f.Name)
		case f.Name <= last:
			return nil, fmt.Errorf("%w: the entry %.200q is not in its place", ErrZip, f.Name)
		case f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 || f.UncompressedSize64 > MaxPage:
			return nil, fmt.Errorf("%w: the entry %.200q is compressed, or has more than %d bytes", ErrZip, f.Name, MaxPage)
		case total > MaxZip:
			return nil, fmt.Errorf("%w: its entries overlap", ErrZip)
		}
		last = f.Name
	}
	return r.File, nil
}

// contents returns the text of an entry.
func contents(f *zip.File) ([]byte, error) {
	body, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrZip, f.Name, err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, MaxPage+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrZip, f.Name, err)
	}
	return text, nil
}

// split returns the kind and the name of the page at a path. ok is false if there can be no such page.
func split(at string) (kind Kind, name string, ok bool) {
	if at == "index" {
		return Overview, at, true
	}
	dir, name := path.Split(at)
	kind = Kind(strings.TrimSuffix(dir, "/"))
	return kind, name, slices.Contains(Kinds, kind) && isName(name)
}

// isName reports whether a page can have a name. All such names can be in URLs.
func isName(name string) bool {
	return name != "" && len(name) <= maxName && name[0] != '.' && !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}
