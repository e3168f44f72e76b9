package pusher

import (
	"maps"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
)

// statusOf says what changed from one version to another; before is nil if the version did
// not exist. The index entries of unchanged packages and evidence count only by force.
func statusOf(before, after *artifact.Version, force bool) Status {
	if before == nil {
		return Pushed
	}
	if slices.ContainsFunc(before.Packages, func(p artifact.Package) bool { return !hasPackage(after.Packages, p) }) {
		return Replaced
	}
	switch {
	case len(after.Packages) > len(before.Packages):
		return Completed
	case !sameDigest(before.Evidence, after.Evidence) && before.Evidence == nil:
		return Completed
	case !sameDigest(before.Evidence, after.Evidence):
		return Refreshed
	case force && (correctsEvidenceEntry(before.Evidence, after.Evidence) || anyChanged(before, after, repairsEntry)):
		return Repaired
	case force && anyChanged(before, after, changesH1):
		return Rehashed
	}
	return Unchanged // a forced push may have stored deleted parts again
}

// hasPackage reports whether a list has the same bytes for the same platform.
func hasPackage(packages []artifact.Package, p artifact.Package) bool {
	q := find(packages, p.Platform)
	return q != nil && q.Digest == p.Digest
}

// samePackages reports whether two lists have the same packages. Each list has one package
// a platform.
func samePackages(a, b []artifact.Package) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p artifact.Package) bool { return !hasPackage(b, p) })
}

// sameDigest reports whether two descriptors have the same digest, or both are nil.
func sameDigest(a, b *ocispec.Descriptor) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Digest == b.Digest
}

// sameContent reports whether two versions have the same packages and evidence.
func sameContent(a, b *artifact.Version) bool {
	return sameDigest(a.Evidence, b.Evidence) && samePackages(a.Packages, b.Packages)
}

// anyChanged reports whether any package that both versions have has changed.
func anyChanged(before, after *artifact.Version, changed func(before, after artifact.Package) bool) bool {
	return slices.ContainsFunc(after.Packages, func(p artifact.Package) bool {
		q := find(before.Packages, p.Platform)
		return q != nil && changed(*q, p)
	})
}

// changesH1 reports whether the same package has another h1: hash than before.
func changesH1(before, after artifact.Package) bool {
	return before.Digest == after.Digest && before.H1 != after.H1
}

// repairsEntry reports whether the index entry of the same package differs in more than
// its h1: hash. The platform's manifest contains the hash, too, so that another hash also
// changes the manifest's digest.
func repairsEntry(before, after artifact.Package) bool {
	sameManifest := before.Manifest.Digest == after.Manifest.Digest
	return before.Digest == after.Digest && (before.Size != after.Size || before.Filename != after.Filename || before.UnusedAnnotations != after.UnusedAnnotations ||
		sameManifest && before.Manifest.Size != after.Manifest.Size || !sameManifest && before.H1 == after.H1)
}

// correctsEvidenceEntry reports whether the index entry of the same evidence differs.
func correctsEvidenceEntry(before, after *ocispec.Descriptor) bool {
	return before != nil && after != nil && before.Digest == after.Digest &&
		(before.Size != after.Size || !maps.Equal(before.Annotations, after.Annotations))
}
