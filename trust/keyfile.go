package trust

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Key is a public key in a key file. Its self-signatures are verified.
type Key struct {
	Fingerprint string    `json:"fingerprint"` // of the primary key, in the form of [Policy.Keys]
	UserIDs     []string  `json:"user_ids"`    // sorted; anyone can put any user ID into a key
	Created     time.Time `json:"created"`
	Expires     time.Time `json:"expires,omitzero"` // zero means never
	Revoked     bool      `json:"revoked"`
}

var endOfKeyBlock = "-----END " + openpgp.PublicKeyType + "-----"

// ReadKeys reads a key file, which contains blocks of public keys in ASCII armour. It
// returns an error if a key is invalid or private, if there is no key, or if the keys
// exceed the limits for the keys of a release.
func ReadKeys(ctx context.Context, file string) ([]Key, error) {
	file = strings.TrimPrefix(file, "\ufeff") // the byte order mark of editors on Windows
	blocks := strings.SplitAfter(file, endOfKeyBlock)
	if tail := len(blocks) - 1; tail > 0 && strings.TrimSpace(blocks[tail]) == "" {
		blocks = blocks[:tail]
	}
	var out []Key
	err := readEach(ctx, blocks, func(r ring, keys openpgp.EntityList) error {
		if len(keys) < len(r.keys) {
			return hint.New("a key in the file is invalid", publicKeyHelp)
		}
		for _, k := range keys {
			out = append(out, keyOf(k))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func keyOf(e *openpgp.Entity) Key {
	k := Key{Fingerprint: fingerprintOf(e.PrimaryKey), Created: e.PrimaryKey.CreationTime.UTC(), UserIDs: []string{}, Revoked: e.Revoked(time.Now())}
	for id := range e.Identities {
		k.UserIDs = append(k.UserIDs, id)
	}
	slices.Sort(k.UserIDs)
	if s, _ := e.PrimarySelfSignature(); s != nil && s.KeyLifetimeSecs != nil && *s.KeyLifetimeSecs > 0 {
		k.Expires = k.Created.Add(time.Duration(*s.KeyLifetimeSecs) * time.Second)
	}
	return k
}
