package artifact

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/document"
)

// manifestLimits bound an index, a manifest or a record. The index of a version has
// about 20 entries with about 15 values each.
var manifestLimits = document.Limits{Bytes: MaxManifestBytes, Values: 50_000, Elements: 5_000}

const (
	// maxMediaType bounds a media type in bytes. RFC 6838 allows 127 for the type and 127
	// for the subtype.
	maxMediaType = 255
	// maxProtocols bounds the plugin protocols of one version. Real versions have one
	// or two.
	maxProtocols = 16
	// maxProtocolBytes bounds the protocols joined by commas, in bytes.
	maxProtocolBytes = 256
)

// parseProtocols returns the plugin protocols in an annotation. It returns nil if the
// annotation exceeds the bounds, because protocols are only informative.
func parseProtocols(annotation string) []string {
	if len(annotation) > maxProtocolBytes {
		return nil
	}
	return knownProtocols(strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' }))
}

// knownProtocols returns the protocols, or nil if they exceed the bounds.
func knownProtocols(all []string) []string {
	if len(all) > maxProtocols || len(strings.Join(all, ",")) > maxProtocolBytes {
		return nil
	}
	return all
}

// Unmarshal decodes an index, a manifest or a record. It returns [ErrTooLarge] if there
// are more values than a provider can need, and [ErrNotProvider] for other errors.
func Unmarshal(data []byte, out any) error { return unmarshalWithin(manifestLimits, data, out) }

// unmarshalWithin is [Unmarshal] with different limits.
func unmarshalWithin(limits document.Limits, data []byte, out any) error {
	switch err := limits.Unmarshal(data, out); {
	case errors.Is(err, document.ErrTooLarge):
		return fmt.Errorf("%w: %v", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("%w: %v", ErrNotProvider, err)
	}
	return nil
}
