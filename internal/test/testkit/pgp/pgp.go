// Package pgp creates temporary OpenPGP keys, and signs checksum documents with them. Like publishers of
// providers, it makes detached signatures.
//
// The package can create every kind of key that a verifier must distinguish: current, expired, revoked, ECDSA,
// Ed25519, RSA and DSA keys, and keys that sign with a subkey. The default is a kind that every client reads. The
// date of a signature is the date at which its key was created, except with [SignsLater]. Therefore a key that has
// expired by now was valid when it signed.
package pgp

import (
	"bytes"
	"crypto"
	"crypto/dsa" //lint:ignore SA1019 publishers still use DSA keys
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// A Signer is a key pair, and the public key in the form in which its owner publishes it.
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
	// signsLater is the time from the creation of the key to its signatures, and
	// signatureLifetime the time for which they are valid; zero means forever.
	signsLater, signatureLifetime time.Duration
	encrypt                       func(*packet.Config) // the settings of an additional subkey that encrypts
}

// subkey describes a subkey that signs instead of the primary key.
type subkey struct {
	lifetime time.Duration // 0 means that the subkey does not expire
	revoked  bool
}

// An Option changes the key that [NewSigner] creates.
type Option func(*options)

// With changes the library's settings, such as the algorithm, the curve and the hash function.
func With(change func(*packet.Config)) Option {
	return func(o *options) { change(&o.config) }
}

// RSA creates an RSA key with the given number of bits. It takes longer to create than other keys.
func RSA(bits int) Option {
	return With(func(c *packet.Config) { c.Algorithm, c.RSABits = packet.PubKeyAlgoRSA, bits })
}

// Ed25519 creates an Ed25519 key, which Terraform before 1.6 does not read.
func Ed25519() Option {
	return With(func(c *packet.Config) { c.Algorithm, c.Curve = packet.PubKeyAlgoEdDSA, packet.Curve25519 })
}

// CreatedAt sets the date of the key and of its signatures. The default is the current time.
func CreatedAt(t time.Time) Option {
	return func(o *options) { o.created = t }
}

// Lifetime sets how long after its creation the key expires, in whole seconds.
func Lifetime(d time.Duration) Option {
	return func(o *options) { o.config.KeyLifetimeSecs = uint32(d / time.Second) }
}

// Expired creates a key that was created two days ago and was valid for one hour.
func Expired() Option {
	return func(o *options) {
		CreatedAt(time.Now().Add(-48 * time.Hour))(o)
		Lifetime(time.Hour)(o)
	}
}

// Compromised revokes the key at its creation. The reason in the revocation is that the key was compromised. The
// signer can still sign with the key, as a thief could.
func Compromised() Option { return revoked(packet.KeyCompromised) }

// Superseded revokes the key at its creation. The reason in the revocation is that another key replaces the key.
func Superseded() Option { return revoked(packet.KeySuperseded) }

func revoked(reason packet.ReasonForRevocation) Option {
	return func(o *options) { o.revoked = &reason }
}

// SignsLater dates each signature d after the creation of the key.
func SignsLater(d time.Duration) Option { return func(o *options) { o.signsLater = d } }

// ExpiredSignature creates a key that is two days old and still valid. Its signatures were valid only for an hour.
func ExpiredSignature() Option {
	return func(o *options) {
		CreatedAt(time.Now().Add(-48 * time.Hour))(o)
		o.signatureLifetime = time.Hour
	}
}

// ECDSA creates a key on the NIST curve P-256, which every client reads. This is the default.
func ECDSA() Option {
	return With(func(c *packet.Config) { c.Algorithm, c.Curve = packet.PubKeyAlgoECDSA, packet.CurveNistP256 })
}

// DSA creates an old DSA key with 1024 bits.
func DSA() Option { return func(o *options) { o.dsa = true } }

// Subkey adds a subkey. The signer signs with the subkey instead of the primary key.
func Subkey() Option { return func(o *options) { o.subkey = &subkey{} } }

// RevokedSubkey is like [Subkey], but also revokes the subkey. It does not revoke the primary key.
func RevokedSubkey() Option { return func(o *options) { o.subkey = &subkey{revoked: true} } }

// EncryptionSubkey adds a subkey that encrypts. The settings of this subkey differ from the settings of the key.
func EncryptionSubkey(change func(*packet.Config)) Option {
	return func(o *options) { o.encrypt = change }
}

// ExpiredSubkey creates a key that is two days old and still valid. The signer signs with a subkey that was
// valid only for the first hour.
func ExpiredSubkey() Option {
	return func(o *options) {
		CreatedAt(time.Now().Add(-48 * time.Hour))(o)
		o.subkey = &subkey{lifetime: time.Hour}
	}
}

