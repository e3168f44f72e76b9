package trust

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestCostOfSigningKeys shows that the most expensive signing_keys objects stay within
// the memory limit.
func TestCostOfSigningKeys(t *testing.T) {
	testkit.LeaveToAll(t)
	for name, object := range map[string][]byte{
		"empty keys":     cost.Filled(4<<20, `{"gpg_public_keys":[`, `{}`, `]}`),
		"one name again": cost.Filled(4<<20, `{`, `"gpg_public_keys":[{}]`, `}`),
	} {
		t.Run(name, func(t *testing.T) {
			cost.Check(t, len(object), true, func() error {
				keys, err := ParseSigningKeys(object)
				if err == nil {
					t.Errorf("%d keys were read", len(keys))
				}
				return err
			})
		})
	}
}
