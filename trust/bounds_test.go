package trust_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/trust"
)

// tooLarge is a test case with keys that exceed a limit. The error ErrTooLarge shows that
// the keys were refused before any key was used.
type tooLarge struct {
	keys []string
	says string
}

func (tc tooLarge) run(t *testing.T, acme *pgp.Signer) {
	t.Helper()
	doc := sumsOf(name)
	claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc), Keys: tc.keys}
	_, err := trust.Policy{}.Accept(t.Context(), claims)
	if !errors.Is(err, trust.ErrTooLarge) || !errors.Is(err, trust.ErrSignature) || hint.Of(err) == "" {
		t.Fatalf("error %v (hint %q)", err, hint.Of(err))
	}
	if !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q does not say %q", err, tc.says)
	}
	if _, err := trust.KeyIDs(t.Context(), tc.keys); !errors.Is(err, trust.ErrTooLarge) || hint.Of(err) == "" {
		t.Errorf("the IDs of the keys: %v", err)
	}
	claims.Keys = append([]string{acme.ArmoredPublicKey()}, tc.keys...)
	_, err = trust.Policy{Keys: []string{acme.Fingerprint()}}.Accept(t.Context(), claims)
	// Only pinned keys are verified, so only pinned keys count towards the cost.
	if costs := strings.Contains(tc.says, "to verify"); costs && err != nil || !costs && !errors.Is(err, trust.ErrTooLarge) {
		t.Errorf("next to the pinned key: %v", err)
	}
}

// forged returns an armoured block with the given forged keys.
func forged(t *testing.T, keys ...pgp.Forged) string {
	t.Helper()
	var packets [][]byte
	for _, k := range keys {
		packets = append(packets, k.Packets())
	}
	return pgp.ArmoredPackets(t, packets...)
}

// TestNumbersTooLarge shows that keys are refused if a number has one bit more than its
// limit.
func TestNumbersTooLarge(t *testing.T) {
	acme := pgp.For(t, "Acme")
	for what, tc := range map[string]tooLarge{
		"p of a DSA key":           {[]string{forged(t, pgp.ForgedDSA(t, 4097, 256))}, "a DSA key has a p of 4097 bits, more than 4096"},
		"q of a DSA key":           {[]string{forged(t, pgp.ForgedDSA(t, 2048, 513))}, "a DSA key has a q of 513 bits, more than 512"},
		"modulus of an RSA key":    {[]string{forged(t, pgp.ForgedRSA(t, 16385))}, "an RSA key has a modulus of 16385 bits, more than 16384"},
		"p of an Elgamal key":      {[]string{forged(t, pgp.ForgedElgamal(t, 16385))}, "an Elgamal key has a p of 16385 bits, more than 16384"},
		"behind another":           {[]string{acme.ArmoredPublicKey(), forged(t, pgp.ForgedDSA(t, 4097, 256))}, "a p of 4097 bits"},
		"behind another, in block": {[]string{forged(t, pgp.ForgedDSA(t, 1024, 160), pgp.ForgedDSA(t, 4097, 256))}, "a p of 4097 bits"},
	} {
		t.Run(what, func(t *testing.T) { tc.run(t, acme) })
	}
}

