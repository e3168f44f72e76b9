package origin

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/cost"
	"github.com/ocibridge/ocibridge/provider"
)

func TestListingOnly(t *testing.T) {
	a := provider.MustParseAddress("registry.example.com/acme/widget")
	document := `{"versions":[
		{"version":"1.0.0","protocols":["5.0"],"platforms":[{"os":"linux","arch":"amd64"}]},
		{"version":"1.1.0","platforms":[{"os":"linux","arch":"arm64"}]},
		{"version":"1.2.0","platforms":[{"os":"linux","arch":"amd64"}]},
		{"version":"1.3.0"}],"warnings":["it is old"]}`
	r := NewRegistry(RegistryOptions{Transport: expensive{[]byte(document)}})
	l, err := r.Versions(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	versions := []provider.Version{l.Versions[0], l.Versions[2], l.Versions[3]}
	only := l.Only(versions)
	if !reflect.DeepEqual(only.Versions, versions) || !reflect.DeepEqual(only.Warnings, l.Warnings) || !reflect.DeepEqual(only.OriginWarnings, []string{"it is old"}) || len(only.platforms) != 3 || len(only.protocols) != 3 {
		t.Errorf("%+v of %+v", only, l)
	}
	for _, v := range versions {
		platforms, err := r.Platforms(t.Context(), a, only, v)
		if err != nil || !reflect.DeepEqual(platforms, l.platforms[v]) || !reflect.DeepEqual(only.Protocols(v), l.Protocols(v)) {
			t.Errorf("%s: %v, %v, %v", v, platforms, only.Protocols(v), err)
		}
	}
	if first, second := only.platforms[versions[0]], only.platforms[versions[1]]; &first[0] != &second[0] {
		t.Error("two versions with the same platforms do not share them")
	}
	if _, err := r.Release(t.Context(), a, only, l.Versions[1], nil); err == nil {
		t.Error("a version that was left out is there")
	}
	// The listing of a network mirror has only versions.
	mirror := (&Listing{Versions: versions}).Only(versions[:1])
	if len(mirror.Versions) != 1 || len(mirror.platforms) != 0 || len(mirror.protocols) != 0 {
		t.Errorf("%+v", mirror)
	}
}

// TestListingOnlyIsCounted shows that the size is counted, and that the listing keeps
// nothing of its document in memory.
func TestListingOnlyIsCounted(t *testing.T) {
	a := provider.MustParseAddress("registry.example.com/acme/widget")
	platforms := string(cost.Counted(maxPlatforms, "", `{"os":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxx","arch":"y%d"}`, ""))
	for name, document := range map[string][]byte{
		"versions":        cost.Counted(maxVersions, `{"versions":[`, `{"version":"1.0.%d"}`, `]}`),
		"protocols":       cost.Counted(9_000, `{"versions":[`, `{"version":"1.0.%d","protocols":["1","2","3","4","5"]}`, `]}`),
		"platforms":       cost.Counted(1_000, `{"versions":[`, `{"version":"1.0.%d","platforms":[`+platforms+`]}`, `]}`),
		"spaced warnings": cost.Counted(maxWarnings, `{"versions":[],"warnings":[`, `"x`+strings.Repeat(" ", 8_000)+`"`, `]}`),
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRegistry(RegistryOptions{Transport: expensive{document}})
			only := func() *Listing {
				l, err := r.Versions(t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				return l.Only(l.Versions)
			}
			cost.Kept(t, uint64(only().Bytes())+64<<10, func() any { return only() })
		})
	}
}
