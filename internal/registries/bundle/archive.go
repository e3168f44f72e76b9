package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	maxEntries = 1 << 18 // the maximum number of files in an archive; [indexLimits] allows fewer blobs in a bundle
	maxName    = 256     // the maximum length of a file's name in bytes; a blob's name is 77 bytes long
)

// archive is a layout in a tar file. The layout is read and written directly in the tar file, which is never unpacked.
type archive struct {
	file *os.File
	name string // the final name; "" for an archive that is only read or is already finished

	mu    sync.Mutex
	files map[string]extent
	tar   *tar.Writer // nil for an archive that is only read
	sum   hash.Hash   // the SHA-256 of what was written; nil for an archive that is only read
}

// extent is the offset and the size in bytes of a file in the archive.
type extent struct{ at, size int64 }

func openArchive(ctx context.Context, name string) (storage, error) {
	file, _, err := files.Open(name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name the file that ocibridge copy --to oci-archive:FILE wrote")
	}
	a := &archive{file: file, files: map[string]extent{}}
	if err := checkSum(ctx, name, io.NewSectionReader(file, 0, math.MaxInt64)); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := a.scan(); err != nil {
		file.Close()
		help := "name what ocibridge copy --to oci-archive:FILE wrote, uncompressed"
		if errors.Is(err, ErrIncomplete) {
			help = incompleteHelp
		}
		return nil, hint.Wrap(fmt.Errorf("%s: %w", name, err), "%s", help)
	}
	return a, nil
}

// scan finds the files in the archive.
func (a *archive) scan() error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	r := tar.NewReader(a.file)
	for n := 0; ; n++ {
		header, err := r.Next()
		switch {
		case err == io.EOF && n > 0:
			return nil
		case err == io.EOF, errors.Is(err, tar.ErrHeader) && n == 0:
			return fmt.Errorf("%w: it is not a tar archive", ErrNotBundle)
		case err != nil:
			return fmt.Errorf("%w: %w", ErrIncomplete, err)
		case n == maxEntries:
			return fmt.Errorf("%w: it holds more than %d files", ErrNotBundle, maxEntries)
		}
		at, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if err := a.found(header, at, info.Size()); err != nil {
			return err
		}
	}
}

