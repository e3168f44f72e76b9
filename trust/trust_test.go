package trust_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

var (
	null    = provider.MustParseAddress("registry.opentofu.org/hashicorp/null")
	v324    = provider.MustParseVersion("3.2.4")
	linux   = provider.MustParsePlatform("linux_amd64")
	content = release.AsZip([]byte("the smallest of packages"))
	name    = provider.PackageFilename(null, v324, linux)
)

func sumsOf(names ...string) []byte {
	var b bytes.Buffer
	for _, n := range names {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), n)
	}
	return b.Bytes()
}

func newSigner(t *testing.T) *pgp.Signer {
	t.Helper()
	s, err := pgp.NewSigner("Acme")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t *testing.T, s *pgp.Signer, doc []byte) []byte {
	t.Helper()
	sig, err := s.Sign(doc)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func TestAccept(t *testing.T) {
	acme, other := newSigner(t), newSigner(t)
	doc := sumsOf(name)
	claims := func(change func(*trust.Claims)) trust.Claims {
		c := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc), Keys: []string{acme.ArmoredPublicKey()}}
		change(&c)
		return c
	}
	lax := trust.Policy{AllowUnsigned: true}
	for what, tc := range map[string]struct {
		policy trust.Policy
		claims trust.Claims
		err    error // nil means that the claims are accepted
		want   trust.Verdict
	}{
		"signed":                       {claims: claims(func(*trust.Claims) {}), want: trust.Signed},
		"signed by the second key":     {claims: claims(func(c *trust.Claims) { c.Keys = []string{other.ArmoredPublicKey(), acme.ArmoredPublicKey()} }), want: trust.Signed},
		"signed by another key":        {claims: claims(func(c *trust.Claims) { c.Keys = []string{other.ArmoredPublicKey()} }), err: trust.ErrSignature},
		"by another, unsigned allowed": {policy: lax, claims: claims(func(c *trust.Claims) { c.Keys = []string{other.ArmoredPublicKey()} }), err: trust.ErrSignature},
		"document altered":             {claims: claims(func(c *trust.Claims) { c.SHA256SUMS = append(bytes.Clone(doc), sumsOf("more.zip")...) }), err: trust.ErrSignature},
		"signature cut":                {claims: claims(func(c *trust.Claims) { c.Signature = c.Signature[:20] }), err: trust.ErrSignature},
		"signature missing":            {policy: lax, claims: claims(func(c *trust.Claims) { c.Signature = nil }), err: trust.ErrUnsigned},
		"key that does not read":       {claims: claims(func(c *trust.Claims) { c.Keys = []string{"no key"} }), err: trust.ErrSignature},
		"no key":                       {claims: claims(func(c *trust.Claims) { c.Keys = nil }), err: trust.ErrUnsigned},
		"no key, unsigned allowed":     {policy: lax, claims: claims(func(c *trust.Claims) { c.Keys = nil }), want: trust.ChecksumOnly},
		"hashes alone":                 {claims: claims(func(c *trust.Claims) { c.SHA256SUMS = nil }), err: trust.ErrUnsigned},
		"hashes, unsigned allowed":     {policy: lax, claims: claims(func(c *trust.Claims) { c.SHA256SUMS = nil }), want: trust.ChecksumOnly},
		"announced and not listed":     {claims: claims(func(c *trust.Claims) { c.Announced = map[string][32]byte{"other.zip": {}} }), err: trust.ErrNotListed},
		"announced otherwise":          {claims: claims(func(c *trust.Claims) { c.Announced = map[string][32]byte{name: {}} }), err: trust.ErrChecksum},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := tc.policy.Accept(t.Context(), tc.claims)
			if tc.err != nil {
				if !errors.Is(err, tc.err) || hint.Of(err) == "" {
					t.Fatalf("error %v (hint %q), want %v", err, hint.Of(err), tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict() != tc.want {
				t.Errorf("verdict %s", got.Verdict())
			}
			if signed := got.Verdict() == trust.Signed; signed != (got.Signer().Fingerprint == acme.Fingerprint()) {
				t.Errorf("signer %+v", got.Signer())
			}
		})
	}
}

