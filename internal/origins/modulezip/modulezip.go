// Package modulezip packs the folder of a module as a zip whose bytes depend only on the names and the contents of the
// files.
//
// The entries are sorted by name and stored without compression, because the output of a compressor depends on its version.
// Every entry has the same time. The zip has no entries for folders, because a zip with such entries has no h1: hash.
//
// [Pack] packs the folder of a module's developer. The zip omits .git, .terraform, empty folders and the files that
// .terraformignore excludes. A link to a file or folder inside the folder becomes a copy. Pack refuses all other links,
// special files and names that clients cannot unpack. It writes nothing inside the folder.
//
// [PackFetched] packs the files of a public module. Clients that unpack the zip get the files that they would get from the
// module's own source, apart from two things that a zip cannot give them. First, clients unpack a link in a zip as a file
// that contains the link's target, so links become copies here, too. Second, they get no empty folders.
package modulezip

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// maxEntries is the maximum number of files and folders in a module's folder, including files that .terraformignore
	// excludes, but not the contents of a folder that it excludes whole.
	maxEntries = 100_000
	// maxName is the maximum length in bytes of a file's path in the folder. It also bounds the depth of the folder. Clients
	// add the path of their own folder, and Linux opens paths of up to 4,095 bytes.
	maxName  = 1024
	maxBytes = 2 << 30 // the maximum size of a module's files in bytes
	// wideEntries and wideBytes are the limits of Terragrunt. Pack warns about larger modules.
	wideEntries, wideBytes = 10_000, 512 << 20
	// maxLinked is the maximum size in bytes of the copies that links in a fetched module become, because a small package
	// could have many links to one large file.
	maxLinked = 256 << 20
)

const helpLarge = "name what the module does not need in .terraformignore, or push from a clean checkout"

// ErrUnpackable means that a folder cannot be packed as a module.
var ErrUnpackable = errors.New("no module can be made of this folder")

// Zip is a packed module in a temporary file.
type Zip struct {
	Digest   digest.Digest // sha256
	Size     int64         // in bytes
	H1       provider.Hash
	Files    []string // the names of the files, sorted, with slashes
	Unpacked int64    // the size of the files in bytes
	Warnings []string // for the user

	file   *fill.Temp
	modes  bool  // the entries have the modes of the files
	linked int64 // the size in bytes of the copies that links have become
}

// Open returns a reader of the whole zip. The Zip must stay open while it is read.
func (z *Zip) Open() io.ReadCloser { return io.NopCloser(io.NewSectionReader(z.file, 0, z.Size)) }

// FS returns the files in the zip. The Zip must stay open while they are read.
func (z *Zip) FS() (fs.FS, error) { return zip.NewReader(z.file, z.Size) }

// Close removes the temporary file.
func (z *Zip) Close() error { return z.file.Close() }

// Pack packs the folder of a module's developer. All files get the mode 0755. Clients apply the modes of a zip, so scripts
// stay executable, also if the module is packed on Windows. The caller must close the result. An error wraps
// [ErrUnpackable] if the contents of the folder are the reason.
func Pack(ctx context.Context, dir string) (*Zip, error) {
	return packFolder(ctx, dir, false)
}

// PackFetched packs all files of a folder into which a public module was fetched. A file gets the mode 0755 if its owner may
// execute it, and 0644 otherwise. .terraformignore has no effect, because clients do not read it. The caller must close the
// result. An error wraps [ErrUnpackable] if the contents of the folder are the reason.
func PackFetched(ctx context.Context, dir string) (*Zip, error) {
	z, err := packFolder(ctx, dir, true)
	if errors.Is(err, ErrUnpackable) {
		err = hint.Replace(err, "nothing was stored; clients of a zip could not get this version as its publisher made it")
	}
	return z, err
}

// packFolder packs a folder. whole is set for a fetched module.
func packFolder(ctx context.Context, dir string, whole bool) (*Zip, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("folder of the module: %w", err), "name the folder that has the module's .tf files")
	}
	defer root.Close()
	// 1. Choose the files.
	rules := &ignoreRules{}
	if !whole {
		if rules, err = readRules(root); err != nil {
			return nil, err
		}
	}
	entries, err := list(ctx, root, rules, whole)
	if err == nil {
		err = check(entries)
	}
	if err != nil {
		return nil, err
	}
	// 2. Write them to a temporary file. The folder of a fetched module is itself in a folder for temporary files.
	temp := ""
	if whole {
		temp = filepath.Dir(dir)
	}
	file, err := fill.NewTemp(temp, "ocibridge-*.zip")
	if err != nil {
		return nil, storageError(err)
	}
	z := &Zip{file: file, modes: whole}
	for _, e := range entries {
		z.Files = append(z.Files, e.name)
	}
	if err = z.write(ctx, root, entries); err == nil {
		// 3. Read it back, as clients do.
		err = z.hash(ctx)
	}
	var made []localCall
	if err == nil && !whole {
		made, err = localCalls(ctx, root, entries)
	}
	if err != nil {
		z.Close()
		return nil, err
	}
	// 4. Say what users should know about it.
	if whole {
		z.Warnings = wideWarning(entries, z.Unpacked)
	} else {
		z.Warnings = warnings(entries, made, z.Unpacked)
	}
	return z, nil
}

