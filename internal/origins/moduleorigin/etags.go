package moduleorigin

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

const (
	maxETag  = 1024   // bytes of an ETag that is kept
	maxETags = 20_000 // the number of files, each of at most maxETag bytes
)

// ETags is a folder that keeps the ETags of archives whose files are stored. With the ETag, a server can say that the archive has
// not changed, without sending it. Several processes can share the folder. It is a cache: if a file is missing, the archive is
// fetched and compared. A nil *ETags keeps nothing.
type ETags struct{ folder string }

// OpenETags opens a folder, which [ETags.Keep] creates. If it has too many files, OpenETags removes those that were not used
// for longest. It returns nil if folder is "".
func OpenETags(folder string) *ETags {
	if folder == "" {
		return nil
	}
	privatefolder.Trim(folder, maxETags)
	return &ETags{folder}
}

// Known returns the ETag that the archive at a location had when its files were those of the stored zip, or "".
func (e *ETags) Known(l Location, stored digest.Digest) string {
	if e == nil || l.Git {
		return ""
	}
	name := e.filename(l, stored)
	f, _, err := files.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxETag+1))
	if err != nil || !isETag(string(data)) {
		return ""
	}
	_ = os.Chtimes(name, time.Time{}, time.Now()) // if this fails, the file is removed earlier
	return string(data)
}

// Keep notes that the archive at a location had an ETag when its files were those of the stored zip.
func (e *ETags) Keep(l Location, stored digest.Digest, etag string) {
	if e != nil && !l.Git && isETag(etag) {
		_ = privatefolder.Write(e.filename(l, stored), []byte(etag)) // if this fails, the archive is fetched again
	}
}

// filename returns the name of the file for a location and a zip. The whole URL counts, because each part of it can select
// another archive. The file does not tell the URL, which can contain secrets.
func (e *ETags) filename(l Location, stored digest.Digest) string {
	u := *l.url
	u.User = nil
	sum := sha256.Sum256([]byte(strings.Join([]string{u.String(), l.String(), stored.String()}, "\n")))
	return filepath.Join(e.folder, hex.EncodeToString(sum[:]))
}

// isETag reports whether a text is an ETag that can be sent to a server.
func isETag(s string) bool {
	quoted := strings.TrimPrefix(s, "W/")
	return len(s) <= maxETag && len(quoted) >= 2 && quoted[0] == '"' && strings.IndexByte(quoted[1:], '"') == len(quoted)-2 &&
		!strings.ContainsFunc(quoted, func(r rune) bool { return r <= ' ' || r > '~' })
}
