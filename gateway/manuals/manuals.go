// Package manuals reads what stored modules say about themselves, README, inputs and outputs, and the documentation that is stored
// with providers. It keeps the results in memory.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// Invariants:
//
//   - Only verified bytes are read: the digest of the whole zip is checked first.
//   - A zip is read once for each digest, however many clients wait, as long as the result is in memory.
//   - The memory is bounded: one zip is read at a time, and the results have [Options].MaxBytes.
//   - A failure of the registry is an error, and never a module without inputs or a provider without pages.
package manuals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/markdown"
	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
)

// ErrUnreadable means that a verified zip cannot be read: it is too large, or no zip. The error also wraps the reason.
var ErrUnreadable = errors.New("its documentation cannot be read")

// Options configure a [Reader].
type Options struct {
	Cache *archives.Cache // if nil, zips are read from the registry
	Log   *slog.Logger    // if nil, nothing is logged
	// MaxBytes limits the memory of the results; 0 means 8 MiB.
	MaxBytes int64
}

// readWithin is the maximum time to read a zip.
const readWithin = 30 * time.Second

// Reader reads manuals. It is safe for concurrent use.
type Reader struct {
	archives *archives.Handler
	answers  *fresh.Cache[question, result]
	reading  chan struct{} // holds an element while a zip is in memory
}

// question is what is to be read. Equal names have equal results.
type question struct {
	name string
	read func(context.Context) (value any, size int64, err error)
}

// result is what was read.
type result struct {
	value any
	size  int64 // roughly the memory of the value, in bytes
}

// New returns a reader. The caller must close it.
func New(o Options) *Reader {
	limits := archives.Limits{Start: readWithin, RegistryStall: readWithin, Resumes: 2}
	r := &Reader{archives: archives.New(archives.Options{Cache: o.Cache, Log: o.Log, Limits: limits}), reading: make(chan struct{}, 1)}
	r.answers = fresh.New(fresh.Options[question, result]{
		Key: func(q question) string { return q.name },
		Fetch: func(ctx context.Context, q question, _ *fresh.Answer[result]) (fresh.Answer[result], error) {
			value, size, err := q.read(ctx)
			if err != nil && !errors.Is(err, ErrUnreadable) {
				return fresh.Answer[result]{}, err
			}
			return fresh.Answer[result]{Value: result{value, size}, Err: err, TTL: fresh.Forever}, nil // the same bytes give the same result
		},
		Size:       func(_ question, v result, _ error) int64 { return 512 + v.size },
		Timeout:    2 * readWithin, // it can have to wait for another zip
		MaxBytes:   cmp.Or(o.MaxBytes, 8<<20),
		MaxFlights: 64,
		Log:        o.Log,
	})
	return r
}

// Close stops reading.
func (r *Reader) Close() error { return r.answers.Close() }

// get returns the value of a question.
func (r *Reader) get(ctx context.Context, q question) (any, error) {
	a, err := r.answers.Get(ctx, q)
	if err != nil && ctx.Err() == nil {
		// The cache would keep this question's read, which is of one repository. The same bytes can be in another one.
		r.answers.Drop(func(other question) bool { return other.name == q.name }, nil)
	}
	if err == nil {
		err = a.Err
	}
	if err != nil {
		return nil, err
	}
	return a.Value.value, nil
}

// zip calls f with the verified bytes of an archive, one archive at a time. most is the maximum size in bytes.
func (r *Reader) zip(ctx context.Context, a archives.Archive, most int64, f func([]byte) error) error {
	if a.Package.Size > most {
		return fmt.Errorf("%w: the zip has %d bytes, and at most %d are read", ErrUnreadable, a.Package.Size, most)
	}
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	data, err := r.archives.ReadAll(ctx, a)
	if err != nil {
		return err
	}
	return f(data)
}

// Module is the manual of a version of a module.
type Module struct {
	*moduledoc.Doc
	name string // of the question
}

// Module returns the manual of a version of a module. blob is the version's zip. The errors are [ErrUnreadable], those of
// package archives, and those of the registry.
func (r *Reader) Module(ctx context.Context, found *artifact.Version, blob archives.Blob) (*Module, error) {
	zip, folder := *found.Zip(), found.Provenance.Folder
	q := question{name: "module " + string(zip.Digest) + " " + folder}
	q.read = func(ctx context.Context) (value any, size int64, err error) {
		err = r.zip(ctx, archives.Archive{Package: zip, Blob: blob}, moduledoc.MaxZip, func(data []byte) error {
			doc, err := moduledoc.Read(ctx, data, folder)
			if errors.Is(err, moduledoc.ErrTooLarge) || errors.Is(err, moduledoc.ErrNotZip) {
				return fmt.Errorf("%w: %w", ErrUnreadable, err)
			}
			if err == nil {
				value, size = &Module{doc, q.name}, doc.Size()
			}
			return err
		})
		return value, size, err
	}
	value, err := r.get(ctx, q)
	if err != nil {
		return nil, err
	}
	return value.(*Module), nil
}

// Prefix is the beginning of the IDs in the HTML of manuals.
const Prefix = "doc-"

// topLevel is the level of the topmost heading in the HTML of manuals.
const topLevel = 3

// Readme returns the README of a part of a module as harmless HTML, with headings from level 3. Links to other parts become
// the query that link returns for their path. The error is [ErrUnreadable] if the README is too large for that.
func (r *Reader) Readme(ctx context.Context, m *Module, p *moduledoc.Part, link func(path string) string) (template.HTML, error) {
	q := question{name: "readme " + p.Path + " " + m.name}
	q.read = func(context.Context) (any, int64, error) {
		return render([]byte(p.Readme), func(to string) string {
			if at, ok := m.resolve(p.Path, to); ok {
				return link(at)
			}
			return ""
		})
	}
	value, err := r.get(ctx, q)
	if err != nil {
		return "", err
	}
	return value.(template.HTML), nil
}

// render returns the HTML of a text, and its size.
func render(text []byte, link func(string) string) (any, int64, error) {
	out, err := markdown.Render(text, markdown.Options{Prefix: Prefix, Level: topLevel, Link: link})
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return out, int64(len(out)), err
}
