package trust

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
)

func newSigner(t *testing.T, opts ...pgp.Option) *pgp.Signer {
	t.Helper()
	s, err := pgp.NewSigner("Acme", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReadKeys reads a file that begins with a byte order mark, as editors on Windows write it.
func TestReadKeys(t *testing.T) {
	plain, expired, revoked := newSigner(t), newSigner(t, pgp.Expired()), newSigner(t, pgp.Compromised())
	keys, err := ReadKeys(t.Context(), "\ufeff"+plain.ArmoredPublicKey()+"\n"+expired.ArmoredPublicKey()+"\n\n"+revoked.ArmoredPublicKey()+"\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range keys {
		got = append(got, k.Fingerprint)
		if len(k.UserIDs) != 1 || k.Created.IsZero() {
			t.Errorf("%+v", k)
		}
	}
	if want := []string{plain.Fingerprint(), expired.Fingerprint(), revoked.Fingerprint()}; !slices.Equal(got, want) {
		t.Fatalf("fingerprints %v, want %v", got, want)
	}
	if !keys[0].Expires.IsZero() || !keys[1].Expires.Before(time.Now()) || keys[0].Revoked || !keys[2].Revoked {
		t.Errorf("expiry and revocation: %+v", keys)
	}
}

func TestReadKeysRefused(t *testing.T) {
	key := newSigner(t)
	for name, tt := range map[string]struct{ file, want string }{
		"nothing":        {"", "it has no ASCII armour"},
		"no armour":      {"C874 011F", "it has no ASCII armour"},
		"a private key":  {key.ArmoredPrivateKey(t, "PGP PRIVATE KEY BLOCK"), "it is a private key"},
		"rubbish beside": {key.ArmoredPublicKey() + "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n", "a signing key cannot be read"},
		"text after":     {key.ArmoredPublicKey() + "something else", "it has no ASCII armour"},
		"too much":       {strings.Repeat(key.ArmoredPublicKey(), maxKeys+1), "signing keys are offered, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ReadKeys(t.Context(), tt.file)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v; want %q", keys, err, tt.want)
			}
		})
	}
}
