package approval

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// PublicKey is a public key whose signatures can be verified.
type PublicKey struct {
	key         crypto.PublicKey
	fingerprint string
	// materials has one verifier for each hash that cosign has used with this kind of key.
	materials []root.TrustedMaterial
}

// The sizes of RSA keys in bits. cosign and crypto/rsa refuse smaller keys. The time of a verification grows with the square of
// the size.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// ParsePublicKey parses a public key in PEM: ECDSA with one of the curves P-256, P-384 and P-521, Ed25519, or RSA with 2048 to
// 8192 bits. The text must contain exactly one PEM block.
func ParsePublicKey(text []byte) (*PublicKey, error) {
	block, rest := pem.Decode(text)
	switch {
	case bytes.Contains(text, []byte("-----BEGIN PGP ")):
		return nil, hint.New("it is an OpenPGP key, and approvals are no OpenPGP signatures", "cosign generate-key-pair writes a public key to cosign.pub; keys and key_files of a trust block take the OpenPGP keys of publishers")
	case block == nil:
		return nil, hint.New("it is no public key in PEM", "a key begins with -----BEGIN PUBLIC KEY-----; cosign generate-key-pair writes such a key to cosign.pub")
	case block.Type != "PUBLIC KEY":
		return nil, hint.New(fmt.Sprintf("it is no public key, but a PEM block of type %.80q", block.Type), "cosign generate-key-pair writes the public key to cosign.pub")
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, hint.New("it contains more than one PEM block", "give each key a require block of its own")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("the public key cannot be read: %w", err), "use a key with ECDSA (P-256, P-384 or P-521), Ed25519 or RSA")
	}
	return NewPublicKey(key)
}

// NewPublicKey converts a key of package crypto. It accepts the same keys as [ParsePublicKey].
func NewPublicKey(key crypto.PublicKey) (*PublicKey, error) {
	hashes, err := hashesOf(key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	out := &PublicKey{key: key, fingerprint: fingerprintPrefix + hex.EncodeToString(sum[:])}
	for _, h := range hashes {
		verifier, err := signature.LoadVerifier(key, h)
		if err != nil {
			return nil, err
		}
		expiring := root.NewExpiringKey(verifier, time.Time{}, time.Time{})
		// The hint in a bundle is not verified, and some tools leave it out. So every hint selects the key.
		out.materials = append(out.materials, root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return expiring, nil }))
	}
	return out, nil
}

// hashesOf returns the hashes that cosign uses with a key. Older versions of cosign use SHA-256 with every curve.
func hashesOf(key crypto.PublicKey) ([]crypto.Hash, error) {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return []crypto.Hash{crypto.SHA512}, nil // the verifier ignores it
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits, and RSA keys must have %d to %d", bits, minRSABits, maxRSABits)
		}
		return []crypto.Hash{crypto.SHA256}, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []crypto.Hash{crypto.SHA256}, nil
		case elliptic.P384():
			return []crypto.Hash{crypto.SHA384, crypto.SHA256}, nil
		case elliptic.P521():
			return []crypto.Hash{crypto.SHA512, crypto.SHA256}, nil
		}
		return nil, fmt.Errorf("an ECDSA key with the curve %s, and the curve must be P-256, P-384 or P-521", k.Curve.Params().Name)
	}
	return nil, errors.New("the key is neither ECDSA nor Ed25519 nor RSA")
}

// Fingerprint returns sha256: and the SHA-256 of the key in PKIX, in lower-case hexadecimal. The command
// "openssl pkey -pubin -in FILE -outform der | sha256sum" prints the same.
func (k *PublicKey) Fingerprint() string { return k.fingerprint }

// Crypto returns the key for package crypto.
func (k *PublicKey) Crypto() crypto.PublicKey { return k.key }

const fingerprintPrefix = "sha256:"

// Hint returns the text that cosign and sigstore-go put into a bundle to name the key: the SHA-256 in base64.
func (k *PublicKey) Hint() string {
	sum, err := hex.DecodeString(k.fingerprint[len(fingerprintPrefix):])
	if err != nil {
		panic("approval: the fingerprint " + k.fingerprint) // NewPublicKey encoded it
	}
	return base64.StdEncoding.EncodeToString(sum)
}

// fingerprintOf returns the fingerprint that the hint in a bundle names, or "" if it names none.
func fingerprintOf(keyHint string) string {
	if len(keyHint) > 2*sha256.Size {
		return ""
	}
	sum, err := base64.StdEncoding.DecodeString(keyHint)
	if err != nil || len(sum) != sha256.Size {
		return ""
	}
	return fingerprintPrefix + hex.EncodeToString(sum)
}
