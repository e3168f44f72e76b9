package trust

import (
	"encoding/binary"
	"errors"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// errNested means that a signature holds another one that is not a key's own.
var errNested = errors.New("a signature holds another signature, which is not one that a signing subkey makes of its primary key")

// countSubpackets returns how many subpackets a signature holds, given the content of
// its packet. It fails if the signature has signatures nested in it at will. The
// library parses what a signature holds before it judges it, and keeps a copy for each
// level: 400 KB of nested signatures take gigabytes.
//
// The one signature that may be inside another is a primary key binding, in which the
// library accepts none (RFC 9580, sections 5.2.3.34 and 10.1.5).
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

// embeddedSignature is the type of the subpacket that holds a signature.
const embeddedSignature = 32

// subpackets yields the subpackets of a signature, hashed and unhashed ones: the
// type, and then the content. It ends where they do not read.
func subpackets(signature []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if len(signature) == 0 {
			return
		}
		lengthBytes, rest := 2, signature
		if signature[0] == 6 {
			lengthBytes = 4
		}
		const beforeLength = 4 // version, type, two algorithms
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

// cutArea returns the subpackets that follow their length in bytes, and what comes
// after them.
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

// cutSubpacket returns the first subpacket, of one byte at least, and the others
// (RFC 9580, section 5.2.3.7).
func cutSubpacket(data []byte) (subpacket, rest []byte, ok bool) {
	length, data, ok := cutLength(data)
	if !ok || length == 0 || length > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:length], data[length:], true
}

// cutLength returns the length that data begins with, and what comes after it. A
// packet of the new format and a subpacket give their length alike, except that some
// values mean a part of a packet.
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
