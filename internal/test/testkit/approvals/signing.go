package approvals

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"

	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// PrivatePEM returns a private key in PKCS #8.
func PrivatePEM(tb testkit.TB, key crypto.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// NewSigningKey makes a key that approves versions.
func NewSigningKey(tb testkit.TB) *signing.Key {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	key, err := signing.ParseKey(PrivatePEM(tb, private), nil)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return key
}

// PublicPEM returns a public key in PKIX.
func PublicPEM(tb testkit.TB, key crypto.PublicKey) []byte {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}
