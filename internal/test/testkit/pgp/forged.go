package pgp

import (
	"bytes"
	"crypto/dsa" //lint:ignore SA1019 attackers do not mind
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"math/big"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/elgamal"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// Forged is a public key that consists of random numbers and has no private key. Its self-signatures are
// invalid, but a reader must verify them to notice that.
type Forged struct {
	tb  testkit.TB
	key *packet.PublicKey
}

// ForgedDSA returns a forged DSA key. The parameters P and Q of the key have p and q bits.
func ForgedDSA(tb testkit.TB, p, q int) Forged {
	tb.Helper()
	return Forged{tb, packet.NewDSAPublicKey(forgedAt, &dsa.PublicKey{
		Parameters: dsa.Parameters{P: randomNumber(p), Q: randomNumber(q), G: randomNumber(p)}, Y: randomNumber(p)})}
}

// ForgedRSA returns a forged RSA key. Its modulus has the given number of bits.
func ForgedRSA(tb testkit.TB, bits int) Forged {
	tb.Helper()
	return Forged{tb, packet.NewRSAPublicKey(forgedAt, &rsa.PublicKey{N: randomNumber(bits), E: 1<<24 - 1})}
}

// ForgedElgamal returns a forged Elgamal key, whose numbers have the given number of bits. Elgamal keys cannot
// sign.
func ForgedElgamal(tb testkit.TB, bits int) Forged {
	tb.Helper()
	return Forged{tb, packet.NewElGamalPublicKey(forgedAt, &elgamal.PublicKey{P: randomNumber(bits), G: randomNumber(bits), Y: randomNumber(bits)})}
}

var forgedAt = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// randomNumber returns an odd number with exactly the given number of bits.
func randomNumber(bits int) *big.Int {
	data := make([]byte, (bits+7)/8)
	rand.Read(data)
	n := new(big.Int).SetBytes(data)
	for n.BitLen() > bits {
		n.SetBit(n, n.BitLen()-1, 0)
	}
	return n.SetBit(n.SetBit(n, bits-1, 1), 0, 1)
}

// Packets returns three packets: the key, a user ID, and a self-signature.
func (f Forged) Packets() []byte {
	f.tb.Helper()
	var buf bytes.Buffer
	if err := f.key.Serialize(&buf); err != nil {
		f.tb.Fatalf("write a forged key: %v", err)
	}
	buf.Write(UserIDPacket(f.tb, "Mallory <mallory@example.com>"))
	buf.Write(f.Signature(packet.SigTypePositiveCert))
	return buf.Bytes()
}

// Signature returns a signature packet that names the key as its issuer. The signature itself consists of random
// numbers.
func (f Forged) Signature(kind packet.SignatureType) []byte {
	const sha256 = 8
	body := []byte{4, byte(kind), byte(f.key.PubKeyAlgo), sha256}
	body = append(body, 0, 6, 5, 2) // hashed subpacket: the creation time follows
	body = binary.BigEndian.AppendUint32(body, uint32(forgedAt.Unix()))
	body = append(body, 0, 10, 9, 16) // unhashed subpacket: the issuer's key ID follows
	body = binary.BigEndian.AppendUint64(body, f.key.KeyId)
	body = append(body, 0, 0) // the first two bytes of the hash
	switch k := f.key.PublicKey.(type) {
	case *rsa.PublicKey:
		body = appendNumber(body, k.N.BitLen()-1)
	case *dsa.PublicKey:
		body = appendNumber(appendNumber(body, k.Q.BitLen()-1), k.Q.BitLen()-1)
	}
	out := []byte{0xc0 | 2, 0xff}
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
	return append(out, body...)
}

func appendNumber(to []byte, bits int) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(bits)), randomNumber(bits).Bytes()...)
}

// UserIDPacket returns the packet of a user ID.
func UserIDPacket(tb testkit.TB, id string) []byte {
	tb.Helper()
	var buf bytes.Buffer
	if err := (&packet.UserId{Id: id}).Serialize(&buf); err != nil {
		tb.Fatalf("write a user ID: %v", err)
	}
	return buf.Bytes()
}

// ArmoredPackets returns the packets as a public key block in ASCII armour.
func ArmoredPackets(tb testkit.TB, packets ...[]byte) string {
	tb.Helper()
	var buf bytes.Buffer
	w, err := armor.Encode(&buf, openpgp.PublicKeyType, nil)
	if err == nil {
		_, err = w.Write(bytes.Join(packets, nil))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatalf("write ASCII armour: %v", err)
	}
	return buf.String() + "\n"
}