// TestKeysTooLarge shows that keys are refused if verifying them would take more than a second.
func TestKeysTooLarge(t *testing.T) {
	acme := pgp.For(t, "Acme")
	small, other := pgp.ForgedDSA(t, 1024, 160), pgp.ForgedDSA(t, 1024, 160)
	after := func(packets ...[]byte) string {
		return pgp.ArmoredPackets(t, slices.Concat([][]byte{small.Packets()}, packets)...)
	}
	userID := pgp.UserIDPacket(t, "Acme <acme@example.com>")
	long := pgp.UserIDPacket(t, strings.Repeat("x", trust.MaxUserIDBytes))
	for what, tc := range map[string]tooLarge{
		"many large keys":              {slices.Repeat([]string{forged(t, pgp.ForgedDSA(t, 4097, 256))}, 60), "a p of 4097 bits"},
		"many blocks":                  {slices.Repeat([]string{forged(t, small)}, trust.MaxKeys+1), "65 signing keys are offered, more than 64"},
		"many keys":                    {[]string{pgp.ArmoredPackets(t, slices.Repeat([][]byte{small.Packets()}, trust.MaxKeyPackets+1)...)}, "more than 256 primary keys and subkeys"},
		"many keys in several blocks":  {slices.Repeat([]string{forged(t, slices.Repeat([]pgp.Forged{small}, 10)...)}, 26), "more than 256 primary keys and subkeys"},
		"many signatures":              {[]string{after(slices.Repeat([][]byte{other.Signature(packet.SigTypeGenericCert)}, trust.MaxSignatures)...)}, "more than 2048 signatures"},
		"many packets":                 {[]string{after(slices.Repeat([][]byte{userID}, trust.MaxPackets)...)}, "more than 4096 packets"},
		"many unknown packets":         {[]string{after(slices.Repeat([][]byte{{0xc0 | 60, 0}}, trust.MaxPackets)...)}, "more than 4096 packets"},
		"many bytes":                   {[]string{strings.Repeat("x", trust.MaxKeyBytes+1)}, "more than 524288 bytes"},
		"many bytes in several blocks": {slices.Repeat([]string{after(slices.Repeat([][]byte{long}, 30)...)}, 4), "more than 524288 bytes"},
		"long user ID":                 {[]string{after(pgp.UserIDPacket(t, strings.Repeat("x", trust.MaxUserIDBytes+1)))}, "a user ID of 4097 bytes, more than 4096"},
		"long header of the armour":    {[]string{strings.Replace(forged(t, small), "\n\n", "\nComment: "+strings.Repeat("x", trust.MaxArmourLine)+"\n\n", 1)}, "a line of 4105 bytes"},
		"slow keys":                    {[]string{forged(t, slices.Repeat([]pgp.Forged{pgp.ForgedDSA(t, 4096, 512)}, 51)...)}, "take 1020 ms to verify, more than 1000"},
		"slow keys in several blocks":  {slices.Repeat([]string{forged(t, pgp.ForgedRSA(t, 16384))}, 51), "take 1020 ms to verify, more than 1000"},
		"slow signatures":              {[]string{pgp.ArmoredPackets(t, slices.Concat([][]byte{pgp.ForgedDSA(t, 4096, 512).Packets()}, slices.Repeat([][]byte{pgp.ForgedDSA(t, 4096, 512).Signature(packet.SigTypeKeyRevocation)}, 99))...)}, "take 1010 ms to verify"},
	} {
		t.Run(what, func(t *testing.T) { tc.run(t, acme) })
	}
}

// TestUnpinnedKeysAreNotVerified shows that a release with an invalid key is accepted if
// only the signer's key is pinned.
func TestUnpinnedKeysAreNotVerified(t *testing.T) {
	acme := pgp.For(t, "Acme", pgp.Subkey())
	broken := pgp.ForgedDSA(t, 1024, 160).Packets()
	doc := sumsOf(name)
	claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc),
		Keys: []string{pgp.ArmoredPackets(t, broken), acme.ArmoredPublicKey()}}
	if _, err := (trust.Policy{}).Accept(t.Context(), claims); !errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("nothing is pinned: %v", err)
	}
	if _, err := (trust.Policy{Keys: []string{acme.Fingerprint()}}).Accept(t.Context(), claims); err != nil {
		t.Errorf("pinned: %v", err)
	}
}

// TestPinnedSubkey shows that a signature is refused if the policy names the fingerprint
// of a subkey. The error names the primary key.
func TestPinnedSubkey(t *testing.T) {
	acme := pgp.For(t, "Acme", pgp.Subkey())
	doc := sumsOf(name)
	_, err := trust.Policy{Keys: []string{acme.SubkeyFingerprint()}}.Accept(t.Context(), trust.Claims{
		Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc), Keys: []string{acme.ArmoredPublicKey()}})
	if !errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), "offered are "+acme.Fingerprint()) {
		t.Errorf("%v", err)
	}
	if h := hint.Of(err); !strings.Contains(h, "names a subkey of "+acme.Fingerprint()) {
		t.Errorf("hint %q", h)
	}
}