func TestArmouredSignature(t *testing.T) {
	signer := newSigner(t)
	doc := sumsOf(name)
	armoured, err := signer.SignArmored(doc)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := trust.BinarySignature(armoured)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (trust.Policy{}).Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: binary, Keys: []string{signer.ArmoredPublicKey()}}); err != nil {
		t.Error(err)
	}
	if same, err := trust.BinarySignature(binary); err != nil || !bytes.Equal(same, binary) {
		t.Errorf("a binary signature becomes %x, %v", same, err)
	}
	if _, err := trust.BinarySignature([]byte(signer.ArmoredPublicKey())); err == nil {
		t.Error("a public key is accepted as a signature")
	}
}

func TestVerifier(t *testing.T) {
	acme := newSigner(t)
	doc := sumsOf(name)
	sums, err := trust.Policy{}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc), Keys: []string{acme.ArmoredPublicKey()}})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(filename string, data []byte) (trust.Package, error) {
		v, err := sums.Verifier(linux, filename)
		if err != nil {
			return trust.Package{}, err
		}
		v.Write(data)
		return v.Accept(t.Context(), bytes.NewReader(data))
	}
	p, err := verify(name, content)
	if err != nil || p.Sum() != sha256.Sum256(content) || p.Size() != int64(len(content)) || p.Filename() != name || p.Platform() != linux || p.H1().IsZero() {
		t.Errorf("package %+v, %v", p, err)
	}
	if _, err := verify(name, append(bytes.Clone(content), 'x')); !errors.Is(err, trust.ErrChecksum) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := verify(name, content[:3]); !errors.Is(err, trust.ErrChecksum) {
		t.Errorf("fewer bytes: %v", err)
	}
	for _, n := range []string{"other.zip", strings.ToUpper(name), "*" + name} {
		if _, err := verify(n, content); !errors.Is(err, trust.ErrNotListed) {
			t.Errorf("%s: %v", n, err)
		}
	}
}

