package pgp_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
)

var doc = []byte("a checksum document\n")

func verify(t *testing.T, key string, doc, sig []byte) (*openpgp.Entity, error) {
	t.Helper()
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(key))
	if err != nil {
		t.Fatal(err)
	}
	return openpgp.CheckDetachedSignature(ring, bytes.NewReader(doc), bytes.NewReader(sig), nil)
}

// TestSignerVerdicts shows how the library's v1 API, which clients use, judges the
// signatures of several kinds of keys.
func TestSignerVerdicts(t *testing.T) {
	tests := []struct {
		name string
		opts []pgp.Option
		want error
	}{
		{"default", nil, nil},
		{"ed25519", []pgp.Option{pgp.Ed25519()}, nil},
		{"rsa", []pgp.Option{pgp.RSA(2048)}, nil},
		{"expired", []pgp.Option{pgp.Expired()}, pgperrors.ErrKeyExpired},
		{"compromised", []pgp.Option{pgp.Compromised()}, pgperrors.ErrKeyRevoked},
		{"superseded", []pgp.Option{pgp.Superseded()}, pgperrors.ErrKeyRevoked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := pgp.For(t, "Acme Inc", tt.opts...)
			sig, err := s.Sign(doc)
			if err != nil {
				t.Fatal(err)
			}
			signer, err := verify(t, s.ArmoredPublicKey(), doc, sig)
			if !errors.Is(err, tt.want) {
				t.Fatalf("verdict %v, want %v", err, tt.want)
			}
			if tt.want == nil && signer.PrimaryKey.KeyIdString() != s.KeyID() {
				t.Errorf("signed by %s, want %s", signer.PrimaryKey.KeyIdString(), s.KeyID())
			}
		})
	}
}

func TestSignatureOfAnotherKeyOrDocument(t *testing.T) {
	s, other := pgp.For(t, "a"), pgp.For(t, "b")
	sig, err := s.Sign(doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify(t, other.ArmoredPublicKey(), doc, sig); !errors.Is(err, pgperrors.ErrUnknownIssuer) {
		t.Errorf("another key: %v", err)
	}
	if _, err := verify(t, s.ArmoredPublicKey(), append(doc, 'x'), sig); err == nil {
		t.Error("another document verifies")
	}
}

func TestSignArmored(t *testing.T) {
	s := pgp.For(t, "a")
	sig, err := s.SignArmored(doc)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(s.ArmoredPublicKey()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openpgp.CheckArmoredDetachedSignature(ring, bytes.NewReader(doc), bytes.NewReader(sig), nil); err != nil {
		t.Fatal(err)
	}
}

func TestNames(t *testing.T) {
	s := pgp.For(t, "a")
	if fp := s.Fingerprint(); len(fp) != 40 || strings.ToUpper(fp) != fp || !strings.HasSuffix(fp, s.KeyID()) {
		t.Errorf("fingerprint %q, key ID %q", fp, s.KeyID())
	}
}

// TestPrivateKeyStaysTheSame shows that the private key is written without signing it anew.
func TestPrivateKeyStaysTheSame(t *testing.T) {
	s := pgp.For(t, "Acme")
	first := s.ArmoredPrivateKey(t, "PGP PRIVATE KEY BLOCK")
	if second := s.ArmoredPrivateKey(t, "PGP PRIVATE KEY BLOCK"); second != first {
		t.Error("the second text differs")
	}
}
