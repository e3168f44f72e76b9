package repo

import (
	"maps"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// The protocol of announcements. TestAnnouncementsModel checks it in every interleaving.
//
//  1. A push of some platforms announces itself before it reads the index that it will
//     overwrite.
//  2. In each round, the push lists the announcements, reads them, and then reads the index.
//     It writes the union of the index and the announced packages. The last round finds that
//     the index already contains the union.
//  3. The push marks its announcement as done, and reads all announcements once more. If no
//     other announcement is open, the push deletes the announcements that the index
//     contains. Otherwise it leaves them to the push whose announcement is open. There is one
//     exception. A push that saw no other announcement in its last round first deletes its
//     own announcement, and then reads the other announcements. If the delete fails, the push
//     marks its announcement as done instead.
//
// A push writes or deletes only on the basis of what it read within the last minute. A push
// that takes long renews its announcement. A push without an announcement announces itself
// when it finds an open announcement of another push. An announcement is deleted by its
// digest, so a newer announcement under the same tag stays.
const (
	// crashAge is the age of an announcement at which its push counts as crashed, unless the announcement is marked as
	// done.
	crashAge = time.Hour
	// RenewAge is the age of an announcement at which its push renews it.
	RenewAge = crashAge / 2
	// MaxReadAge is the maximum age of the data that a push relies on when it writes or
	// deletes. A push reads older data again.
	MaxReadAge = time.Minute
	// maxAnnouncements is the maximum number of announcement tags of one version.
	maxAnnouncements = 200
)

// Announced is an announcement in the registry.
type Announced struct {
	Tag      ociaddr.Tag
	Manifest ocispec.Descriptor
	// before is the manifest that the tag named until the announcement was marked as done; nil if the
	// announcement is not done, or if an earlier release of ocibridge wrote the announcement.
	before   *ocispec.Descriptor
	Packages []artifact.Package
	Evidence *ocispec.Descriptor // said to be signed, but not verified yet; nil: none
	Docs     *ocispec.Descriptor // the documentation; nil: none
	At       time.Time           // zero if an earlier release of ocibridge wrote it
	done     bool
	moved    bool // the tag names a placeholder, which is deleted together with the tag
}

// open reports whether the push that announced itself might still write the version's index.
func (a Announced) open(now time.Time) bool { return !a.done && !a.Old(now) }

// Old reports whether the announcement is so old that its push has certainly ended.
func (a Announced) Old(now time.Time) bool { return now.Sub(a.At).Abs() >= crashAge }

// In reports whether an index has all announced packages, signed evidence, and documentation, perhaps that of another push.
func (a Announced) In(index *artifact.Version) bool {
	return (a.Docs == nil || index.Docs != nil) && (a.Evidence == nil || index.Evidence != nil && (index.Evidence.Digest == a.Evidence.Digest || saysSigned(*index.Evidence))) &&
		!slices.ContainsFunc(a.Packages, func(p artifact.Package) bool { return !HasPackage(index.Packages, p) })
}

// adds reports whether an index lacks an announced platform, signed evidence, or documentation.
func (a Announced) adds(index *artifact.Version) bool {
	return !Announced{Evidence: a.Evidence, Docs: a.Docs}.In(index) || slices.ContainsFunc(a.Packages, func(p artifact.Package) bool { return Find(index.Packages, p.Platform) == nil })
}

// saysSigned reports whether the index entry of evidence says that the evidence is signed.
func saysSigned(evidence ocispec.Descriptor) bool {
	return maps.Equal(evidence.Annotations, artifact.DescribeEvidence(evidence, trust.Signed).Annotations)
}

// AnyOpen reports whether the push of any announcement might still write the version's index.
func AnyOpen(all []Announced, now time.Time) bool {
	return slices.ContainsFunc(all, func(a Announced) bool { return a.open(now) })
}

// IsPartOf reports whether t is an announcement tag of the version v.
func IsPartOf(t ociaddr.Tag, v provider.Version) bool {
	of, ok := t.PartOf()
	return ok && of == v
}
