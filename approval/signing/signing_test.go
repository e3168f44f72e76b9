package signing_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
)

func noPassword() ([]byte, error) { return nil, errors.New("no password is given") }

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestSign shows that the signatures of all kinds of keys approve the signed digest, and no other one.
func TestSign(t *testing.T) {
	ec := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ec384 := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	ec521 := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	encrypted, _, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("geheim")))
	if err != nil {
		t.Fatal(err)
	}
	sec1 := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must[[]byte](t)(x509.MarshalECPrivateKey(ec))})
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})
	for name, text := range map[string][]byte{
		"P-256": approvals.PrivatePEM(t, ec), "P-384": approvals.PrivatePEM(t, ec384), "P-521": approvals.PrivatePEM(t, ec521),
		"Ed25519": approvals.PrivatePEM(t, ed), "RSA": approvals.PrivatePEM(t, rsaKey), "SEC 1": sec1, "SEC 1 with parameters": append([]byte(parameters), sec1...), "PKCS #1": pkcs1, "encrypted by cosign": encrypted,
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			key, err := signing.ParseKey(text, func() ([]byte, error) { asked = true; return []byte("geheim"), nil })
			if err != nil {
				t.Fatal(err)
			}
			if asked != (name == "encrypted by cosign") {
				t.Errorf("asked for a password: %v", asked)
			}
			d := digest.FromString("index")
			bundle, err := key.Sign(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			sigs := []approval.Signature{{Manifest: digest.FromString("manifest"), Bundle: bundle}}
			v, err := key.Policy().Check(t.Context(), d, sigs)
			if err != nil || v.Err() != nil || v.Approvals[0].Signer.Key != key.Public().Fingerprint() {
				t.Errorf("%v, %+v", err, v)
			}
			if by := approval.Signers(d, sigs); len(by) != 1 || by[0].Key != key.Public().Fingerprint() {
				t.Errorf("signers %+v", by)
			}
			v, err = key.Policy().Check(t.Context(), digest.FromString("other"), sigs)
			if err != nil || !errors.Is(v.Err(), approval.ErrNotApproved) {
				t.Errorf("another digest: %v, %+v", err, v)
			}
			v, err = approvals.NewSigningKey(t).Policy().Check(t.Context(), d, sigs)
			if err != nil || !errors.Is(v.Err(), approval.ErrNotApproved) {
				t.Errorf("another key: %v, %+v", err, v)
			}
		})
	}
}

// parameters is what openssl writes before an ECDSA key with P-256.
const parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"

// TestParseKey shows what is said about files that are no usable private key.
func TestParseKey(t *testing.T) {
	encrypted, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("geheim")))
	if err != nil {
		t.Fatal(err)
	}
	small := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	for name, tc := range map[string]struct {
		text       []byte
		password   func() ([]byte, error)
		want, hint string
	}{
		"empty":                {text: nil, want: "no private key in PEM", hint: "cosign generate-key-pair"},
		"public key":           {text: public, want: "a public key, and no private key", hint: "require block"},
		"certificate":          {text: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), want: "a certificate, and no private key", hint: "name the private key"},
		"OpenPGP":              {text: []byte("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nAAAA\n=AAAA\n-----END PGP PRIVATE KEY BLOCK-----\n"), want: "an OpenPGP key", hint: "cosign generate-key-pair"},
		"no variable":          {text: encrypted, password: signing.PasswordFrom(func(string) (string, bool) { return "", false }, nil), want: "no password is given", hint: "COSIGN_PASSWORD"},
		"wrong password":       {text: encrypted, password: func() ([]byte, error) { return []byte("falsch"), nil }, want: "cannot be decrypted", hint: "COSIGN_PASSWORD"},
		"no password":          {text: encrypted, want: "no password is given", hint: "COSIGN_PASSWORD"},
		"encrypted by OpenSSL": {text: []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), want: "OpenSSL has encrypted", hint: "cosign import-key-pair"},
		"another kind":         {text: approvals.PrivatePEM(t, small), want: "cannot be used", hint: "P-256"},
		"too large":            {text: []byte(strings.Repeat("a", signing.MaxKeyBytes+1)), want: "more than"},
		"garbage":              {text: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), want: "cannot be read", hint: "cosign generate-key-pair"},
		"parameters alone":     {text: []byte(parameters), want: "no private key in PEM", hint: "cosign generate-key-pair"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.password == nil {
				tc.password = noPassword
			}
			_, err := signing.ParseKey(tc.text, tc.password)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(hint.Of(err), tc.hint) {
				t.Errorf("%v (%s)", err, hint.Of(err))
			}
			if err != nil && strings.Contains(err.Error(), "falsch") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}
