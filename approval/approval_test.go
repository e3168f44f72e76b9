package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

var manifest = digest.FromString("a manifest")

// required returns the policy that requires a key.
func required(t testing.TB, name string, k *approvals.Key) *approval.Policy {
	t.Helper()
	return approvals.Policy(t, []approvals.Require{{Name: name, PublicKey: k.PEM()}})
}

func signatures(bundles ...[]byte) (out []approval.Signature) {
	for i, b := range bundles {
		out = append(out, approval.Signature{Manifest: digest.FromString(fmt.Sprint(i)), Bundle: b})
	}
	return out
}

// TestPublicKeys shows which keys are accepted.
func TestPublicKeys(t *testing.T) {
	good := string(approvals.NewKey(t, approvals.P256).PEM())
	key, err := approval.ParsePublicKey([]byte(good))
	if err != nil || !strings.HasPrefix(key.Fingerprint(), "sha256:") || len(key.Fingerprint()) != 71 || len(key.Hint()) != 44 {
		t.Errorf("%v, %v", key, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"no PEM":        {"ssh-ed25519 AAAA", "it is no public key in PEM"},
		"a private key": {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", `a PEM block of type "PRIVATE KEY"`},
		"two keys":      {good + good, "more than one PEM block"},
		"P-224":         {p224, "the curve P-224, and the curve must be P-256, P-384 or P-521"},
		"RSA-1024":      {rsa1024, "an RSA key of 1024 bits, and RSA keys must have 2048 to 8192"},
		"rubbish":       {"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "asn1"},
	} {
		if _, err := approval.ParsePublicKey([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestTrustedRoots shows which trusted roots are accepted, and which proofs they demand.
func TestTrustedRoots(t *testing.T) {
	a := approvals.NewAuthority(t)
	for _, c := range []struct {
		root approvals.Root
		want string
	}{
		{approvals.Root{}, "an entry in a transparency log of the trusted root"},
		{approvals.Root{NoLog: true}, "a timestamp by an authority of the trusted root"},
		{approvals.Root{NoLog: true, NoTimestamps: true}, ""},
	} {
		if r, err := approval.ParseTrustedRoot(a.TrustedRoot(c.root)); err != nil || r.Proof() != c.want {
			t.Errorf("%+v: %q, %v", c.root, r.Proof(), err)
		}
	}
	for text, wrong := range map[string]struct{ want, hint string }{
		"":         {"it is empty", "write a trusted root"},
		" \n":      {"it is empty", "write a trusted root"},
		"{}":       {"it is no trusted root", "write a trusted root"},
		"[]":       {"it is no trusted root", "write a trusted root"},
		"x":        {"it is no trusted root", "write a trusted root"},
		"{}\n{}\n": {"more than one JSON document", "keep the line"},
		`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`: {"names no certificate authority", "public_key"},
		string(approvals.NewKey(t, approvals.P256).PEM()):                           {"it is a public key, and no trusted root", "as public_key"},
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n":            {`it is a PEM block of type "CERTIFICATE"`, "is JSON"},
	} {
		if _, err := approval.ParseTrustedRoot([]byte(text)); err == nil || !strings.Contains(err.Error(), wrong.want) || !strings.Contains(hint.Of(err), wrong.hint) {
			t.Errorf("%.60q: %v (%s), want %s", text, err, hint.Of(err), wrong.want)
		}
	}
	for text, want := range map[string]string{
		strings.Repeat("[", 100):                            "nest more than",
		strings.Repeat(" ", 1<<20) + " ":                    "more than 1048576 bytes",
		`{"tlogs":[` + strings.Repeat("{},", 2000) + `{}]}`: "more than 1000 elements",
	} {
		if _, err := approval.ParseTrustedRoot([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

// TestRequirements shows which requirements are refused.
func TestRequirements(t *testing.T) {
	key, err := approval.ParsePublicKey(approvals.NewKey(t, approvals.P256).PEM())
	if err != nil {
		t.Fatal(err)
	}
	root, err := approval.ParseTrustedRoot(approvals.NewAuthority(t).TrustedRoot(approvals.Root{}))
	if err != nil {
		t.Fatal(err)
	}
	right := []approval.Requirement{{Name: "a", Key: key}, {Name: "b", Issuer: "i", Identity: "s", Root: root}}
	if p, err := approval.NewPolicy(right...); err != nil || p.IsZero() || len(p.Requirements()) != 2 {
		t.Errorf("%v, %v", p, err)
	}
	for want, wrong := range map[string][]approval.Requirement{
		"has no name":                        {{Key: key}},
		"not both":                           {{Name: "a", Key: key, Issuer: "i"}},
		"neither a public key":               {{Name: "a"}},
		"has no issuer":                      {{Name: "a", Identity: "s", Root: root}},
		"has no identity":                    {{Name: "a", Issuer: "i", Root: root}},
		"has no trusted root":                {{Name: "a", Issuer: "i", Identity: "s"}},
		"not valid UTF-8":                    {{Name: "a", Issuer: "i", Identity: "\xff", Root: root}},
		`two requirements have the name "a"`: {{Name: "a", Key: key}, {Name: "a", Key: key}},
	} {
		if _, err := approval.NewPolicy(wrong...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPolicyIDs shows that policies have the same ID if, and only if, their requirements are equal.
func TestPolicyIDs(t *testing.T) {
	k, other := approvals.NewKey(t, approvals.P256), approvals.NewKey(t, approvals.P256)
	a := approvals.NewAuthority(t)
	one, two := a.TrustedRoot(approvals.Root{}), a.TrustedRoot(approvals.Root{NoLog: true})
	blocks := []approvals.Require{
		{Name: "a", PublicKey: k.PEM()}, {Name: "b", PublicKey: k.PEM()}, {Name: "a", PublicKey: other.PEM()},
		{Name: "a", PublicKey: k.PEM(), Predicate: "p"}, {Name: "a", PublicKey: k.PEM(), ReportOnly: true},
		{Name: "a", Issuer: "i", Identity: "s", TrustedRoot: one}, {Name: "a", Issuer: "i", Identity: "s", TrustedRoot: two},
		{Name: "a", Issuer: "j", Identity: "s", TrustedRoot: one}, {Name: "a", Issuer: "i", Identity: "t", TrustedRoot: one},
	}
	seen := map[string]int{"": -1}
	for i, r := range blocks {
		id := approvals.Policy(t, []approvals.Require{r}).ID()
		if j, dup := seen[id]; dup || id != approvals.Policy(t, []approvals.Require{r}).ID() {
			t.Errorf("blocks %d and %d have the ID %s", i, j, id)
		}
		seen[id] = i
	}
	if none, err := approval.NewPolicy(); none.ID() != "" || !none.IsZero() || none.Enforces() || err != nil {
		t.Errorf("%v, %v", none, err)
	}
}

// TestRules shows that the most specific block decides alone, also if it requires nothing.
func TestRules(t *testing.T) {
	general, special := required(t, "general", approvals.NewKey(t, approvals.P256)), required(t, "special", approvals.NewKey(t, approvals.P256))
	pattern := func(p subject.Pattern, err error) subject.Pattern {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	providers := func(s string) subject.Pattern { p, err := provider.ParsePattern(s); return pattern(p, err) }
	modules := func(s string) subject.Pattern { p, err := module.ParsePattern(s); return pattern(p, err) }
	rules := approval.Rules{
		{providers("*/*/*"), general}, {providers("registry.acme.example/acme/*"), special}, {providers("registry.acme.example/free/*"), nil},
		{providers("registry.acme.example/acme/*"), general}, {modules("registry.acme.example/*/*/*"), special},
	}
	for _, c := range []struct {
		a    subject.Address
		want *approval.Policy
	}{
		{provider.MustParseAddress("registry.acme.example/acme/widget"), special},
		{provider.MustParseAddress("registry.acme.example/free/widget"), nil},
		{provider.MustParseAddress("registry.opentofu.org/hashicorp/null"), general},
		{module.MustParseAddress("registry.acme.example/acme/vpc/aws"), special},
		{module.MustParseAddress("registry.acme.example/Acme/vpc/aws"), special},
		{module.MustParseAddress("registry.opentofu.org/acme/vpc/aws"), nil},
	} {
		if got := rules.For(c.a); got != c.want {
			t.Errorf("%s: %v", c.a, got)
		}
	}
	a := subject.Address(provider.MustParseAddress("registry.acme.example/acme/widget"))
	if n := testing.AllocsPerRun(100, func() { rules.For(a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestErrors shows what clients and people see of a missing approval.
func TestErrors(t *testing.T) {
	v := approval.Verdict{Missing: []approval.Missing{
		{Requirement: "reported", ReportOnly: true, Reason: approval.NoSignature, Hint: "nothing"},
		{Requirement: "platform team", Reason: approval.NoSignature}, {Requirement: "our release job", Reason: "its signer is x", Hint: "do this"},
	}, Ignored: 3}
	err := v.Err()
	var refused *approval.NotApproved
	if !errors.As(err, &refused) || !errors.Is(err, approval.ErrNotApproved) || refused.Reason() != `not approved: "platform team", "our release job"` || hint.Of(err) != "do this" ||
		err.Error() != `not approved: "platform team": it has no signature; "our release job": its signer is x (only 64 signatures were checked)` {
		t.Errorf("%v, %q", err, hint.Of(err))
	}
	if len(v.Reported()) != 1 || (approval.Verdict{Missing: v.Missing[:1]}).Err() != nil {
		t.Errorf("%v", v.Reported())
	}
}

// TestMaxSignatures shows that the signatures above the limit are ignored, and that the verdict says so.
func TestMaxSignatures(t *testing.T) {
	right, wrong := approvals.NewKey(t, approvals.P256), approvals.NewKey(t, approvals.P256)
	statement := approvals.Statement(t, manifest, approvals.CosignSign)
	many := make([][]byte, approval.MaxSignatures)
	for i := range many {
		many[i] = wrong.Attest(statement)
	}
	p := required(t, "platform team", right)
	v, err := p.Check(t.Context(), manifest, signatures(append(many, right.Attest(statement))...))
	if err != nil || v.Err() == nil || v.Ignored != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	many[len(many)-1] = right.Attest(statement)
	v, err = p.Check(t.Context(), manifest, signatures(many...))
	if err != nil || v.Err() != nil || len(v.Approvals) != 1 || v.Approvals[0].Manifest != digest.FromString("63") {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestNothingIsDecidedAfterTheEnd shows that a check whose context has ended is an error, and not a missing approval.
func TestNothingIsDecidedAfterTheEnd(t *testing.T) {
	k := approvals.NewKey(t, approvals.P256)
	p := required(t, "platform team", k)
	sigs := signatures(k.Attest(approvals.Statement(t, manifest, approvals.CosignSign)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := p.Check(ctx, manifest, sigs); !errors.Is(err, context.Canceled) || len(v.Missing)+len(v.Approvals) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
	release := approval.HoldSlots()
	defer release()
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := p.Check(ctx, manifest, sigs); !errors.Is(err, context.Canceled) {
		t.Errorf("without a slot: %v", err)
	}
}

// TestSlowChecksDecideNothing shows that a check that takes too long is an error, and not a missing approval.
func TestSlowChecksDecideNothing(t *testing.T) {
	k := approvals.NewKey(t, approvals.P256)
	sigs := signatures(k.Attest(approvals.Statement(t, manifest, approvals.CosignSign)))
	if v, err := approval.CheckWithin(t.Context(), required(t, "platform team", k), manifest, sigs, -1); !errors.Is(err, approval.ErrTooSlow) || len(v.Missing) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestSigners shows the hints that signatures give, and what they let expect.
func TestSigners(t *testing.T) {
	k, other := approvals.NewKey(t, approvals.P256), approvals.NewKey(t, approvals.P256)
	a := approvals.NewAuthority(t)
	statement := approvals.Statement(t, manifest, approvals.CosignSign)
	sigs := signatures(
		approvals.Hinted(t, k.Attest(statement), k), approvals.Hinted(t, k.Attest(statement), k), other.Attest(approvals.Statement(t, digest.FromString("another"), approvals.CosignSign)),
		a.Attest(approvals.Identity{Issuer: approvals.Issuer, Name: approvals.Workflow}, approvals.Statement(t, manifest, approvals.Provenance)), []byte("{}"),
	)
	signers := approval.Signers(manifest, sigs)
	key, err := approval.ParsePublicKey(k.PEM())
	if err != nil {
		t.Fatal(err)
	}
	want := []approval.Signer{{Key: key.Fingerprint()}, {Issuer: approvals.Issuer, Identity: approvals.Workflow, Predicate: approvals.Provenance}}
	if fmt.Sprint(signers) != fmt.Sprint(want) || len(signers) != 2 || signers[0] != want[0] || signers[1] != want[1] {
		t.Fatalf("%+v", signers)
	}
	job := approvals.Require{Name: "job", Issuer: approvals.Issuer, Identity: approvals.Pattern, TrustedRoot: a.TrustedRoot(approvals.Root{}), Predicate: approvals.Provenance}
	elsewhere := job
	elsewhere.Name, elsewhere.Issuer = "elsewhere", "https://gitlab.com"
	v := approvals.Policy(t, []approvals.Require{{Name: "team", PublicKey: k.PEM()}, {Name: "other", PublicKey: other.PEM()}, job, elsewhere}).Expect(signers)
	if len(v.Approvals) != 2 || len(v.Missing) != 2 || v.Missing[0].Requirement != "other" || v.Missing[1].Requirement != "elsewhere" {
		t.Errorf("%+v", v)
	}
}
