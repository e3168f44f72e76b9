package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// evidenceOf returns evidence that the given signer signed. Its checksum document lists
// widget's contents on the given platforms under the published names of the given provider
// and version.
func evidenceOf(t *testing.T, a provider.Address, v provider.Version, by *pgp.Signer, platforms ...provider.Platform) artifact.Evidence {
	t.Helper()
	var doc bytes.Buffer
	for _, p := range platforms {
		fmt.Fprintf(&doc, "%x  %s\n", sha256.Sum256(contents(t)[p]), provider.PackageFilename(a, v, p))
	}
	signature, err := by.Sign(doc.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return artifact.Evidence{
		SHA256SUMS: doc.Bytes(), Signature: signature, SigningKeys: signingKeys(t, by),
		Record: artifact.Record{Origin: "registry.acme.example", Verdict: trust.Signed, Fingerprint: by.Fingerprint()},
	}
}

func signingKeys(t *testing.T, of *pgp.Signer) []byte {
	return marshal(t, map[string]any{"gpg_public_keys": []any{map[string]any{"key_id": of.KeyID(), "ascii_armor": of.ArmoredPublicKey()}}})
}

// pushWith pushes widget 1.0.0 with the given evidence, and reads the version back.
func (b *bench) pushWith(e artifact.Evidence, platforms ...provider.Platform) *artifact.Version {
	b.t.Helper()
	all := encode(b.t, platforms...)
	var err error
	if all.evidence, all.parts, err = artifact.EncodeEvidence(e); err != nil {
		b.t.Fatal(err)
	}
	all.version.Evidence = &all.evidence.Descriptor
	if all.index, err = artifact.EncodeIndex(all.version); err != nil {
		b.t.Fatal(err)
	}
	b.push(all)
	v, err := b.read()
	if err != nil {
		b.t.Fatal(err)
	}
	b.registry.Reset()
	return v
}

func platformsOf(packages []artifact.Package) string {
	var out []string
	for _, p := range packages {
		out = append(out, p.Platform.String())
	}
	return strings.Join(out, " ")
}

func TestVerify(t *testing.T) {
	acme, mallory := pgp.For(t, "Acme"), pgp.For(t, "Mallory")
	pinned := trust.Policy{Keys: []string{acme.Fingerprint()}}
	all := []provider.Platform{darwin, linux, windows}
	good := func() artifact.Evidence { return evidenceOf(t, widget, v100, acme, all...) }
	for name, tc := range map[string]struct {
		policy   trust.Policy
		evidence artifact.Evidence
		spoil    func(*artifact.Version)
		err      error // nil means that the version is verified
		vouched  string
		refused  error // the error of the other packages
		pinned   bool
	}{
		"pinned":            {policy: pinned, evidence: good(), vouched: "darwin_arm64 linux_amd64 windows_amd64", pinned: true},
		"nothing is pinned": {evidence: good(), vouched: "darwin_arm64 linux_amd64 windows_amd64"},
		"platform that is not listed": {policy: pinned, evidence: evidenceOf(t, widget, v100, acme, darwin, linux),
			vouched: "darwin_arm64 linux_amd64", refused: trust.ErrNotListed, pinned: true},
		"altered package": {policy: pinned, evidence: good(), spoil: func(v *artifact.Version) { v.Packages[1].Digest = digest.FromString("altered") },
			vouched: "darwin_arm64 windows_amd64", refused: trust.ErrChecksum, pinned: true},
		"another platform's package": {policy: pinned, evidence: good(), spoil: func(v *artifact.Version) {
			v.Packages[1].Digest, v.Packages[1].Filename = v.Packages[0].Digest, v.Packages[0].Filename
		}, vouched: "darwin_arm64 windows_amd64", refused: trust.ErrChecksum, pinned: true},
		"another name on the package": {policy: pinned, evidence: good(), spoil: func(v *artifact.Version) { v.Packages[1].Filename = "x.zip" },
			vouched: "darwin_arm64 linux_amd64 windows_amd64", pinned: true},
		"evidence of another version":  {policy: pinned, evidence: evidenceOf(t, widget, provider.MustParseVersion("0.9.0"), acme, all...), refused: trust.ErrNotListed, pinned: true},
		"evidence of another provider": {policy: pinned, evidence: evidenceOf(t, provider.MustParseAddress("registry.acme.example/acme/gadget"), v100, acme, all...), refused: trust.ErrNotListed, pinned: true},
		"evidence by another key":      {policy: pinned, evidence: evidenceOf(t, widget, v100, mallory, all...), err: trust.ErrSignature},
		"pinned key beside another's signature": {policy: pinned, evidence: func() artifact.Evidence {
			e := evidenceOf(t, widget, v100, mallory, all...)
			e.SigningKeys = signingKeys(t, acme)
			return e
		}(), err: trust.ErrSignature},
		"altered document": {policy: pinned, evidence: func() artifact.Evidence {
			e := good()
			e.SHA256SUMS = append(e.SHA256SUMS, e.SHA256SUMS...)
			return e
		}(), err: trust.ErrSignature},
		"keys that are too large": {policy: pinned, evidence: func() artifact.Evidence {
			e := good()
			large := map[string]any{"ascii_armor": pgp.ArmoredPackets(t, pgp.ForgedDSA(t, 4097, 256).Packets())}
			e.SigningKeys = marshal(t, map[string]any{"gpg_public_keys": slices.Repeat([]any{large}, 60)})
			return e
		}(), err: trust.ErrSignature},
		"no signature": {policy: pinned, evidence: func() artifact.Evidence { e := good(); e.Signature = nil; return e }(), err: trust.ErrUnsigned},
		"no keys":      {policy: pinned, evidence: func() artifact.Evidence { e := good(); e.SigningKeys = nil; return e }(), err: trust.ErrUnsigned},
		"keys that are none": {policy: pinned, evidence: func() artifact.Evidence { e := good(); e.SigningKeys = []byte(`["x"]`); return e }(),
			err: trust.ErrSignature},
		"no document": {policy: trust.Policy{AllowUnsigned: true}, evidence: func() artifact.Evidence { e := good(); e.SHA256SUMS = nil; return e }(),
			err: trust.ErrUnsigned},
		"no evidence": {policy: trust.Policy{AllowUnsigned: true}, evidence: good(), spoil: func(v *artifact.Version) { v.Evidence = nil }, err: artifact.ErrNothingToCheck},
		"unsigned, which is allowed": {policy: trust.Policy{AllowUnsigned: true}, vouched: "darwin_arm64 linux_amd64 windows_amd64",
			evidence: func() artifact.Evidence { e := good(); e.SigningKeys = nil; return e }()},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			v := b.pushWith(tc.evidence, all...)
			if tc.spoil != nil {
				tc.spoil(v)
			}
			got, err := artifact.Verify(t.Context(), b.repo, widget, v100, v, tc.policy)
			if tc.err != nil {
				if !errors.Is(err, tc.err) || hint.Of(err) == "" {
					t.Fatalf("%+v, %v (hint %q); want %v", got, err, hint.Of(err), tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if platformsOf(got.Packages) != tc.vouched || len(got.Packages)+len(got.Refused) != len(all) || got.Pinned != tc.pinned {
				t.Errorf("vouched for %q, pinned %t, refused %v", platformsOf(got.Packages), got.Pinned, got.Refused)
			}
			for _, r := range got.Refused {
				if !errors.Is(r.Err, tc.refused) {
					t.Errorf("%s: %v, want %v", r.Package.Platform, r.Err, tc.refused)
				}
			}
			if signed := got.Verdict == trust.Signed; signed != (got.Signer.Fingerprint == acme.Fingerprint()) {
				t.Errorf("%s by %+v", got.Verdict, got.Signer)
			}
			if n := b.registry.Count(func(recorder.Request) bool { return true }); n > 5 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestSignedUnderAnotherName shows the verdict if a signed document lists a package under a
// name other than the published one. A name that spells the version otherwise vouches for the
// package. A name that contains neither version nor platform is another name of the same
// package. A name that contains a different version or platform is not.
func TestSignedUnderAnotherName(t *testing.T) {
	acme := pgp.For(t, "Acme")
	published := provider.PackageFilename(widget, v100, linux)
	for name, tc := range map[string]struct {
		listed, filename string
		digest           digest.Digest // of the package; "" means the listed digest
		other            bool
		vouched          bool
	}{
		"another name":                    {listed: "Widget_linux_amd64.zip", filename: "Widget_linux_amd64.zip", other: true},
		"another name, not annotated":     {listed: "Widget_linux_amd64.zip", filename: published, other: true},
		"upper case":                      {listed: "terraform-provider-Widget_1.0.0_linux_amd64.zip", filename: published, other: true},
		"published name":                  {listed: published, filename: "Widget_linux_amd64.zip", vouched: true},
		"the version with v":              {listed: "terraform-provider-widget_v1.0.0_linux_amd64.zip", filename: published, vouched: true},
		"the version with V":              {listed: "terraform-provider-widget_V1.0.0_linux_amd64.zip", filename: "terraform-provider-widget_V1.0.0_linux_amd64.zip", vouched: true},
		"other separators":                {listed: "terraform-provider-widget-1.0.0-linux-amd64.zip", filename: published, vouched: true},
		"another version's with v":        {listed: "terraform-provider-widget_v0.9.0_linux_amd64.zip", filename: published},
		"another platform's with v":       {listed: "terraform-provider-widget_v1.0.0_darwin_arm64.zip", filename: published},
		"another version's":               {listed: "terraform-provider-widget_0.9.0_linux_amd64.zip", filename: published},
		"another platform's":              {listed: "terraform-provider-widget_1.0.0_darwin_arm64.zip", filename: published},
		"another provider's":              {listed: "terraform-provider-gadget_1.0.0_linux_amd64.zip", filename: published},
		"another provider's, and says so": {listed: "terraform-provider-gadget_1.0.0_linux_amd64.zip", filename: "terraform-provider-gadget_1.0.0_linux_amd64.zip"},
		"other bytes":                     {listed: "Widget_linux_amd64.zip", filename: "Widget_linux_amd64.zip", digest: digest.FromString("other")},
	} {
		for _, signed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", signed ", signed), func(t *testing.T) {
				e := artifact.Evidence{SHA256SUMS: fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(contents(t)[linux]), tc.listed)}
				policy := trust.Policy{AllowUnsigned: true}
				if signed {
					var err error
					if e.Signature, err = acme.Sign(e.SHA256SUMS); err != nil {
						t.Fatal(err)
					}
					e.SigningKeys = signingKeys(t, acme)
					policy = trust.Policy{Keys: []string{acme.Fingerprint()}}
				}
				p := artifact.Package{Platform: linux, Filename: tc.filename, Digest: digest.FromBytes(contents(t)[linux])}
				if tc.digest != "" {
					p.Digest = tc.digest
				}
				got, err := e.Verify(t.Context(), widget, v100, []artifact.Package{p}, policy)
				if err != nil {
					t.Fatal(err)
				}
				if tc.vouched {
					if len(got.Packages) != 1 || got.Packages[0].Filename != tc.listed || got.Standing() != got.Verdict {
						t.Errorf("%+v", got)
					}
					return
				}
				if len(got.Packages) != 0 || len(got.Refused) != 1 || !errors.Is(got.Refused[0].Err, trust.ErrNotListed) || got.Refused[0].OtherName() != tc.other {
					t.Fatalf("vouched for %v, refused %v", got.Packages, got.Refused)
				}
				if want := tc.other && signed; (got.Standing() == artifact.SignedOtherName) != want || strings.Contains(got.Refused[0].Err.Error(), "signed under another name") != want {
					t.Errorf("standing %q, %v", got.Standing(), got.Refused[0].Err)
				}
			})
		}
	}
}

func TestRecordedStanding(t *testing.T) {
	for filename, want := range map[string]trust.Verdict{
		provider.PackageFilename(widget, v100, linux):      trust.Signed,
		"Widget_linux_amd64.zip":                           artifact.SignedOtherName,
		"terraform-provider-widget_v1.0.0_linux_amd64.zip": trust.Signed,
		"terraform-provider-gadget_1.0.0_linux_amd64.zip":  trust.Signed, // Verify refuses the package
	} {
		v := &artifact.Version{Packages: []artifact.Package{{Platform: linux, Filename: filename}}}
		if got := v.RecordedStanding(trust.Signed, widget, v100); got != want {
			t.Errorf("%s: %q", filename, got)
		}
		if got := v.RecordedStanding(trust.ChecksumOnly, widget, v100); got != trust.ChecksumOnly {
			t.Errorf("%s, unsigned: %q", filename, got)
		}
	}
}
