package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"

	"github.com/ocibridge/ocibridge/internal/document"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// signingKeysLimits bound a signing_keys object, as an origin sends it or evidence
// keeps it.
var signingKeysLimits = document.Limits{Bytes: 4 << 20, Values: 10_000, Elements: 1_000}

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
	if err := signingKeysLimits.Unmarshal(object, &keys); err != nil {
		return nil, hint.Wrap(fmt.Errorf("signing_keys: %w", err), "the registry does not keep to the provider registry protocol; nothing was stored")
	}
	var out []string
	for _, k := range keys.GPG {
		out = append(out, k.ASCIIArmor)
	}
	return out, nil
}

// maxKeyBytes bounds one armoured public key. Keys with many certifications reach
// some 100 KiB.
const maxKeyBytes = 4 << 20

// fingerprintOf returns that of the primary key, as Policy.Keys has it.
func fingerprintOf(e *openpgp.Entity) string {
	return fmt.Sprintf("%X", e.PrimaryKey.Fingerprint)
}

const (
	publicKeyHelp  = "a public key is in ASCII armour, as gpg --armor --export KEYID writes it"
	privateKeyHelp = "keys are stored with the release, for everybody to read: give what gpg --armor --export KEYID writes. Whoever has published a private key must revoke it"
)

// ring is a key as it reads, or why it does not.
type ring struct {
	keys openpgp.EntityList
	err  error
}

// readKeys reads keys, which are stored with the release whether they are needed
// or not: it fails if any of them is private. A key that does not read counts only
// when it is its turn.
func readKeys(armoured []string) ([]ring, error) {
	var out []ring
	for _, key := range armoured {
		keys, err := readKey(key)
		if errors.Is(err, errPrivateKey) {
			return nil, err
		}
		out = append(out, ring{keys, err})
	}
	return out, nil
}

// readKey reads an armoured block with public keys. Clients would take private
// ones for that, too; here it is an error that says so.
func readKey(key string) (openpgp.EntityList, error) {
	if len(key) > maxKeyBytes {
		return nil, fmt.Errorf("a signing key has more than %d bytes", maxKeyBytes)
	}
	ring, err := readRing(key)
	switch {
	case errors.Is(err, errPrivateKey):
		return nil, hint.Wrap(fmt.Errorf("a signing key does not read: %w", err), privateKeyHelp)
	case err != nil:
		return nil, hint.Wrap(fmt.Errorf("a signing key does not read: %w", err), publicKeyHelp)
	}
	return ring, nil
}

var errPrivateKey = errors.New("it is a private key")

func readRing(key string) (ring openpgp.EntityList, err error) {
	defer surviveLibrary(&err)
	if strings.Contains(key, "-----BEGIN "+openpgp.PrivateKeyType) {
		return nil, errPrivateKey // also where it stands after another block
	}
	block, err := armor.Decode(strings.NewReader(key))
	switch {
	case err == io.EOF:
		return nil, errors.New("it has no ASCII armour")
	case err != nil:
		return nil, err
	case block.Type != openpgp.PublicKeyType:
		return nil, fmt.Errorf("it is a %.40q", block.Type)
	}
	if ring, err = openpgp.ReadKeyRing(block.Body); err != nil {
		return nil, err
	}
	if len(ring) == 0 {
		return nil, errors.New("its armour holds no key")
	}
	for _, e := range ring {
		if isPrivate(e) {
			return nil, errPrivateKey // whatever its armour calls it
		}
	}
	return ring, nil
}

// isPrivate reports whether any part of a key is a private one.
func isPrivate(e *openpgp.Entity) bool {
	for _, sub := range e.Subkeys {
		if sub.PrivateKey != nil {
			return true
		}
	}
	return e.PrivateKey != nil
}

// KeyID returns the ID that a registry gives for an armoured public key: that
// of its first primary key, in upper-case hexadecimal.
func KeyID(armoured string) (string, error) {
	ring, err := readKey(armoured)
	if err != nil {
		return "", err
	}
	return ring[0].PrimaryKey.KeyIdString(), nil
}
