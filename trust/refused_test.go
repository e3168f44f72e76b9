package trust_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// TestChecksumDocumentsRefused shows that a checksum document is refused if two
// programs could read different checksums in it, or if it is too large.
func TestChecksumDocumentsRefused(t *testing.T) {
	const sum, other = "0000000000000000000000000000000000000000000000000000000000000000", "1111111111111111111111111111111111111111111111111111111111111111"
	for says, doc := range map[string]string{
		`two checksums for "a"`:                       sum + "  a\n" + other + "  a\n",
		"line 2 is not a SHA-256":                     sum + "  a\n" + strings.Repeat("x", 64) + "  b\n",
		"line 1 is not a SHA-256":                     sum + "  a b\n",
		`line 1 is not a SHA-256 and a file name: ""`: "",
		`two checksums for "\x7f`:                     sum + "  " + strings.Repeat("\x7f", 1000) + "\n" + other + "  " + strings.Repeat("\x7f", 1000) + "\n",
		"line 3 is not a SHA-256":                     sum + "  a\n" + sum + "  b\n" + sum + "  " + strings.Repeat("c", 5000) + "\n",
		"bytes, more than":                            strings.Repeat(sum+"  a\n", 1<<14),
	} {
		_, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: []byte(doc)})
		if !errors.Is(err, trust.ErrMalformed) || !trust.Refused(err) || !strings.Contains(err.Error(), says) || hint.Of(err) == "" || len(err.Error()) > 1000 {
			t.Errorf("%v (hint %q), want %q", err, hint.Of(err), says)
		}
	}
}

// TestErrorsAreShort shows that errors truncate very long file names and names of
// notations.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("\x7f", 4000)
	one, two := strings.Repeat("0", 64), strings.Repeat("1", 64)
	acme, doc := pgp.For(t, "Acme"), sumsOf(name)
	notation := func(c *packet.Config) {
		c.SignatureNotations = []*packet.Notation{{Name: strings.Repeat("x", 50_000), IsCritical: true}}
	}
	for what, claims := range map[string]trust.Claims{
		"two checksums":          {SHA256SUMS: []byte(one + "  " + long + "\n" + two + "  " + long + "\n")},
		"announced, not listed":  {SHA256SUMS: doc, Announced: map[string][32]byte{long: {}}},
		"announced otherwise":    {SHA256SUMS: []byte(two + "  " + long + "\n"), Announced: map[string][32]byte{long: {}}},
		"reported otherwise":     {SHA256SUMS: []byte(two + "  " + long + "\n"), Reported: map[string]trust.Report{long: {Hashes: []provider.Hash{provider.ZipHash([32]byte{})}}}},
		"unknown notation":       {SHA256SUMS: doc, Signature: acme.SignWith(t, doc, notation), Keys: []string{acme.ArmoredPublicKey()}},
		"type of armour":         {SHA256SUMS: doc, Signature: []byte("-----BEGIN PGP " + long[:3000] + "-----\n\n\n-----END PGP " + long[:3000] + "-----\n"), Keys: []string{acme.ArmoredPublicKey()}},
		"type of a key's armour": {SHA256SUMS: doc, Signature: []byte{0}, Keys: []string{"-----BEGIN PGP " + long[:3000] + "-----\n\n\n-----END PGP " + long[:3000] + "-----\n"}},
	} {
		claims.Provider, claims.Version = null, v324
		_, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), claims)
		if err == nil || hint.Of(err) == "" {
			t.Errorf("%s: %v (hint %q)", what, err, hint.Of(err))
		} else if n := len(err.Error()); n > 1000 {
			t.Errorf("%s: an error of %d bytes", what, n)
		}
	}
}

// TestSignaturesRefused shows that files that are not signatures are refused.
func TestSignaturesRefused(t *testing.T) {
	acme := newSigner(t)
	armoured := func(kind, body string) []byte {
		return []byte("-----BEGIN PGP " + kind + "-----\n\n" + body + "\n-----END PGP " + kind + "-----\n")
	}
	long := strings.Repeat(strings.Repeat("AQEB", 16)+"\n", (64<<10)/48+1)
	for says, signature := range map[string][]byte{
		"has more than 65536 bytes":    bytes.Repeat([]byte{1}, 64<<10+1),
		"signature has more than 6553": armoured("SIGNATURE", long),
		"is a PGP MESSAGE":             armoured("MESSAGE", "AAAA"),
		"cannot be read":               armoured("SIGNATURE", "!!!!"),
	} {
		_, err := trust.Policy{}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: sumsOf(name), Signature: signature, Keys: []string{acme.ArmoredPublicKey()}})
		if !errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), says) || len(err.Error()) > 1000 {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestReportOnAMirrorsPackage shows that a package of a release without SHA256SUMS is
// refused if its bytes contradict the report about it.
func TestReportOnAMirrorsPackage(t *testing.T) {
	zh := func(b byte) provider.Hash { return provider.ZipHash([32]byte{b}) }
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{
		Provider: null, Version: v324,
		Hashes:   map[string][]provider.Hash{name: {zh(1)}},
		Reported: map[string]trust.Report{name: {Hashes: []provider.Hash{zh(2)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := sums.Verifier(linux, name)
	if err != nil {
		t.Fatal(err)
	}
	v.Write(content)
	if _, err := v.Accept(t.Context(), bytes.NewReader(content)); !errors.Is(err, trust.ErrChecksum) || !strings.Contains(fmt.Sprint(err), "its origin reports") {
		t.Errorf("%v", err)
	}
}