// TestWithoutHashes shows that a package without a hash is accepted only if the policy
// allows releases without a signature. Some mirrors offer such packages.
func TestWithoutHashes(t *testing.T) {
	pinned := trust.Policy{AllowUnsigned: true, Keys: []string{newSigner(t).Fingerprint()}}
	bare := trust.Claims{Provider: null, Version: v324, Hashes: map[string][]provider.Hash{name: nil}}
	for what, policy := range map[string]trust.Policy{"by default": {}, "with pinned keys": pinned} {
		if _, err := policy.Accept(t.Context(), bare); !errors.Is(err, trust.ErrUnsigned) || !strings.Contains(err.Error(), "neither hashes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	lax := trust.Policy{AllowUnsigned: true}
	verify := func(c trust.Claims, filename string, data []byte) error {
		sums, err := lax.Accept(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		v, err := sums.Verifier(linux, filename)
		if err != nil {
			return err
		}
		v.Write(data)
		p, err := v.Accept(t.Context(), bytes.NewReader(data))
		if err == nil && p.Sum() != sha256.Sum256(data) {
			t.Errorf("SHA-256 %x", p.Sum())
		}
		return err
	}
	if err := verify(bare, name, content); err != nil {
		t.Error(err)
	}
	if err := verify(bare, name, []byte("no zip")); !errors.Is(err, provider.ErrNotZip) {
		t.Errorf("no zip: %v", err)
	}
	if err := verify(bare, "other.zip", content); !errors.Is(err, trust.ErrNotListed) {
		t.Errorf("another file: %v", err)
	}
	both := bare
	both.SHA256SUMS = sumsOf("other.zip")
	if err := verify(both, name, content); !errors.Is(err, trust.ErrNotListed) {
		t.Errorf("not listed in the document: %v", err)
	}
}

// TestPackageThatIsNoZip shows that a package that no client could unpack is refused, even
// if its checksum is signed.
func TestPackageThatIsNoZip(t *testing.T) {
	acme := newSigner(t)
	const program = "terraform-provider-null_v3.2.4"
	packed, err := release.Zip(map[string][]byte{program: bytes.Repeat([]byte("program"), 1000)})
	if err != nil {
		t.Fatal(err)
	}
	withFolder, err := release.Zip(map[string][]byte{"docs/": nil, program: []byte("program")})
	if err != nil {
		t.Fatal(err)
	}
	var compressed bytes.Buffer
	gz := gzip.NewWriter(&compressed)
	gz.Write(packed)
	gz.Close()
	damaged := bytes.Clone(packed)
	damaged[bytes.Index(damaged, []byte("PK\a\b"))-5] ^= 0xff // in the compressed program

	for what, tc := range map[string]struct {
		data []byte
		zip  bool
	}{
		"a page":                  {[]byte("<!DOCTYPE html><title>Log in</title>"), false},
		"another archive":         {compressed.Bytes(), false},
		"nothing":                 {nil, false},
		"a zip cut off":           {packed[:len(packed)-1], false},
		"a zip without its start": {packed[10:], false},
		"a zip that is damaged":   {damaged, false},
		"a zip":                   {packed, true},
		"a zip without an h1":     {withFolder, true},
	} {
		sum := sha256.Sum256(tc.data)
		doc := fmt.Appendf(nil, "%x  %s\n", sum, name)
		for grounds, claims := range map[string]trust.Claims{
			"signed":        {Provider: null, Version: v324, SHA256SUMS: doc, Signature: sign(t, acme, doc), Keys: []string{acme.ArmoredPublicKey()}},
			"checksum only": {Provider: null, Version: v324, SHA256SUMS: doc},
			"hashes alone":  {Provider: null, Version: v324, Hashes: map[string][]provider.Hash{name: {provider.ZipHash(sum)}}},
		} {
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), claims)
			if err != nil {
				t.Fatal(err)
			}
			v, err := sums.Verifier(linux, name)
			if err != nil {
				t.Fatal(err)
			}
			v.Write(tc.data)
			p, err := v.Accept(t.Context(), bytes.NewReader(tc.data))
			if tc.zip {
				if err != nil || p.Sum() != sum {
					t.Errorf("%s, %s: %+v, %v", what, grounds, p, err)
				}
				continue
			}
			if !errors.Is(err, provider.ErrNotZip) || errors.Is(err, trust.ErrChecksum) || !trust.Refused(err) || !strings.Contains(hint.Of(err), "nothing was stored") {
				t.Errorf("%s, %s: %v (hint %q)", what, grounds, err, hint.Of(err))
			}
		}
	}
}

// TestVerifierEndsWithItsContext shows that a cancellation does not count as a refusal of
// the package.
func TestVerifierEndsWithItsContext(t *testing.T) {
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: sumsOf(name)})
	if err != nil {
		t.Fatal(err)
	}
	v, err := sums.Verifier(linux, name)
	if err != nil {
		t.Fatal(err)
	}
	v.Write(content)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Accept(ctx, bytes.NewReader(content)); !errors.Is(err, context.Canceled) || trust.Refused(err) {
		t.Errorf("%v", err)
	}
}

