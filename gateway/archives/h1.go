package archives

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/provider"
)

// metaSuffix ends the name of the file beside an archive. It has one line: the h1:
// hash or [noH1], a blank, and a SHA-256 over the archive's digest and that; it is
// empty while no h1 was computed.
const metaSuffix = ".meta"

// noH1 stands for archives that clients would not agree on a hash for.
const noH1 = "none"

// maxMeta bounds what is read of such a file.
const maxMeta = 1 << 10

func (c *Cache) meta(hex string) string { return c.path(hex) + metaSuffix }

// H1 returns the h1: hash of the archive with a digest, if this cache computed it
// from verified bytes, and keeps the archive. It is false as well for archives
// that have none: see [provider.H1]. A nil cache has none.
func (c *Cache) H1(d digest.Digest) (provider.Hash, bool) {
	if c == nil || d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return provider.Hash{}, false
	}
	hash, err := provider.ParseHash(c.knownH1(d.Encoded()))
	return hash, err == nil
}

// knownH1 returns what is known of an archive's h1: "" for nothing.
func (c *Cache) knownH1(hex string) string {
	now := time.Now()
	c.mu.Lock()
	h1, absent := c.known[hex].h1, c.absent.has(hex, now)
	c.mu.Unlock()
	if h1 != "" || absent {
		return h1
	}
	if h1 = c.readMeta(hex); h1 != "" {
		c.setH1(hex, h1)
		return h1
	}
	c.mu.Lock()
	if c.known[hex].h1 == "" {
		c.absent.add(hex, now)
	}
	c.mu.Unlock()
	return ""
}

// absence remembers for a moment which h1 hashes are not in the folder: each request
// for a version asks for those of all its platforms, of which most were never
// fetched. Another process that has the folder may bring them.
type absence struct {
	since time.Time
	of    map[string]bool
}

const (
	absentFor = 5 * time.Second
	maxAbsent = 16 << 10
)

func (a *absence) has(hex string, now time.Time) bool {
	return now.Sub(a.since) < absentFor && a.of[hex]
}

func (a *absence) add(hex string, now time.Time) {
	if now.Sub(a.since) >= absentFor || len(a.of) >= maxAbsent {
		a.since, a.of = now, map[string]bool{}
	}
	a.of[hex] = true
}

func (c *Cache) setH1(hex, h1 string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[hex]
	k.h1 = h1
	c.known[hex] = k
	delete(c.absent.of, hex)
}

// readMeta returns the h1 beside an archive, "" if there is none or it is damaged.
func (c *Cache) readMeta(hex string) string {
	f, err := os.Open(c.meta(hex))
	if err != nil {
		return ""
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, maxMeta))
	h1, _, _ := strings.Cut(string(line), " ")
	if err != nil || string(line) != metaLine(hex, h1) {
		return ""
	}
	return h1
}

func metaLine(hex, h1 string) string {
	if h1 == "" {
		return ""
	}
	return fmt.Sprintf("%s %x\n", h1, sha256.Sum256([]byte(hex+" "+h1)))
}

// writeMeta writes the file beside an archive.
func (c *Cache) writeMeta(hex, h1 string) error {
	f, err := c.create()
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteString(metaLine(hex, h1)); err == nil {
		if err = os.MkdirAll(filepath.Dir(c.meta(hex)), 0o700); err == nil {
			err = os.Rename(f.Name(), c.meta(hex))
		}
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// hashContent computes the h1 of an archive whose bytes are verified, if that is
// wanted and was not done.
func (c *Cache) hashContent(ctx context.Context, f *os.File, b blob) {
	if !c.h1 || c.knownH1(b.hex) != "" {
		return
	}
	c.hashing.Lock()
	defer c.hashing.Unlock()
	h1 := noH1
	hash, err := provider.H1(ctx, f, b.size)
	switch {
	case err == nil:
		h1 = hash.String()
	case !errors.Is(err, provider.ErrNoH1): // that says nothing about the archive
		return
	}
	c.setH1(b.hex, h1)
	if err := c.writeMeta(b.hex, h1); err != nil {
		c.log.WarnContext(ctx, "an h1 hash is not kept", "sha256", b.hex, "err", err)
	}
}
