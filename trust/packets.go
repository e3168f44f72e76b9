package trust

import (
	"bytes"
	"context"
	"crypto/dsa" //lint:ignore SA1019 publishers still sign with such keys
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp/elgamal"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// The library verifies every self-signature while it reads a key. It does so for keys of any
// size, and cannot be cancelled. Therefore [load] examines the packets of all keys of a
// release before the first verification, and refuses keys that exceed these limits. The
// limits apply to all keys of a release together.
const (
	maxKeys = 64 // armoured blocks
	// maxKeyBytes is the maximum size of the armoured text in bytes. A key with many
	// certifications has about 100 KiB and 700 signatures. Few releases have more than two
	// keys.
	maxKeyBytes   = 512 << 10
	maxPackets    = 4096 // including packets of unknown types
	maxSignatures = 2048 // three keys with many certifications have fewer
	// maxSubpackets is the maximum number of subpackets in all signatures together. The library
	// allocates memory for each one. Real signatures have 4 to 12 subpackets.
	maxSubpackets = 16 * maxSignatures
	maxKeyPackets = 256  // primary keys and subkeys: maxKeys keys with three subkeys each
	maxCost       = 1000 // about a second of CPU time, in units of [verificationCost]

	// maxUserIDBytes is the maximum length in bytes of a user ID. The library hashes a user
	// ID for each signature over it. GnuPG reads at most 2 KiB.
	maxUserIDBytes = 4 << 10
	maxRSABits     = 16384 // the size of the modulus, at which verification takes 10 ms
	// maxDSABits and maxDSAOrderBits are the maximum sizes in bits of p and q of a DSA key.
	// The standard allows 3072 and 256 bits. At these sizes, verification takes 6 ms.
	maxDSABits, maxDSAOrderBits = 4096, 512
	maxElgamalBits              = 16384 // Elgamal keys cannot verify signatures

	// maxSignaturePackets is the maximum number of packets in a detached signature, which has
	// one for each signer. The library reads all packets again for each key.
	maxSignaturePackets    = 64
	maxSignatureSubpackets = 16 * maxSignaturePackets // all in a detached signature together
)

// errTooLarge means that the keys or the signature of a release exceed a limit.
var errTooLarge = errors.New("too large to verify")

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errTooLarge, fmt.Sprintf(format, args...))
}

// unverifiedKey is a transferable public key (RFC 9580, section 10.1) with unverified signatures.
type unverifiedKey struct {
	packets []byte
	primary *packet.PublicKey // nil if the packets contain no primary key that the library supports
	subkeys []*packet.PublicKey
	cost    int // the cost of all verifications with the key, in units of [verificationCost]
	limit   limit
}

// load counts the packets of all keys of a release.
type load struct{ bytes, packets, keys, signatures, subpackets int }

// walk splits the packets of a block into its keys, and verifies nothing. It uses the
// library's parser, so the library finds the same packets later.
//
// A packet with invalid content is only counted, because the library will later ignore the
// packet or refuse the key. An error wraps errTooLarge if a limit is exceeded, and
// errPrivateKey if a key is private. walk checks ctx before each packet.
func (l *load) walk(ctx context.Context, body []byte) (keys []unverifiedKey, err error) {
	defer recoverPanic(&err)
	keys = make([]unverifiedKey, 1)
	key, start := &keys[0], 0
	for r := bytes.NewReader(body); r.Len() > 0; {
		at := len(body) - r.Len()
		if err := contextErr(ctx); err != nil {
			return nil, err
		}
		if err := l.admit(body[at:]); err != nil {
			return nil, err
		}
		p, err := packet.Read(r)
		switch {
		case err == io.EOF: // the library would treat this error as the end of the block
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			continue
		}
		if err := l.count(p); err != nil {
			return nil, err
		}
		if pk, ok := p.(*packet.PublicKey); ok && !pk.IsSubkey && key.primary != nil {
			key.packets, start = body[start:at], at
			keys = append(keys, unverifiedKey{})
			key = &keys[len(keys)-1]
		}
		key.add(p)
	}
	key.packets = body[start:]
	return keys, nil
}

// admit returns an error if the library must not parse the first packet in packets, because
// parsing it would take too much time or memory, or because it does not belong in a public key.
func (l *load) admit(packets []byte) error {
	if l.packets++; l.packets > maxPackets {
		return tooLarge("the signing keys hold more than %d packets", maxPackets)
	}
	t, ok := packetType(packets[0])
	if !ok {
		return nil // the library skips one byte
	}
	if err := checkKeyPacketType(t); err != nil {
		return err
	}
	n, err := countPacket(t, packets)
	if err != nil {
		return err
	}
	if l.subpackets += n; l.subpackets > maxSubpackets {
		return tooLarge("the signatures of the signing keys hold more than %d subpackets", maxSubpackets)
	}
	return nil
}

