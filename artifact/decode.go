package artifact

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

// manifestLimits limits the JSON of an index, a manifest or a record. The index of a
// version usually has about 20 entries with about 15 values each.
var manifestLimits = document.Limits{Bytes: MaxManifestBytes, Values: 50_000, Elements: 5_000}

const (
	// maxMediaType is the maximum length of a media type in bytes. RFC 6838 allows 127
	// for the type and 127 for the subtype.
	maxMediaType = 255
	// maxProtocols is the maximum number of plugin protocols of one version. Real
	// versions have one or two.
	maxProtocols = 16
	// maxProtocolBytes is the maximum length in bytes of the protocols joined by commas.
	maxProtocolBytes = 256
)

// parseProtocols returns the plugin protocols in an annotation. It returns nil if they
// exceed the limits. That is no error, because protocols are only informative.
func parseProtocols(annotation string) []string {
	if len(annotation) > maxProtocolBytes {
		return nil
	}
	return knownProtocols(strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' }))
}

// knownProtocols returns the given protocols, or nil if they exceed the limits.
func knownProtocols(all []string) []string {
	if len(all) > maxProtocols || len(strings.Join(all, ",")) > maxProtocolBytes {
		return nil
	}
	return all
}

// Unmarshal decodes an index, a manifest or a record. It returns [ErrTooLarge] if the
// document is larger than a provider's document can be, or contains more values. It returns
// [ErrNotProvider] if the document is otherwise invalid.
func Unmarshal(data []byte, out any) error {
	return unmarshalWithin(manifestLimits, data, out, ErrNotProvider)
}

// unmarshalWithin is like [Unmarshal], but with different limits. It returns an error that
// wraps wrong instead of [ErrNotProvider].
func unmarshalWithin(limits document.Limits, data []byte, out any, wrong error) error {
	switch err := limits.Unmarshal(data, out); {
	case errors.Is(err, document.ErrTooLarge):
		return fmt.Errorf("%w: %v", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("%w: %v", wrong, err)
	}
	return nil
}
