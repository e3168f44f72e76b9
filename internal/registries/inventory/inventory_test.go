package inventory_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const apart = "${namespace}/${type}"

func of(r *stored.Registry) *inventory.Inventory[provider.Address] {
	return &inventory.Inventory[provider.Address]{Kind: inventory.Providers, Registry: inventory.Remote{Repositories: r}, Jobs: 4}
}

func queries(t *testing.T, args ...string) (out []query.Query[provider.Address]) {
	t.Helper()
	for _, s := range args {
		q, err := query.Providers.Parse(strings.ReplaceAll(s, "HOST", stored.Host), true)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, q)
	}
	return out
}

func find(t *testing.T, i *inventory.Inventory[provider.Address], args ...string) *inventory.Selection[provider.Address] {
	t.Helper()
	found, err := i.Find(t.Context(), queries(t, args...))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// text formats a selection as "TYPE VERSION VERSION, ...".
func text(s *inventory.Selection[provider.Address]) string {
	var out []string
	for _, p := range s.Stored {
		line := p.Address.Type()
		for _, v := range p.Matches {
			line += " " + v.String()
		}
		out = append(out, line)
	}
	return strings.Join(out, ", ")
}

func TestFind(t *testing.T) {
	r := stored.For(t, apart)
	r.Store("acme/null", "1.0.0")
	r.Store("acme/null", "1.1.0")
	r.Store("acme/widget", "2.0.0")
	r.Store("other/gadget", "3.0.0")
	for args, want := range map[string]string{
		"":                              "null 1.1.0 1.0.0, widget 2.0.0, gadget 3.0.0",
		"HOST/acme/*":                   "null 1.1.0 1.0.0, widget 2.0.0",
		"HOST/acme/null":                "null 1.1.0 1.0.0",
		"HOST/acme/null@1.0.0":          "null 1.0.0",
		"HOST/acme/null@> 1.0":          "null 1.1.0",
		"HOST/acme/null@2.0.0":          "null",
		"HOST/acme/absent":              "absent",
		"HOST/acme/widget|HOST/*/*":     "null 1.1.0 1.0.0, widget 2.0.0, gadget 3.0.0",
		"HOST/acme/null@1.0.0|HOST/*/*": "null 1.0.0, widget 2.0.0, gadget 3.0.0",
	} {
		t.Run(args, func(t *testing.T) {
			if got := text(find(t, of(r), strings.FieldsFunc(args, func(c rune) bool { return c == '|' })...)); got != want {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
}

// TestFindWithoutCatalog shows which providers are found in a registry that does not list
// its repositories.
func TestFindWithoutCatalog(t *testing.T) {
	r := stored.For(t, apart)
	a := r.Store("acme/null", "1.0.0")
	r.Broken["catalog"] = hint.New("no catalog here", "ask")
	if _, err := of(r).Find(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "embedded cannot be listed: no catalog here") || hint.Of(err) == "" {
		t.Errorf("%v", err)
	}
	i := of(r)
	i.Configured = []provider.Address{a}
	found := find(t, i)
	if text(found) != "null 1.0.0" || len(found.Unlisted) != 1 || found.Unlisted[0].Where != "embedded" || found.Unlisted[0].Problem.String() != "no catalog here (ask)" {
		t.Errorf("%s, %+v", text(found), found.Unlisted)
	}
	if l, err := found.List(t.Context()); err != nil || len(l.Unlisted) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestList(t *testing.T) {
	r := stored.For(t, apart)
	a := r.Store("acme/null", "1.0.0")
	r.Store("acme/null", "1.1.0")
	l, err := find(t, of(r)).List(t.Context())
	if err != nil || l.Failed() != nil || len(l.Stored) != 1 || len(l.Stored[0].Versions) != 2 {
		t.Fatalf("%+v, %v", l, err)
	}
	v := l.Stored[0].Versions[0]
	if v.Version.String() != "1.1.0" || v.Tag != "1.1.0" || v.Size == 0 || len(v.Platforms) != 2 || v.Signature.Verdict != trust.Signed ||
		v.Signature.Text(true) != "signed by "+r.Signer.Fingerprint()[len(r.Signer.Fingerprint())-16:] {
		t.Errorf("%+v", v)
	}
	// The other version is still listed if one version cannot be read.
	r.Reindex(a, "1.1.0", func(i *ocispec.Index) {
		for n := range i.Manifests {
			if i.Manifests[n].ArtifactType == artifact.TypeEvidence {
				i.Manifests[n].Digest = i.Manifests[0].Digest
			}
		}
	})
	l, err = find(t, of(r)).List(t.Context())
	if err != nil || l.Failed() == nil || hint.Of(l.Failed()) == "" || l.Failed().Error() != "1 of 2 providers and versions cannot be read" {
		t.Fatalf("%+v, %v, %v", l, err, l.Failed())
	}
	if versions := l.Stored[0].Versions; versions[0].Problem == nil || versions[0].Signature != nil || versions[1].Problem != nil || versions[1].Signature == nil {
		t.Errorf("%+v, %+v", versions[0], versions[1])
	}
}

func TestInspect(t *testing.T) {
	r := stored.For(t, apart)
	a := r.Store("acme/null", "1.0.0")
	r.Store("acme/null", "1.1.0")
	got, err := inventory.Inspect(t.Context(), find(t, of(r), "HOST/acme/null@~> 1.0"))
	if err != nil || got.Failed() != nil || got.Version.String() != "1.1.0" || got.Declared == nil || len(got.Packages) != 2 || len(got.Packages[0].Hashes) != 2 ||
		got.Evidence == nil || got.Evidence.Origin == "" || got.Evidence.Verdict != trust.Signed || got.Evidence.Signature == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for arg, want := range map[string]string{
		"HOST/acme/null@2.0.0":   "no version 2.0.0 is stored in embedded/acme/null",
		"HOST/acme/null@> 3.0":   `no version that matches "> 3.0" is stored`,
		"HOST/acme/absent@1.0.0": "no version 1.0.0 is stored in embedded/acme/absent",
	} {
		if _, err := inventory.Inspect(t.Context(), find(t, of(r), arg)); err == nil || !strings.Contains(err.Error(), want) || hint.Of(err) == "" {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
	r.Reindex(a, "1.0.0", stored.WithoutEvidence)
	if got, err = inventory.Inspect(t.Context(), find(t, of(r), "HOST/acme/null@1.0.0")); err != nil || got.Evidence != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestVerify shows the findings about versions, in the form "SEVERITY WHERE: TEXT".
func TestVerify(t *testing.T) {
	unsigned := func(r *stored.Registry) provider.Address {
		rel := r.Build("acme/null", "1.0.0")
		if err := rel.Seal(nil); err != nil {
			t.Fatal(err)
		}
		return r.Push(rel)
	}
	signed := func(r *stored.Registry) provider.Address { return r.Store("acme/null", "1.0.0") }
	commented := func(r *stored.Registry) provider.Address {
		a := signed(r)
		_, repo, err := r.Repository(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		stored.ReplaceEvidence(t, repo, a.String(), "1.0.0", stored.Commented(t, r.Signer))
		return a
	}
	otherName := func(r *stored.Registry) provider.Address {
		rel := r.Build("acme/null", "1.0.0")
		for i := range rel.Packages {
			rel.Packages[i].Filename = fmt.Sprintf("Null_%d.zip", i)
		}
		if err := rel.Seal(r.Signer); err != nil {
			t.Fatal(err)
		}
		return r.Push(rel)
	}
	pins := func(signer *pgp.Signer) trust.Policy { return trust.Policy{Keys: []string{signer.Fingerprint()}} }
	for name, tc := range map[string]struct {
		push   func(*stored.Registry) provider.Address
		forge  func(*ocispec.Index)
		policy func(*stored.Registry) trust.Policy

		verdict  trust.Verdict // expected
		findings []string      // the beginnings of the expected findings, sorted
		pinned   bool
	}{
		"signed":                 {push: signed, verdict: trust.Signed},
		"signed by a pinned key": {push: signed, policy: func(r *stored.Registry) trust.Policy { return pins(r.Signer) }, verdict: trust.Signed, pinned: true},
		"signed by another key":  {push: signed, policy: func(*stored.Registry) trust.Policy { return pins(pgp.For(t, "Other")) }, verdict: artifact.NoEvidence, findings: []string{"error evidence: "}},
		"unsigned":               {push: unsigned, verdict: trust.ChecksumOnly, findings: []string{"warning evidence: it is unsigned"}},
		"unsigned and allowed":   {push: unsigned, policy: func(*stored.Registry) trust.Policy { return trust.Policy{AllowUnsigned: true} }, verdict: trust.ChecksumOnly},
		"swapped packages": {push: signed, forge: stored.Swap, verdict: trust.Signed, findings: []string{
			"error darwin_arm64: its file name is", "error darwin_arm64: terraform-provider-null_1.0.0_darwin_arm64.zip: checksum mismatch",
			"error linux_amd64: its file name is", "error linux_amd64: terraform-provider-null_1.0.0_linux_amd64.zip: checksum mismatch",
		}},
		"no evidence":                   {push: signed, forge: stored.WithoutEvidence, verdict: artifact.NoEvidence, findings: []string{"warning evidence: "}},
		"no evidence, keys pinned":      {push: signed, forge: stored.WithoutEvidence, policy: func(r *stored.Registry) trust.Policy { return pins(r.Signer) }, verdict: artifact.NoEvidence, findings: []string{"error evidence: ", "warning evidence: there is none"}},
		"a comment in SHA256SUMS":       {push: commented, verdict: artifact.NoEvidence, findings: []string{"error evidence: evidence of " + stored.Host + "/acme/null 1.0.0: malformed SHA256SUMS: line 4"}},
		"another name":                  {push: otherName, verdict: artifact.SignedOtherName, findings: []string{"warning evidence: "}},
		"another name, and keys pinned": {push: otherName, policy: func(r *stored.Registry) trust.Policy { return pins(r.Signer) }, verdict: artifact.SignedOtherName, findings: []string{"error evidence: "}, pinned: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := stored.For(t, apart)
			a := tc.push(r)
			if tc.forge != nil {
				r.Reindex(a, "1.0.0", tc.forge)
			}
			var policy trust.Policy
			if tc.policy != nil {
				policy = tc.policy(r)
			}
			got, err := find(t, of(r)).Verify(t.Context(), inventory.Verifier{Policy: func(provider.Address) trust.Policy { return policy }, Packages: true})
			if err != nil {
				t.Fatal(err)
			}
			v := got.Stored[0].Versions[0]
			if v.Problem != nil || v.Signature == nil || v.Signature.Verdict != tc.verdict || *v.Pinned != tc.pinned {
				t.Errorf("%+v, signature %+v, problem %v", v, v.Signature, v.Problem)
			}
			var texts []string
			for _, f := range v.Findings {
				if f.Hint == "" {
					t.Errorf("no hint: %+v", f)
				}
				texts = append(texts, fmt.Sprintf("%s %s: %s", f.Severity, f.Where, f.What))
			}
			slices.Sort(texts)
			if !slices.EqualFunc(texts, tc.findings, strings.HasPrefix) {
				t.Errorf("findings\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(tc.findings, "\n"))
			}
			wantError := slices.ContainsFunc(tc.findings, func(s string) bool { return strings.HasPrefix(s, "error") })
			if failed := got.Failed(); (failed != nil) != wantError {
				t.Errorf("failed: %v", failed)
			}
		})
	}
}

// TestVerifyReportsMissing shows that a provider without versions is a failure if a query
// names the provider, but not if only a pattern matches it.
func TestVerifyReportsMissing(t *testing.T) {
	r := stored.For(t, apart)
	r.Store("acme/null", "1.0.0")
	verifier := inventory.Verifier{Policy: func(provider.Address) trust.Policy { return trust.Policy{} }}
	got, err := find(t, of(r), "HOST/acme/absent").Verify(t.Context(), verifier)
	if err != nil || got.Stored[0].Problem == nil || got.Failed() == nil {
		t.Errorf("a named provider: %+v, %v", got, err)
	}
	i := of(r)
	i.Configured = []provider.Address{provider.MustParseAddress(stored.Host + "/acme/absent")}
	if got, err = find(t, i, "HOST/acme/*").Verify(t.Context(), verifier); err != nil || len(got.Stored) != 2 || got.Failed() != nil {
		t.Errorf("a pattern: %+v, %v", got, err)
	}
}

// TestBrokenRepository shows that other providers are still found if a repository cannot be
// opened.
func TestBrokenRepository(t *testing.T) {
	r := stored.For(t, apart)
	r.Store("acme/widget", "1.0.0")
	r.Broken["null"] = errors.New("unknown registry")
	found := find(t, of(r), "HOST/acme/null", "HOST/acme/widget")
	if got := text(found); got != "null, widget 1.0.0" {
		t.Errorf("found %q", got)
	}
	l, err := found.List(t.Context())
	if err != nil || l.Failed() == nil || l.Stored[0].Problem.String() != "unknown registry" || l.Stored[1].Problem != nil {
		t.Errorf("%+v, %v", l, err)
	}
	verifier := inventory.Verifier{Policy: func(provider.Address) trust.Policy { return trust.Policy{} }}
	if got, err := found.Verify(t.Context(), verifier); err != nil || got.Failed() == nil || got.Stored[0].Problem.String() != "unknown registry" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := inventory.Inspect(t.Context(), found); err == nil || err.Error() != "unknown registry" {
		t.Errorf("inspect: %v", err)
	}
}
