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
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// zipTime is the modification time of every file in a package.
var zipTime = time.Date(2024, 1, 2, 3, 4, 6, 0, time.UTC)

// storedFrom is the size in bytes from which [Zip] does not compress a file: the race detector would make that slow.
const storedFrom = 1 << 20

// Zip creates a zip of files. The files are sorted by name, and there are no directory entries. The same files
// always give the same bytes.
func Zip(files map[string][]byte) ([]byte, error) { return zipUpTo(storedFrom, files) }

// zipUpTo is like [Zip]. It compresses the files that are smaller than limit.
func zipUpTo(limit int, files map[string][]byte) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		method := zip.Store
		if len(files[name]) < limit {
			method = zip.Deflate
		}
		if err := addFile(w, name, method, bytes.NewReader(files[name])); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// zipEnd is the last record of a zip. Without anything before it, it is an empty zip.
const zipEnd = "PK\x05\x06" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// ZipEndSize is the number of bytes that [AsZip] adds.
const ZipEndSize = len(zipEnd)

// AsZip returns content followed by an empty zip, which is a valid zip. With it, a test can create a package of
// any content and size.
func AsZip(content []byte) []byte { return append(slices.Clone(content), zipEnd...) }

// Compressing a program takes long, most tests use the same programs, and each release holds them in memory until its test
// ends. Therefore a program is compressed once, and releases with equal packages share the packages' bytes.
var (
	compressed sync.Map // a func() (*zip.File, error) for each path
	packed     sync.Map // a func() ([]byte, error) for each binaryKey
)

type binaryKey struct{ path, name string }

// zipBinary returns a zip that contains the program at path under the given name. Nothing may change its bytes.
func zipBinary(path, name string) ([]byte, error) {
	once, _ := compressed.LoadOrStore(path, sync.OnceValues(func() (*zip.File, error) { return compress(path) }))
	program, err := once.(func() (*zip.File, error))()
	if err != nil {
		return nil, err
	}
	once, _ = packed.LoadOrStore(binaryKey{path, name}, sync.OnceValues(func() ([]byte, error) { return pack(*program, name) }))
	return once.(func() ([]byte, error))()
}

// compress returns the only entry of a zip, which has the content of the file at path.
func compress(path string) (*zip.File, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data, err := zipUpTo(math.MaxInt, map[string][]byte{filepath.Base(path): content})
	if err != nil {
		return nil, err
	}
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	return r.File[0], nil
}

// pack returns a zip that contains a compressed program under another name.
func pack(program zip.File, name string) ([]byte, error) {
	program.Name = name
	program.SetMode(mode(name))
	var buf bytes.Buffer
	buf.Grow(int(program.CompressedSize64) + 1<<10)
	w := zip.NewWriter(&buf)
	if err := w.Copy(&program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return slices.Clip(bytes.Clone(buf.Bytes())), nil
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

// mode returns the file mode of a file in a package. A provider's program is executable.
func mode(name string) fs.FileMode {
	if strings.HasPrefix(name, "terraform-provider-") {
		return 0o755
	}
	return 0o644
}

// WriteBigZip creates a zip at path, for tests of memory and speed. The zip contains one file of mib mebibytes
// that does not compress. Its bytes depend only on name, mib and seed. WriteBigZip never has the whole zip in
// memory. It returns the zip's SHA-256 in hexadecimal.
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
