package artifact

import (
	"errors"
	"slices"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// isAny reports whether an error wraps one of the given errors.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// IsInvalid reports whether an error says that this package does not accept stored
// content. Such content stays invalid, because it cannot change under its digest.
func IsInvalid(err error) bool {
	return isAny(err, ErrNotProvider, ErrAmbiguous, ErrTooLarge, ErrForeign) && !errors.Is(err, ErrMissing)
}

// IsContent reports whether an error is about stored content, rather than about the
// connection to the registry, its authentication or its limits. The content is invalid, or
// the registry lacks it or returns other bytes. A registry can be repaired, but invalid
// content stays invalid.
func IsContent(err error) bool {
	return IsInvalid(err) || isAny(err, ErrMissing, ErrDamaged)
}

// Brief returns err with a message of bounded length, for callers that store it: see
// [hint.Brief]. If err wraps a sentinel error of this package, of package trust, or one of
// the errors in also, the result wraps it, too.
func Brief(err error, also ...error) error {
	return hint.Brief(err, append([]error{
		ErrNotProvider, ErrMissing, ErrAmbiguous, ErrTooLarge, ErrForeign, ErrDamaged, ErrNothingToCheck,
		trust.ErrUnsigned, trust.ErrSignature, trust.ErrChecksum, trust.ErrNotListed, provider.ErrNotZip,
	}, also...)...)
}
