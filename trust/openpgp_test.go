package trust_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/trust"
)

// TestKeysOfEveryKind shows, for each kind of key and signature that publishers use, whether
// the signature is accepted.
func TestKeysOfEveryKind(t *testing.T) {
	tomorrow := time.Now().Add(24 * time.Hour)
	for what, tc := range map[string]struct {
		options []pgp.Option
		expired trust.Expiry
		err     string // "" means that the signature is accepted
	}{
		"Ed25519":             {options: []pgp.Option{pgp.Ed25519()}},
		"RSA":                 {options: []pgp.Option{pgp.RSA(2048)}},
		"DSA":                 {options: []pgp.Option{pgp.DSA()}},
		"ECDSA":               {options: []pgp.Option{pgp.ECDSA()}},
		"subkey":              {options: []pgp.Option{pgp.Subkey()}},
		"RSA with a subkey":   {options: []pgp.Option{pgp.RSA(2048), pgp.Subkey()}},
		"expired":             {options: []pgp.Option{pgp.Expired()}, expired: trust.KeyExpired},
		"expired subkey":      {options: []pgp.Option{pgp.ExpiredSubkey()}, expired: trust.KeyExpired},
		"subkey, key expired": {options: []pgp.Option{pgp.Expired(), pgp.Subkey()}, expired: trust.KeyExpired},
		"key from future":     {options: []pgp.Option{pgp.CreatedAt(tomorrow)}, expired: trust.KeyFromFuture},
		"subkey from future":  {options: []pgp.Option{pgp.CreatedAt(tomorrow), pgp.Subkey()}, expired: trust.KeyFromFuture},
		"signature expired":   {options: []pgp.Option{pgp.ExpiredSignature()}, expired: trust.SignatureExpired},
		"signed in future":    {options: []pgp.Option{pgp.SignsLater(24 * time.Hour)}, expired: trust.SignatureFromFuture},
		"compromised":         {options: []pgp.Option{pgp.Compromised()}, err: "is revoked"},
		"superseded":          {options: []pgp.Option{pgp.Superseded()}, err: "is revoked"},
		"revoked subkey":      {options: []pgp.Option{pgp.RevokedSubkey()}, err: "is revoked"},
		"subkey, key revoked": {options: []pgp.Option{pgp.Superseded(), pgp.Subkey()}, err: "is revoked"},
		"revoked and expired": {options: []pgp.Option{pgp.Expired(), pgp.Superseded()}, err: "is revoked"},
	} {
		t.Run(what, func(t *testing.T) {
			signer := pgp.For(t, "Acme", tc.options...)
			doc := sumsOf(name)
			armoured, err := signer.SignArmored(doc)
			if err != nil {
				t.Fatal(err)
			}
			for form, signature := range map[string][]byte{"binary": sign(t, signer, doc), "armoured": armoured} {
				for _, pins := range [][]string{nil, {signer.Fingerprint()}} {
					sums, err := trust.Policy{Keys: pins}.Accept(t.Context(), trust.Claims{
						Provider: null, Version: v324, SHA256SUMS: doc, Signature: signature, Keys: []string{signer.ArmoredPublicKey()}})
					if tc.err != "" {
						if !errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), signer.Fingerprint()) || hint.Of(err) == "" {
							t.Errorf("%s, pinned %v: error %v (hint %q)", form, pins, err, hint.Of(err))
						}
						continue
					}
					if err != nil {
						t.Errorf("%s, pinned %v: %v", form, pins, err)
						continue
					}
					// If a subkey made the signature, the Signer is its primary key.
					if s := sums.Signer(); s.Fingerprint != signer.Fingerprint() || s.KeyID != signer.KeyID() || s.Expiry != tc.expired {
						t.Errorf("%s, pinned %v: signed by %+v", form, pins, s)
					}
					// Terraform since 1.6 refuses an expired signature, but not an expired key.
					refused := tc.expired == trust.SignatureExpired || tc.expired == trust.SignatureFromFuture
					if why := sums.Signer().WhyExpired(); (why == "") != (tc.expired == "") || strings.Contains(why, "Terraform since 1.6 refuses it") != refused {
						t.Errorf("%s, pinned %v: %q", form, pins, why)
					}
					if _, kept, _ := sums.Document(); strings.HasPrefix(string(kept), "-----") {
						t.Errorf("%s: the signature is kept in armour, which clients do not read", form)
					}
				}
			}
		})
	}
}

