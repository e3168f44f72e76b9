package artifact

import (
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/document"
)

// manifestLimits bound an index, a manifest or a record. The index of a version has
// some 20 entries of some 15 values each.
var manifestLimits = document.Limits{Bytes: MaxManifestBytes, Values: 50_000, Elements: 5_000}

// Unmarshal decodes an index, a manifest or a record. Errors are [ErrTooLarge], if it
// has more values than any provider needs, and [ErrNotProvider].
func Unmarshal(data []byte, out any) error {
	switch err := manifestLimits.Unmarshal(data, out); {
	case errors.Is(err, document.ErrTooLarge):
		return fmt.Errorf("%w: %v", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("%w: %v", ErrNotProvider, err)
	}
	return nil
}
