package manuals

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"path"
	"regexp"
	"strings"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/registries/providerdoc"
	"github.com/ocibridge/ocibridge/provider"
)

// DocsSource is where the documentation of a version of a provider is stored.
type DocsSource struct {
	Provider provider.Address
	Version  provider.Version
	Store    artifact.Fetcher                         // fetches manifests
	Blob     func(zip artifact.Package) archives.Blob // opens the zip
}

// Docs is the documentation of a version of a provider.
type Docs struct {
	*providerdoc.Docs
	zip  artifact.Package
	name string // of the question
}

// Docs returns the documentation of a version, which must have some. The errors are like those of [Reader.Module].
func (r *Reader) Docs(ctx context.Context, found *artifact.Version, from DocsSource) (*Docs, error) {
	q := question{name: fmt.Sprintf("docs %s %s %s", from.Provider.Path(), from.Version, found.Docs.Digest)}
	q.read = func(ctx context.Context) (any, int64, error) {
		d, err := artifact.ReadDocs(ctx, from.Store, *found.Docs, from.Provider, from.Version)
		if artifact.IsInvalid(err) {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		if err != nil {
			return nil, 0, err
		}
		out := &Docs{name: q.name, zip: artifact.Package{Filename: "docs.zip", Digest: d.Zip.Digest, Size: d.Zip.Size}}
		err = r.docsZip(ctx, out, from, func(data []byte) (err error) {
			out.Docs, err = providerdoc.Read(ctx, data)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		return out, out.Size(), nil
	}
	value, err := r.get(ctx, q)
	if err != nil {
		return nil, err
	}
	return value.(*Docs), nil
}

// docsZip calls f with the verified bytes of a zip with documentation.
func (r *Reader) docsZip(ctx context.Context, d *Docs, from DocsSource, f func([]byte) error) error {
	err := r.zip(ctx, archives.Archive{Package: d.zip, Blob: from.Blob(d.zip)}, providerdoc.MaxZip, f)
	if errors.Is(err, providerdoc.ErrZip) {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}

// DocsPage returns a page of documentation as harmless HTML, with headings from level 3. Links to other pages become the query
// that link returns for their path. The error is [ErrUnreadable] if the page is too large for that.
func (r *Reader) DocsPage(ctx context.Context, d *Docs, p *providerdoc.Page, from DocsSource, link func(path string) string) (template.HTML, error) {
	q := question{name: "page " + p.Path + " " + d.name}
	q.read = func(ctx context.Context) (value any, size int64, err error) {
		err = r.docsZip(ctx, d, from, func(data []byte) error {
			text, err := providerdoc.Text(data, p.Path)
			if err != nil {
				return err
			}
			value, size, err = render(text, func(to string) string {
				at, fragment := d.resolve(p.Path, to)
				if at == "" {
					return ""
				}
				return link(at) + fragment
			})
			return err
		})
		return value, size, err
	}
	value, err := r.get(ctx, q)
	if err != nil {
		return "", err
	}
	return value.(template.HTML), nil
}

var anchor = regexp.MustCompile(`^[a-z0-9_-]+$`)

// resolve returns the path of the page to which a link in another page goes, or "", and the fragment in the HTML of that page, or
// "". Links may leave out .md, as on the pages of the public registries, whose overview is at docs/.
func (d *Docs) resolve(from, to string) (at, fragment string) {
	to, fragment, _ = strings.Cut(to, "#")
	to, _, _ = strings.Cut(to, "?")
	if to == "" || strings.HasPrefix(to, "/") {
		return "", ""
	}
	at = strings.TrimPrefix(path.Join("/", path.Dir(from), to), "/")
	if d.Page(at) == nil {
		at = strings.TrimSuffix(at, ".md")
	}
	if dir, rest, _ := strings.Cut(at, "/"); from == "index" && dir == "docs" {
		at = rest
	}
	if at == "" {
		at = "index"
	}
	if d.Page(at) == nil {
		return "", ""
	}
	if fragment = strings.ToLower(fragment); !anchor.MatchString(fragment) {
		return at, ""
	}
	return at, "#" + Prefix + fragment
}
