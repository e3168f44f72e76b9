package moduleorigin

import (
	"io"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
)

const (
	// maxEntries is the maximum number of files and folders of an archive, because each needs memory. An archive of n bytes may
	// have fewer: baseEntries, and one more for each entryBytes, because each costs time. Real ones have some hundreds of bytes.
	maxEntries              = 25_000
	baseEntries, entryBytes = 8_000, 100
	// The parts of all paths together are bounded in the same way, because opening a file costs time for each of them.
	baseParts, partBytes = 40_000, 20

	maxName      = 1024    // bytes of a path
	maxNameBytes = 8 << 20 // bytes of all paths together
)

// tree is the folder into which an archive is unpacked.
type tree struct {
	root  *os.Root
	size  int64          // of the archive in bytes
	limit int64          // the maximum size of the unpacked archive in bytes
	files int            // the number of files so far
	links int            // of a tar.gz
	link  string         // the first of them
	meter gitfiles.Meter // counts the bytes of files; may be nil

	entries, nameBytes, parts int
	spellings                 map[string]string // of files and folders, by their names in lower case
	folders                   map[string]bool   // the folders that exist
	buffer                    []byte            // for copies
}

// newTree returns the tree of an archive of size bytes.
func newTree(root *os.Root, size int64) *tree {
	return &tree{root: root, size: size, limit: min(expandBase+expandRate*size, maxUnpacked), spellings: map[string]string{}, folders: map[string]bool{".": true}, buffer: make([]byte, 32<<10)}
}

// folder creates a folder and its parents.
func (t *tree) folder(name string) error {
	name, err := t.admit(name)
	if err != nil {
		return err
	}
	return t.mkdir(name)
}

// mkdir creates a folder and its parents, unless it has created the folder before.
func (t *tree) mkdir(name string) error {
	if t.folders[name] {
		return nil
	}
	err := t.root.MkdirAll(name, 0o700)
	t.folders[name] = err == nil
	return err
}

// file writes a file. A second file of the same name replaces the first, as with clients.
func (t *tree) file(name string, executable bool, content io.Reader) error {
	name, err := t.admit(name)
	if err != nil {
		return err
	}
	if name == "." {
		return refuse("it has a file without a name")
	}
	if err := t.mkdir(path.Dir(name)); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if executable {
		mode = 0o700
	}
	f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	// The type of the writer hides the file's own ReadFrom, which would allocate a buffer for each file.
	_, err = io.CopyBuffer(unpacking{f, t.meter}, content, t.buffer)
	if err == nil {
		err = f.Chmod(mode) // of a file that is replaced
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	t.files++
	return err
}

// unpacking is a writer that counts its bytes as unpacked. Its meter may be nil.
type unpacking struct {
	io.Writer
	meter gitfiles.Meter
}

func (u unpacking) Write(p []byte) (int, error) {
	if u.meter != nil {
		if err := u.meter.Unpacked(int64(len(p))); err != nil {
			return 0, &meterError{err}
		}
	}
	return u.Writer.Write(p)
}

// meterError is an error of the meter, which is not the archive's fault.
type meterError struct{ error }

func (e *meterError) Unwrap() error { return e.error }

// mostEntries returns the maximum number of entries.
func (t *tree) mostEntries() int { return int(min(baseEntries+t.size/entryBytes, maxEntries)) }

func (t *tree) tooMany() error {
	return refuse("it has more than %d files and folders in %d bytes", t.mostEntries(), t.size)
}

// admit checks the name of an entry, and returns it without dots and trailing slashes.
func (t *tree) admit(raw string) (string, error) {
	t.nameBytes += len(raw)
	t.parts += 1 + strings.Count(raw, "/")
	if t.entries == t.mostEntries() {
		return "", t.tooMany()
	}
	t.entries++
	switch {
	case len(raw) > maxName:
		return "", refuse("%.80q... is a path of more than %d bytes", raw, maxName)
	case int64(t.parts) > baseParts+t.size/partBytes:
		return "", refuse("its files are in too many folders: their paths have more than %d parts together in %d bytes", baseParts+t.size/partBytes, t.size)
	case t.nameBytes > maxNameBytes:
		return "", refuse("the names of its files have more than %d bytes together", maxNameBytes)
	case !utf8.ValidString(raw) || strings.ContainsFunc(raw, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return "", refuse("%.200q is a name that not every client can unpack", raw)
	case strings.HasPrefix(raw, "/"):
		return "", refuse("%.200q is an absolute name", raw)
	}
	name := path.Clean(raw)
	for part := range strings.SplitSeq(raw, "/") {
		if part == ".." || strings.EqualFold(part, ".git") {
			return "", refuse("%.200q has the part %q", raw, part)
		}
	}
	return name, t.checkCase(name)
}

// checkCase returns an error if the name of a file or of a folder above it differs from an earlier one only in case. On
// Windows and macOS, one of them would replace the other.
func (t *tree) checkCase(name string) error {
	for at := name; at != "."; at = path.Dir(at) {
		lower := strings.ToLower(at)
		earlier, known := t.spellings[lower]
		switch {
		case known && earlier != at:
			return refuse("%.200q and %.200q differ only in case: on Windows and macOS, one would replace the other", earlier, at)
		case known:
			return nil // and so are the folders above it
		}
		if t.nameBytes += len(at); t.nameBytes > maxNameBytes {
			return refuse("the names of its files and folders have more than %d bytes together", maxNameBytes)
		}
		t.spellings[lower] = at
	}
	return nil
}
