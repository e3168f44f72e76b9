package pull

import (
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// Limits bound downloads from origins. They apply to one process: several gateways have
// several sets of them.
type Limits struct {
	// MaxConcurrent bounds how many packages are downloaded at once; 0: [DefaultConcurrent]. Downloads without
	// a client get half of these slots at most, and downloads from one host all but two.
	MaxConcurrent int
	// MaxPerDay bounds how many bytes of packages are downloaded in a day, which begins at
	// midnight UTC; 0: no bound.
	MaxPerDay int64
	// MaxSize bounds the bytes of one package; 0: no bound.
	MaxSize int64
	// MaxSpool bounds the bytes of downloads on disk; 0: [DefaultSpool].
	MaxSpool int64
	// Free returns how many bytes are free on the disk of the downloads. A download that
	// would leave less than 256 MiB is refused. nil: the disk is not checked.
	Free func() (int64, error)
}

const (
	// DefaultConcurrent and DefaultSpool are the limits that are 0 in [Limits].
	DefaultConcurrent = 8
	DefaultSpool      = 8 << 30
	// keepFree is how many bytes of the disk are left to other programs.
	keepFree = 256 << 20
	// spoolStep is by how many bytes the room of a package of unknown size grows.
	spoolStep = 8 << 20
	// slotPatience is how long a client waits for a slot before it gets a [catalog.BusyError].
	slotPatience = 30 * time.Second
	// retrySlot and retryRoom tell clients when to retry if all slots, or the disk, are
	// taken: downloads take seconds.
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

// SizeError is the error for a package that exceeds max_size.
type SizeError struct{ Size, Max int64 }

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("the package has %d bytes or more, and max_size allows %d", e.Size, e.Max)
}

// Usage is how much of [Limits] is taken.
type Usage struct {
	Fetching int   // packages
	Today    int64 // bytes, since midnight UTC
	Spool    int64 // bytes
	Limits   Limits
}