// NewSigner creates a key pair. Its user ID consists of the given name and an e-mail address that is derived
// from the name.
func NewSigner(name string, opts ...Option) (*Signer, error) {
	o := options{config: packet.Config{DefaultHash: crypto.SHA256}, created: time.Now()}
	ECDSA()(&o)
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
	if o.encrypt != nil {
		config := o.config
		o.encrypt(&config)
		if err := entity.AddEncryptionSubkey(&config); err != nil {
			return nil, fmt.Errorf("make an encryption subkey for %q: %w", name, err)
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
	// Only the published key contains the revocations, because the library refuses to sign with a revoked key.
	entity.Revocations = nil
	for i := range entity.Subkeys {
		entity.Subkeys[i].Revocations = nil
	}
	config := o.config
	config.Time = func() time.Time { return o.created.Add(o.signsLater) }
	config.SigLifetimeSecs = uint32(o.signatureLifetime / time.Second)
	return &Signer{entity, public, &config}, nil
}

// newDSAEntity is openpgp.NewEntity for DSA keys. The library can no longer create such keys.
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

// addSubkey adds the subkey to the entity. The entity then signs with the subkey.
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

// For is like [NewSigner], but fails the test if there is an error.
func For(tb testkit.TB, name string, opts ...Option) *Signer {
	tb.Helper()
	s, err := NewSigner(name, opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// mailbox derives an e-mail address from a name, such as acme-inc@example.com from "Acme Inc".
func mailbox(name string) string {
	return strings.ToLower(strings.Join(strings.Fields(name), "-")) + "@example.com"
}

// ArmoredKeyRing returns the public keys of several signers as one block of ASCII armour.
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

// SignWith is like [Signer.Sign], but first changes the library's settings, such as the hash function.
func (s *Signer) SignWith(tb testkit.TB, doc []byte, change func(*packet.Config)) []byte {
	tb.Helper()
	config := *s.config
	change(&config)
	var sig bytes.Buffer
	if err := openpgp.DetachSign(&sig, s.entity, bytes.NewReader(doc), &config); err != nil {
		tb.Fatalf("sign with key %s: %v", s.KeyID(), err)
	}
	return sig.Bytes()
}

// SignArmored is like [Signer.Sign], but in ASCII armour.
func (s *Signer) SignArmored(doc []byte) ([]byte, error) {
	var sig bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&sig, s.entity, bytes.NewReader(doc), s.config); err != nil {
		return nil, fmt.Errorf("sign with key %s: %w", s.KeyID(), err)
	}
	return sig.Bytes(), nil
}

// ArmoredPublicKey returns the public key, including its revocations, in ASCII armour.
func (s *Signer) ArmoredPublicKey() string { return s.public }

// ArmoredPrivateKey returns the key pair in ASCII armour, in a block of the given type. It signs nothing anew, because that would
// change the signer, which parallel tests share.
func (s *Signer) ArmoredPrivateKey(tb testkit.TB, blockType string) string {
	tb.Helper()
	var buf bytes.Buffer
	w, err := armor.Encode(&buf, blockType, nil)
	if err == nil {
		err = s.entity.SerializePrivateWithoutSigning(w, s.config)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatalf("write the private key %s: %v", s.KeyID(), err)
	}
	return buf.String() + "\n"
}

// WithSubkeyOf returns the public key followed by the subkeys of the signer other. An impostor could publish
// such a key.
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

// CertifiedBy returns the public key with a certification by the signer other.
func (s *Signer) CertifiedBy(tb testkit.TB, other *Signer) string {
	tb.Helper()
	certified, id := *s.entity, *s.entity.PrimaryIdentity()
	id.Signatures = slices.Clone(id.Signatures)
	certified.Identities = map[string]*openpgp.Identity{id.Name: &id}
	err := certified.SignIdentity(id.Name, other.entity, other.config)
	if err != nil {
		tb.Fatalf("certify the key %s: %v", s.KeyID(), err)
	}
	key, err := armored(&certified)
	if err != nil {
		tb.Fatalf("write the key %s: %v", s.KeyID(), err)
	}
	return key
}

// Fingerprint returns the fingerprint of the primary key in upper-case hexadecimal.
func (s *Signer) Fingerprint() string {
	return fmt.Sprintf("%X", s.entity.PrimaryKey.Fingerprint)
}

// SubkeyFingerprint returns the fingerprint of the signing subkey in upper-case hexadecimal.
func (s *Signer) SubkeyFingerprint() string {
	return fmt.Sprintf("%X", s.entity.Subkeys[len(s.entity.Subkeys)-1].PublicKey.Fingerprint)
}

// KeyID returns the last 16 digits of the primary key's fingerprint, in upper-case hexadecimal.
func (s *Signer) KeyID() string { return s.entity.PrimaryKey.KeyIdString() }
