package trust

import (
	"encoding/binary"
	"errors"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

var errNested = errors.New("a signature holds another signature, which is not one that a signing subkey makes of its primary key")

// countSubpackets returns the number of subpackets in a signature, given the content of its
// packet. The count includes the subpackets of a primary key binding inside the signature (RFC
// 9580, sections 5.2.3.34 and 10.1.5). If the signature contains any other signature,
// countSubpackets returns errNested. The library accepts no signature inside a primary key
// binding. The library would parse nested signatures of any depth before it checks them, and
// would keep a copy at each level.
func countSubpackets(signature []byte) (n int, err error) {
	for subpacket := range subpackets(signature) {
		n++
		if subpacket[0]&0x7f != embeddedSignature || len(subpacket) < 3 {
			continue
		}
		if packet.SignatureType(subpacket[2]) != packet.SigTypePrimaryKeyBinding {
			return n, errNested
		}
		for range subpackets(subpacket[1:]) {
			n++
		}
	}
	return n, nil
}

// embeddedSignature is the type of a subpacket that contains a signature.
const embeddedSignature = 32

// subpackets yields the hashed and the unhashed subpackets of a signature. The first byte of
// a subpacket is its type. The iteration stops at the first invalid subpacket.
func subpackets(signature []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if len(signature) == 0 {
			return
		}
		lengthBytes, rest := 2, signature
		if signature[0] == 6 {
			lengthBytes = 4
		}
		const beforeLength = 4 // version, type, and two algorithms
		if len(rest) < beforeLength {
			return
		}
		rest = rest[beforeLength:]
		for range 2 {
			area, after, ok := cutArea(rest, lengthBytes)
			if !ok {
				return
			}
			for len(area) > 0 {
				subpacket, next, ok := cutSubpacket(area)
				if !ok || !yield(subpacket) {
					return
				}
				area = next
			}
			rest = after
		}
	}
}

// cutArea splits data into a subpacket area and the rest. data begins with the area's length,
// which takes lengthBytes bytes. ok is false if the data is too short.
func cutArea(data []byte, lengthBytes int) (area, rest []byte, ok bool) {
	if len(data) < lengthBytes {
		return nil, nil, false
	}
	length := uint64(binary.BigEndian.Uint16(data))
	if lengthBytes == 4 {
		length = uint64(binary.BigEndian.Uint32(data))
	}
	if data = data[lengthBytes:]; length > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:length], data[length:], true
}

// cutSubpacket splits data into the first subpacket, which has at least one byte, and the
// rest (RFC 9580, section 5.2.3.7). ok is false if the subpacket is invalid.
func cutSubpacket(data []byte) (subpacket, rest []byte, ok bool) {
	length, data, ok := cutLength(data)
	if !ok || length == 0 || length > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:length], data[length:], true
}

// cutLength splits data into the length at its start and the rest. Packets of the new format
// and subpackets encode their length in the same way, apart from the partial lengths of packets.
func cutLength(data []byte) (length uint64, rest []byte, ok bool) {
	switch {
	case len(data) == 0:
		return 0, nil, false
	case data[0] < 192:
		return uint64(data[0]), data[1:], true
	case data[0] < 255:
		if len(data) < 2 {
			return 0, nil, false
		}
		return uint64(data[0]-192)<<8 + uint64(data[1]) + 192, data[2:], true
	default:
		if len(data) < 5 {
			return 0, nil, false
		}
		return uint64(binary.BigEndian.Uint32(data[1:])), data[5:], true
	}
}
