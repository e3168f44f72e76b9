package pusher

import (
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

type conflictKind string

const (
	conflictPackage    conflictKind = "package"    // the tag names a package with another digest
	conflictUnlisted   conflictKind = "unlisted"   // the evidence does not list the package
	conflictChecksum   conflictKind = "checksum"   // the evidence lists another digest
	conflictUnreadable conflictKind = "unreadable" // the evidence cannot be read
)

// conflict is the reason why a release is refused beside the stored version.
type conflict struct {
	kind        conflictKind
	platform    provider.Platform // of the package
	found, want digest.Digest     // the package's digest, and the one that the release or the evidence gives
	ofRelease   bool              // the evidence is the release's
	err         error             // of unreadable evidence
}

const registryUnchanged = "the registry is left as it was; "

// conflictError returns a conflict as an error with a hint. It wraps [ErrConflict].
func (w *push) conflictError(c *conflict) error {
	version := fmt.Sprintf("%s %s", w.release.Provider(), w.release.Version())
	switch c.kind {
	case conflictUnreadable:
		return hint.Wrap(fmt.Errorf("%s: %w: the evidence in %s:%s cannot be read: %w", version, ErrConflict, w.dest.Repository, w.tag, c.err),
			registryUnchanged+"--force replaces the evidence")
	case conflictPackage:
		return hint.Wrap(fmt.Errorf("%s for %s: %w: %s:%s names the package %s, the release has %s", version, c.platform, ErrConflict, w.dest.Repository, w.tag, c.found, c.want),
			registryUnchanged+"find out which of them is right. --force replaces the package, and lock files that know the old one will refuse the new one")
	}
	document, help := "the SHA256SUMS of the release",
		"find out where the stored package came from. --force removes it, and lock files that know it will refuse the version"
	if !c.ofRelease {
		document = fmt.Sprintf("the SHA256SUMS on which %s:%s was accepted", w.dest.Repository, w.tag)
		help = "push the package from its origin, which has a SHA256SUMS that lists it. --force stores this package and its evidence: the version then counts as unsigned if this evidence is unsigned"
	}
	err := fmt.Errorf("%s for %s: %w: %s lists %s, and the package is %s", version, c.platform, ErrConflict, document, c.want, c.found)
	if c.kind == conflictUnlisted {
		err = fmt.Errorf("%s for %s: %w: %s does not list its package: %w", version, c.platform, ErrConflict, document, trust.ErrNotListed)
	}
	return hint.Wrap(err, registryUnchanged+"%s", help)
}
