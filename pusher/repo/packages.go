package repo

import (
	"strings"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// Find returns the package for a platform, or nil if there is none.
func Find(packages []artifact.Package, p provider.Platform) *artifact.Package {
	for i := range packages {
		if packages[i].Platform == p {
			return &packages[i]
		}
	}
	return nil
}

// HasPackage reports whether a list has a package with the same platform and the same digest.
func HasPackage(packages []artifact.Package, p artifact.Package) bool {
	q := Find(packages, p.Platform)
	return q != nil && q.Digest == p.Digest
}

func JoinPlatforms(packages []artifact.Package) string {
	var platforms []provider.Platform
	for _, p := range packages {
		platforms = append(platforms, p.Platform)
	}
	return JoinNames(platforms)
}

func JoinNames(platforms []provider.Platform) string {
	var names []string
	for _, p := range platforms {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}
