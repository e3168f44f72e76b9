package release

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// zipTime is the modification time of every file in a package.
var zipTime = time.Date(2024, 1, 2, 3, 4, 6, 0, time.UTC)

// Zip packs files, sorted by name, without directory entries. The same files
// give the same bytes.
func Zip(files map[string][]byte) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := addFile(w, name, zip.Deflate, bytes.NewReader(files[name])); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// zipEnd is the final record of a zip. By itself, it is an empty zip.
const zipEnd = "PK\x05\x06" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// ZipEndSize is the number of bytes that [AsZip] adds.
const ZipEndSize = len(zipEnd)

// AsZip returns an empty zip that begins with content. Tests use it as a package with any content and size.
func AsZip(content []byte) []byte { return append(slices.Clone(content), zipEnd...) }

// packedBinaries caches the zips of programs by path and name, because most tests use the same programs, and
// compressing them takes long.
var packedBinaries sync.Map

type binaryKey struct{ path, name string }

// zipBinary packs the program at path under a name.
func zipBinary(path, name string) ([]byte, error) {
	pack := func() ([]byte, error) {
		binary, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return Zip(map[string][]byte{name: binary})
	}
	once, _ := packedBinaries.LoadOrStore(binaryKey{path, name}, sync.OnceValues(pack))
	data, err := once.(func() ([]byte, error))()
	return slices.Clone(data), err // tests may modify the copy
}

func addFile(w *zip.Writer, name string, method uint16, content io.Reader) error {
	header := &zip.FileHeader{Name: name, Method: method, Modified: zipTime}
	header.SetMode(mode(name))
	f, err := w.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return err
}

// mode returns the mode of an executable for providers' programs, and of a plain file otherwise.
func mode(name string) fs.FileMode {
	if strings.HasPrefix(name, "terraform-provider-") {
		return 0o755
	}
	return 0o644
}

// WriteBigZip creates a zip at path, for tests of memory and speed. The zip contains one file of mib mebibytes
// that do not compress, and its bytes depend only on name, mib and seed. WriteBigZip never holds the whole zip
// in memory. It returns the zip's SHA-256 in hexadecimal digits.
func WriteBigZip(path, name string, mib int, seed uint64) (string, error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	if err := writeBigZip(io.MultiWriter(f, hash), name, mib, seed); err != nil {
		f.Close()
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), f.Close()
}

func writeBigZip(dst io.Writer, name string, mib int, seed uint64) error {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	w := zip.NewWriter(dst)
	content := io.LimitReader(rand.NewChaCha8(key), int64(mib)<<20)
	if err := addFile(w, name, zip.Store, content); err != nil {
		return err
	}
	return w.Close()
}
