package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// checksumSuffix is the suffix of the name of an archive's checksum file. The file has one line, as sha256sum
// writes it, and is next to the archive.
const checksumSuffix = ".sha256"

// maxChecksumBytes is the maximum size of a checksum file in bytes. It allows the longest file name.
const maxChecksumBytes = 16 << 10

// checkSum compares an archive with its checksum file. It does nothing if there is no such file.
func checkSum(ctx context.Context, name string, archive io.Reader) error {
	want, err := readChecksum(name + checksumSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, contextReader{ctx, archive}); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return hint.Wrap(fmt.Errorf("%w: its SHA-256 is %s, and %s%s gives %s", ErrIncomplete, got, filepath.Base(name), checksumSuffix, want),
			"it was changed or damaged, or the checksum file belongs to another archive: transfer both files again")
	}
	return nil
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// readChecksum returns the SHA-256 in a checksum file, in lower case. The error is fs.ErrNotExist if the file
// does not exist. The name of the archive in the file can differ, because archives are renamed.
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
	// CreateTemp replaces the last star with random characters.
	return os.CreateTemp(filepath.Dir(archive), "."+strings.ReplaceAll(filepath.Base(archive), "*", "_")+".*")
}

// rename gives a finished archive and its checksum file their names, the checksum file last. It first removes
// the checksum file of an earlier archive, so that no archive is ever next to the checksum of another.
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
