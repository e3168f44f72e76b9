package artifact

import (
	"errors"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// isAny reports whether err wraps one of the target errors.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// IsInvalid reports whether err means that this package refuses stored content. Such
// content stays invalid, because the content of a digest never changes.
func IsInvalid(err error) bool {
	return isAny(err, ErrNotProvider, ErrNotModule, ErrAmbiguous, ErrTooLarge, ErrForeign) && !errors.Is(err, ErrMissing)
}

// IsContent reports whether err is about stored content: the content is invalid, or the
// registry lacks it or returns other bytes. IsContent is false for errors of the connection
// to the registry, of its authentication and of its limits. A registry can be repaired, but
// invalid content stays invalid: see [IsInvalid].
func IsContent(err error) bool {
	return IsInvalid(err) || isAny(err, ErrMissing, ErrDamaged)
}

// Brief returns err with a message of bounded length, for callers that store the error: see
// [hint.Brief]. The result wraps the same sentinel errors as err, if they belong to this
// package, to package trust or to the list also.
func Brief(err error, also ...error) error {
	return hint.Brief(err, append([]error{
		ErrNotProvider, ErrNotModule, ErrMissing, ErrAmbiguous, ErrTooLarge, ErrForeign, ErrDamaged, ErrNothingToCheck,
		trust.ErrUnsigned, trust.ErrSignature, trust.ErrChecksum, trust.ErrNotListed, provider.ErrNotZip,
	}, also...)...)
}
