package e2e

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// TestSignaturesAsClientsTakeThem shows that a push accepts exactly those kinds of signatures that clients
// accept from the origin.
func TestSignaturesAsClientsTakeThem(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	acme, mallory := pgp.For(t, "Acme", pgp.Usual()), pgp.For(t, "Mallory", pgp.Usual(), pgp.Subkey())
	key := func(armoured string) release.Key { return release.Key{KeyID: "0123456789ABCDEF", ASCIIArmor: armoured} }
	by := func(options ...pgp.Option) func(*release.Release) {
		signer := pgp.For(t, "Acme", append([]pgp.Option{pgp.Usual()}, options...)...)
		return func(r *release.Release) { clients.Must(t, r.Seal(signer)) }
	}
	version := 0
	for name, tc := range map[string]struct {
		sign func(*release.Release)
		ok   bool
	}{
		"Ed25519":        {by(pgp.Ed25519()), true},
		"RSA":            {by(), true},
		"DSA":            {by(pgp.DSA()), true},
		"ECDSA":          {by(pgp.ECDSA()), true},
		"subkey":         {by(pgp.Subkey()), true},
		"expired":        {by(pgp.Expired()), true},
		"expired subkey": {by(pgp.ExpiredSubkey()), true},
		"revoked":        {by(pgp.Superseded()), false},
		"revoked subkey": {by(pgp.RevokedSubkey()), false},
		"second of the keys": {func(r *release.Release) {
			by()(r)
			r.Keys = append([]release.Key{key(mallory.ArmoredPublicKey())}, r.Keys...)
		}, true},
		"a key that is none before": {func(r *release.Release) { by()(r); r.Keys = append([]release.Key{key("no key")}, r.Keys...) }, false},
		"a key that is none behind": {func(r *release.Release) { by()(r); r.Keys = append(r.Keys, key("no key")) }, true},
		"another key": {func(r *release.Release) {
			clients.Must(t, r.Seal(mallory))
			r.Keys = []release.Key{key(acme.ArmoredPublicKey())}
		}, false},
		"another's subkey": {func(r *release.Release) {
			clients.Must(t, r.Seal(mallory))
			r.Keys = []release.Key{key(acme.WithSubkeyOf(t, mallory))}
		}, false},
		"no signature": {func(r *release.Release) { by()(r); r.Signature = nil }, false},
	} {
		version++
		v := fmt.Sprintf("1.0.%d", version)
		t.Run(name, func(t *testing.T) {
			r := release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: v, Contents: []release.Content{
				{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-null_v" + v: []byte("program")}}}})
			tc.sign(r)
			s.Origin.Add(r)
			if got := s.run("push", "--data", s.data, world.Null+"@"+v); (got.status == 0) != tc.ok {
				t.Errorf("push: status %d, %s%s", got.status, got.stdout, got.stderr)
			}
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				out, err := s.user("", v).Run(client, "init", "-no-color")
				if name == "Ed25519" && client.Name == "terraform" && strings.Contains(string(out), "public key type: 22") {
					continue // Terraform before 1.6 refuses such keys
				}
				if (err == nil) != tc.ok {
					t.Errorf("%s: %v\n%s", client.Name, err, out)
				}
			}
		})
	}
}
