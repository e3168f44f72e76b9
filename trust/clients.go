package trust

import (
	"bytes"
	"crypto"
	"fmt"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// A generation is a set of clients whose OpenPGP libraries know the same kinds of keys and hashes. The clients'
// go.mod files name these libraries. Newer generations know all kinds that older ones know.
type generation int

const (
	// anyClient includes Terraform before 1.6. Its library, golang.org/x/crypto/openpgp, knows RSA, DSA, and ECDSA with
	// NIST curves, and refuses a key if any subkey or certification of the key is of another kind.
	anyClient generation = iota
	// terraform16 is github.com/ProtonMail/go-crypto before 1.1: Terraform 1.6 to 1.11, and OpenTofu up to 1.10. It also knows
	// EdDSA, more curves, and SHA-3.
	terraform16
	// terraform112 is go-crypto 1.1 to 1.4: Terraform since 1.12, OpenTofu since 1.11. It also knows the keys of RFC 9580.
	terraform112
	// noClient is go-crypto 1.5, which ocibridge has. It also knows post-quantum keys.
	noClient
)

var excluded = map[generation]string{
	terraform16:  "Terraform before 1.6 does",
	terraform112: "Terraform before 1.12 and OpenTofu before 1.11 do",
	noClient:     "Terraform up to 1.14 and OpenTofu up to 1.12 do",
}

// A limit is the oldest generation that reads a key or a signature. If not all clients read it, the field what
// describes the key or the signature.
type limit struct {
	since generation
	what  string
}

// String returns a sentence about the clients that do not read the key or the signature, or "" if all read it.
func (l limit) String() string {
	if l.since == anyClient {
		return ""
	}
	return excluded[l.since] + " not read " + l.what
}

// raise replaces the limit if other excludes more clients.
func (l *limit) raise(other limit) {
	if other.since > l.since {
		*l = other
	}
}

// addLimit raises the limit of the key for one of its packets. Whether the generation terraform16 reads a key with an
// unknown subkey or certification depends on the order of the packets. For such a key, the limit names only older
// clients.
func (k *unverifiedKey) addLimit(p packet.Packet) {
	if k.primary == nil {
		return
	}
	var l limit
	switch p := p.(type) {
	case *packet.PublicKey:
		since, kind := keyKind(p)
		if l = (limit{since, "which is " + kind + " key"}); p.IsSubkey {
			l = limit{min(since, terraform16), "which has " + kind + " subkey"}
		}
	case *packet.Signature:
		since, how := signatureKind(p)
		l = limit{min(since, terraform16), "which has a signature " + how}
	}
	l.what = fmt.Sprintf("the key %s, %s", fingerprintOf(k.primary), l.what)
	k.limit.raise(l)
}

// signatureLimit returns the limit of a detached signature, up to the first packet that names one of the keys.
func signatureLimit(signature []byte, keys openpgp.EntityList) (l limit) {
	defer recoverPanic(new(error))
	r := packet.NewReader(bytes.NewReader(signature))
	for p, err := r.Next(); err == nil; p, err = r.Next() {
		s, ok := p.(*packet.Signature)
		if !ok {
			continue
		}
		since, how := signatureKind(s)
		l.raise(limit{since, "the signature, which was made " + how})
		if s.IssuerKeyId != nil && len(keys.KeysById(*s.IssuerKeyId)) > 0 {
			return l
		}
	}
	return l
}

// signatureKind returns the oldest clients that know the algorithms of a signature, and says how it was made if not all
// know them.
func signatureKind(s *packet.Signature) (since generation, how string) {
	since, kind := algorithmKind(s.PubKeyAlgo)
	how = "by " + kind + " key"
	if s.Version > 4 && since < terraform112 {
		since, how = terraform112, "by a version 6 key"
	}
	if since == anyClient && (s.Hash == crypto.SHA3_256 || s.Hash == crypto.SHA3_512) {
		since, how = terraform16, "with SHA-3"
	}
	return since, how
}

// keyKind returns the oldest clients that know the kind of a key, and the kind if not all know it.
func keyKind(pk *packet.PublicKey) (since generation, kind string) {
	since, kind = algorithmKind(pk.PubKeyAlgo)
	curve, err := pk.Curve()
	switch nist := curve == packet.CurveNistP256 || curve == packet.CurveNistP384 || curve == packet.CurveNistP521; {
	case pk.Version > 4 && since < terraform112:
		return terraform112, "a version 6"
	case pk.PubKeyAlgo == packet.PubKeyAlgoEdDSA && curve == packet.Curve25519:
		return terraform16, "an Ed25519"
	case since == anyClient && err == nil && !nist:
		return terraform16, "a " + string(curve)
	}
	return since, kind
}

// algorithmKind returns the oldest clients that know an algorithm, and the kind of its keys if not all know it.
func algorithmKind(a packet.PublicKeyAlgorithm) (since generation, kind string) {
	switch a {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSAEncryptOnly, packet.PubKeyAlgoRSASignOnly, packet.PubKeyAlgoDSA,
		packet.PubKeyAlgoElGamal, packet.PubKeyAlgoECDSA, packet.PubKeyAlgoECDH:
		return anyClient, ""
	case packet.PubKeyAlgoEdDSA:
		return terraform16, "an EdDSA"
	case packet.PubKeyAlgoX25519, packet.PubKeyAlgoX448, packet.PubKeyAlgoEd25519, packet.PubKeyAlgoEd448:
		return terraform112, "an RFC 9580"
	}
	return noClient, "a post-quantum"
}
