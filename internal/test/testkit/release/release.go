// Package release creates releases of a provider as a publisher does with GoReleaser. A release has the names
// and formats of GoReleaser: a zip for each platform, SHA256SUMS, a detached OpenPGP signature of SHA256SUMS,
// and the registry manifest.
//
// The same [Spec] always gives the same bytes, except for signatures. Releases are not validated. To create an
// invalid release, change the fields of a valid release.
package release

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
)

// A Spec describes a release.
type Spec struct {
	Host, Namespace, Type, Version string

	// Protocols lists the versions of the plugin protocol. The default is 5.0.
	Protocols []string

	// Contents are the packages, one for each platform.
	Contents []Content

	// Signer signs the checksum document. If it is nil, the release is unsigned.
	Signer *pgp.Signer
}

// A Content describes the package of one platform. The package contains Zip, Binary or Files: the first of these
// fields that is not empty.
type Content struct {
	OS, Arch string

	// Filename is the file name of the package; "" means the standard name.
	Filename string

	// Files maps file names to contents. Files whose names begin with "terraform-provider-" are executable.
	Files map[string][]byte

	// Binary is the path of a provider's program. The package contains only this program, under the name that
	// clients expect.
	Binary string

	// Zip is the path of an existing package. The package is not copied.
	Zip string
}

// A Release is one published version of a provider.
type Release struct {
	Host, Namespace, Type, Version string

	Protocols []string
	Packages  []Package

	SHA256SUMS []byte // the checksum document
	Signature  []byte // detached and binary; nil if the release is not signed
	Manifest   []byte // the registry manifest, JSON

	// Keys are the signing keys that an origin registry publishes with the release.
	Keys []Key
}

// A Key is a signing key in the form in which origin registries describe it.
type Key struct {
	KeyID          string
	ASCIIArmor     string
	TrustSignature string
	Source         string
	SourceURL      string
}

// A Package is the zip of one platform. If Path is "", Data contains the zip. Otherwise the file at Path does. Packages of
// several releases can share Data: a test may replace it, but not change its bytes.
type Package struct {
	OS, Arch string
	Filename string
	Data     []byte
	Path     string
	SHA256   string // 64 lower-case hexadecimal digits
	Size     int64
}

// Content returns a reader of the package's bytes.
func (p Package) Content() (io.ReadSeekCloser, error) {
	if p.Path != "" {
		return os.Open(p.Path)
	}
	return nopCloser{bytes.NewReader(p.Data)}, nil
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// Build creates the packages, the checksum document and the manifest. If spec.Signer is set, Build also creates
// the signature.
func Build(spec Spec) (*Release, error) {
	r := &Release{
		Host: spec.Host, Namespace: spec.Namespace, Type: spec.Type, Version: spec.Version,
		Protocols: spec.Protocols,
	}
	if len(r.Protocols) == 0 {
		r.Protocols = []string{"5.0"}
	}
	for _, c := range spec.Contents {
		p, err := r.pack(c)
		if err != nil {
			return nil, fmt.Errorf("pack %s for %s_%s: %w", r.Base(), c.OS, c.Arch, err)
		}
		r.Packages = append(r.Packages, p)
	}
	manifest, err := manifest(r.Protocols)
	if err != nil {
		return nil, err
	}
	r.Manifest = manifest
	return r, r.Seal(spec.Signer)
}

// For is like [Build], but fails the test if there is an error.
func For(tb testkit.TB, spec Spec) *Release {
	tb.Helper()
	r, err := Build(spec)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return r
}

// Base returns the common prefix of the release's file names.
func (r *Release) Base() string {
	return "terraform-provider-" + r.Type + "_" + r.Version
}

// SHA256SUMSName returns the file name of the checksum document.
func (r *Release) SHA256SUMSName() string { return r.Base() + "_SHA256SUMS" }

// SignatureName returns the file name of the signature.
func (r *Release) SignatureName() string { return r.SHA256SUMSName() + ".sig" }

// ManifestName returns the file name of the registry manifest.
func (r *Release) ManifestName() string { return r.Base() + "_manifest.json" }

// Package returns the package for a platform, or nil if there is none. The caller may change the package.
func (r *Release) Package(goos, arch string) *Package {
	for i, p := range r.Packages {
		if p.OS == goos && p.Arch == arch {
			return &r.Packages[i]
		}
	}
	return nil
}

// Repack replaces the content of a platform's package, and then writes and signs the checksum document again.
func (r *Release) Repack(goos, arch string, data []byte, signer *pgp.Signer) error {
	p := r.Package(goos, arch)
	if p == nil {
		return fmt.Errorf("%s has no package for %s_%s", r.Base(), goos, arch)
	}
	p.Path, p.Data, p.SHA256, p.Size = "", data, Sum(data), int64(len(data))
	return r.Seal(signer)
}

// Seal writes the checksum document for the packages and the manifest, and signs the document. If signer is nil,
// Seal removes the signature and the keys instead.
func (r *Release) Seal(signer *pgp.Signer) error {
	r.SHA256SUMS = r.sums()
	return r.Sign(signer)
}

// Sign signs the current checksum document, and makes the signer's key the only key. If signer is nil, Sign
// removes the signature and the keys instead.
func (r *Release) Sign(signer *pgp.Signer) error {
	r.Signature, r.Keys = nil, nil
	if signer == nil {
		return nil
	}
	sig, err := signer.Sign(r.SHA256SUMS)
	if err != nil {
		return err
	}
	r.Signature = sig
	r.Keys = []Key{{KeyID: signer.KeyID(), ASCIIArmor: signer.ArmoredPublicKey()}}
	return nil
}

// sums returns the checksum document. It has the format of sha256sum, and is sorted by file name.
func (r *Release) sums() []byte {
	sums := map[string]string{r.ManifestName(): Sum(r.Manifest)}
	for _, p := range r.Packages {
		sums[p.Filename] = p.SHA256
	}
	var doc bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&doc, "%s  %s\n", sums[name], name)
	}
	return doc.Bytes()
}

