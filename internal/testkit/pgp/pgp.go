// Package pgp creates temporary OpenPGP keys, and signs with them as providers' publishers do: a detached
// signature over a checksum document.
//
// It can create every kind of key that a verifier must distinguish: current, expired, revoked, Ed25519, ECDSA,
// RSA and DSA keys, and keys that sign with a subkey. A signature has the date of its key's creation, so that
// an expired key has signed while it was valid.
package pgp

import (
	"bytes"
	"crypto"
	"crypto/dsa" //lint:ignore SA1019 keys of it are still in use
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/testkit"
)

// A Signer is a key pair, with the public key as its owner publishes it.
type Signer struct {
	entity *openpgp.Entity
	public string
	config *packet.Config
}

type options struct {
	config  packet.Config
	created time.Time
	revoked *packet.ReasonForRevocation
	subkey  *subkey
	dsa     bool
}

// subkey signs instead of the primary key.
type subkey struct {
	lifetime time.Duration // 0: unlimited
	revoked  bool
}

// An Option of [NewSigner].
type Option func(*options)

// RSA creates an RSA key of that many bits instead of an Ed25519 key.
func RSA(bits int) Option {
	return func(o *options) {
		o.config.Algorithm = packet.PubKeyAlgoRSA
		o.config.RSABits = bits
	}
}

// Usual creates a kind of key that every client supports: RSA with 2048 bits. Terraform before 1.6 does not
// support Ed25519 keys.
func Usual() Option { return RSA(2048) }

// Ed25519 creates an Ed25519 key, which is the default.
func Ed25519() Option {
	return func(o *options) { o.config.Algorithm = packet.PubKeyAlgoEdDSA }
}

// CreatedAt sets the date of the key and of its signatures; the default is now.
func CreatedAt(t time.Time) Option {
	return func(o *options) { o.created = t }
}

// Lifetime makes the key expire this long after its creation, in whole seconds.
func Lifetime(d time.Duration) Option {
	return func(o *options) { o.config.KeyLifetimeSecs = uint32(d / time.Second) }
}

// Expired creates a key that was valid for an hour, two days ago.
func Expired() Option {
	return func(o *options) {
		CreatedAt(time.Now().Add(-48 * time.Hour))(o)
		Lifetime(time.Hour)(o)
	}
}

// Compromised revokes the key at its creation, because others have it. It still signs, as those others would.
func Compromised() Option { return revoked(packet.KeyCompromised) }

// Superseded revokes the key at its creation, because another key replaces it.
func Superseded() Option { return revoked(packet.KeySuperseded) }

func revoked(reason packet.ReasonForRevocation) Option {
	return func(o *options) { o.revoked = &reason }
}

// ECDSA makes a key on the NIST curve P-256 instead of an Ed25519 key.
func ECDSA() Option {
	return func(o *options) {
		o.config.Algorithm, o.config.Curve = packet.PubKeyAlgoECDSA, packet.CurveNistP256
	}
}

// DSA creates an old DSA key with 1024 bits instead of an Ed25519 key.
func DSA() Option { return func(o *options) { o.dsa = true } }

// Subkey adds a subkey that signs.
func Subkey() Option { return func(o *options) { o.subkey = &subkey{} } }

// RevokedSubkey adds a subkey that signs, and revokes only the subkey.
func RevokedSubkey() Option { return func(o *options) { o.subkey = &subkey{revoked: true} } }

// ExpiredSubkey makes a key from two days ago that is current, with a subkey that
// signs and was valid for an hour.
func ExpiredSubkey() Option {
	return func(o *options) {
		CreatedAt(time.Now().Add(-48 * time.Hour))(o)
		o.subkey = &subkey{lifetime: time.Hour}
	}
}

