package trust

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
)

// withLength returns a packet of the new format whose header claims a content of n bytes.
func withLength(packetType byte, n uint32, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0xc0 | packetType, 0xff}, n), content...)
}

// TestPacketContent shows the content of packets with every form of length.
func TestPacketContent(t *testing.T) {
	content := bytes.Repeat([]byte{7}, 300)
	join := func(header ...byte) []byte { return append(header, content...) }
	for what, tc := range map[string]struct {
		packets []byte
		want    int
		err     error
	}{
		"new, one byte":          {join(0xc2, 191), 191, nil},
		"new, two bytes":         {join(0xc2, 192, 8), 200, nil},
		"new, five bytes":        {join(0xc2, 255, 0, 0, 1, 44), 300, nil},
		"new, nothing":           {join(0xc2, 0), 0, nil},
		"legacy, one byte":       {join(0x88, 255), 255, nil},
		"legacy, two bytes":      {join(0x89, 1, 44), 300, nil},
		"legacy, four bytes":     {join(0x8a, 0, 0, 1, 44), 300, nil},
		"new, in parts":          {join(0xc2, 224, 7, 1, 7), 0, errIndefinite},
		"new, in long parts":     {join(0xc2, 254), 0, errIndefinite},
		"legacy, without length": {join(0x8b), 0, errIndefinite},
		"new, one more":          {join(0xc2, 255, 0, 0, 1, 45), 0, errCutOff},
		"new, most":              {join(0xc2, 255, 255, 255, 255, 255), 0, errCutOff},
		"legacy, one more":       {join(0x89, 1, 45), 0, errCutOff},
		"legacy, most":           {join(0x8a, 255, 255, 255, 255), 0, errCutOff},
		"new, header alone":      {[]byte{0xc2}, 0, errCutOff},
		"new, length cut off":    {[]byte{0xc2, 255, 0, 0, 1}, 0, errCutOff},
		"legacy, header alone":   {[]byte{0x88}, 0, errCutOff},
		"legacy, length cut off": {[]byte{0x8a, 0, 0, 1}, 0, errCutOff},
	} {
		got, err := packetContent(tc.packets)
		if len(got) != tc.want || err != tc.err {
			t.Errorf("%s: %d bytes, %v; want %d, %v", what, len(got), err, tc.want, tc.err)
		}
	}
}

// TestIndefiniteLengths shows that a key and a signature are refused if their last packet
// has an indefinite length or partial lengths. The library reads both, but packetContent
// cannot find their end.
func TestIndefiniteLengths(t *testing.T) {
	acme := pgp.For(t, "Acme")
	_, key, err := dearmour(acme.ArmoredPublicKey())
	if err != nil {
		t.Fatal(err)
	}
	signature, err := acme.Sign([]byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]func([]byte) error{
		"key":       func(packets []byte) error { _, err := KeyIDs(t.Context(), []string{armouredKey(packets)}); return err },
		"signature": checkSignaturePackets,
	}
	for what, packets := range map[string][]byte{"key": key, "signature": signature} {
		if err := read[what](packets); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		// The key and the detached signature both end with a signature packet.
		at, content := 0, []byte(nil)
		for next := 0; next < len(packets); {
			at = next
			if content, err = packetContent(packets[at:]); err != nil {
				t.Fatal(err)
			}
			next = cap(packets) - cap(content) + len(content)
		}
		const log = 6 // the binary logarithm of the length of the first part
		for form, last := range map[string][]byte{
			"no length": slices.Concat([]byte{0x83 | typeSignature<<2}, content),
			"parts":     slices.Concat([]byte{0xc0 | typeSignature, 224 + log}, content[:1<<log], []byte{byte(len(content) - 1<<log)}, content[1<<log:]),
		} {
			if err := read[what](append(packets[:at:at], last...)); !errors.Is(err, errIndefinite) {
				t.Errorf("%s, %s: %v", what, form, err)
			}
		}
	}
}

