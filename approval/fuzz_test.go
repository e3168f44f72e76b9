package approval_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
)

// FuzzSignature shows that no bytes approve a manifest unless they contain a signature over its digest, and that every refusal is a
// short line. The seeds are signatures over another digest, by the right signers.
func FuzzSignature(f *testing.F) {
	k, a := approvals.NewKey(f, approvals.P256), approvals.NewAuthority(f)
	other := digest.FromString("another manifest")
	statement, payload := approvals.Statement(f, other, approvals.CosignSign), approvals.Payload(f, other)
	job := approvals.Identity{Issuer: approvals.Issuer, Name: approvals.Workflow, Log: true, Timestamp: true}
	f.Add(k.Attest(statement), "", "", "")
	f.Add(k.Message([]byte("another manifest")), "", "", "")
	f.Add(a.Attest(job, statement), "", "", "")
	f.Add(payload, k.Simple(payload)["dev.cosignproject.cosign/signature"], "", "")
	simple := a.Simple(approvals.Issuer, "release@acme.example", payload)
	f.Add(payload, simple["dev.cosignproject.cosign/signature"], simple["dev.sigstore.cosign/certificate"], simple["dev.sigstore.cosign/bundle"])
	email := approvals.Require{Name: "email", Issuer: approvals.Issuer, Identity: "release@acme.example", TrustedRoot: a.SimpleRoot()}
	policy := approvals.Policy(f, []approvals.Require{
		{Name: "key", PublicKey: k.PEM()}, email, {Name: "job", Issuer: approvals.Issuer, Identity: approvals.Pattern, TrustedRoot: a.TrustedRoot(approvals.Root{})},
	})
	f.Fuzz(func(t *testing.T, document []byte, signature, certificate, entry string) {
		v, err := policy.Check(t.Context(), manifest, []approval.Signature{{Bundle: document}, {Payload: document, Annotations: map[string]string{
			"dev.cosignproject.cosign/signature": signature, "dev.sigstore.cosign/certificate": certificate, "dev.sigstore.cosign/bundle": entry,
		}}})
		if err != nil || len(v.Approvals) > 0 || len(v.Missing) != 3 {
			t.Fatalf("%+v, %v", v, err)
		}
		for _, m := range v.Missing {
			if len(m.Reason) > 4<<10 || strings.ContainsAny(m.Reason, "\n\r\t\x1b") {
				t.Errorf("%q", m.Reason)
			}
		}
	})
}

// FuzzIdentity shows that a * in an identity matches no /, and that everything else matches only itself.
func FuzzIdentity(f *testing.F) {
	f.Add(approvals.Pattern, approvals.Workflow)
	f.Add("release@acme.example", "release@acme.example")
	f.Add("*", "a\nb")
	f.Add("a.c", "abc")
	f.Add(`[a]?\*`, `[a]?\b`)
	f.Fuzz(func(t *testing.T, pattern, identity string) {
		matches, byExpression := approval.Matches(pattern, identity)
		if utf8.ValidString(pattern) && utf8.ValidString(identity) && matches != byExpression {
			t.Errorf("%q, %q: %v, %v by the regular expression", pattern, identity, matches, byExpression)
		}
		if !strings.Contains(pattern, "*") && matches != (pattern == identity) {
			t.Errorf("%q, %q: %v", pattern, identity, matches)
		}
		if matches && strings.Count(pattern, "/") != strings.Count(identity, "/") {
			t.Errorf("%q matches %q", pattern, identity)
		}
		first, last := pattern[:max(0, strings.Index(pattern, "*"))], pattern[strings.LastIndex(pattern, "*")+1:]
		if matches && !(strings.HasPrefix(identity, first) && strings.HasSuffix(identity, last)) {
			t.Errorf("%q matches %q", pattern, identity)
		}
	})
}
