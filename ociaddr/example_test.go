package ociaddr_test

import (
	"fmt"

	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// A tag cannot contain the + of a version, so it has an underscore in its place. Tags that name no version are left out.
func ExampleVersions() {
	tag, err := ociaddr.VersionTag(provider.MustParseVersion("1.0.0+build.5"))
	fmt.Println(tag, err)
	fmt.Println(ociaddr.Versions([]ociaddr.Tag{"1.2.0", "latest", tag}))
	// Output:
	// 1.0.0_build.5 <nil>
	// [1.0.0+build.5 1.2.0]
}