// count adds a packet to the load, and returns an error if the load exceeds a limit.
func (l *load) count(p packet.Packet) error {
	switch p := p.(type) {
	case *packet.PublicKey:
		if l.keys++; l.keys > maxKeyPackets {
			return tooLarge("the signing keys have more than %d primary keys and subkeys", maxKeyPackets)
		}
		return checkNumbers(p)
	case *packet.Signature:
		if l.signatures++; l.signatures > maxSignatures {
			return tooLarge("the signing keys hold more than %d signatures", maxSignatures)
		}
	case *packet.UserId:
		if len(p.Id) > maxUserIDBytes {
			return tooLarge("a signing key has a user ID of %d bytes, more than %d", len(p.Id), maxUserIDBytes)
		}
	}
	return nil
}

// add adds a packet and the cost of its verifications to the key.
func (k *unverifiedKey) add(p packet.Packet) {
	switch p := p.(type) {
	case *packet.PublicKey:
		if p.IsSubkey {
			k.subkeys = append(k.subkeys, p)
		} else {
			k.primary = p
		}
		k.addLimit(p)
		k.cost += verificationCost(p) // the library may verify the detached signature with this key
	case *packet.Signature:
		k.addLimit(p)
		if k.primary == nil || isCertification(p) && !p.CheckKeyIdOrFingerprint(k.primary) {
			return // the library skips certifications by other keys
		}
		k.cost += verificationCost(k.primary)
		if n := len(k.subkeys); p.EmbeddedSignature != nil && n > 0 {
			k.cost += verificationCost(k.subkeys[n-1])
		}
	}
}

func isCertification(s *packet.Signature) bool {
	return slices.Contains([]packet.SignatureType{packet.SigTypeGenericCert, packet.SigTypePersonaCert, packet.SigTypeCasualCert,
		packet.SigTypePositiveCert, packet.SigTypeCertificationRevocation}, s.SigType)
}

// hasFingerprint reports whether the primary key or a subkey has one of the fingerprints.
func (k *unverifiedKey) hasFingerprint(fingerprints []string) bool {
	has := func(pk *packet.PublicKey) bool { return slices.Contains(fingerprints, fingerprintOf(pk)) }
	return k.primary != nil && has(k.primary) || slices.ContainsFunc(k.subkeys, has)
}

// packetType returns the packet type from the first byte of a packet, in the old or the new
// format (RFC 9580, section 4.2), or false if no packet begins with this byte.
func packetType(header byte) (t int, ok bool) {
	if header&0x40 != 0 {
		return int(header & 0x3f), header&0x80 != 0
	}
	return int(header & 0x3c >> 2), header&0x80 != 0
}

var (
	errCutOff     = errors.New("it ends within a packet")
	errIndefinite = errors.New("it holds a packet of indefinite length, which no key or signature has")
)

// packetContent returns the content of the first packet. It returns errIndefinite if the
// packet has an indefinite length or partial lengths (RFC 9580, section 4.2.1.4). It returns
// errCutOff if packets ends before the end of the packet.
//
// The library is less strict. It reads only the bytes that it needs from a packet, and looks
// for the next packet right after these bytes. Without this check, each of many packets
// could claim all following bytes of a block as its content.
func packetContent(packets []byte) ([]byte, error) {
	var length uint64
	header, content := packets[0], packets[1:]
	ok := true
	switch legacy := header&0x40 == 0; {
	case legacy && header&3 == 3, !legacy && len(content) > 0 && content[0] >= 224 && content[0] < 255:
		return nil, errIndefinite
	case legacy:
		n := 1 << (header & 3)
		if ok = n <= len(content); ok {
			for _, b := range content[:n] {
				length = length<<8 | uint64(b)
			}
			content = content[n:]
		}
	default:
		length, content, ok = cutLength(content)
	}
	if !ok || length > uint64(len(content)) {
		return nil, errCutOff
	}
	return content[:length], nil
}

// countPacket returns the number of subpackets in the first packet of packets. The number is 0 if
// the packet, which has type t, is not a signature. It returns an error if the library must not
// parse the packet.
func countPacket(t int, packets []byte) (subpackets int, err error) {
	content, err := packetContent(packets)
	if err != nil || t != typeSignature {
		return 0, err
	}
	return countSubpackets(content)
}

// The packet types in public keys and detached signatures.
const (
	typeSignature     = 2
	typePrivateKey    = 5
	typePublicKey     = 6
	typePrivateSubkey = 7
	typeMarker        = 10
	typeTrust         = 12
	typeUserID        = 13
	typePublicSubkey  = 14
	typeUserAttribute = 17
	typePadding       = 21
	typeNonCritical   = 40 // readers ignore unknown packets of this type and above
)

