package pull

import (
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// TestDescribe shows that the digest of a described index changes when more is known of its packages, such as once the
// registry has a package. A reader that knows the digest knows the same content.
func TestDescribe(t *testing.T) {
	seen := map[digest.Digest]string{}
	for _, tc := range []struct {
		what    string
		size    int64
		h1      string
		content string
	}{
		{"nothing", 0, "", "a"},
		{"the size", 10, "", "a"},
		{"the h1", 10, "h1:cRVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVU=", "a"},
		{"other bytes", 0, "", "b"},
	} {
		p := artifact.Package{Platform: linux, Filename: "a.zip", Digest: digest.FromString(tc.content), Size: tc.size}
		if tc.h1 != "" {
			h1, err := provider.ParseHash(tc.h1)
			if err != nil {
				t.Fatal(err)
			}
			p.H1 = h1
		}
		d := describe(&artifact.Version{Provider: widget, Version: provider.MustParseVersion("1.0.0"), Evidence: &ocispec.Descriptor{}, Packages: []artifact.Package{p}}).Digest
		if other, ok := seen[d]; ok {
			t.Errorf("%s is as %s", tc.what, other)
		}
		seen[d] = tc.what
	}
}
