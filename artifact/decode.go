package artifact

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/document"
)

// manifestLimits bound an index, a manifest or a record. The index of a version has
// some 20 entries of some 15 values each.
var manifestLimits = document.Limits{Bytes: MaxManifestBytes, Values: 50_000, Elements: 5_000}

const (
	// maxMediaType bounds a media type in bytes: RFC 6838 allows 127 for the type, and
	// 127 for the subtype.
	maxMediaType = 255
	// maxProtocols bounds the plugin protocols of one version. Real versions have one
	// or two.
	maxProtocols = 16
	// maxProtocolBytes bounds their text, with the commas between them.
	maxProtocolBytes = 256
)

// parseProtocols returns the plugin protocols in an annotation. An annotation beyond
// the bounds counts as none: nothing but information depends on it.
func parseProtocols(annotation string) []string {
	if len(annotation) > maxProtocolBytes {
		return nil
	}
	return knownProtocols(strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' }))
}

// knownProtocols returns the protocols, or nil if they are beyond the bounds.
func knownProtocols(all []string) []string {
	if len(all) > maxProtocols || len(strings.Join(all, ",")) > maxProtocolBytes {
		return nil
	}
	return all
}

// Unmarshal decodes an index, a manifest or a record. Errors are [ErrTooLarge], if it
// has more values than any provider needs, and [ErrNotProvider].
func Unmarshal(data []byte, out any) error { return unmarshalWithin(manifestLimits, data, out) }

// unmarshalWithin is [Unmarshal] with other limits.
func unmarshalWithin(limits document.Limits, data []byte, out any) error {
	switch err := limits.Unmarshal(data, out); {
	case errors.Is(err, document.ErrTooLarge):
		return fmt.Errorf("%w: %v", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("%w: %v", ErrNotProvider, err)
	}
	return nil
}
