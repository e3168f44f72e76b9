package moduleorigin

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
	"github.com/ocibridge/ocibridge/provider"
)

// ErrArchive means that an archive cannot be unpacked, or is not the one that its location announces.
var ErrArchive = errors.New("the archive is refused")

const (
	maxArchive = 512 << 20 // the maximum size of an archive in bytes
	// An archive of n bytes may unpack to expandBase + n * expandRate bytes, its headers included, and to maxUnpacked at
	// most. Real ones have a rate of less than 30.
	expandBase, expandRate = 64 << 20, 100
	maxUnpacked            = 2 << 30
	// maxDirectory is the maximum size of a zip's directory in bytes. In memory, it needs more than that.
	maxDirectory = 6 << 20
	// headersTwice is more than the number of entries that are read twice, because the end of a directory is searched in the
	// last 65 KiB of a zip.
	headersTwice = 2000
)

// fetchArchive downloads an archive and unpacks it into a folder. It returns the archive's ETag; see [Origin.FetchArchive].
func (o *Origin) fetchArchive(ctx context.Context, l Location, dir, known string) (etag string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	// 1. Download it into a temporary file, and compare its checksum.
	spool, err := fill.NewTemp(o.Temp, "ocibridge-*.archive")
	if err != nil {
		return "", hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
	}
	defer spool.Close()
	size, etag, err := o.download(ctx, l, known, spool)
	if err != nil {
		return "", err
	}
	// 2. Unpack it.
	t := newTree(root, size)
	t.meter = o.Meter
	unpack := map[string]func(context.Context, io.ReaderAt, int64, *tree) error{formatTarGz: unpackTarGz, formatZip: unpackZip}[l.format]
	if err := unpack(ctx, spool, size, t); err != nil {
		return "", err
	}
	if t.files == 0 {
		return "", refuse("it has no files")
	}
	if t.links > 0 && o.Warn != nil {
		more := ""
		if t.links > 1 {
			more = fmt.Sprintf(" (and %d more like it)", t.links-1)
		}
		o.Warn(fmt.Sprintf("%s is a link in the archive%s: clients unpack it as an empty file, and so it is stored", hint.OneLine(t.link), more))
	}
	return etag, nil
}

// refuse returns an error that wraps [ErrArchive].
func refuse(format string, args ...any) error {
	return hint.Wrap(fmt.Errorf("%w: %s", ErrArchive, fmt.Sprintf(format, args...)), "nothing was stored; ask the publisher of the module")
}

// download writes an archive to a file, and returns its size and its ETag.
func (o *Origin) download(ctx context.Context, l Location, known string, to io.Writer) (int64, string, error) {
	body, err := o.Registry.Archive(ctx, l.url, known)
	if err != nil {
		return 0, "", err
	}
	defer body.Close()
	if body.Size > maxArchive {
		return 0, "", refuse("it has %d bytes, more than %d", body.Size, int64(maxArchive))
	}
	sum, newHash := sha256.New(), map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha512": sha512.New}[l.sum.kind]
	if newHash != nil {
		sum = newHash()
	}
	to, failed := gitfiles.Metered(to, o.Meter)
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(files.ContextReader{Context: ctx, Reader: body}, maxArchive+1))
	switch {
	case failed() != nil:
		return 0, "", failed()
	case err != nil:
		return 0, "", err
	case n > maxArchive:
		return 0, "", refuse("it has more than %d bytes", int64(maxArchive))
	case l.sum != checksum{} && string(sum.Sum(nil)) != l.sum.sum:
		return 0, "", refuse("its %s is %x, and the registry announces %x", l.sum.kind, sum.Sum(nil), l.sum.sum)
	}
	return n, body.ETag, nil
}

