package archives

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// metaSuffix ends the name of an archive's meta file. The file has one line: the h1: hash or
	// noH1, a space, and the SHA-256 sum of the archive's digest and the h1: hash. The file is empty
	// until the hash is computed.
	metaSuffix = ".meta"
	noH1       = "none"  // marks archives for which clients could compute different h1 hashes
	maxMeta    = 1 << 10 // the maximum number of bytes that are read from a meta file
)

func (c *Cache) meta(hex string) string { return c.path(hex) + metaSuffix }

// H1 returns the h1: hash of the archive with the given digest, computed from verified bytes. The
// bool is false if the archive is not cached, or has no h1 hash (see [provider.H1]). A nil cache
// has no archives.
func (c *Cache) H1(d digest.Digest) (provider.Hash, bool) {
	if c == nil || d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return provider.Hash{}, false
	}
	hash, err := provider.ParseHash(c.knownH1(d.Encoded()))
	return hash, err == nil
}

// knownH1 returns an archive's h1 hash or [noH1], or "" if the hash is unknown.
func (c *Cache) knownH1(hex string) string {
	c.mu.Lock()
	h1 := c.known[hex].h1
	c.mu.Unlock()
	if h1 != "" {
		return h1
	}
	if h1 = c.readMeta(hex); h1 != "" {
		c.setH1(hex, h1)
	}
	return h1
}

func (c *Cache) setH1(hex, h1 string) { c.update(hex, func(k *known) { k.h1 = h1 }) }

// readMeta returns the h1 hash in an archive's meta file, or "" if there is none or it is damaged.
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

// hashContent computes the unknown h1 hash of a verified archive, if [CacheOptions.H1] is set.
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
	case !errors.Is(err, provider.ErrNoH1): // the archive could not be read
		return
	}
	c.keepH1(ctx, b.hex, h1)
}

// keepH1 stores the h1 hash of an archive.
func (c *Cache) keepH1(ctx context.Context, hex, h1 string) {
	c.setH1(hex, h1)
	if err := privatefolder.Write(c.meta(hex), []byte(metaLine(hex, h1))); err != nil {
		c.log.WarnContext(ctx, "an h1 hash is not kept", "sha256", hex, "err", err)
	}
}