// TestPacketsThatClaimTheRest shows that many signatures take little memory even if each
// signature claims all following bytes of the block. The library would read a few bytes of
// a signature, and look for the next signature right after them.
func TestPacketsThatClaimTheRest(t *testing.T) {
	content := []byte{4, 0x10, 1, 8, 0, 6, 5, 2, 1, 2, 3, 4, 0, 0, 0, 0, 0, 1, 1}
	const n, padding = 400, 60_000 // about 100 MB without the check
	for what, tc := range map[string]struct {
		more uint32
		want error
	}{
		"all that there is": {0, nil},
		"one byte more":     {1, errCutOff},
		"all there may be":  {1 << 31, errCutOff},
	} {
		packets := make([]byte, padding)
		for range n {
			packets = slices.Concat(withLength(typeSignature, uint32(len(content)+len(packets))+tc.more, content), packets)
		}
		// The padding is one packet of an unknown type.
		packets = append(packets[:len(packets)-padding], withLength(60, padding-6, make([]byte, padding-6))...)
		armoured := armouredKey(packets)
		cost.Check(t, len(armoured), true, func() error {
			_, err := KeyIDs(t.Context(), []string{armoured})
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", what, err, tc.want)
			}
			return err
		})
	}
}

// withSubpackets returns a packet with a signature of n subpackets. If embedded is not
// negative, one subpacket contains another signature. The parameter embedded is the number
// of subpackets in that signature.
func withSubpackets(n, embedded int) []byte {
	signature := func(kind byte, subpackets []byte) []byte {
		content := append([]byte{6, kind, 1, 8}, binary.BigEndian.AppendUint32(nil, uint32(len(subpackets)))...)
		content = append(append(content, subpackets...), 0, 0, 0, 0, 0, 0, 16)
		return append(append(content, make([]byte, 16)...), 0, 1, 1)
	}
	some := func(n int) []byte { // a creation time, and private subpackets without content
		return append([]byte{5, 2, 1, 2, 3, 4}, bytes.Repeat([]byte{1, 100}, n-1)...)
	}
	subpackets := some(n)
	if embedded >= 0 {
		inner := append([]byte{embeddedSignature}, signature(0x19, some(embedded))...)
		subpackets = append(some(n-1), append(binary.BigEndian.AppendUint32([]byte{0xff}, uint32(len(inner))), inner...)...)
	}
	content := signature(0x18, subpackets)
	return withLength(typeSignature, uint32(len(content)), content)
}

// TestSubpackets shows that signatures with more than the allowed number of subpackets are
// refused.
func TestSubpackets(t *testing.T) {
	for what, tc := range map[string]struct {
		packets func(most int) []byte
		refused bool
	}{
		"one signature":      {func(most int) []byte { return withSubpackets(most, -1) }, false},
		"one more":           {func(most int) []byte { return withSubpackets(most+1, -1) }, true},
		"embedded ones":      {func(most int) []byte { return withSubpackets(2, most-2) }, false},
		"one more embedded":  {func(most int) []byte { return withSubpackets(2, most-1) }, true},
		"several signatures": {func(most int) []byte { return bytes.Repeat(withSubpackets(most/4, -1), 4) }, false},
		"one more in several": {func(most int) []byte {
			return append(bytes.Repeat(withSubpackets(most/4, -1), 4), withSubpackets(1, -1)...)
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			key := armouredKey(tc.packets(maxSubpackets))
			cost.Check(t, len(key), true, func() error { // KeyIDs fails, because no packet is a key
				_, err := KeyIDs(t.Context(), []string{key})
				if errors.Is(err, errTooLarge) != tc.refused {
					t.Errorf("key: %v, too large: %t", err, tc.refused)
				}
				return err
			})
			if err := checkSignaturePackets(tc.packets(maxSignatureSubpackets)); errors.Is(err, errTooLarge) != tc.refused || !tc.refused && err != nil {
				t.Errorf("detached signature: %v, too large: %t", err, tc.refused)
			}
		})
	}
}
