package trust_test

import (
	"bytes"
	"crypto"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	terraform15 "golang.org/x/crypto/openpgp" //lint:ignore SA1019 the library of Terraform before 1.6

	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/trust"
)

// TestKeysByClient shows, for each kind of key and signature that is accepted, which clients do not read it. The library
// of Terraform before 1.6 confirms what is said of that client. For the kinds that are in the table of docs/howto/keys.md,
// the test compares the table.
func TestKeysByClient(t *testing.T) {
	const (
		all          = ""
		terraform16  = "Terraform before 1.6 does not read "
		terraform112 = "Terraform before 1.12 and OpenTofu before 1.11 do not read "
		none         = "Terraform up to 1.14 and OpenTofu up to 1.12 do not read "
	)
	oldest := map[string]string{
		all: "all versions | all versions", terraform16: "1.6 and later | all versions",
		terraform112: "1.12 and later | 1.11 and later", none: "no version up to 1.14 | no version up to 1.12",
	}
	page, err := os.ReadFile("../docs/howto/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	algorithm := func(a packet.PublicKeyAlgorithm, curve packet.Curve) func(*packet.Config) {
		return func(c *packet.Config) {
			c.Algorithm, c.Curve = a, curve
			if curve == packet.Curve448 {
				c.DefaultHash = crypto.SHA512
			}
		}
	}
	kind := func(a packet.PublicKeyAlgorithm, curve packet.Curve) []pgp.Option {
		return []pgp.Option{pgp.With(algorithm(a, curve))}
	}
	sha3 := func(c *packet.Config) { c.DefaultHash = crypto.SHA3_256 }
	v6 := func(c *packet.Config) { c.V6Keys = true }
	eddsa := algorithm(packet.PubKeyAlgoEdDSA, packet.Curve25519)
	mallory := pgp.For(t, "Mallory", pgp.Ed25519())
	for name, tc := range map[string]struct {
		options []pgp.Option
		publish func(*pgp.Signer) []string       // nil means that only the key is published
		sign    func(*pgp.Signer, []byte) []byte // nil means that the signature is the usual one
		says    string                           // its end; the fingerprint is between
		clients string
		row     string // the text in the row of the table
	}{
		"RSA":           {options: []pgp.Option{pgp.RSA(2048)}, clients: all, row: "RSA,"},
		"DSA":           {options: []pgp.Option{pgp.DSA()}, clients: all, row: "DSA,"},
		"ECDSA P-256":   {options: []pgp.Option{pgp.ECDSA()}, clients: all, row: "P-256"},
		"ECDSA P-384":   {options: kind(packet.PubKeyAlgoECDSA, packet.CurveNistP384), clients: all, row: "P-384"},
		"ECDSA P-521":   {options: kind(packet.PubKeyAlgoECDSA, packet.CurveNistP521), clients: all, row: "P-521"},
		"subkey":        {options: []pgp.Option{pgp.Subkey()}, clients: all},
		"SHA-224":       {sign: signWith(t, crypto.SHA224), clients: all, row: "SHA-224"},
		"SHA-384":       {sign: signWith(t, crypto.SHA384), clients: all, row: "SHA-384"},
		"SHA-512":       {sign: signWith(t, crypto.SHA512), clients: all, row: "SHA-512"},
		"SHA3-256":      {sign: signWith(t, crypto.SHA3_256), says: "the signature, which was made with SHA-3", clients: terraform16, row: "SHA-3"},
		"SHA3-512":      {sign: signWith(t, crypto.SHA3_512), says: "the signature, which was made with SHA-3", clients: terraform16},
		"SHA-3 in key":  {options: []pgp.Option{pgp.With(sha3)}, says: "which has a signature with SHA-3", clients: terraform16, row: "self-signature"},
		"secp256k1":     {options: kind(packet.PubKeyAlgoECDSA, packet.CurveSecP256k1), says: "which is a SecP256k1 key", clients: terraform16, row: "secp256k1"},
		"Brainpool":     {options: kind(packet.PubKeyAlgoECDSA, packet.CurveBrainpoolP256), says: "which is a BrainpoolP256 key", clients: terraform16, row: "Brainpool"},
		"Ed25519":       {options: []pgp.Option{pgp.Ed25519()}, says: "which is an Ed25519 key", clients: terraform16, row: "Ed25519"},
		"Ed448":         {options: kind(packet.PubKeyAlgoEdDSA, packet.Curve448), says: "which is an EdDSA key", clients: terraform16, row: "Ed448"},
		"Curve25519":    {options: []pgp.Option{pgp.EncryptionSubkey(eddsa)}, says: "which has a Curve25519 subkey", clients: terraform16, row: "Curve25519 subkey"},
		"certification": {publish: func(s *pgp.Signer) []string { return []string{s.CertifiedBy(t, mallory)} }, says: "which has a signature by an EdDSA key", clients: terraform16, row: "certification"},
		"key before": {publish: func(s *pgp.Signer) []string { return []string{mallory.ArmoredPublicKey(), s.ArmoredPublicKey()} },
			says: mallory.Fingerprint() + ", which is an Ed25519 key", clients: terraform16},
		"key behind": {publish: func(s *pgp.Signer) []string { return []string{s.ArmoredPublicKey(), mallory.ArmoredPublicKey()} }, clients: all},
		"signature before": {sign: func(s *pgp.Signer, doc []byte) []byte { return append(sign(t, mallory, doc), sign(t, s, doc)...) },
			says: "the signature, which was made by an EdDSA key", clients: terraform16},
		"signature behind": {sign: func(s *pgp.Signer, doc []byte) []byte { return append(sign(t, s, doc), sign(t, mallory, doc)...) }, clients: all},
		"RFC 9580 Ed25519": {options: kind(packet.PubKeyAlgoEd25519, ""), says: "which is an RFC 9580 key", clients: terraform112, row: "RFC 9580"},
		"RFC 9580 Ed448":   {options: kind(packet.PubKeyAlgoEd448, packet.Curve448), says: "which is an RFC 9580 key", clients: terraform112},
		"version 6":        {options: []pgp.Option{pgp.RSA(2048), pgp.With(v6)}, says: "which is a version 6 key", clients: terraform112, row: "version 6"},
		"ML-DSA":           {options: append(kind(packet.PubKeyAlgoMldsa65Ed25519, ""), pgp.With(v6)), says: "which is a post-quantum key", clients: none, row: "ML-DSA"},
	} {
		t.Run(name, func(t *testing.T) {
			signer, doc := pgp.For(t, "Acme", tc.options...), sumsOf("a.zip")
			claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Keys: []string{signer.ArmoredPublicKey()}}
			if tc.publish != nil {
				claims.Keys = tc.publish(signer)
			}
			if claims.Signature = sign(t, signer, doc); tc.sign != nil {
				claims.Signature = tc.sign(signer, doc)
			}
			sums, err := trust.Policy{}.Accept(t.Context(), claims)
			if err != nil {
				t.Fatal(err)
			}
			got := sums.Signer().Unread
			if tc.clients == all && got != "" || !strings.HasPrefix(got, tc.clients) || !strings.HasSuffix(got, tc.says) {
				t.Errorf("it says %q, want %q ... %q", got, tc.clients, tc.says)
			}
			if row := "| " + oldest[tc.clients] + " |\n"; tc.row != "" && !regexp.MustCompile(`(?m)^\| [^|]*\b`+tc.row+`[^|]*`+regexp.QuoteMeta(row)).Match(page) {
				t.Errorf("docs/howto/keys.md has no row %q ... %q", tc.row, row)
			}
			if err := readByTerraform15(claims); (err == nil) != (tc.clients == all) {
				t.Errorf("the library of Terraform before 1.6 says: %v", err)
			}
		})
	}
}

// signWith signs with a hash function.
func signWith(t *testing.T, hash crypto.Hash) func(*pgp.Signer, []byte) []byte {
	return func(s *pgp.Signer, doc []byte) []byte {
		return s.SignWith(t, doc, func(c *packet.Config) { c.DefaultHash = hash })
	}
}

// readByTerraform15 verifies a signature as Terraform before 1.6 does.
func readByTerraform15(c trust.Claims) error {
	var last error
	for _, key := range c.Keys {
		ring, err := terraform15.ReadArmoredKeyRing(strings.NewReader(key))
		if err != nil {
			return err
		}
		_, last = terraform15.CheckDetachedSignature(ring, bytes.NewReader(c.SHA256SUMS), bytes.NewReader(c.Signature))
		if last == nil {
			return nil
		}
	}
	return last
}