func TestHashesOfAMirror(t *testing.T) {
	zh := provider.ZipHash(sha256.Sum256(content))
	wrong := provider.ZipHash([32]byte{})
	h1, err := provider.ParseHash("h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	if err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		hashes []provider.Hash
		ok     bool
	}{
		"right":              {[]provider.Hash{zh}, true},
		"right among others": {[]provider.Hash{wrong, zh}, true},
		"wrong":              {[]provider.Hash{wrong}, false},
		"right zh, wrong h1": {[]provider.Hash{zh, h1}, false},
		"h1 of something":    {[]provider.Hash{h1}, false},
	} {
		t.Run(what, func(t *testing.T) {
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, Hashes: map[string][]provider.Hash{name: tc.hashes}})
			if err != nil {
				t.Fatal(err)
			}
			v, err := sums.Verifier(linux, name)
			if err != nil {
				t.Fatal(err)
			}
			v.Write(content)
			if _, err := v.Accept(t.Context(), bytes.NewReader(content)); (err == nil) != tc.ok || err != nil && !errors.Is(err, trust.ErrChecksum) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestHashesOfAZipWithFolders shows that both h1: hashes of a package count if clients compute
// different ones: the hash of the unpacked folder, which is in lock files, and the hash of the zip,
// which "terraform providers mirror" writes. A strange h1: hash beside the right zh: hash does not
// count against the package.
func TestHashesOfAZipWithFolders(t *testing.T) {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, name := range []string{"docs/", "docs/index.md", "terraform-provider-null_v3.2.4"} {
		if _, err := z.Create(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	content := buf.Bytes()
	zh := provider.ZipHash(sha256.Sum256(content))
	h1, err := provider.ParseHash("h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
	if err != nil {
		t.Fatal(err)
	}
	right, err := provider.HashContent(t.Context(), bytes.NewReader(content), int64(len(content)))
	if err != nil || len(right.All()) != 2 {
		t.Fatalf("%v, %v", right, err)
	}
	folder, entries := right.All()[0], right.All()[1]
	for what, tc := range map[string]struct {
		hashes []provider.Hash
		ok     bool
	}{
		"the folder's h1":         {[]provider.Hash{folder}, true},
		"the zip's h1":            {[]provider.Hash{entries}, true},
		"wrong zh and a right h1": {[]provider.Hash{provider.ZipHash([32]byte{}), folder}, false},
		"right zh":                {[]provider.Hash{zh}, true},
		"right zh and an h1":      {[]provider.Hash{zh, h1}, true},
		"wrong zh and an h1":      {[]provider.Hash{provider.ZipHash([32]byte{}), h1}, false},
		"an h1":                   {[]provider.Hash{h1}, false},
	} {
		t.Run(what, func(t *testing.T) {
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, Hashes: map[string][]provider.Hash{name: tc.hashes}})
			if err != nil {
				t.Fatal(err)
			}
			v, err := sums.Verifier(linux, name)
			if err != nil {
				t.Fatal(err)
			}
			v.Write(content)
			if _, err := v.Accept(t.Context(), bytes.NewReader(content)); (err == nil) != tc.ok {
				t.Errorf("error %v", err)
			}
		})
		t.Run(what+" in a lock file", func(t *testing.T) {
			known := []trust.Known{{Where: "f:1", Hashes: tc.hashes}}
			doc := fmt.Appendf(nil, "%s  %s\n%s  x\n", strings.TrimPrefix(zh.String(), "zh:"), name, strings.Repeat("0", 64))
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Known: known})
			if err != nil {
				t.Fatal(err)
			}
			v, err := sums.Verifier(linux, name)
			if err != nil {
				t.Fatal(err)
			}
			v.Write(content)
			want := tc.ok || what == "wrong zh and a right h1" // the zh: hash of another file of the release
			if _, err := v.Accept(t.Context(), bytes.NewReader(content)); (err == nil) != want {
				t.Errorf("error %v", err)
			}
		})
	}
}

func FuzzAccept(f *testing.F) {
	f.Add(sumsOf(name), name)
	f.Add([]byte("00  a\n"), "a")
	f.Add([]byte("# comment\n"), "")
	f.Fuzz(func(t *testing.T, doc []byte, filename string) {
		sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc})
		if err != nil {
			return
		}
		// Each line that clients read is a SHA-256 and a file name.
		for lines := bufio.NewScanner(bytes.NewReader(doc)); lines.Scan(); {
			if fields := bytes.Fields(lines.Bytes()); len(fields) != 2 || len(fields[0]) != 64 {
				t.Fatalf("accepted, although clients read the line %q", lines.Bytes())
			}
		}
		// The accepted checksum of a file name must be the checksum that clients read.
		// Clients read it from the first line whose second field is the file name.
		sum, ok := sums.Sum(filename)
		var want string
		for line := range strings.SplitSeq(string(doc), "\n") {
			if fields := bytes.Fields([]byte(line)); len(fields) > 1 && string(fields[1]) == filename {
				want = strings.ToLower(string(fields[0]))
				break
			}
		}
		if got := fmt.Sprintf("%x", sum); ok != (want != "") || ok && got != want {
			t.Fatalf("%q has the sum %s, %t; clients read %q in %q", filename, got, ok, want, doc)
		}
	})
}

