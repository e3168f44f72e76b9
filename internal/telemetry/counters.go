package telemetry

import (
	"sync/atomic"

	"github.com/ocibridge/ocibridge/internal/fresh"
)

// Counters of the gateway's packages. Their zero values count from 0. They outlive a
// reload of the configuration: the new catalog, cache and so on count in the same ones.

// CatalogCounters count answers of the catalog by their source.
type CatalogCounters = fresh.Counters

// ArchiveCounters count requests for archives.
type ArchiveCounters struct {
	// The source of the bytes: the cache, a fetch into the cache that was under way, or
	// the registry past the cache. A redirected client got the bytes elsewhere.
	Cached, Fetched, Streamed, Redirected Served
	// BrokenOff counts answers that the registry or the cache ended early, rather than
	// the client.
	BrokenOff atomic.Uint64

	// Hits, Joins and Misses count lookups: the cache has the archive, is fetching it, or
	// starts to fetch it. Bypasses count archives that the cache cannot store.
	Hits, Joins, Misses, Bypasses atomic.Uint64
	// Evicted and EvictedBytes count archives that the cache removed to make room.
	Evicted, EvictedBytes atomic.Uint64
	// Damaged counts archives in the cache that differed from their digest.
	Damaged atomic.Uint64
}

// Served counts answers and their bytes.
type Served struct{ Answers, Bytes atomic.Uint64 }

// Add counts one answer.
func (s *Served) Add(bytes int64) {
	s.Answers.Add(1)
	s.Bytes.Add(uint64(max(0, bytes)))
}

// VerifyCounters count indexes by the verdict on their evidence.
type VerifyCounters struct {
	Verified, Refused atomic.Uint64
	Undecided         atomic.Uint64 // checks that failed because the registry failed
	Withheld          atomic.Uint64 // packages of verified versions that are not served
}

// AccessCounters count refused requests by their reason.
type AccessCounters struct {
	Unknown     atomic.Uint64 // no token, or an unknown one
	Forbidden   atomic.Uint64 // a known token without the permission
	Capability  atomic.Uint64 // a link that is expired, altered or for something else
	Unavailable atomic.Uint64 // the issuer of the token did not answer
}
