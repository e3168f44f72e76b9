package telemetry

import (
	"sync/atomic"

	"github.com/ocibridge/ocibridge/internal/base/fresh"
)

// The types below are counters that the gateway's packages increment. Their zero values
// count from 0. Counters survive a reload of the configuration, because the new catalog and
// cache use the same counters.

// CatalogCounters count the catalog's answers by the source of the answer.
type CatalogCounters = fresh.Counters

// ArchiveCounters count requests for archives.
type ArchiveCounters struct {
	// These fields count responses by the source of their bytes: the cache, a running fetch
	// into the cache, or the registry without the cache. Redirected counts responses that
	// sent the client to another server.
	Cached, Fetched, Streamed, Redirected Served
	// BrokenOff counts responses that broke off because of the registry or the cache. It
	// does not count responses that the client aborted.
	BrokenOff atomic.Uint64

	// Hits, Joins and Misses count lookups of archives that the cache contains, is
	// already fetching, or starts to fetch. Bypasses counts archives that the cache cannot
	// store.
	Hits, Joins, Misses, Bypasses atomic.Uint64
	// Evicted and EvictedBytes count the archives that the cache removed to make room, and
	// their bytes.
	Evicted, EvictedBytes atomic.Uint64
	// Damaged counts archives in the cache that did not match their digest.
	Damaged atomic.Uint64
}

// Served counts responses and their bytes.
type Served struct{ Answers, Bytes atomic.Uint64 }

// Add counts one response with the given number of bytes.
func (s *Served) Add(bytes int64) {
	s.Answers.Add(1)
	s.Bytes.Add(uint64(max(0, bytes)))
}

// VerifyCounters count indexes by the verdict on their evidence.
type VerifyCounters struct {
	Verified, Refused atomic.Uint64
	Undecided         atomic.Uint64 // indexes that could not be checked because the registry failed
	Withheld          atomic.Uint64 // packages of verified versions that are not served
}

// AccessCounters count refused requests by their reason.
type AccessCounters struct {
	Unknown     atomic.Uint64 // no token, or an unknown token
	Forbidden   atomic.Uint64 // a known token without permission for the request
	Capability  atomic.Uint64 // a link that is expired, altered or for another file
	Unavailable atomic.Uint64 // the issuer of the token did not answer
}