// FuzzSigningKeys shows that the keys in a signing_keys object are never accepted as the
// signers of a document that they did not sign.
func FuzzSigningKeys(f *testing.F) {
	acme, err := pgp.NewSigner("Acme")
	if err != nil {
		f.Fatal(err)
	}
	object, err := json.Marshal(map[string]any{"gpg_public_keys": []any{map[string]any{"key_id": "x", "ascii_armor": acme.ArmoredPublicKey(), "trust_signature": ""}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(object)
	for _, s := range []string{`{"gpg_public_keys":[]}`, `{"gpg_public_keys":[{"ascii_armor":"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n-----END PGP PUBLIC KEY BLOCK-----"}]}`, `{"gpg_public_keys":[null,{}]}`, `null`, ` null`, `[]`, ``} {
		f.Add([]byte(s))
	}
	doc := sumsOf(name)
	f.Fuzz(func(t *testing.T, object []byte) {
		keys, err := trust.ParseSigningKeys(object)
		if err != nil {
			return
		}
		for _, k := range keys {
			if id, err := trust.KeyIDs(t.Context(), []string{k}); err == nil && len(id[0]) != 16 {
				t.Errorf("key ID %q", id)
			}
		}
		// None of the keys signed the document.
		if sums, err := (trust.Policy{AllowUnsigned: true}).Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: []byte{0}, Keys: keys}); err == nil && (len(keys) > 0 || sums.Verdict() != trust.ChecksumOnly) {
			t.Errorf("accepted as %s", sums.Verdict())
		}
	})
}

func FuzzSignature(f *testing.F) {
	acme, err := pgp.NewSigner("Acme")
	if err != nil {
		f.Fatal(err)
	}
	doc := sumsOf(name)
	sig, err := acme.Sign(doc)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sig, acme.ArmoredPublicKey())
	f.Add([]byte{}, "")
	f.Fuzz(func(t *testing.T, signature []byte, key string) {
		claims := trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc, Signature: signature, Keys: []string{key}}
		if sums, err := (trust.Policy{}).Accept(t.Context(), claims); err == nil {
			// Only the given key can have signed the document.
			if id, err := trust.KeyIDs(t.Context(), []string{key}); err != nil || sums.Signer().KeyID != id[0] {
				t.Fatalf("accepted as signed by %s with the key %s, %v", sums.Signer().KeyID, id, err)
			}
		}
		trust.BinarySignature(signature)
	})
}

// TestPackageOfAPlatform shows under which name a checksum document lists the package for a platform. The published name
// counts before other spellings. Other spellings do not count if they are of different packages.
func TestPackageOfAPlatform(t *testing.T) {
	const v, short = "terraform-provider-null_v3.2.4_linux_amd64.zip", "terraform-provider-null-3.2.4-linux-amd64.zip"
	for what, tc := range map[string]struct {
		names []string // each has another checksum, in which the last digit is its index
		want  string
	}{
		"the published name":                    {[]string{name}, name},
		"another spelling":                      {[]string{v}, v},
		"the published name and another":        {[]string{v, name}, name},
		"different packages under two others":   {[]string{v, short}, ""},
		"different packages under all of them":  {[]string{v, name, short}, name},
		"the package of another version":        {[]string{strings.Replace(v, "3.2.4", "3.2.3", 1)}, ""},
		"the package of another provider":       {[]string{strings.Replace(v, "null", "nil", 1)}, ""},
		"a name without a version and platform": {[]string{"null.zip"}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			var doc []byte
			for i, name := range tc.names {
				doc = fmt.Appendf(doc, "%064x  %s\n", i, name)
			}
			sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), trust.Claims{Provider: null, Version: v324, SHA256SUMS: doc})
			if err != nil {
				t.Fatal(err)
			}
			got, sum, listed := sums.Package(linux)
			if got != tc.want || listed != (tc.want != "") || listed && int(sum[31]) != slices.Index(tc.names, tc.want) {
				t.Errorf("%q, %x, %t", got, sum, listed)
			}
			if platforms := sums.Platforms(); len(platforms) > 0 != listed {
				t.Errorf("platforms %v", platforms)
			}
		})
	}
}