// unpackTarGz unpacks a tar.gz. Like go-getter, it unpacks every link as an empty file that everybody may execute.
func unpackTarGz(ctx context.Context, archive io.ReaderAt, size int64, t *tree) error {
	source := &source{r: files.ContextReader{Context: ctx, Reader: io.NewSectionReader(archive, 0, size)}}
	z, err := gzip.NewReader(source)
	if err != nil {
		return source.explain(err)
	}
	stream := &bounded{z, t.limit}
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return source.explain(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue // git archive writes one
		}
		mode := h.FileInfo().Mode()
		switch h.Typeflag {
		case tar.TypeDir:
			err = t.folder(h.Name)
		case tar.TypeSymlink, tar.TypeLink:
			t.links, t.link = t.links+1, cmp.Or(t.link, h.Name)
			err = t.file(h.Name, mode&0o100 != 0, r)
		case tar.TypeReg, tar.TypeGNUSparse:
			err = t.file(h.Name, mode&0o100 != 0, r)
		default:
			err = refuse("the entry %.200q is neither a file, a folder nor a link", h.Name)
		}
		if err != nil {
			return source.explain(err)
		}
	}
}

// unpackZip unpacks a zip. Like go-getter, it unpacks a link as a file with the link's target.
func unpackZip(ctx context.Context, archive io.ReaderAt, size int64, t *tree) error {
	reader := &directory{ReaderAt: archive, left: maxDirectory, tree: t}
	z, err := provider.ReadZipDirectory(ctx, reader, size)
	if err != nil {
		return unpackError(ctx, err)
	}
	reader.open = true // the files have limits of their own
	left := t.limit
	for _, f := range z.File {
		mode := f.Mode()
		switch {
		case mode.IsDir():
			err = t.folder(f.Name)
		case mode.IsRegular() || mode.Type() == fs.ModeSymlink:
			var body io.ReadCloser
			if body, err = f.Open(); err == nil {
				stream := &bounded{body, left}
				err = t.file(f.Name, mode&0o100 != 0, stream)
				left = stream.left
				body.Close()
			}
		default:
			err = refuse("the entry %.200q is neither a file, a folder nor a link", f.Name)
		}
		if err != nil {
			return unpackError(ctx, err)
		}
	}
	return nil
}

// directory is a zip. While its directory is read, its size and the number of its entries are limited, because each entry needs
// memory. The end of the directory also gives that number, but can lie.
type directory struct {
	io.ReaderAt
	tree    *tree
	open    bool   // the directory has been read
	left    int64  // how many more bytes may be read
	headers int    // how often the beginning of an entry was read
	end     []byte // the last bytes of the read before
}

// header begins each entry of a zip's directory.
var header = []byte("PK\x01\x02")

func (d *directory) ReadAt(p []byte, at int64) (int, error) {
	if d.open {
		return d.ReaderAt.ReadAt(p, at)
	}
	if d.left -= int64(len(p)); d.left < 0 {
		return 0, refuse("its directory has more than %d MiB", maxDirectory>>20)
	}
	n, err := d.ReaderAt.ReadAt(p, at)
	d.headers += bytes.Count(p[:n], header) + bytes.Count(append(d.end, p[:min(n, len(header)-1)]...), header)
	d.end = append(d.end[:0], p[max(0, n-len(header)+1):n]...)
	if d.headers > d.tree.mostEntries()+headersTwice {
		return 0, d.tree.tooMany()
	}
	return n, err
}

// source is the archive itself. It records the errors of reading it, which are no faults of the archive.
type source struct {
	r      io.Reader
	failed error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// explain returns the error of reading the archive, or else the archive's own.
func (s *source) explain(err error) error {
	if s.failed != nil {
		return s.failed
	}
	return unpackError(context.Background(), err)
}

// unpackError makes a format error of an archive an [ErrArchive]. Other errors, such as those of the meter, stay as they are.
func unpackError(ctx context.Context, err error) error {
	var path *fs.PathError
	if limit, ok := errors.AsType[*meterError](err); ok {
		return limit.error
	}
	if ctx.Err() != nil || errors.Is(err, ErrArchive) || errors.As(err, &path) {
		return err
	}
	return refuse("it does not unpack: %v", err)
}

// bounded is a stream that may have left more bytes. One byte more is an error.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, refuse("it unpacks to too many bytes: at most %d MiB and %d times its own size are allowed, and never more than %d MiB", expandBase>>20, expandRate, maxUnpacked>>20)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
