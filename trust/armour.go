package trust

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

// ErrArmour means that Terraform cannot read the ASCII armour of a key. Its OpenPGP library is
// older than OpenTofu's, and stricter.
var ErrArmour = errors.New("a signing key has ASCII armour that Terraform cannot read")

// CheckArmour returns an error that wraps [ErrArmour] if OpenTofu can read an armoured key, and Terraform cannot.
// It ignores all other errors in the armour.
func CheckArmour(text string) error {
	_, after, _ := strings.Cut(text, "-----BEGIN ")
	inBody := false
	for i, line := range strings.Split(after, "\n") {
		line = strings.TrimSuffix(line, "\r")
		text := strings.Trim(line, " \t")
		switch {
		case text == "":
			inBody = true // the empty line after the headers
		case strings.HasPrefix(line, "-----END "):
			return nil
		case inBody && text != line:
			return fmt.Errorf("%w: its line %d begins or ends with a blank", ErrArmour, i+1)
		case inBody && line[0] == '=' && !isChecksum(line[1:], after):
			return fmt.Errorf("%w: its checksum in line %d is wrong", ErrArmour, i+1)
		}
	}
	return nil
}

// isChecksum reports whether text is the encoded checksum of an armour block (RFC 4880, section 6.1). block is that
// armour block without its first dashes. If the armour cannot be read, isChecksum returns true.
func isChecksum(text, block string) bool {
	_, body, err := dearmour("-----BEGIN " + block)
	if err != nil {
		return true
	}
	crc := uint32(0xb704ce)
	for _, b := range body {
		crc ^= uint32(b) << 16
		for range 8 {
			if crc <<= 1; crc&0x1000000 != 0 {
				crc ^= 0x1864cfb
			}
		}
	}
	return text == base64.StdEncoding.EncodeToString([]byte{byte(crc >> 16), byte(crc >> 8), byte(crc)})
}

// CleanKeys returns a signing_keys object in which all clients can read the armour of each key. It
// changes only armour for which [CheckArmour] returns an error, and returns the first such error
// with the changed object. An object without such armour is returned unchanged.
func CleanKeys(object json.RawMessage) (clean json.RawMessage, found error) {
	var keys struct {
		GPG []map[string]json.RawMessage `json:"gpg_public_keys"`
	}
	if signingKeysLimits.Unmarshal(object, &keys) != nil {
		return object, nil // ParseSigningKeys reports it
	}
	for _, key := range keys.GPG {
		var text string
		if json.Unmarshal(key["ascii_armor"], &text) != nil || CheckArmour(text) == nil {
			continue
		}
		cleaned, err := armourAnew(text)
		if err != nil {
			continue // the verification reports it
		}
		found = cmp.Or(found, CheckArmour(text))
		key["ascii_armor"], _ = json.Marshal(cleaned) // cannot fail for a string
	}
	var whole map[string]json.RawMessage
	if found == nil || json.Unmarshal(object, &whole) != nil {
		return object, nil
	}
	whole["gpg_public_keys"], _ = json.Marshal(keys.GPG) // cannot fail, and neither can the call below: the values were decoded from JSON
	clean, _ = json.Marshal(whole)
	return clean, found
}

// armourAnew encodes the content of a block of armour again.
func armourAnew(text string) (string, error) {
	blockType, body, err := dearmour(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, blockType, nil)
	if err == nil {
		_, err = w.Write(body)
		err = errors.Join(err, w.Close())
	}
	return out.String() + "\n", err
}
