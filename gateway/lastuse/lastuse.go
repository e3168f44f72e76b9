// Package lastuse decides which requests of clients use a version of a provider or a module, and remembers when each
// version was last used. "ocibridge usage" reads the same uses from the log.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// It remembers no clients, and stores nothing: the times are those of one process.
package lastuse

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// Counts reports whether a request uses the version that it is about. The request must be about one version's packages: it
// requests a package, the description that leads to it, or the manifest that the version's tag names below /v2/. The status
// is 0 if the response was broken off.
func Counts[T string | []byte](method, path T, status int) bool {
	switch status {
	case 0, 200, 206, 304, 307:
		const registry = "/v2/"
		return string(method) == "GET" || len(path) >= len(registry) && string(path[:len(registry)]) == registry
	}
	return false
}

// MaxVersions is the maximum number of versions that [Times] remembers.
const MaxVersions = 10_000

// Times are the times of the last uses of versions. If there are more than [MaxVersions], the version whose last use is
// the longest ago is forgotten. All methods are safe for concurrent use. A nil *Times remembers nothing.
type Times struct {
	mu    sync.Mutex
	since time.Time // every use since then is remembered
	last  *simplelru.LRU[key, time.Time]
}

// key has only strings that do not keep a request in memory: the packages provider and module copy what they parse.
type key struct {
	of      subject.Address
	version provider.Version
}

// New returns times without a use. Later uses must be added.
func New() *Times { return newTimes(MaxVersions, time.Now()) }

func newTimes(versions int, start time.Time) *Times {
	t := &Times{since: start}
	t.last, _ = simplelru.NewLRU(versions, func(_ key, at time.Time) { t.since = later(t.since, at) }) // fails only for a size below 1
	return t
}

// Add records that a version was used.
func (t *Times) Add(of subject.Address, v provider.Version, at time.Time) {
	if t == nil {
		return
	}
	k := key{of, v}
	t.mu.Lock()
	defer t.mu.Unlock()
	before, _ := t.last.Get(k)
	t.last.Add(k, later(before, at))
}

// Last returns when a version was last used, or the zero time if no use is remembered. The version was then not used
// after since, which is the time of the start, or that of the last use that was forgotten.
func (t *Times) Last(of subject.Address, v provider.Version) (at, since time.Time) {
	if t == nil {
		return at, since
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, _ = t.last.Peek(key{of, v})
	return at, t.since
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
