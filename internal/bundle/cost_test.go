package bundle_test

import (
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/bundle"
	"github.com/ocibridge/ocibridge/internal/testkit/cost"
)

// TestCostOfIndex measures the most expensive files index.json.
func TestCostOfIndex(t *testing.T) {
	for name, document := range map[string][]byte{
		"entries":                       cost.Filled(12<<20, `{"manifests":[`, `{}`, `]}`),
		"as many as there may be":       cost.Counted(40_000, `{"manifests":[`, `{"annotations":{"x":"%d"}}`, `]}`),
		"annotations of one entry":      cost.Filled(12<<20, `{"manifests":[{"annotations":{`, `"%d":""`, `}}]}`),
		"platform features without end": cost.Filled(12<<20, `{"manifests":[{"platform":{"os.features":[`, `""`, `]}}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			dir := create(t, false)
			write(t, filepath.Join(dir, "index.json"), document)
			cost.Check(t, len(document), true, func() error {
				_, err := bundle.Open(t.Context(), dir, false)
				return err
			})
		})
	}
}
