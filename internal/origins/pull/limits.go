package pull

import (
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Limits limit the downloads from origins. They apply to one process, so several gateways have
// separate limits.
type Limits struct {
	// MaxConcurrent is the number of slots, which is the maximum number of packages that are
	// downloaded concurrently; 0 means [DefaultConcurrent]. Downloads without a client get at
	// most half of the slots. Downloads from one host get all slots but two.
	MaxConcurrent int
	// MaxPerDay is the maximum number of downloaded bytes in a day; 0 means no maximum. A day
	// begins at midnight UTC.
	MaxPerDay int64
	// MaxSize is the maximum size in bytes of one package; 0 means no maximum.
	MaxSize int64
	// MaxSpool is the maximum size in bytes of all downloads on disk; 0 means [DefaultSpool].
	MaxSpool int64
	// Free returns how many bytes are free on the disk that holds the downloads. A download
	// that would leave less than 256 MiB is refused. If Free is nil, [New] sets it to the free
	// space of the disk that holds [Options].Spool.
	Free func() (int64, error)
}

const (
	// DefaultConcurrent and DefaultSpool replace limits that are 0 in [Limits].
	DefaultConcurrent = 8
	DefaultSpool      = 8 << 30
	// keepFree is the number of free bytes that downloads leave on the disk for other
	// programs.
	keepFree = 256 << 20
	// spoolStep is the number of bytes by which the room of a package grows if the size of the
	// package is unknown.
	spoolStep = 8 << 20
	// slotPatience is how long a client waits for a slot before it gets a [catalog.BusyError].
	slotPatience = 30 * time.Second
	// retrySlot and retryRoom are the times after which clients are told to retry if all slots
	// are taken or the disk is full. They are short because downloads take seconds.
	retrySlot, retryRoom = 10 * time.Second, 30 * time.Second
)

// busy returns a [catalog.BusyError] with its hint.
func busy(limit string, after time.Duration) error {
	err := &catalog.BusyError{Limit: limit, RetryAfter: after}
	switch limit {
	case "disk":
		return hint.Wrap(err, "make room where packages under way are kept, beside the cache or the embedded registry")
	case "max_concurrent":
		return hint.Wrap(err, "max_concurrent in the pull_through block bounds it, for all clients together; one host has all but two of it")
	}
	return hint.Wrap(err, "%s in the pull_through block bounds it, for all clients together", limit)
}

// SizeError means that a package exceeds max_size.
type SizeError struct{ Size, Max int64 }

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("the package has %d bytes or more, and max_size allows %d", e.Size, e.Max)
}

// Usage says how much of the [Limits] is used.
type Usage struct {
	Fetching int   // the number of packages that are being downloaded
	Today    int64 // bytes, since midnight UTC
	Spool    int64 // bytes
	Limits   Limits
}