// NewSigner makes a key pair whose user ID is the name and an address made of
// it.
func NewSigner(name string, opts ...Option) (*Signer, error) {
	o := options{
		config:  packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, DefaultHash: crypto.SHA256},
		created: time.Now(),
	}
	for _, opt := range opts {
		opt(&o)
	}
	o.config.Time = func() time.Time { return o.created }
	newEntity := openpgp.NewEntity
	if o.dsa {
		newEntity = newDSAEntity
	}
	entity, err := newEntity(name, "", mailbox(name), &o.config)
	if err != nil {
		return nil, fmt.Errorf("make an OpenPGP key for %q: %w", name, err)
	}
	if o.subkey != nil {
		if err := o.addSubkey(entity); err != nil {
			return nil, fmt.Errorf("make a subkey for %q: %w", name, err)
		}
	}
	if o.revoked != nil {
		if err := entity.RevokeKey(*o.revoked, "a test revokes it", &o.config); err != nil {
			return nil, fmt.Errorf("revoke the OpenPGP key of %q: %w", name, err)
		}
	}
	public, err := armored(entity)
	if err != nil {
		return nil, fmt.Errorf("write the OpenPGP key of %q: %w", name, err)
	}
	// Only the published key is revoked: the library does not sign with a revoked key, but somebody who stole
	// one does.
	entity.Revocations = nil
	for i := range entity.Subkeys {
		entity.Subkeys[i].Revocations = nil
	}
	return &Signer{entity, public, &o.config}, nil
}

// newDSAEntity is openpgp.NewEntity for a kind of key that the library no longer creates.
func newDSAEntity(name, comment, email string, config *packet.Config) (*openpgp.Entity, error) {
	var key dsa.PrivateKey
	if err := dsa.GenerateParameters(&key.Parameters, rand.Reader, dsa.L1024N160); err != nil {
		return nil, err
	}
	if err := dsa.GenerateKey(&key, rand.Reader); err != nil {
		return nil, err
	}
	private := packet.NewDSAPrivateKey(config.Now(), &key)
	entity := &openpgp.Entity{PrimaryKey: &private.PublicKey, PrivateKey: private, Identities: map[string]*openpgp.Identity{}}
	return entity, entity.AddUserId(name, comment, email, config)
}

// addSubkey adds the subkey, which then signs.
func (o *options) addSubkey(entity *openpgp.Entity) error {
	config := o.config
	config.KeyLifetimeSecs = uint32(o.subkey.lifetime / time.Second)
	if err := entity.AddSigningSubkey(&config); err != nil {
		return err
	}
	added := &entity.Subkeys[len(entity.Subkeys)-1]
	if !o.subkey.revoked {
		return nil
	}
	return entity.RevokeSubkey(added, packet.KeyCompromised, "a test revokes it", &config)
}

