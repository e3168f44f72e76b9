package approval_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// changed returns a changed bundle.
func changed(t *testing.T, bundle []byte, change func(b *protobundle.Bundle, m *protobundle.VerificationMaterial)) []byte {
	t.Helper()
	var b protobundle.Bundle
	if err := protojson.Unmarshal(bundle, &b); err != nil {
		t.Fatal(err)
	}
	change(&b, b.VerificationMaterial)
	out, err := protojson.Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLimits shows the limits of the parts of a signature. Without the change, each signature is valid.
func TestLimits(t *testing.T) {
	k, a := approvals.NewKey(t, approvals.P256), approvals.NewAuthority(t)
	policy := approvals.Policy(t, []approvals.Require{{Name: "job", Issuer: approvals.Issuer, Identity: approvals.Pattern, TrustedRoot: a.TrustedRoot(approvals.Root{})}})
	statement := approvals.Statement(t, manifest, approvals.CosignSign)
	valid := a.Attest(approvals.Identity{Issuer: approvals.Issuer, Name: approvals.Workflow, Log: true, Timestamp: true}, statement)
	payload := approvals.Payload(t, manifest)
	long := bytes.Repeat([]byte("x"), 20<<10)
	bundle := func(change func(b *protobundle.Bundle, m *protobundle.VerificationMaterial)) approval.Signature {
		return approval.Signature{Bundle: changed(t, valid, change)}
	}
	for want, s := range map[string]approval.Signature{
		"":                               bundle(func(*protobundle.Bundle, *protobundle.VerificationMaterial) {}),
		"it has more than 1048576 bytes": {Bundle: bytes.Repeat([]byte(" "), approval.MaxBundleBytes+1)},
		"an array or object in it has more than 1000 elements": {Bundle: []byte(`{"a":[` + strings.Repeat("1,", 2000) + `1]}`)},
		"its values nest more than":                            {Bundle: []byte(strings.Repeat(`{"a":`, 100))},
		"its statement: the document is too large: an array":   {Bundle: k.Attest(append(statement[:len(statement)-1], []byte(`,"a":[`+strings.Repeat("1,", 6000)+`1]}`)...))},
		"a statement with a predicate type of 1000 bytes":      {Bundle: k.Attest(approvals.Statement(t, manifest, strings.Repeat("p", 1000)))},
		"it has 5 log entries": bundle(func(_ *protobundle.Bundle, m *protobundle.VerificationMaterial) {
			for len(m.TlogEntries) < 5 {
				m.TlogEntries = append(m.TlogEntries, m.TlogEntries[0])
			}
		}),
		"and 5 timestamps": bundle(func(_ *protobundle.Bundle, m *protobundle.VerificationMaterial) {
			for d := m.TimestampVerificationData; len(d.Rfc3161Timestamps) < 5; {
				d.Rfc3161Timestamps = append(d.Rfc3161Timestamps, d.Rfc3161Timestamps[0])
			}
		}),
		"a log entry: the document is too large": bundle(func(_ *protobundle.Bundle, m *protobundle.VerificationMaterial) {
			m.TlogEntries[0].CanonicalizedBody = long
		}),
		"a timestamp of 20480 bytes": bundle(func(_ *protobundle.Bundle, m *protobundle.VerificationMaterial) {
			m.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp = long
		}),
		"a certificate of 20480 bytes": bundle(func(_ *protobundle.Bundle, m *protobundle.VerificationMaterial) {
			m.Content = &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: long}}
		}),
		"a signature of 20480 bytes": bundle(func(b *protobundle.Bundle, _ *protobundle.VerificationMaterial) {
			b.GetDsseEnvelope().Signatures[0].Sig = long
		}),
		"its payload: the document is too large": {Payload: append(payload, bytes.Repeat([]byte(" "), approval.MaxPayloadBytes)...)},
		"its log entry: the document is too large": {Payload: payload, Annotations: map[string]string{
			"dev.cosignproject.cosign/signature": "AAAA", "dev.sigstore.cosign/bundle": strings.Repeat(" ", approval.MaxPayloadBytes+1),
		}},
		"its timestamp: the document is too large": {Payload: payload, Annotations: map[string]string{
			"dev.cosignproject.cosign/signature": "AAAA", "dev.sigstore.cosign/rfc3161timestamp": strings.Repeat(" ", approval.MaxPayloadBytes+1),
		}},
	} {
		v, err := policy.Check(t.Context(), manifest, []approval.Signature{s})
		switch {
		case err != nil:
			t.Errorf("%s: %v", want, err)
		case want == "" && v.Err() != nil:
			t.Error(v.Err())
		case want != "" && (len(v.Missing) != 1 || !strings.Contains(v.Missing[0].Reason, want)):
			t.Errorf("%+v, want %s", v, want)
		}
	}
}

// TestCosts shows that the largest bundles that are read take little memory and time.
func TestCosts(t *testing.T) {
	k := approvals.NewKey(t, approvals.P256)
	policy := required(t, "platform team", k)
	values := cost.Filled(700<<10, `{"_type":"https://in-toto.io/Statement/v1","predicateType":"p","predicate":{"a":[`, `{}`, `]}}`)
	list := strings.Repeat("{},", 4900) + "{}"
	within := []byte(`{"_type":"https://in-toto.io/Statement/v1","predicateType":"p","predicate":{"a":[` + list + `],"b":[` + list + `],"c":[` + list + `]}}`)
	for name, bundle := range map[string][]byte{
		"values within limits":  k.Attest(within),
		"values of a bundle":    cost.Filled(approval.MaxBundleBytes-100, `{"a":[`, `{}`, `]}`),
		"values of a statement": k.Attest(values),
	} {
		t.Run(name, func(t *testing.T) {
			cost.Check(t, len(bundle), true, func() error {
				v, err := policy.Check(t.Context(), digest.FromString("x"), signatures(bundle))
				if err != nil {
					t.Fatal(err)
				}
				return v.Err()
			})
		})
	}
}
