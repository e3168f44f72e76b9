package origin

import (
	"fmt"

	"github.com/ocibridge/ocibridge/internal/document"
)

// Bounds of what an origin says about a provider. Decoded, a document within them
// takes less than 64 MiB.
const (
	// maxVersions bounds the versions of a provider. The public provider with the
	// longest list has fewer than 2,000.
	maxVersions = 10_000
	// maxPlatforms bounds the platforms of one version. Go knows fewer than 50.
	maxPlatforms = 128
	// maxProtocols bounds the plugin protocols of one version. Real versions have one
	// or two. Package artifact stores no more.
	maxProtocols = 16
	// maxWarnings bounds the warnings in one list.
	maxWarnings = 64
	// maxURL bounds a URL in bytes. Real ones, signatures of storage included, have
	// fewer than 2,000.
	maxURL = 8 << 10
	// maxHashes bounds the hashes of one package. Real packages have one of each of
	// two schemes.
	maxHashes = 64
)

var (
	// listLimits are for documents about all versions of a provider. The longest list
	// of a public provider has some 2 MiB and 160,000 values.
	listLimits = document.Limits{Bytes: 8 << 20, Values: 400_000, Elements: maxVersions}
	// indexLimits are for the versions that a network mirror or a mirror folder lists: a
	// map, of which repeated members would be joined.
	indexLimits = document.Limits{Bytes: 8 << 20, Values: 2*maxVersions + 1_000, Elements: maxVersions}
	// versionLimits are for documents about one version or one package. Signing keys
	// take most of their bytes.
	versionLimits = document.Limits{Bytes: 4 << 20, Values: 20_000, Elements: 1_000}
)

// checkCount fails if there is more of something than there may be.
func checkCount(what string, n, most int) error {
	if n <= most {
		return nil
	}
	return fmt.Errorf("%w: %d %s, more than %d", document.ErrTooLarge, n, what, most)
}