// For is [NewSigner] for a test.
func For(tb testkit.TB, name string, opts ...Option) *Signer {
	tb.Helper()
	s, err := NewSigner(name, opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// mailbox makes an e-mail address of the name: "Acme Inc" has acme-inc@example.com.
func mailbox(name string) string {
	return strings.ToLower(strings.Join(strings.Fields(name), "-")) + "@example.com"
}

// ArmoredKeyRing returns the public keys of several signers in one block of ASCII
// armour.
func ArmoredKeyRing(tb testkit.TB, signers ...*Signer) string {
	tb.Helper()
	var all []*openpgp.Entity
	for _, s := range signers {
		all = append(all, s.entity)
	}
	ring, err := armored(all...)
	if err != nil {
		tb.Fatalf("write a key ring: %v", err)
	}
	return ring
}

func armored(entities ...*openpgp.Entity) (string, error) {
	var buf bytes.Buffer
	w, err := armor.Encode(&buf, openpgp.PublicKeyType, nil)
	if err != nil {
		return "", err
	}
	for _, e := range entities {
		if err := e.Serialize(w); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return buf.String() + "\n", nil
}

// Sign returns a detached binary signature over the document.
func (s *Signer) Sign(doc []byte) ([]byte, error) {
	var sig bytes.Buffer
	if err := openpgp.DetachSign(&sig, s.entity, bytes.NewReader(doc), s.config); err != nil {
		return nil, fmt.Errorf("sign with key %s: %w", s.KeyID(), err)
	}
	return sig.Bytes(), nil
}

// SignWithNotation is [Signer.Sign] with a critical notation that no verifier knows.
func (s *Signer) SignWithNotation(tb testkit.TB, doc []byte, name string) []byte {
	tb.Helper()
	config := *s.config
	config.SignatureNotations = []*packet.Notation{{Name: name, IsCritical: true}}
	var sig bytes.Buffer
	if err := openpgp.DetachSign(&sig, s.entity, bytes.NewReader(doc), &config); err != nil {
		tb.Fatalf("sign with a notation: %v", err)
	}
	return sig.Bytes()
}

// SignArmored is [Signer.Sign] in ASCII armour.
func (s *Signer) SignArmored(doc []byte) ([]byte, error) {
	var sig bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&sig, s.entity, bytes.NewReader(doc), s.config); err != nil {
		return nil, fmt.Errorf("sign with key %s: %w", s.KeyID(), err)
	}
	return sig.Bytes(), nil
}

// ArmoredPublicKey returns the public key, revocations included, in ASCII
// armour.
func (s *Signer) ArmoredPublicKey() string { return s.public }

// ArmoredPrivateKey returns the key pair in ASCII armour, as a block of that type.
func (s *Signer) ArmoredPrivateKey(tb testkit.TB, blockType string) string {
	tb.Helper()
	var buf bytes.Buffer
	w, err := armor.Encode(&buf, blockType, nil)
	if err == nil {
		err = s.entity.SerializePrivate(w, s.config)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatalf("write the private key %s: %v", s.KeyID(), err)
	}
	return buf.String() + "\n"
}

// WithSubkeyOf returns the public key followed by the subkeys of another key, as an impostor would publish it.
func (s *Signer) WithSubkeyOf(tb testkit.TB, other *Signer) string {
	tb.Helper()
	both := *s.entity
	both.Subkeys = other.entity.Subkeys
	key, err := armored(&both)
	if err != nil {
		tb.Fatalf("write the key %s: %v", s.KeyID(), err)
	}
	return key
}

// WithRevocationOnly returns the public key with only a revocation of its user ID, which no program writes.
func (s *Signer) WithRevocationOnly(tb testkit.TB) string {
	tb.Helper()
	odd, id := *s.entity, s.entity.PrimaryIdentity()
	revocation := &packet.Signature{
		Version: odd.PrimaryKey.Version, SigType: packet.SigTypeCertificationRevocation,
		PubKeyAlgo: odd.PrimaryKey.PubKeyAlgo, Hash: crypto.SHA256,
		CreationTime: s.config.Now(), IssuerKeyId: &odd.PrimaryKey.KeyId,
	}
	if err := revocation.SignUserId(id.UserId.Id, odd.PrimaryKey, odd.PrivateKey, s.config); err != nil {
		tb.Fatalf("revoke the user ID of %s: %v", s.KeyID(), err)
	}
	odd.Identities = map[string]*openpgp.Identity{id.Name: {Name: id.Name, UserId: id.UserId, Signatures: []*packet.Signature{revocation}}}
	key, err := armored(&odd)
	if err != nil {
		tb.Fatalf("write the key %s: %v", s.KeyID(), err)
	}
	return key
}

// Fingerprint returns the fingerprint of the primary key in upper-case
// hexadecimal digits.
func (s *Signer) Fingerprint() string {
	return fmt.Sprintf("%X", s.entity.PrimaryKey.Fingerprint)
}

// SubkeyFingerprint returns the fingerprint of the subkey that signs, in the same
// form.
func (s *Signer) SubkeyFingerprint() string {
	return fmt.Sprintf("%X", s.entity.Subkeys[len(s.entity.Subkeys)-1].PublicKey.Fingerprint)
}

// KeyID returns the 16 upper-case hexadecimal digits that end the fingerprint.
func (s *Signer) KeyID() string { return s.entity.PrimaryKey.KeyIdString() }