// TestGnuPG checks the verification of signatures that testdata/gnupg/make.sh created with
// GnuPG.
func TestGnuPG(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("testdata", "gnupg", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	doc := read("SHA256SUMS")
	lines := strings.Fields(string(read("FINGERPRINTS")))
	for i := 0; i < len(lines); i += 2 {
		name, fingerprint := lines[i], lines[i+1]
		t.Run(name, func(t *testing.T) {
			claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: read(name + ".sig"), Keys: []string{string(read(name + ".key"))}}
			sums, err := trust.Policy{Keys: []string{fingerprint}, StrictExpiry: true}.Accept(t.Context(), claims)
			if strings.HasPrefix(name, "revoked") {
				if !errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), fingerprint+" that made the signature is revoked") {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := sums.Signer(); s.Fingerprint != fingerprint || s.Expired() {
				t.Errorf("signed by %+v, want %s", s, fingerprint)
			}
			claims.SHA256SUMS = append(append([]byte{}, doc...), sumsOf("more.zip")...)
			if _, err := (trust.Policy{}).Accept(t.Context(), claims); !errors.Is(err, trust.ErrSignature) {
				t.Errorf("another document: %v", err)
			}
		})
	}
	armoured := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: read("ed25519.asc"), Keys: []string{string(read("ed25519.key"))}}
	if _, err := (trust.Policy{}).Accept(t.Context(), armoured); err != nil {
		t.Errorf("armoured signature: %v", err)
	}
}

// TestHostileKeys shows that keys are refused if they are made to deceive the program.
func TestHostileKeys(t *testing.T) {
	acme, mallory := pgp.For(t, "Acme"), pgp.For(t, "Mallory", pgp.Subkey())
	other := pgp.For(t, "Other")
	private := acme.ArmoredPrivateKey(t, "PGP PRIVATE KEY BLOCK")
	for what, tc := range map[string]struct {
		keys []string
		by   *pgp.Signer
		says string
	}{
		"private key":                      {[]string{private}, acme, "it is a private key"},
		"private key called a public one":  {[]string{acme.ArmoredPrivateKey(t, "PGP PUBLIC KEY BLOCK")}, acme, "it is a private key"},
		"private key behind the signer's":  {[]string{acme.ArmoredPublicKey(), private}, acme, "it is a private key"},
		"private key in the same text":     {[]string{acme.ArmoredPublicKey() + private}, acme, "it is a private key"},
		"signature for a key":              {[]string{"-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"}, acme, `it is a "PGP SIGNATURE"`},
		"armour without a key":             {[]string{"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n\n-----END PGP PUBLIC KEY BLOCK-----\n"}, acme, "cannot be read"},
		"text":                             {[]string{"my key"}, acme, "it has no ASCII armour"},
		"empty":                            {[]string{""}, acme, "it has no ASCII armour"},
		"very long":                        {[]string{strings.Repeat("x", 5<<20)}, acme, "more than"},
		"very many":                        {make([]string, 100), acme, "100 signing keys"},
		"another's subkey":                 {[]string{acme.WithSubkeyOf(t, mallory)}, mallory, ""},
		"key that reads, of somebody else": {[]string{other.ArmoredPublicKey()}, acme, "none of the keys offered: the signature names the key " + acme.Fingerprint()[24:] + ", offered are " + other.Fingerprint()},
	} {
		t.Run(what, func(t *testing.T) {
			doc := sumsOf(name)
			claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, tc.by, doc), Keys: tc.keys}
			for _, pins := range [][]string{nil, {acme.Fingerprint()}} {
				_, err := trust.Policy{Keys: pins}.Accept(t.Context(), claims)
				if !errors.Is(err, trust.ErrSignature) || hint.Of(err) == "" {
					t.Fatalf("error %v (hint %q)", err, hint.Of(err))
				}
				if pins == nil && !strings.Contains(err.Error(), tc.says) {
					t.Errorf("error %q does not say %q", err, tc.says)
				}
				if private := strings.Contains(err.Error(), "private key"); private != strings.Contains(hint.Of(err), "must revoke it") {
					t.Errorf("error %q has the hint %q", err, hint.Of(err))
				}
				if strings.Contains(err.Error(), "BEGIN PGP") || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %q", err)
				}
			}
		})
	}
}

// TestNoKeyHint shows that the hint names both ways to accept a release without a signature.
func TestNoKeyHint(t *testing.T) {
	claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: sumsOf(name)}
	_, err := trust.Policy{}.Accept(t.Context(), claims)
	if h := hint.Of(err); !errors.Is(err, trust.ErrUnsigned) || !strings.Contains(h, "--allow-unsigned") ||
		!strings.Contains(h, `allow_unsigned = true in a block trust "registry.opentofu.org/hashicorp/null"`) || !strings.HasPrefix(h, "registry.opentofu.org has no key") {
		t.Errorf("error %v (hint %q)", err, h)
	}
}
