package trust_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// policyCase is a policy, the keys that the origin offers, and the expected result for
// a signed document.
type policyCase struct {
	policy trust.Policy
	keys   []string
	err    error // nil means that the document is accepted
	signer *pgp.Signer
	says   []string // substrings of the error
}

func (tc policyCase) run(t *testing.T, by *pgp.Signer) {
	t.Helper()
	doc := sumsOf(name)
	sums, err := tc.policy.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, by, doc), Keys: tc.keys})
	if tc.err != nil {
		if !errors.Is(err, tc.err) || hint.Of(err) == "" || strings.Contains(err.Error(), "\n") {
			t.Fatalf("error %v (hint %q), want %v", err, hint.Of(err), tc.err)
		}
		for _, part := range tc.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not say %q", err, part)
			}
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := sums.Signer(); sums.Verdict() != trust.Signed || s.Fingerprint != tc.signer.Fingerprint() || s.KeyID != tc.signer.KeyID() {
		t.Errorf("%s by %+v, want %s", sums.Verdict(), s, tc.signer.Fingerprint())
	}
}

func TestPinnedKeys(t *testing.T) {
	acme, other := pgp.For(t, "Acme", pgp.Subkey()), pgp.For(t, "Other")
	a, o := acme.ArmoredPublicKey(), other.ArmoredPublicKey()
	pin := func(fingerprints ...string) trust.Policy { return trust.Policy{Keys: fingerprints} }
	for what, tc := range map[string]policyCase{
		"the signer":                {pin(acme.Fingerprint()), []string{a}, nil, acme, nil},
		"the signer, beside others": {pin(other.Fingerprint(), acme.Fingerprint()), []string{o, a}, nil, acme, nil},
		"the signer, of several offered in one block": {pin(acme.Fingerprint()), []string{pgp.ArmoredKeyRing(t, other, acme)}, nil, acme, nil},
		"another key":                                         {pin(other.Fingerprint()), []string{a}, trust.ErrSignature, nil, []string{"pinned are " + other.Fingerprint(), "offered are " + acme.Fingerprint()}},
		"another key, which is offered":                       {pin(other.Fingerprint()), []string{a, o}, trust.ErrSignature, nil, []string{"none of the pinned keys"}},
		"another key in one block":                            {pin(other.Fingerprint()), []string{pgp.ArmoredKeyRing(t, acme, other)}, trust.ErrSignature, nil, nil},
		"the subkey that signed":                              {pin(acme.SubkeyFingerprint()), []string{a}, trust.ErrSignature, nil, []string{"offered are " + acme.Fingerprint()}},
		"a part of the fingerprint":                           {pin(acme.KeyID()), []string{a}, trust.ErrSignature, nil, nil},
		"in lower case":                                       {pin(strings.ToLower(acme.Fingerprint())), []string{a}, trust.ErrSignature, nil, nil}, // the configuration converts to upper case
		"nothing that is a key":                               {pin("*"), []string{a}, trust.ErrSignature, nil, nil},
		"the signer, and no key":                              {trust.Policy{Keys: []string{acme.Fingerprint()}, AllowUnsigned: true}, nil, trust.ErrUnsigned, nil, nil},
		"another, unsigned allowed":                           {trust.Policy{Keys: []string{other.Fingerprint()}, AllowUnsigned: true}, []string{a}, trust.ErrSignature, nil, nil},
		"the signer, and a bad key":                           {pin(acme.Fingerprint()), []string{"no key", a}, trust.ErrSignature, nil, nil}, // as in clients
		"the signer, beside a revoked key that is not pinned": {pin(acme.Fingerprint()), []string{pgp.For(t, "Old", pgp.Superseded()).ArmoredPublicKey(), a}, nil, acme, nil},
	} {
		t.Run(what, func(t *testing.T) { tc.run(t, acme) })
	}
}

// TestHashesAreNoSignatureByAPinnedKey shows that a policy with pinned keys
// refuses the hashes of a mirror folder.
func TestHashesAreNoSignatureByAPinnedKey(t *testing.T) {
	claims := trust.Claims{Provider: null, Version: v324, Hashes: map[string][]provider.Hash{name: nil}}
	_, err := trust.Policy{AllowUnsigned: true, Keys: []string{strings.Repeat("A", 40)}}.Accept(t.Context(), claims)
	if !errors.Is(err, trust.ErrUnsigned) || strings.Contains(hint.Of(err), "allow") {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
}

func TestStrictExpiry(t *testing.T) {
	expired, current := pgp.For(t, "Acme", pgp.Expired()), pgp.For(t, "Acme")
	strict := trust.Policy{StrictExpiry: true}
	for what, tc := range map[string]struct {
		policyCase
		by *pgp.Signer
	}{
		"current":                            {policyCase{strict, []string{current.ArmoredPublicKey()}, nil, current, nil}, current},
		"expired":                            {policyCase{strict, []string{expired.ArmoredPublicKey()}, trust.ErrSignature, nil, []string{expired.Fingerprint(), "expired"}}, expired},
		"expired, not strict":                {policyCase{trust.Policy{}, []string{expired.ArmoredPublicKey()}, nil, expired, nil}, expired},
		"expired and pinned":                 {policyCase{trust.Policy{StrictExpiry: true, Keys: []string{expired.Fingerprint()}}, []string{expired.ArmoredPublicKey()}, trust.ErrSignature, nil, nil}, expired},
		"current beside one that is expired": {policyCase{strict, []string{expired.ArmoredPublicKey(), current.ArmoredPublicKey()}, nil, current, nil}, current},
	} {
		t.Run(what, func(t *testing.T) { tc.run(t, tc.by) })
	}
}

func TestRules(t *testing.T) {
	rule := func(pattern, key string) trust.Rule {
		return trust.Rule{Pattern: provider.MustParsePattern(pattern), Policy: trust.Policy{Keys: []string{key}}}
	}
	rules := trust.Rules{
		rule("*/*/*", "any"), rule("registry.opentofu.org/hashicorp/null", "null"),
		rule("registry.opentofu.org/hashicorp/*", "hashicorp"), rule("registry.opentofu.org/*/*", "host"),
	}
	for address, want := range map[string]string{
		"registry.opentofu.org/hashicorp/null":   "null",
		"registry.opentofu.org/hashicorp/random": "hashicorp",
		"registry.opentofu.org/acme/null":        "host",
		"registry.terraform.io/hashicorp/null":   "any",
	} {
		for range rules { // in every order
			if got := rules.For(provider.MustParseAddress(address)); !slices.Equal(got.Keys, []string{want}) {
				t.Errorf("%s: %v, want %s", address, got.Keys, want)
			}
			rules = append(rules[1:], rules[0])
		}
	}
	twice := trust.Rules{rule("*/*/*", "first"), rule("*/*/*", "second")}
	if got := twice.For(null).Keys[0]; got != "first" {
		t.Errorf("of two rules for one pattern: %s, want the first", got)
	}
	if got := rules[:0].For(null); got.Pins() || got.AllowUnsigned || got.StrictExpiry {
		t.Errorf("without rules: %+v", got)
	}
}
