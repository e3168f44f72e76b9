package approval_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
)

// BenchmarkCheck measures the check of one valid signature.
func BenchmarkCheck(b *testing.B) {
	k, a := approvals.NewKey(b, approvals.P256), approvals.NewAuthority(b)
	statement := approvals.Statement(b, manifest, approvals.CosignSign)
	for name, c := range map[string]struct {
		require approvals.Require
		bundle  []byte
	}{
		"key": {approvals.Require{Name: "team", PublicKey: k.PEM()}, k.Attest(statement)},
		"identity": {
			approvals.Require{Name: "job", Issuer: approvals.Issuer, Identity: approvals.Pattern, TrustedRoot: a.TrustedRoot(approvals.Root{})},
			a.Attest(approvals.Identity{Issuer: approvals.Issuer, Name: approvals.Workflow, Log: true, Timestamp: true}, statement),
		},
	} {
		b.Run(name, func(b *testing.B) {
			p, sigs := approvals.Policy(b, []approvals.Require{c.require}), signatures(c.bundle)
			b.ReportAllocs()
			for b.Loop() {
				if v, err := p.Check(b.Context(), manifest, sigs); err != nil || v.Err() != nil {
					b.Fatal(v, err)
				}
			}
		})
	}
}
