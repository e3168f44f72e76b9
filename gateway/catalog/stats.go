package catalog

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/telemetry"
)

// Size is what a [Catalog] has in memory.
type Size struct {
	Entries int
	Bytes   int64 // about
}

// Size returns that of now.
func (c *Catalog) Size() Size {
	l := c.cache
	l.mu.Lock()
	defer l.mu.Unlock()
	return Size{len(l.byKey), l.good.bytes + l.rest.bytes}
}

// CanStandIn reports whether there is anything that would be served although the
// registry does not answer.
func (c *Catalog) CanStandIn() bool {
	now := time.Now()
	if c.disk != nil && c.disk.hasRecord(now.Add(-c.opts.StaleIfError)) {
		return true
	}
	l := c.cache
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.good.ends.next; e != &l.good.ends; e = e.next {
		if (e.kind == listing || e.kind == version) && c.standIn(e, now) != nil {
			return true
		}
	}
	return false
}

// IsListing reports whether an item is about a provider rather than a version.
func (i *Item) IsListing() bool { return i.Found == nil && i.Version.IsZero() }

// span begins the span of a question to the registry.
func (e *entry) span(ctx context.Context) (context.Context, telemetry.End) {
	return telemetry.Start(ctx, "catalog fetch", slog.String("kind", kindNames[e.kind]), slog.String("provider", e.address.String()), slog.String("version", e.version.String()))
}

var kindNames = [...]string{listing: "versions", version: "version", evidence: "evidence", content: "content"}

// maxRecordsLooked bounds how many records are read for one that would do.
const maxRecordsLooked = 256

// hasRecord reports whether something is on disk that the registry confirmed after a
// time. That is no use of it: what goes first when space is short is as before.
func (d *disk) hasRecord(after time.Time) (found bool) {
	looked := 0
	_ = filepath.WalkDir(d.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), contentPrefix) || strings.HasPrefix(entry.Name(), temporary) {
			return nil // it may have gone meanwhile
		}
		if confirmed, ok := confirmedAt(name); ok && confirmed.After(after) {
			found = true
			return fs.SkipAll
		}
		if looked++; looked >= maxRecordsLooked {
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// confirmedAt returns when the registry confirmed what a record says.
func confirmedAt(file string) (time.Time, bool) {
	f, err := os.Open(file)
	if err != nil {
		return time.Time{}, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	_, body, _ := bytes.Cut(data, []byte("\n"))
	var r record
	if err != nil || recordLimits.Unmarshal(body, &r) != nil {
		return time.Time{}, false
	}
	return r.Confirmed, true
}
