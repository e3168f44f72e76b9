package trust_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// TestUnsignedAsClients shows that UnsignedAsClients accepts only releases without a key from registry.opentofu.org.
func TestUnsignedAsClients(t *testing.T) {
	acme, other := newSigner(t), newSigner(t)
	doc := sumsOf(name)
	asClients := trust.Policy{UnsignedAsClients: true}
	for what, tc := range map[string]struct {
		policy trust.Policy
		change func(*trust.Claims)
		err    error // nil means that the claims are accepted
		sole   bool  // whether UnsignedAsClients is the only reason
	}{
		"no key":                   {policy: asClients, sole: true},
		"no key, and a signature":  {policy: asClients, change: func(c *trust.Claims) { c.Signature = sign(t, acme, doc) }, sole: true},
		"no key, unsigned allowed": {policy: trust.Policy{UnsignedAsClients: true, AllowUnsigned: true}},
		"no key, not allowed":      {err: trust.ErrUnsigned},
		"no key, keys pinned":      {policy: trust.Policy{UnsignedAsClients: true, Keys: []string{acme.Fingerprint()}}, err: trust.ErrUnsigned},
		"no key, Terraform's host": {policy: asClients, change: func(c *trust.Claims) { c.Provider = provider.MustParseAddress("registry.terraform.io/hashicorp/null") }, err: trust.ErrUnsigned},
		"no key, another host": {policy: asClients, change: func(c *trust.Claims) {
			c.Provider = provider.MustParseAddress("registry.opentofu.org.example/hashicorp/null")
		}, err: trust.ErrUnsigned},
		"no key, from a folder":     {policy: asClients, change: func(c *trust.Claims) { c.FromRegistry = false }, err: trust.ErrUnsigned},
		"hashes alone":              {policy: asClients, change: func(c *trust.Claims) { c.SHA256SUMS = nil }, err: trust.ErrUnsigned},
		"a key, and no signature":   {policy: asClients, change: func(c *trust.Claims) { c.Keys = []string{acme.ArmoredPublicKey()} }, err: trust.ErrUnsigned},
		"a key that has not signed": {policy: asClients, change: func(c *trust.Claims) { c.Keys, c.Signature = []string{other.ArmoredPublicKey()}, sign(t, acme, doc) }, err: trust.ErrSignature},
		"a key that cannot be read": {policy: asClients, change: func(c *trust.Claims) { c.Keys, c.Signature = []string{""}, sign(t, acme, doc) }, err: trust.ErrSignature},
		"checksums that contradict": {policy: asClients, change: func(c *trust.Claims) { c.Announced = map[string][32]byte{name: {}} }, err: trust.ErrChecksum},
	} {
		t.Run(what, func(t *testing.T) {
			c := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, FromRegistry: true}
			if tc.change != nil {
				tc.change(&c)
			}
			got, err := tc.policy.Accept(t.Context(), c)
			if tc.err != nil || err != nil {
				if !errors.Is(err, tc.err) {
					t.Errorf("error %v, want %v", err, tc.err)
				}
				return
			}
			if got.Verdict() != trust.ChecksumOnly || got.AsClients() != tc.sole || !tc.policy.AllowsUnsigned(got) {
				t.Errorf("verdict %s, only as clients %t", got.Verdict(), got.AsClients())
			}
			if (trust.Policy{}).AllowsUnsigned(got) {
				t.Error("the zero policy allows it")
			}
		})
	}
}

// TestSignatureWithoutKeys shows that accepted claims without a key have the binary form of their signature, unless it
// cannot be a signature, and no signing keys.
func TestSignatureWithoutKeys(t *testing.T) {
	acme := newSigner(t)
	armoured, err := acme.SignArmored(sumsOf(name))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := trust.BinarySignature(armoured)
	if err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct{ sent, want []byte }{
		"none":             {nil, nil},
		"binary":           {signature, signature},
		"armour":           {armoured, signature},
		"not armour":       {[]byte("-----BEGIN PGP SIGNATURE-----"), nil},
		"more than 64 KiB": {make([]byte, 64<<10+1), nil},
	} {
		t.Run(what, func(t *testing.T) {
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{
				Provider: null, Version: v324, SHA256SUMS: sumsOf(name), Signature: tc.sent, SigningKeys: []byte(`{"gpg_public_keys":[]}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, got, keys := sums.Document(); !bytes.Equal(got, tc.want) || keys != nil {
				t.Errorf("signature of %d bytes, want %d; keys %s", len(got), len(tc.want), keys)
			}
		})
	}
}

// TestHintForReleasesWithoutKeys shows that the hint names where-clients-do only if it would help.
func TestHintForReleasesWithoutKeys(t *testing.T) {
	for host, helps := range map[string]bool{"registry.opentofu.org": true, "registry.acme.example": false} {
		a := provider.MustParseAddress(host + "/hashicorp/null")
		_, err := trust.Policy{}.Accept(t.Context(), trust.Claims{Provider: a, Version: v324, SHA256SUMS: sumsOf(name), FromRegistry: true})
		if h := hint.Of(err); strings.Contains(h, `allow_unsigned = "where-clients-do" in a block trust "`+a.String()) != helps {
			t.Errorf("%s: hint %q", host, h)
		}
	}
}
