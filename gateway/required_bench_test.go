package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// required is a bench whose gateway has verify = "required". So the gateway serves only
// packages that a pinned key has signed.
type required struct {
	*bench
	acme    *pgp.Signer
	checker *verify.Checker
	counted telemetry.VerifyCounters
}

func newRequired(t *testing.T) *required {
	r := &required{bench: newBench(t), acme: pgp.For(t, "Acme")}
	rules := trust.Rules{{Pattern: provider.MustParsePattern(host + "/acme/*"), Policy: trust.Policy{Keys: []string{r.acme.Fingerprint()}}}}
	r.checker = verify.New(verify.Options{Policy: rules.For, Counters: &r.counted, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	r.options.Check = func(ctx context.Context, s artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		return r.checker.Check(ctx, s, a, v, found)
	}
	return r
}

// stored describes a version before it is stored in the registry. Tests can forge parts
// of the version.
type stored struct {
	packages map[provider.Platform][]byte
	// signed is what the evidence says, and who signed it.
	signed struct {
		provider provider.Address
		version  string
		packages map[provider.Platform][]byte
		by       *pgp.Signer
	}
	index    func(*artifact.Version)                 // changes the version before it is encoded
	manifest func(provider.Platform, map[string]any) // changes a platform's manifest
	evidence func(*artifact.Evidence)                // changes the evidence before it is encoded
	raw      func(index *ocispec.Index)              // changes the encoded index
}

// honest returns a description of widget 1.0.0 with valid evidence.
func (r *required) honest() *stored {
	s := &stored{packages: map[provider.Platform][]byte{linux: zip(r.t, linux), darwin: zip(r.t, darwin)}}
	s.signed.provider, s.signed.version, s.signed.packages, s.signed.by = widget, "1.0.0", maps.Clone(s.packages), r.acme
	return s
}

// evil returns a package that nobody has signed.
func evil(t testing.TB) []byte {
	t.Helper()
	data, err := release.Zip(map[string][]byte{"terraform-provider-widget_v1.0.0": []byte("evil")})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// put stores a version in widget's repository with the given tag. The version may be
// invalid.
func (r *required) put(s *stored, tag string) *artifact.Version {
	r.t.Helper()
	v := provider.MustParseVersion("1.0.0")
	out := artifact.Version{Owner: widget, Version: v, Protocols: []string{"5.0"}}
	r.send(r.repo, artifact.Config())
	for platform, content := range s.packages {
		pkg, _ := accepted.Package(r.t, widget, v, platform, content)
		p, manifest, err := artifact.EncodePackage(pkg)
		if err != nil {
			r.t.Fatal(err)
		}
		r.send(r.repo, artifact.Blob{Descriptor: p.Layer(), Data: content})
		if s.manifest != nil {
			var m map[string]any
			if err := json.Unmarshal(manifest.Data, &m); err != nil {
				r.t.Fatal(err)
			}
			s.manifest(platform, m)
			manifest = blobOf(manifest.Descriptor.MediaType, r.marshal(m))
			p.Manifest = manifest.Descriptor
		}
		r.send(r.repo, manifest)
		out.Packages = append(out.Packages, p)
	}
	slices.SortFunc(out.Packages, func(a, b artifact.Package) int { return a.Platform.Compare(b.Platform) })
	manifest, parts, err := artifact.EncodeEvidence(r.evidenceOf(s))
	if err != nil {
		r.t.Fatal(err)
	}
	r.send(r.repo, append(parts, manifest)...)
	out.Evidence = &manifest.Descriptor
	if s.index != nil {
		s.index(&out)
	}
	index, err := artifact.EncodeIndex(out)
	if err != nil {
		r.t.Fatal(err)
	}
	if s.raw != nil {
		var decoded ocispec.Index
		if err := json.Unmarshal(index.Data, &decoded); err != nil {
			r.t.Fatal(err)
		}
		s.raw(&decoded)
		index = blobOf(index.Descriptor.MediaType, r.marshal(decoded))
	}
	r.tag(r.repo, index, tag)
	r.registry.Reset()
	return &out
}

func (b *bench) marshal(v any) []byte {
	b.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

func (r *required) evidenceOf(s *stored) artifact.Evidence {
	r.t.Helper()
	var doc bytes.Buffer
	for p, content := range s.signed.packages {
		fmt.Fprintf(&doc, "%x  %s\n", sha256.Sum256(content), provider.PackageFilename(s.signed.provider, provider.MustParseVersion(s.signed.version), p))
	}
	signature, err := s.signed.by.Sign(doc.Bytes())
	if err != nil {
		r.t.Fatal(err)
	}
	e := artifact.Evidence{
		SHA256SUMS: doc.Bytes(), Signature: signature,
		SigningKeys: r.marshal(map[string]any{"gpg_public_keys": []any{map[string]any{"ascii_armor": s.signed.by.ArmoredPublicKey()}}}),
		Record:      artifact.Record{Origin: host, Verdict: trust.Signed, Fingerprint: s.signed.by.Fingerprint()},
	}
	if s.evidence != nil {
		s.evidence(&e)
	}
	return e
}

// hashesOf returns the hashes of packages in VERSION.json. The keys are platforms.
func (r *required) hashesOf(a answer) map[string][]string {
	r.t.Helper()
	var doc struct {
		Archives map[string]struct{ Hashes []string }
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != http.StatusOK {
		r.t.Fatalf("%+v: %v", a, err)
	}
	out := map[string][]string{}
	for p, archive := range doc.Archives {
		out[p] = archive.Hashes
	}
	return out
}

func zipHash(content []byte) string { return fmt.Sprintf("zh:%x", sha256.Sum256(content)) }

func h1(t testing.TB, content []byte) provider.Hash {
	t.Helper()
	h, err := provider.H1(t.Context(), bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// counts are the numbers of the checker's results.
type counts struct{ verified, refused, withheld uint64 }

func (r *required) counts() counts {
	return counts{r.counted.Verified.Load(), r.counted.Refused.Load(), r.counted.Withheld.Load()}
}
