package trust

import (
	"encoding/json"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// ParseSigningKeys returns the armoured keys of a signing_keys object of the
// provider registry protocol, in its order; none if there is no object.
func ParseSigningKeys(object json.RawMessage) ([]string, error) {
	if len(object) == 0 || string(object) == "null" {
		return nil, nil
	}
	var keys struct {
		GPG []struct {
			ASCIIArmor string `json:"ascii_armor"`
		} `json:"gpg_public_keys"`
	}
	if err := json.Unmarshal(object, &keys); err != nil {
		return nil, hint.Wrap(fmt.Errorf("signing_keys: %w", err), "the registry does not keep to the provider registry protocol; nothing was stored")
	}
	var out []string
	for _, k := range keys.GPG {
		out = append(out, k.ASCIIArmor)
	}
	return out, nil
}
