package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// disk caches good answers. The folder of a provider or a module has a record of the list of tags, a
// record of each version's index, a record of the summary, and content named by its digest. A file is
// written under a temporary name and renamed. It is checked whenever it is read, and counts as absent
// if a crash has damaged it.
//
//	ab/cdef0123.../list          record
//	               3.2.4         record
//	               summary       record
//	               3.2.4!approvals  record of the signatures of a version's index
//	               sha256-89...  content
//
// The mtime of a file is its last use.
type disk struct {
	dir     string
	limit   int64 // bytes
	account func(subject.Address) Account
	log     *slog.Logger
	bytes   atomic.Int64 // roughly the size of the folder, once the first sweep has counted it
	sweeps  sync.Mutex
	warned  atomic.Bool
}

// record is the JSON of an answer on disk, below a line with its SHA-256 in hexadecimal.
type record struct {
	Provider  string             `json:"provider"` // the result of pathOf
	Version   provider.Version   `json:"version,omitzero"`
	Confirmed time.Time          `json:"confirmed"`      // by the registry
	Index     ocispec.Descriptor `json:"index,omitzero"` // or the manifest of the state
	ETag      string             `json:"etag,omitempty"`
	Versions  []provider.Version `json:"versions,omitempty"`
	LeadingV  []provider.Version `json:"leading_v,omitempty"` // see tagList
	Added     time.Time          `json:"added,omitzero"`      // see Item.Added
	Tag       ociaddr.Tag        `json:"tag,omitempty"`       // of a module's version
	Missing   []digest.Digest    `json:"missing,omitempty"`   // manifests that the index names and the registry lacked
	// Signatures are the signatures of the manifest in Index.
	Signatures []savedSignature `json:"signatures,omitempty"`
	// Policy is the ID of the policy for which Signatures were read. No more signatures are read than the policy needs.
	Policy string `json:"policy,omitempty"`
	// Approved means that Signatures approved the version, so that a list need not verify them. Requests always verify them.
	Approved bool `json:"approved,omitempty"`
}

const (
	listName      = "list"
	summaryName   = "summary"
	contentPrefix = "sha256-"
	// approvalSuffix follows the version in the name of a record of signatures. No version ends in it.
	approvalSuffix = "!approvals"
	maxRecord      = 16 << 20 // the maximum size in bytes of a record
)

// recordLimits limit the JSON of a record, which has about 20 values besides two lists of versions.
var recordLimits = document.Limits{Bytes: maxRecord, Values: 2*maxVersions + 100, Elements: maxVersions}

func openDisk(dir string, limit int64, account func(subject.Address) Account, log *slog.Logger) (*disk, error) {
	if err := privatefolder.Make(dir, log); err != nil {
		return nil, hint.Wrap(fmt.Errorf("catalog cache: %w", err), "the folder of the gateway's cache must be writable for the user that serve runs as")
	}
	return &disk{dir: dir, limit: limit, account: account, log: log}, nil
}

// folder returns the path of the folder for a provider or module. It depends on the repository, so
// that answers about another repository are not found.
func (d *disk) folder(of subject.Address) string {
	name := pathOf(of)
	if repository := d.account(of).Repository; repository != "" {
		name += "\n" + repository
	}
	sum := sha256.Sum256([]byte(name))
	name = hex.EncodeToString(sum[:16])
	return filepath.Join(d.dir, name[:2], name[2:])
}

func contentName(dgst digest.Digest) (string, bool) {
	if dgst.Validate() != nil || dgst.Algorithm() != digest.SHA256 {
		return "", false
	}
	return contentPrefix + dgst.Encoded(), true
}

// content returns the content of a digest, or false if it is not on disk or is damaged.
func (d *disk) content(of subject.Address, dgst digest.Digest) ([]byte, bool) {
	name, ok := contentName(dgst)
	if !ok {
		return nil, false
	}
	file := filepath.Join(d.folder(of), name)
	data, ok := d.read(file, artifact.MaxManifestBytes)
	touch(file)
	return data, ok && digest.FromBytes(data) == dgst
}

// touch marks a file as used now.
func touch(file string) { _ = os.Chtimes(file, time.Time{}, time.Now()) }

// read returns the content of a file, or false if it cannot be read or exceeds limit bytes.
func (d *disk) read(name string, limit int64) ([]byte, bool) {
	f, err := os.Open(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.warn(err)
		}
		return nil, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	return data, err == nil && int64(len(data)) <= limit
}

// record returns the record in a file, or false if it is absent or damaged. It sorts the versions
// again, because another release of ocibridge may have written them in another order.
func (d *disk) record(file string) (r record, ok bool) {
	data, ok := d.read(file, maxRecord)
	sum, body, _ := bytes.Cut(data, []byte("\n"))
	ok = ok && string(sum) == fmt.Sprintf("%x", sha256.Sum256(body)) && recordLimits.Unmarshal(body, &r) == nil &&
		!slices.Contains(r.Versions, provider.Version{})
	provider.SortVersions(r.Versions)
	provider.SortVersions(r.LeadingV)
	return r, ok
}