// checkKeyPacketType returns an error for a packet type that does not occur in public keys,
// such as compressed and encrypted packets, whose content the library would read.
func checkKeyPacketType(t int) error {
	switch t {
	case typePrivateKey, typePrivateSubkey:
		return errPrivateKey
	case typeSignature, typePublicKey, typeUserID, typePublicSubkey, typeUserAttribute, typeMarker, typeTrust, typePadding:
		return nil
	}
	if t >= typeNonCritical {
		return nil
	}
	return fmt.Errorf("it holds a packet of type %d, which no public key has", t)
}

// checkNumbers returns an error if a number in the key exceeds its limit. Keys of other kinds
// have a fixed size.
func checkNumbers(pk *packet.PublicKey) error {
	type number struct {
		name       string
		bits, most int
	}
	var numbers []number
	kind := ""
	switch k := pk.PublicKey.(type) {
	case *rsa.PublicKey: // the library limits the exponent to 24 bits
		kind, numbers = "an RSA key", []number{{"modulus", k.N.BitLen(), maxRSABits}}
	case *dsa.PublicKey:
		kind, numbers = "a DSA key", []number{
			{"p", k.P.BitLen(), maxDSABits}, {"q", k.Q.BitLen(), maxDSAOrderBits}, {"g", k.G.BitLen(), maxDSABits}, {"y", k.Y.BitLen(), maxDSABits}}
	case *elgamal.PublicKey:
		kind, numbers = "an Elgamal key", []number{
			{"p", k.P.BitLen(), maxElgamalBits}, {"g", k.G.BitLen(), maxElgamalBits}, {"y", k.Y.BitLen(), maxElgamalBits}}
	}
	for _, n := range numbers {
		if n.bits > n.most {
			return tooLarge("%s has a %s of %d bits, more than %d", kind, n.name, n.bits, n.most)
		}
	}
	return nil
}

// verificationCost returns the CPU time of one verification with a key, in units of about a
// millisecond: 1 for a quick key, 10 for a slow one, and 0 for a key that cannot sign. It
// was measured with the largest key of each kind.
func verificationCost(pk *packet.PublicKey) int {
	const quick, slow = 1, 10
	switch k := pk.PublicKey.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() <= 4096 {
			return quick
		}
	case *dsa.PublicKey:
		if k.P.BitLen() <= 2048 && k.Q.BitLen() <= 256 {
			return quick
		}
	}
	switch pk.PubKeyAlgo {
	case packet.PubKeyAlgoEdDSA, packet.PubKeyAlgoEd25519, packet.PubKeyAlgoEd448, packet.PubKeyAlgoMldsa65Ed25519, packet.PubKeyAlgoMldsa87Ed448:
		return quick
	case packet.PubKeyAlgoECDSA:
		if c, _ := pk.Curve(); c == packet.CurveNistP256 || c == packet.CurveNistP384 {
			return quick
		}
	}
	if !pk.CanSign() {
		return 0
	}
	return slow
}

// checkSignaturePackets returns an error if a detached signature exceeds a limit or has a
// packet of an unexpected type, up to the first invalid packet. The library reads no further.
func checkSignaturePackets(signature []byte) (err error) {
	defer recoverPanic(&err)
	n, subpackets := 0, 0
	for r := bytes.NewReader(signature); r.Len() > 0; {
		rest := signature[len(signature)-r.Len():]
		t, ok := packetType(rest[0])
		switch {
		case !ok:
			return nil
		case t == typeSignature, t == typeMarker, t == typeTrust, t == typePadding, t >= typeNonCritical:
		default:
			return fmt.Errorf("the signature holds a packet of type %d, which no detached signature has", t)
		}
		if n++; n > maxSignaturePackets {
			return tooLarge("the signature holds more than %d packets", maxSignaturePackets)
		}
		more, err := countPacket(t, rest)
		if err != nil {
			return fmt.Errorf("the signature cannot be read: %w", err)
		}
		if subpackets += more; subpackets > maxSignatureSubpackets {
			return tooLarge("the signature holds more than %d subpackets", maxSignatureSubpackets)
		}
		if _, err := packet.Read(r); err != nil && !isIgnored(err) {
			return nil
		}
	}
	return nil
}

// isIgnored reports whether the library skips a packet that it cannot parse because of err.
func isIgnored(err error) bool {
	return errors.As(err, new(pgperrors.UnknownPacketTypeError)) || errors.As(err, new(pgperrors.UnsupportedError))
}