// found adds a file to the files of the archive.
func (a *archive) found(header *tar.Header, at, total int64) error {
	name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "./"), "/")
	if name == "" && header.Typeflag == tar.TypeDir {
		return nil // the entry of the folder itself
	}
	if !fs.ValidPath(name) || strings.Contains(name, `\`) || len(name) > maxName {
		return fmt.Errorf("%w: it contains a file named %.200q", ErrNotBundle, header.Name)
	}
	switch {
	case header.Typeflag == tar.TypeDir:
		return nil
	case header.Typeflag != tar.TypeReg || sparse(header):
		return fmt.Errorf("%w: %.200q in it is not a regular file", ErrNotBundle, header.Name)
	case header.Size > total-at:
		return fmt.Errorf("%w: it ends within %.200q", ErrIncomplete, name)
	}
	if !inLayout(name) {
		return nil // ignore files that other tools have added
	}
	if _, twice := a.files[name]; twice {
		return fmt.Errorf("%w: it contains %.200q twice", ErrNotBundle, name)
	}
	// Without the copy, the name could keep a whole PAX header in memory.
	a.files[strings.Clone(name)] = extent{at, header.Size}
	return nil
}

// inLayout reports whether a file name belongs to a layout.
func inLayout(name string) bool {
	if name == ocispec.ImageLayoutFile || name == ocispec.ImageIndexFile {
		return true
	}
	encoded, isBlob := strings.CutPrefix(name, blobsDir+"/")
	return isBlob && digest.NewDigestFromEncoded(digest.SHA256, encoded).Validate() == nil
}

// sparse reports whether the archive contains a file in a sparse format instead of the file's plain content.
func sparse(header *tar.Header) bool {
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// createArchive creates a temporary file in the archive's folder. finish gives this file the archive's name.
func createArchive(_ context.Context, name string) (storage, error) {
	if err := checkNew(name); err != nil {
		return nil, err
	}
	file, err := createTemp(name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name a file in a folder that can be written")
	}
	sum := sha256.New()
	return &archive{file: file, name: name, files: map[string]extent{}, tar: tar.NewWriter(io.MultiWriter(file, sum)), sum: sum}, nil
}

// checkNew returns ErrExists if an archive exists.
func checkNew(name string) error {
	if _, err := os.Lstat(name); err == nil {
		return hint.Wrap(fmt.Errorf("bundle %s: %w", name, ErrExists), "remove it, or use another name; only a bundle in a folder, oci:DIR, can be extended")
	}
	return nil
}

// previewArchive returns an empty storage if the archive does not exist.
func previewArchive(_ context.Context, name string) (storage, error) {
	return empty{}, checkNew(name)
}

// close closes the archive. It removes an archive that was created but not finished.
func (a *archive) close() error {
	err := a.file.Close()
	if a.name != "" {
		os.Remove(a.file.Name())
	}
	if errors.Is(err, os.ErrClosed) {
		return nil // the archive is finished
	}
	return err
}

// section is a file of the archive, open for reading.
type section struct{ *io.SectionReader }

// Close does nothing: the archive stays open.
func (section) Close() error { return nil }

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.files[name]
	if !ok {
		return nil, 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return section{io.NewSectionReader(a.file, e.at, e.size)}, e.size, nil
}

// write reads body, and appends it to the archive if check returns no error. Calls can run concurrently. Each call first
// copies its body to a temporary file, because a tar archive takes only one file at a time.
func (a *archive) write(name string, size int64, body io.Reader, check func() error) error {
	temp, err := fill.NewTemp(filepath.Dir(a.file.Name()), ".ocibridge-*")
	if err != nil {
		return err
	}
	defer temp.Close()
	if _, err = io.Copy(temp, body); err == nil {
		err = check()
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, exists := a.files[name]; exists {
		return nil
	}
	// The header contains neither the time nor the user, so the same bundle gives the same bytes.
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}); err != nil {
		return err
	}
	at, err := a.file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = io.Copy(a.tar, io.NewSectionReader(temp, 0, size))
	}
	if err == nil {
		a.files[name] = extent{at, size}
	}
	return errors.Join(err, a.tar.Flush())
}

func (a *archive) finish() error {
	// Close the file before renaming it, because some systems cannot rename open files.
	if err := errors.Join(a.tar.Close(), a.file.Chmod(0o644), a.file.Sync(), a.file.Close()); err != nil {
		return err
	}
	checksum, err := writeTemp(a.name, checksumLine(a.sum.Sum(nil), a.name))
	if err == nil {
		err = rename(a.file.Name(), checksum, a.name)
	}
	if err == nil {
		a.name = "" // so that close does not remove the archive
	}
	return err
}

// checksumSuffix is the end of the name of an archive's checksum file. The file is next to the archive, and has one
// line, as sha256sum writes it.
const checksumSuffix = ".sha256"

// maxChecksumBytes is the maximum size of a checksum file in bytes. It allows the longest file name.
const maxChecksumBytes = 16 << 10

// checkSum compares an archive with the archive's checksum file. It does nothing if there is no checksum file.
func checkSum(ctx context.Context, name string, archive io.Reader) error {
	want, err := readChecksum(name + checksumSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, files.ContextReader{Context: ctx, Reader: archive}); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return hint.Wrap(fmt.Errorf("%w: its SHA-256 is %s, and %s%s gives %s", ErrIncomplete, got, filepath.Base(name), checksumSuffix, want),
			"it was changed or damaged, or the checksum file belongs to another archive: transfer both files again")
	}
	return nil
}

// readChecksum returns the SHA-256 in a checksum file, in lower case. The checksum file may contain another name for
// the archive, because users rename archives.
func readChecksum(name string) (string, error) {
	file, _, err := files.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := document.ReadAll(file, maxChecksumBytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	line := strings.TrimPrefix(strings.TrimSpace(string(data)), `\`)
	sum, _, _ := strings.Cut(line, " ")
	if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size || strings.ContainsAny(line, "\n\r") {
		return "", hint.New(name+" is not a checksum file of one line", "write it with sha256sum, or remove it: the archive is then not compared with a checksum")
	}
	return strings.ToLower(sum), nil
}

// checksumLine returns the content of the checksum file of an archive, as sha256sum writes it.
func checksumLine(sum []byte, name string) string {
	base := filepath.Base(name)
	escaped := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(base)
	line := hex.EncodeToString(sum) + "  " + escaped + "\n"
	if escaped != base {
		line = `\` + line
	}
	return line
}

// writeTemp writes a temporary file in the folder of an archive, and returns its name.
func writeTemp(archive, content string) (string, error) {
	file, err := createTemp(archive)
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(content)
	if err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		os.Remove(file.Name())
	}
	return file.Name(), err
}

// createTemp creates a temporary file in the folder of an archive.
func createTemp(archive string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(archive), "."+strings.ReplaceAll(filepath.Base(archive), "*", "_")+".*")
}

// rename gives a finished archive its name, and then gives the checksum file its name. It first removes the checksum
// file of an earlier archive, so that no archive is ever next to the checksum of another archive.
func rename(archive, checksum, name string) error {
	err := os.Remove(name + checksumSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = os.Rename(archive, name)
	}
	if err != nil {
		os.Remove(checksum)
		return err
	}
	return os.Rename(checksum, name+checksumSuffix)
}
