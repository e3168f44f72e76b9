package e2e

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestSignaturesAsClientsTakeThem shows that a push accepts those kinds of signatures that clients accept from
// the origin. If Terraform alone refuses one, the push warns. The push also refuses some checksum documents that clients
// accept.
func TestSignaturesAsClientsTakeThem(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	acme, mallory := pgp.For(t, "Acme"), pgp.For(t, "Mallory", pgp.Subkey())
	key := func(armoured string) release.Key { return release.Key{KeyID: "0123456789ABCDEF", ASCIIArmor: armoured} }
	by := func(options ...pgp.Option) func(*release.Release) {
		signer := pgp.For(t, "Acme", options...)
		return func(r *release.Release) { clients.Must(t, r.Seal(signer)) }
	}
	// listing returns a function that signs the checksum document after a change.
	listing := func(change func(doc string) string) func(*release.Release) {
		signer := pgp.For(t, "Acme")
		return func(r *release.Release) {
			clients.Must(t, r.Seal(signer))
			r.SHA256SUMS = []byte(change(string(r.SHA256SUMS)))
			signature, err := signer.Sign(r.SHA256SUMS)
			clients.Must(t, err)
			r.Signature = signature
		}
	}
	with := func(a packet.PublicKeyAlgorithm, curve packet.Curve) pgp.Option {
		return pgp.With(func(c *packet.Config) { c.Algorithm, c.Curve = a, curve })
	}
	eddsa := func(c *packet.Config) { c.Algorithm, c.Curve = packet.PubKeyAlgoEdDSA, packet.Curve25519 }
	// The oldest versions of clients that read the kinds of keys (docs/howto/keys.md).
	since := map[string]map[string]string{
		"Ed25519":           {"terraform": "1.6.0"},
		"secp256k1":         {"terraform": "1.6.0"},
		"Curve25519 subkey": {"terraform": "1.6.0"},
		"RFC 9580":          {"terraform": "1.12.0", "tofu": "1.11.0"},
	}
	// The oldest versions of clients that refuse what older ones accept.
	until := map[string]string{"signature from the future": "1.6.0", "expired signature": "1.6.0"}
	tomorrow, version := time.Now().Add(24*time.Hour), 0
	for name, tc := range map[string]struct {
		sign   func(*release.Release)
		ok     bool   // accepted by the push and by both clients
		except string // the name of the one that decides otherwise: "terraform" or "ocibridge"
	}{
		"Ed25519":                   {by(pgp.Ed25519()), true, ""},
		"secp256k1":                 {by(with(packet.PubKeyAlgoECDSA, packet.CurveSecP256k1)), true, ""},
		"Curve25519 subkey":         {by(pgp.EncryptionSubkey(eddsa)), true, ""},
		"RFC 9580":                  {by(with(packet.PubKeyAlgoEd25519, "")), true, ""},
		"RSA":                       {by(pgp.RSA(2048)), true, ""},
		"DSA":                       {by(pgp.DSA()), true, ""},
		"ECDSA":                     {by(pgp.ECDSA()), true, ""},
		"subkey":                    {by(pgp.Subkey()), true, ""},
		"expired":                   {by(pgp.Expired()), true, ""},
		"expired subkey":            {by(pgp.ExpiredSubkey()), true, ""},
		"key from the future":       {by(pgp.CreatedAt(tomorrow)), true, ""},
		"signature from the future": {by(pgp.SignsLater(24 * time.Hour)), true, "terraform"},
		"expired signature":         {by(pgp.ExpiredSignature()), true, "terraform"},
		"key with blanks": {func(r *release.Release) {
			by()(r)
			r.Keys[0].ASCIIArmor = strings.ReplaceAll(r.Keys[0].ASCIIArmor, "\n", " \n")
		}, true, "terraform"},
		"comment in the checksums":      {listing(func(doc string) string { return doc + "# made by Acme\n" }), true, "ocibridge"},
		"short line in the checksums":   {listing(func(doc string) string { return doc + "acme\n" }), true, "ocibridge"},
		"shorter hash":                  {listing(func(doc string) string { return doc + strings.Repeat("0", 40) + "  x\n" }), true, "ocibridge"},
		"third column in the checksums": {listing(func(doc string) string { return strings.Replace(doc, ".zip\n", ".zip 12\n", 1) }), true, "ocibridge"},
		"checksums with returns":        {listing(func(doc string) string { return strings.ReplaceAll(doc, "\n", "\r\n") }), true, ""},
		"checksums in upper case":       {listing(func(doc string) string { return upperHashes(doc) }), true, ""},
		"revoked":                       {by(pgp.Superseded()), false, ""},
		"revoked subkey":                {by(pgp.RevokedSubkey()), false, ""},
		"second of the keys": {func(r *release.Release) {
			by()(r)
			r.Keys = append([]release.Key{key(mallory.ArmoredPublicKey())}, r.Keys...)
		}, true, ""},
		"a key that is none before": {func(r *release.Release) { by()(r); r.Keys = append([]release.Key{key("no key")}, r.Keys...) }, false, ""},
		"a key that is none behind": {func(r *release.Release) { by()(r); r.Keys = append(r.Keys, key("no key")) }, true, ""},
		"another key": {func(r *release.Release) {
			clients.Must(t, r.Seal(mallory))
			r.Keys = []release.Key{key(acme.ArmoredPublicKey())}
		}, false, ""},
		"another's subkey": {func(r *release.Release) {
			clients.Must(t, r.Seal(mallory))
			r.Keys = []release.Key{key(acme.WithSubkeyOf(t, mallory))}
		}, false, ""},
		"no signature": {func(r *release.Release) { by()(r); r.Signature = nil }, false, ""},
	} {
		version++
		v := fmt.Sprintf("1.0.%d", version)
		t.Run(name, func(t *testing.T) {
			r := release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: v, Contents: []release.Content{
				{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-null_v" + v: []byte("program")}}}})
			tc.sign(r)
			s.Origin.Add(r)
			got := s.run("push", "--data", s.data, world.Null+"@"+v)
			if (got.status == 0) != (tc.ok != (tc.except == "ocibridge")) {
				t.Errorf("push: status %d, %s%s", got.status, got.stdout, got.stderr)
			}
			if warns := strings.Contains(got.stderr, "Terraform"); warns != (tc.except == "terraform") {
				t.Errorf("push warns of Terraform: %t\n%s", warns, got.stderr)
			}
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				out, err := s.user("", v).Run(client, "init", "-no-color")
				excepted := tc.except == client.Name && (until[name] == "" || client.Since(t, until[name]))
				oldest, limited := since[name][client.Name]
				if want := tc.ok != excepted && (!limited || client.Since(t, oldest)); (err == nil) != want {
					t.Errorf("%s: %v\n%s", client.Name, err, out)
				}
			}
		})
	}
}

// upperHashes returns a checksum document with hashes in upper case.
func upperHashes(doc string) string {
	lines := strings.SplitAfter(doc, "\n")
	for i, line := range lines {
		hash, name, _ := strings.Cut(line, " ")
		if lines[i] = line; name != "" {
			lines[i] = strings.ToUpper(hash) + " " + name
		}
	}
	return strings.Join(lines, "")
}
