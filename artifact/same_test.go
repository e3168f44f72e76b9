package artifact_test

import (
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

func TestSame(t *testing.T) {
	h1, err := provider.ParseHash("h1:cRVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVU=")
	if err != nil {
		t.Fatal(err)
	}
	base := artifact.Version{
		Evidence: &ocispec.Descriptor{Digest: digest.FromString("evidence")},
		Packages: []artifact.Package{{Platform: provider.MustParsePlatform("linux_amd64"), Filename: "a.zip", Digest: digest.FromString("a")}},
	}
	for name, change := range map[string]func(*artifact.Version){
		"the index":        func(v *artifact.Version) { v.Index.Digest = digest.FromString("index") },
		"no evidence":      func(v *artifact.Version) { v.Evidence = nil },
		"other evidence":   func(v *artifact.Version) { v.Evidence = &ocispec.Descriptor{Digest: digest.FromString("other")} },
		"another platform": func(v *artifact.Version) { v.Packages[0].Platform = provider.MustParsePlatform("darwin_arm64") },
		"the file name":    func(v *artifact.Version) { v.Packages[0].Filename = "b.zip" },
		"other bytes":      func(v *artifact.Version) { v.Packages[0].Digest = digest.FromString("b") },
		"the size":         func(v *artifact.Version) { v.Packages[0].Size = 10 },
		"the h1":           func(v *artifact.Version) { v.Packages[0].H1 = h1 },
		"one more package": func(v *artifact.Version) { v.Packages = append(v.Packages, v.Packages[0]) },
		"no package":       func(v *artifact.Version) { v.Packages = nil },
	} {
		other := base
		other.Packages = slices.Clone(base.Packages)
		if !other.Same(&base) {
			t.Error("a copy differs")
		}
		if change(&other); other.Same(&base) || base.Same(&other) {
			t.Errorf("%s makes no difference", name)
		}
	}
}