// TestSignatureBounds shows that detached signatures with too much content are refused.
func TestSignatureBounds(t *testing.T) {
	acme, mallory := pgp.For(t, "Acme"), pgp.ForgedDSA(t, 1024, 160)
	doc := sumsOf(name)
	good, strange := sign(t, acme, doc), mallory.Signature(packet.SigTypeBinary)
	header := strings.Repeat("x", trust.MaxArmourLine)
	armoured, err := acme.SignArmored(doc)
	if err != nil {
		t.Fatal(err)
	}
	join := func(n int, packet []byte, end ...byte) []byte {
		return slices.Concat(bytes.Repeat(packet, n), good, end)
	}
	for what, tc := range map[string]struct {
		signature []byte
		says      string // the error; "" means that the signature is accepted
	}{
		"a second signer's":     {join(1, strange), ""},
		"as many as may be":     {join(trust.MaxSignaturePackets-1, strange), ""},
		"too many":              {join(trust.MaxSignaturePackets, strange), "the signature holds more than 64 packets"},
		"many unknown packets":  {join(trust.MaxSignaturePackets, []byte{0xc0 | 60, 0}), "the signature holds more than 64 packets"},
		"a private key":         {join(1, []byte{0xc0 | 5, 1, 4}), "the signature holds a packet of type 5"},
		"compressed":            {join(1, []byte{0xc0 | 8, 1, 0}), "the signature holds a packet of type 8"},
		"a line feed behind it": {join(0, nil, '\n'), ""}, // clients ignore the line feed
		"much text around it":   {slices.Concat([]byte("-----BEGIN PGP SIGNATURE-----\n"), bytes.Repeat([]byte("a: b\n"), 1<<16)), "the armoured signature has more than 131072 bytes"},
		"a long header":         {bytes.Replace(armoured, []byte("\n\n"), []byte("\nComment: "+header+"\n\n"), 1), "the armour has a line of 4105 bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := trust.Policy{}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: tc.signature, Keys: []string{acme.ArmoredPublicKey()}})
			switch {
			case tc.says == "" && err != nil:
				t.Error(err)
			case tc.says != "" && (!errors.Is(err, trust.ErrSignature) || !strings.Contains(err.Error(), tc.says) || hint.Of(err) == ""):
				t.Errorf("error %v (hint %q), want %q", err, hint.Of(err), tc.says)
			}
		})
	}
}

// askedForEnd is a context that signals when a caller asks for its Done channel.
type askedForEnd struct {
	context.Context
	asked chan struct{}
}

func (c askedForEnd) Done() <-chan struct{} {
	close(c.asked)
	return c.Context.Done()
}

// TestVerificationsWaitForASlot shows that a verification that waits for a slot ends when
// its context is cancelled.
func TestVerificationsWaitForASlot(t *testing.T) {
	acme := pgp.For(t, "Acme")
	doc := sumsOf(name)
	claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc), Keys: []string{acme.ArmoredPublicKey()}}
	for what, verify := range map[string]func(context.Context) error{
		"release": func(ctx context.Context) error { _, err := trust.Policy{}.Accept(ctx, claims); return err },
		"key IDs": func(ctx context.Context) error { _, err := trust.KeyIDs(ctx, claims.Keys); return err },
	} {
		t.Run(what, func(t *testing.T) {
			release := trust.HoldSlots()
			defer release()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waiting, contextErr := askedForEnd{ctx, make(chan struct{})}, make(chan error, 1)
			go func() { contextErr <- verify(waiting) }()
			select {
			case <-waiting.asked:
			case err := <-contextErr:
				t.Fatalf("it did not wait, and returned %v", err)
			}
			cancel()
			if err := <-contextErr; !errors.Is(err, context.Canceled) || trust.Refused(err) {
				t.Errorf("error %v, refused: %t", err, trust.Refused(err))
			}
		})
	}
	if _, err := (trust.Policy{}).Accept(t.Context(), claims); err != nil {
		t.Errorf("with free slots: %v", err)
	}
}

// endsWhenAsked is a context that ends after a number of calls of Err. The field left
// counts down to the end.
type endsWhenAsked struct {
	context.Context
	left  int
	after int // the number of calls of Err after the context ended
}

func (c *endsWhenAsked) Err() error {
	if c.left == 0 {
		c.after++
		return context.Canceled
	}
	c.left--
	return nil
}

// TestContextEndsBetweenKeys shows that verification stops soon after its context ends.
// The context ends at each of the places that check it.
func TestContextEndsBetweenKeys(t *testing.T) {
	acme := pgp.For(t, "Acme")
	doc := sumsOf(name)
	// The first two keys are in one block. The third key made the signature.
	claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc),
		Keys: []string{pgp.ArmoredKeyRing(t, pgp.For(t, "Other"), pgp.For(t, "Another")), acme.ArmoredPublicKey()}}
	// The context is checked before the slot, before each packet, before each of the three
	// keys, and before each of the two checks of the signature. A key has five packets.
	const places = 1 + 3*5 + 3 + 2
	for n := range places {
		ctx := &endsWhenAsked{Context: t.Context(), left: n}
		_, err := trust.Policy{}.Accept(ctx, claims)
		if !errors.Is(err, context.Canceled) || trust.Refused(err) {
			t.Errorf("asked %d times before it ends: %v", n, err)
		}
		// After its end, the context is checked only where verification stops and where
		// the error is created.
		if ctx.after > 4 {
			t.Errorf("asked %d times before it ends, and then %d times", n, ctx.after)
		}
	}
	if _, err := (trust.Policy{}).Accept(&endsWhenAsked{Context: t.Context(), left: places}, claims); err != nil {
		t.Errorf("asked %d times: %v", places, err)
	}
	// An invalid key would lead to a different error if it were read.
	claims.Keys = []string{forged(t, pgp.ForgedDSA(t, 1024, 160))}
	if _, err := (trust.Policy{}).Accept(&endsWhenAsked{Context: t.Context(), left: 1 + 3}, claims); !errors.Is(err, context.Canceled) {
		t.Errorf("before an invalid key: %v", err)
	}
}