// putRecord writes a record, unless another process has written a record of a later answer.
func (d *disk) putRecord(of subject.Address, name string, r record) error {
	before, ok := d.record(filepath.Join(d.folder(of), name))
	// A time in the future comes from a wrong clock.
	if ok && before.Confirmed.After(r.Confirmed) && !before.Confirmed.After(time.Now()) {
		return nil
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return d.put(of, name, append(fmt.Appendf(nil, "%x\n", sha256.Sum256(body)), body...))
}

// put writes a file of a provider or module, in one step.
func (d *disk) put(of subject.Address, name string, data []byte) error {
	if err := privatefolder.Write(filepath.Join(d.folder(of), name), data); err != nil {
		return err
	}
	d.bytes.Add(int64(len(data)) + fileOverhead)
	return nil
}

// isOver reports whether the folder exceeds its maximum size by more than a tenth.
func (d *disk) isOver() bool { return d.bytes.Load() > d.limit+d.limit/10 }

// drop removes the files of a provider or module.
func (d *disk) drop(of subject.Address) {
	if err := os.RemoveAll(d.folder(of)); err != nil {
		d.warn(err)
	}
}

// warn logs the first error that concerns the folder. The catalog continues without the file.
func (d *disk) warn(err error) {
	if !d.warned.Swap(true) {
		d.log.Warn("the catalog cannot be kept on disk as it should; it goes on in memory", "err", err)
	}
}

// fileOverhead is roughly the size of a file on disk without its content, in bytes.
const fileOverhead = 2 << 10

// sweep cleans the folder, unless another sweep is in progress.
func (d *disk) sweep(ctx context.Context) {
	if d.sweeps.TryLock() {
		defer d.sweeps.Unlock()
		d.clean(ctx)
	}
}

// clean counts the bytes on disk. If they exceed the maximum size, it removes the least recently used
// files. There may be many files, so it keeps no list of them in memory. It adds up their sizes by
// the hour of their last use.
func (d *disk) clean(ctx context.Context) {
	total, byHour := int64(0), map[int64]int64{}
	d.walk(ctx, func(_ string, size, hour int64) {
		total += size
		byHour[hour] += size
	})
	d.bytes.Store(total)
	if total <= d.limit || ctx.Err() != nil {
		return
	}
	oldest := time.Now().Unix() / 3600
	for hour := range byHour {
		oldest = min(oldest, hour)
	}
	var going int64
	last := oldest
	for ; total-going > d.limit-d.limit/10 && last <= time.Now().Unix()/3600; last++ {
		going += byHour[last]
	}
	d.walk(ctx, func(name string, size, hour int64) {
		if hour < last && d.bytes.Load() > d.limit-d.limit/10 && os.Remove(name) == nil {
			d.bytes.Add(-size)
		}
	})
}

// walk calls f for each file, with its size on disk and the hour of its last use.
func (d *disk) walk(ctx context.Context, f func(name string, size, hour int64)) {
	err := filepath.WalkDir(d.dir, func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || entry.IsDir() {
			return nil // another process may have removed the file
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if age := time.Since(info.ModTime()); strings.HasPrefix(entry.Name(), privatefolder.Temporary) && age > time.Hour {
			_ = os.Remove(name) // the process that was writing the file has died
			return nil
		}
		// A file whose time is in the future, because the clock was wrong, counts as just used.
		f(name, info.Size()+fileOverhead, min(info.ModTime().Unix(), time.Now().Unix())/3600)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		d.warn(err)
	}
}

// maxRecordsRead is the maximum number of records that hasRecord reads.
const maxRecordsRead = 256

// hasRecord reports whether the registry has confirmed any record on disk after the given time. It
// does not mark records as used.
func (d *disk) hasRecord(since time.Time) (found bool) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	read := 0
	d.walk(ctx, func(file string, _, _ int64) {
		if strings.HasPrefix(filepath.Base(file), contentPrefix) {
			return
		}
		r, ok := d.record(file)
		found = ok && r.Confirmed.After(since)
		if read++; found || read >= maxRecordsRead {
			stop()
		}
	})
	return found
}

// listed returns at most limit providers and modules whose list of versions the registry has confirmed after the given time. It does
// not mark records as used.
func (d *disk) listed(ctx context.Context, since time.Time, limit int) (out []subject.Address) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d.walk(ctx, func(file string, _, _ int64) {
		if filepath.Base(file) != listName || ctx.Err() != nil {
			return
		}
		r, ok := d.record(file)
		if !ok || !r.Confirmed.After(since) {
			return
		}
		// Another configuration may have written records about other repositories.
		if of, err := subjectAt(r.Provider); err == nil && d.folder(of) == filepath.Dir(file) {
			out = append(out, of)
		}
		if len(out) >= limit {
			stop()
		}
	})
	return out
}
