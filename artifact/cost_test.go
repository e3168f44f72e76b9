package artifact

import (
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/testkit/cost"
)

// TestCostOfManifests measures the most expensive indexes, manifests and records.
func TestCostOfManifests(t *testing.T) {
	index := func(data []byte) error {
		_, err := decodeIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
		return err
	}
	lint := func(data []byte) error {
		_, flaws := examineIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
		for _, f := range flaws {
			if !f.minor {
				return f.err
			}
		}
		return nil
	}
	manifest := func(data []byte) error { _, err := decodeManifest(data, TypeTarget); return err }
	record := func(data []byte) error { _, err := decodeRecord(data); return err }
	targets := `{"artifactType":"application/vnd.opentofu.provider-target"}`
	for name, tc := range map[string]struct {
		document []byte
		decode   func([]byte) error
	}{
		"index: entries":              {cost.Filled(MaxManifestBytes, `{"manifests":[`, `{}`, `]}`), index},
		"index: entries, all flaws":   {cost.Filled(MaxManifestBytes, `{"manifests":[`, targets, `]}`), lint},
		"index: as many as there may": {cost.Counted(manifestLimits.Elements, `{"manifests":[`, targets, `]}`), lint},
		"index: annotations":          {cost.Filled(MaxManifestBytes, `{"annotations":{`, `"%d":""`, `}}`), index},
		"index: URLs":                 {cost.Filled(MaxManifestBytes, `{"manifests":[{"urls":[`, `""`, `]}]}`), index},
		"manifest: layers":            {cost.Filled(MaxManifestBytes, `{"layers":[`, `{}`, `]}`), manifest},
		"record: protocols":           {cost.Filled(maxEvidenceBytes, `{"protocols":[`, `""`, `]}`), record},
	} {
		t.Run(name, func(t *testing.T) {
			cost.Check(t, len(tc.document), true, func() error { return tc.decode(tc.document) })
		})
	}
}
