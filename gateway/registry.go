package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// checksumsDir is the folder of a version's checksum document and signature in paths. No platform has this name.
const checksumsDir = "checksums"

// aboutJSON describes a version. The protocol lacks this document, but registry.terraform.io serves it. Dependabot
// fails if the member source is missing, but accepts null.
type aboutJSON struct {
	Source      *string `json:"source"` // null: unknown
	PublishedAt string  `json:"published_at,omitempty"`
}

// serveAbout serves the source and the publication date of a version.
func (g *gateway) serveAbout(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	s, err := g.readVersion(r, a)
	if err != nil {
		return err
	}
	about := s.evidence.Record.About
	out := aboutJSON{PublishedAt: about.PublishedAt}
	if about.Source != "" {
		out.Source = &about.Source
	}
	return writeJSON(w, r, out)
}

// registryVersion is a version that the registry protocol serves, with its evidence.
type registryVersion struct {
	address  provider.Address
	version  provider.Version
	found    *artifact.Version
	evidence *artifact.Evidence
	sums     *trust.Checksums // the checksum document in the evidence
}

// readVersion reads the version in a request's path, and its evidence. It fails with errUnsigned if the version is not
// signed, unless OpenTofu installs it without a key. It fails with [trust.ErrMalformed] if the checksum document cannot
// be parsed, because clients could fail on such a document.
func (g *gateway) readVersion(r *http.Request, a provider.Address) (*registryVersion, error) {
	v, err := versionOf(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	s := &registryVersion{address: a, version: v}
	if s.found, s.evidence, err = g.evidence(ctx, g.View(r), a, v); err != nil {
		return nil, fmt.Errorf("read %w", catalog.Named(a, v, err))
	}
	// The policy does not check the signature. Clients check it themselves, and show its key to users.
	s.sums, err = trust.Policy{AllowUnsigned: true}.Accept(ctx, trust.Claims{Provider: a, Version: v, SHA256SUMS: s.evidence.SHA256SUMS})
	return s, err
}

// serveChecksums replays the checksum document or its signature, byte for byte, or serves the publisher's keys.
func (g *gateway) serveChecksums(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	filename := mux.Vars(r)["filename"]
	if !provider.ValidFilename(filename) {
		return errAbsent
	}
	s, err := g.readVersion(r, a)
	if err != nil {
		return err
	}
	documents, err := Documents(a, s.version, s.evidence)
	i := slices.IndexFunc(documents, func(d Document) bool { return d.Name == filename })
	switch {
	case i < 0 && err != nil:
		return fmt.Errorf("%s %s: %w", a, s.version, err)
	case i < 0:
		return errAbsent
	}
	data, h := documents[i].Data, w.Header()
	d := digest.FromBytes(data)
	if !access.Covers(r.Context(), d) {
		g.Access.ForbidCapability(w)
		return nil
	}
	h.Set("Content-Type", documents[i].ContentType)
	h.Set("ETag", strconv.Quote(d.String()))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	return nil
}

// file is a file whose URL is in a document of the gateway. Clients fetch it without credentials.
type file struct {
	dir, name string        // the file's path is VERSION/dir/name
	digest    digest.Digest // the digest of the file's bytes
}

func packageFile(p artifact.Package) file { return file{p.Platform.String(), p.Filename, p.Digest} }

// missingFile returns the file of a missing package, with its standard name. Requests for it fail.
func missingFile(a provider.Address, v provider.Version, m artifact.MissingPackage) file {
	return file{m.Platform.String(), provider.PackageFilename(a, v, m.Platform), m.Manifest}
}

func documentFile(name string, data []byte) file {
	return file{checksumsDir, name, digest.FromBytes(data)}
}

// fileURL returns the URL of a file, relative to the document that contains it. base leads from the document to the
// version. In the documents of the registry protocol, [gateway.references] makes the URL absolute.
func fileURL(base string, f file) string { return base + f.dir + "/" + f.name }

// Document is a document of a release, apart from its packages.
type Document struct {
	Name        string // the file name
	ContentType string
	Data        []byte
}

// Documents returns the checksum document of a version and its signature, and the publisher's keys in ASCII armour if
// the version is signed. The error means that the keys cannot be parsed.
func Documents(a provider.Address, v provider.Version, e *artifact.Evidence) ([]Document, error) {
	sums := sumsName(a, v)
	out := []Document{{sums, "text/plain; charset=utf-8", e.SHA256SUMS}, {sums + ".sig", "application/pgp-signature", e.Signature}}
	if !e.Signed() {
		return out, nil // OpenTofu downloads both documents even if there is no signature
	}
	keys, err := trust.ParseSigningKeys(e.SigningKeys)
	if err != nil {
		return out, err
	}
	name := fmt.Sprintf("terraform-provider-%s_%s_keys.asc", a.Type(), v)
	return append(out, Document{name, "application/pgp-keys", []byte(strings.Join(keys, "\n"))}), nil
}

func sumsName(a provider.Address, v provider.Version) string {
	return "terraform-provider-" + a.Type() + "_" + v.String() + "_SHA256SUMS"
}

// DocumentLink returns the URL of a signed version's document, with a capability if access is controlled. root is the
// relative URL from the request's path to the gateway.
func (o *Options) DocumentLink(r *http.Request, root string, a provider.Address, v provider.Version, d Document) string {
	base := fmt.Sprintf("%s%s/%s/%s/", strings.TrimPrefix(RegistryURL("", a.Hostname()), "/"), a.Namespace(), a.Type(), v)
	return o.Access.Link(r, a, fileURL(root+base, documentFile(d.Name, d.Data)), digest.FromBytes(d.Data))
}

// PackageLink is like [Options.DocumentLink], for a package of any version.
func (o *Options) PackageLink(r *http.Request, root string, a provider.Address, v provider.Version, p artifact.Package) string {
	base := fmt.Sprintf("%s%s/%s/", strings.TrimPrefix(MirrorPath, "/"), a.Path(), v)
	return o.Access.Link(r, a, fileURL(root+base, packageFile(p)), p.Digest)
}

// downloadJSON is the response of "Find a Provider Package".
type downloadJSON struct {
	Protocols           []string               `json:"protocols"`
	OS                  string                 `json:"os"`
	Arch                string                 `json:"arch"`
	Filename            string                 `json:"filename"`
	DownloadURL         string                 `json:"download_url"`
	SHASum              string                 `json:"shasum"`
	SHASumsURL          string                 `json:"shasums_url"`
	SHASumsSignatureURL string                 `json:"shasums_signature_url"`
	SigningKeys         json.RawMessage        `json:"signing_keys"`
	Packages            map[string]packageJSON `json:"packages"`
	provider.About                             // for other gateways and pushes whose origin is this gateway
}

// packageJSON has the hashes and the size of one platform's package. Only OpenTofu reads this object.
type packageJSON struct {
	Hashes []provider.Hash `json:"hashes"`
	Size   int64           `json:"package_size,omitempty"` // 0: unknown
}

// serveDownload describes the package for one platform, with the publisher's documents.
func (g *gateway) serveDownload(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	vars := mux.Vars(r)
	platform, err := provider.NewPlatform(vars["os"], vars["arch"])
	if err != nil {
		return errAbsent
	}
	absolute, err := g.references(w, r)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	s, err := g.readVersion(r, a)
	if err != nil {
		return err
	}
	g.askSize(within, r, s, platform)
	out, err := s.download(platform, func(base string, f file) string {
		return absolute(g.Access.Link(r, a, fileURL(base, f), f.digest))
	}, g.hashes)
	if err != nil {
		return fmt.Errorf("%s %s for %s: %w", a, s.version, platform, err)
	}
	uses(r, a, s.version)
	return writeJSON(w, r, out)
}

// download describes the package for a platform, and lists the hashes of all signed packages of the version. It fails
// with errAbsent if the version has no such platform, and with [artifact.ErrMissing] if the registry lacks the manifest.
func (s *registryVersion) download(platform provider.Platform, link func(base string, f file) string, hashes func(artifact.Package) []provider.Hash) (*downloadJSON, error) {
	if m, ok := s.found.MissingFor(platform); ok {
		return nil, m.Err()
	}
	vouched := s.vouched()
	isFor := func(p artifact.Package) bool { return p.Platform == platform }
	i := slices.IndexFunc(vouched, isFor)
	switch {
	case !slices.ContainsFunc(s.found.Packages, isFor):
		return nil, errAbsent
	case i < 0:
		return nil, fmt.Errorf("%w with the package's digest", trust.ErrNotListed)
	}
	p := vouched[i]
	// The document is at VERSION/download/OS/ARCH.
	const base = "../../"
	out := &downloadJSON{
		Protocols: protocols(s.found.Protocols), OS: platform.OS, Arch: platform.Arch, Filename: p.Filename, SHASum: p.Digest.Encoded(),
		DownloadURL:         link(base, packageFile(p)),
		SHASumsURL:          link(base, documentFile(sumsName(s.address, s.version), s.evidence.SHA256SUMS)),
		SHASumsSignatureURL: link(base, documentFile(sumsName(s.address, s.version)+".sig", s.evidence.Signature)),
		SigningKeys:         s.evidence.SigningKeys,
		Packages:            map[string]packageJSON{}, About: s.evidence.Record.About,
	}
	if !s.evidence.Signed() {
		out.SigningKeys = noKeys
	}
	if s.found.Protocols == nil {
		out.Protocols = protocols(s.evidence.Record.Protocols)
	}
	if p.Size == artifact.UnknownSize {
		return out, nil // OpenTofu refuses hashes without the package's size
	}
	for _, p := range vouched {
		out.Packages[p.Platform.String()] = packageJSON{hashes(p), max(p.Size, 0)}
	}
	return out, nil
}

// askSize sets the size of the package for the given platform if the version does not state it. A version does not
// state the size of a package that the registry does not have yet. If askSize cannot find out the size, it logs why.
func (g *gateway) askSize(ctx context.Context, r *http.Request, s *registryVersion, platform provider.Platform) {
	i := slices.IndexFunc(s.found.Packages, func(p artifact.Package) bool { return p.Platform == platform && p.Size == artifact.UnknownSize })
	if i < 0 {
		return
	}
	size, err := g.sizeOf(ctx, g.View(r).Package(ctx, s.address, s.version, s.found.Packages[i]), s.found.Packages[i], false)
	if err != nil {
		g.Log.Debug("the size of a package is left out", "path", r.URL.Path, "err", hint.Brief(err))
		return
	}
	found := *s.found
	found.Packages = slices.Clone(found.Packages)
	found.Packages[i].Size = size
	s.found = &found
}