// check refuses files that the zip cannot contain.
func check(entries []entry) error {
	for _, e := range entries {
		if e.refused != nil {
			return e.refused
		}
		if !utf8.ValidString(e.name) || strings.ContainsFunc(e.name, isUnsafe) {
			return refuse("rename it without backslashes and control characters, in UTF-8, or name it in .terraformignore",
				"%q has a name that not every client can unpack", e.name)
		}
	}
	if len(entries) == 0 {
		return refuse("name the folder that has the module's .tf files; .terraformignore may exclude too much", "it has no files")
	}
	return nil
}

// isUnsafe reports whether a character makes a name unusable: some clients read a backslash as a separator, and h1: hashes
// cannot cover line feeds.
func isUnsafe(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }

// refuse returns an error that wraps [ErrUnpackable], with a hint.
func refuse(help, format string, args ...any) error {
	return hint.Wrap(fmt.Errorf("%w: %s", ErrUnpackable, fmt.Sprintf(format, args...)), "%s", help)
}

// write writes the zip and sets its size and digest.
func (z *Zip) write(ctx context.Context, root *os.Root, entries []entry) error {
	digester := digest.SHA256.Digester()
	out := &counter{w: io.MultiWriter(z.file, digester.Hash())}
	w := zip.NewWriter(out)
	for _, e := range entries {
		if err := z.add(ctx, w, root, e); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	z.Size, z.Digest = out.n, digester.Digest()
	return nil
}

// add adds a file to the zip. It reads the file twice, because its size and checksum precede the contents: not every reader
// can unpack stored entries whose size comes afterwards.
func (z *Zip) add(ctx context.Context, w *zip.Writer, root *os.Root, e entry) error {
	f, size, err := files.OpenRegular(root, e.name)
	if err != nil {
		return readError(err, "name it in .terraformignore")
	}
	defer f.Close()
	sum := crc32.NewIEEE()
	if size <= maxBytes { // otherwise it is refused below
		if size, err = copyFile(ctx, sum, f, size); err != nil {
			return fmt.Errorf("pack %s: %w", e.name, err)
		}
	}
	if z.Unpacked += size; z.Unpacked > maxBytes {
		return refuse(helpLarge, "its files have more than %d bytes", int64(maxBytes))
	}
	if e.linked && z.modes {
		if z.linked += size; z.linked > maxLinked {
			return refuse(helpLarge, "its links lead to files of more than %d bytes together", int64(maxLinked))
		}
	}
	mode := os.FileMode(0o755)
	if z.modes && !e.executable {
		mode = 0o644
	}
	into, err := w.CreateRaw(header(e.name, mode, size, sum.Sum32()))
	if err != nil {
		return err
	}
	again := int64(0)
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		again, err = copyFile(ctx, into, f, size)
	}
	switch {
	case err != nil:
		return fmt.Errorf("pack %s: %w", e.name, err)
	case again != size:
		return refuse("run it again once no program writes to the folder", "%s changed while it was packed", e.name)
	}
	return nil
}

// header returns the header of an entry.
func header(name string, mode os.FileMode, size int64, sum uint32) *zip.FileHeader {
	h := &zip.FileHeader{
		Name: name, Method: zip.Store, CRC32: sum, CompressedSize64: uint64(size), UncompressedSize64: uint64(size),
		ReaderVersion: 20,
		Flags:         1 << 11, // the name is UTF-8
	}
	h.SetMode(mode)
	//lint:ignore SA1019 CreateRaw writes only this form of the time
	h.SetModTime(time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC))
	return h
}

// copyFile copies a file of size bytes, and returns the number of bytes. If the file grows meanwhile, it copies at most one byte more.
func copyFile(ctx context.Context, to io.Writer, f *os.File, size int64) (int64, error) {
	return io.Copy(to, io.LimitReader(files.ContextReader{Context: ctx, Reader: f}, size+1))
}

// hash computes the h1: hash of the zip.
func (z *Zip) hash(ctx context.Context) (err error) {
	z.H1, err = provider.H1(ctx, z.file, z.Size)
	switch {
	case errors.Is(err, provider.ErrNotZip): // a checksum is wrong
		return hint.Wrap(fmt.Errorf("%w: %w", ErrUnpackable, err), "was a file written while it was packed? Run it again")
	case errors.Is(err, provider.ErrNoH1):
		return hint.Wrap(fmt.Errorf("%w: %w", ErrUnpackable, err), "the folder has too many files with long names: leave some out by .terraformignore")
	}
	return err
}

// storageError wraps an error of the temporary file, or of another file in the temporary folder, and adds a hint.
func storageError(err error) error {
	return hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
}

// counter counts the bytes that are written to the temporary file.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if err != nil {
		err = storageError(err)
	}
	return n, err
}
