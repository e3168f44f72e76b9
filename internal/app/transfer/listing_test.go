package transfer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/provider"
)

func writeListing(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCostOfListing shows that decoding the most expensive listings costs no more than a limit.
func TestCostOfListing(t *testing.T) {
	testkit.LeaveToAll(t)
	four := `{"versions":[` + strings.Repeat(`{},`, 3) + `{}]}`
	for name, tc := range map[string]struct {
		document []byte
		refused  bool
	}{
		"as many providers as allowed": {cost.Counted(40_000, `{"providers":[`, `{"provider":"%d"}`, `]}`), false},
		"as many versions as allowed":  {cost.Counted(40_000, `{"providers":[{"versions":[`, `{"version":"%d","digest":"x"}`, `]}]}`), false},
		"versions of many providers":   {cost.Counted(29_000, `{"providers":[`, four, `]}`), false},
		"more providers":               {cost.Filled(12<<20, `{"providers":[`, `{}`, `]}`), true},
		"more versions":                {cost.Filled(12<<20, `{"providers":[{"versions":[`, `{}`, `]}]}`), true},
		"a large file":                 {cost.Filled(40<<20, `{"providers":["`, `xxxxxxxxxxxxxxxx`, `"]}`), true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "list.json")
			writeListing(t, file, tc.document)
			cost.Check(t, len(tc.document), tc.refused, func() error {
				_, err := readListing(t.Context(), file)
				return err
			})
		})
	}
}

// FuzzListing shows that a listing is only evidence of a version if it contains the digest of the version's index.
func FuzzListing(f *testing.F) {
	a, v := provider.MustParseAddress("registry.acme.example/acme/null"), provider.MustParseVersion("1.0.0")
	found := &artifact.Version{Index: ocispec.Descriptor{Digest: digest.FromString("index")}, Packages: []artifact.Package{{Size: 1}}}
	f.Add([]byte(`{"providers":[{"provider":"` + a.String() + `","versions":[{"version":"1.0.0","digest":"` + found.Index.Digest.String() + `"}]}]}`))
	f.Add([]byte(`{"providers":[{"provider":"` + a.String() + `","versions":null,"error":{}}]}`))
	f.Add([]byte(`{"providers":null}`))
	name := filepath.Join(f.TempDir(), "list.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		writeListing(t, name, data)
		packages, err := readListing(t.Context(), name)
		if err != nil {
			return
		}
		got, err := packages(t.Context(), a, v, found)
		if err != nil || len(got) > 0 && !strings.Contains(string(data), found.Index.Digest.Encoded()) && !strings.Contains(string(data), `\u`) {
			t.Errorf("%q: %v, %v", data, got, err)
		}
	})
}
