package pusher_test

import (
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
)

// A version that has no package for the platforms wanted takes the place of none
// that has.
func TestLatestAndPlatforms(t *testing.T) {
	b := newSyncBench(t, "1.0.0", "1.1.0", "1.2.0")
	b.options.Prune = true
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	b.want.Latest = 2
	b.mustSync("+1.2.0 +1.1.0")
	without := b.build("1.3.0", "content")
	without.Packages = slices.DeleteFunc(without.Packages, func(p release.Package) bool { return p.OS == "linux" })
	b.origin.Add(without)
	b.mustSync("=1.2.0 =1.1.0")

	// Nor is it pruned itself where it is there.
	b.want.Platforms = nil
	b.mustSync("+1.3.0 ~1.2.0 -1.1.0")
	b.want.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	b.mustSync("=1.3.0 =1.2.0 +1.1.0")
	b.mustSync("=1.3.0 =1.2.0 =1.1.0")
}