// TestCostOfHashing shows that a long document is refused if it comes with too many keys.
// The library hashes the document once for each block of keys.
func TestCostOfHashing(t *testing.T) {
	acme, other := pgp.For(t, "Acme"), pgp.For(t, "Other")
	doc := sumsOf(name) // costs 31 units for each block of keys
	for n := 0; len(doc) < 1<<20-1<<10; n++ {
		doc = append(doc, sumsOf(fmt.Sprintf("x%06d", n))...)
	}
	claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc)}
	for keys, accepted := range map[int]bool{2: true, 20: true, 40: false} {
		claims.Keys = append(slices.Repeat([]string{other.ArmoredPublicKey()}, keys-1), acme.ArmoredPublicKey())
		_, err := trust.Policy{}.Accept(t.Context(), claims)
		if accepted && err != nil || !accepted && (!errors.Is(err, trust.ErrTooLarge) || hint.Of(err) == "") {
			t.Errorf("%d keys: %v (hint %q)", keys, err, hint.Of(err))
		}
		claims.SHA256SUMS, claims.Signature = sumsOf(name), sign(t, acme, sumsOf(name))
		if _, err := (trust.Policy{}).Accept(t.Context(), claims); err != nil {
			t.Errorf("%d keys for a document of a usual size: %v", keys, err)
		}
		claims.SHA256SUMS, claims.Signature = doc, sign(t, acme, doc)
	}
}

// realKeys returns the packets of keys that GnuPG and the library made.
func realKeys(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	dearmour := func(what, text string) {
		block, err := armor.Decode(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if out[what], err = io.ReadAll(block.Body); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob("testdata/gnupg/*.key")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d keys of GnuPG, %v", len(names), err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		dearmour(name, string(data))
	}
	for what, options := range map[string][]pgp.Option{
		"Ed25519": {pgp.Ed25519()}, "RSA": {pgp.RSA(2048)}, "DSA": {pgp.DSA()}, "ECDSA": {pgp.ECDSA()}, "subkey": {pgp.Subkey()},
		"revoked": {pgp.Superseded()}, "revoked subkey": {pgp.RevokedSubkey()}, "expired subkey": {pgp.ExpiredSubkey()},
	} {
		dearmour(what, pgp.For(t, "Acme", options...).ArmoredPublicKey())
	}
	dearmour("several", pgp.ArmoredKeyRing(t, pgp.For(t, "Acme", pgp.Subkey()), pgp.For(t, "Other", pgp.Superseded()), pgp.For(t, "Third")))
	return out
}

// summary returns a text for each key, so that two lists of keys can be compared.
func summary(keys openpgp.EntityList) (out []string) {
	for _, e := range keys {
		s := fmt.Sprintf("%X %d user IDs %d revocations", e.PrimaryKey.Fingerprint, len(e.Identities), len(e.Revocations))
		for _, sub := range e.Subkeys {
			s += fmt.Sprintf(" %X %d", sub.PublicKey.Fingerprint, len(sub.Revocations))
		}
		out = append(out, s)
	}
	return out
}

// TestKeysReadAsTheLibraryReadsThem shows that the real keys of publishers, including a
// key with 300 certifications, have the same content as when the library reads them.
func TestKeysReadAsTheLibraryReadsThem(t *testing.T) {
	for what, packets := range realKeys(t) {
		want, err := openpgp.ReadKeyRing(bytes.NewReader(packets))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got, err := trust.ReadPackets(t.Context(), packets)
		if err != nil || !slices.Equal(summary(got), summary(want)) {
			t.Errorf("%s: %v, %v; the library reads %v", what, summary(got), err, summary(want))
		}
	}
}

// FuzzPackets shows that keys within the limits are read as the library reads them.
func FuzzPackets(f *testing.F) {
	for _, packets := range realKeys(f) {
		f.Add(packets)
	}
	f.Add(pgp.ForgedDSA(f, 1024, 160).Packets())
	f.Add([]byte{0xc0 | 8, 2, 0, 0})
	f.Fuzz(func(t *testing.T, packets []byte) {
		got, err := trust.ReadPackets(t.Context(), packets)
		if err != nil {
			return // the library might never return
		}
		want, err := openpgp.ReadKeyRing(bytes.NewReader(packets))
		if err == nil && !slices.Equal(summary(got), summary(want)) {
			t.Errorf("%v; the library reads %v", summary(got), summary(want))
		}
	})
}