func manifest(protocols []string) ([]byte, error) {
	type metadata struct {
		ProtocolVersions []string `json:"protocol_versions"`
	}
	data, err := json.Marshal(struct {
		Version  int      `json:"version"`
		Metadata metadata `json:"metadata"`
	}{1, metadata{protocols}})
	return append(data, '\n'), err
}

func (r *Release) pack(c Content) (Package, error) {
	p := Package{OS: c.OS, Arch: c.Arch, Filename: cmp.Or(c.Filename, r.Base()+"_"+c.OS+"_"+c.Arch+".zip")}
	if c.Zip != "" {
		return p, p.use(c.Zip)
	}
	var data []byte
	var err error
	if c.Binary != "" {
		data, err = zipBinary(c.Binary, r.binaryName(c.OS))
	} else {
		data, err = Zip(c.Files)
	}
	if err != nil {
		return p, err
	}
	p.Data, p.SHA256, p.Size = data, Sum(data), int64(len(data))
	return p, nil
}

// binaryName returns the name that a provider's program has in a package.
func (r *Release) binaryName(goos string) string {
	name := "terraform-provider-" + r.Type + "_v" + r.Version
	if goos == "windows" {
		name += ".exe"
	}
	return name
}

// use makes the file at path the content of the package. It does not copy the file.
func (p *Package) use(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return err
	}
	p.Path, p.SHA256, p.Size = path, hex.EncodeToString(hash.Sum(nil)), size
	return nil
}

// Sum returns the SHA-256 of data in lower-case hexadecimal.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// WriteDir writes the release into a folder, as GoReleaser does. It writes the zips, SHA256SUMS, the manifest,
// and the signature if the release is signed.
func (r *Release) WriteDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range r.Packages {
		if err := p.writeFile(filepath.Join(dir, p.Filename)); err != nil {
			return err
		}
	}
	for name, data := range r.Documents() {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Documents returns all files of the release except the packages, by name.
func (r *Release) Documents() map[string][]byte {
	docs := map[string][]byte{r.SHA256SUMSName(): r.SHA256SUMS, r.ManifestName(): r.Manifest}
	if r.Signature != nil {
		docs[r.SignatureName()] = r.Signature
	}
	return docs
}

func (p Package) writeFile(path string) error {
	src, err := p.Content()
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}
