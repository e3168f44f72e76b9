package trust

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// nested returns a packet of the given size with nested signatures of the given type. Each
// signature is in a subpacket of the signature around it. The lengths of subpacket areas have
// 32 bits in version 6, and 16 bits in other versions.
func nested(size int, version, signatureType byte) []byte {
	// The signatures from the outermost to the innermost, each with the length of its content.
	lengthBytes := 2
	if version == 6 {
		lengthBytes = 4
	}
	level := 4 + lengthBytes + 6
	left := size - 6
	out := append([]byte{0xC0 | typeSignature, 0xff}, binary.BigEndian.AppendUint32(nil, uint32(left))...)
	for ; left >= level; left -= level {
		out = append(out, version, signatureType, 1, 8)
		if version == 6 {
			out = binary.BigEndian.AppendUint32(out, uint32(left-4-lengthBytes))
		} else {
			out = binary.BigEndian.AppendUint16(out, uint16(left-4-lengthBytes))
		}
		out = append(binary.BigEndian.AppendUint32(append(out, 0xff), uint32(left-level+1)), embeddedSignature)
	}
	return append(out, make([]byte, left)...)
}

// claimingMore changes the header of a packet so that it claims one byte more than the
// packet has.
func claimingMore(packet []byte) []byte {
	binary.BigEndian.PutUint32(packet[2:], binary.BigEndian.Uint32(packet[2:])+1)
	return packet
}

// TestNestedSignatures shows that nested signatures are refused before the library parses
// them, at each level and in a packet that is cut off.
func TestNestedSignatures(t *testing.T) {
	const size = 60 // three signatures; the library reads them
	for name, tc := range map[string]struct {
		packet []byte
		want   error
	}{
		"version 6":             {nested(size, 6, 0x18), errNested},
		"version 4":             {nested(size, 4, 0x18), errNested},
		"certifications":        {nested(size, 6, 0x10), errNested},
		"of unknown types":      {nested(size, 6, 0x7f), errNested},
		"cut off in the middle": {nested(size, 6, 0x18)[:size/2], errCutOff},
		"cut off at the end":    {claimingMore(nested(size, 6, 0x18)), errCutOff},
	} {
		if err := checkSignaturePackets(tc.packet); !errors.Is(err, tc.want) {
			t.Errorf("signature/%s: %v, want %v", name, err, tc.want)
		}
		if _, err := KeyIDs(t.Context(), []string{armouredKey(tc.packet)}); !errors.Is(err, tc.want) {
			t.Errorf("key/%s: %v, want %v", name, err, tc.want)
		}
	}
	if err := checkSignaturePackets(nested(size, 6, 0x19)); errors.Is(err, errNested) {
		t.Errorf("a primary key binding: %v", err)
	}
}

// TestRecoverPanic shows that a panic of the OpenPGP library becomes an error.
func TestRecoverPanic(t *testing.T) {
	err := func() (err error) {
		defer recoverPanic(&err)
		panic("odd key")
	}()
	if err == nil || !strings.HasSuffix(err.Error(), "is malformed: odd key") {
		t.Errorf("error %v", err)
	}
}

// armouredKey returns packets in ASCII armour, as a block of public keys.
func armouredKey(packets []byte) string {
	return "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + wrapped(packets) + "\n-----END PGP PUBLIC KEY BLOCK-----\n"
}

// wrapped returns base64 in lines of 64 characters.
func wrapped(data []byte) string {
	var out bytes.Buffer
	for text := base64.StdEncoding.EncodeToString(data); len(text) > 0; text = text[min(64, len(text)):] {
		out.WriteString(text[:min(64, len(text))] + "\n")
	}
	return out.String()
}
