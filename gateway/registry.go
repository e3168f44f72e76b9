package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// versionReads is the number of versions that a listing reads concurrently.
const versionReads = 16

// checksumsDir is the folder of a version's checksum document and signature in paths. No platform has this
// name.
const checksumsDir = "checksums"

// versionsJSON is the response of "List Available Versions" in the provider registry protocol.
type versionsJSON struct {
	Versions []*listedJSON `json:"versions"`
	// Warnings are texts that OpenTofu and Terraform show to users.
	Warnings []string `json:"warnings,omitempty"`
}

// listedJSON is a version in versionsJSON. The protocols and platforms are omitted if they are unknown.
type listedJSON struct {
	Version   string         `json:"version"`
	Protocols []string       `json:"protocols,omitempty"`
	Platforms []platformJSON `json:"platforms,omitempty"`
}

type platformJSON struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
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

// serveVersions lists the signed versions. If no version is signed, it answers with 404, so that clients treat
// the provider as absent.
func (g *gateway) serveVersions(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	start := time.Now()
	view := g.View(r)
	item, err := view.Versions(ctx, a)
	var out versionsJSON
	if err == nil {
		out.Warnings = item.Warnings
		out.Versions, err = g.listVersions(ctx, view, item, view.Confirmed(a).Before(start))
	}
	if err == nil && len(out.Versions) == 0 {
		err = errUnsigned
	}
	if err != nil {
		return fmt.Errorf("list signed versions of %s: %w", a, err)
	}
	return writeJSON(w, r, out)
}

// listVersions lists the signed versions in an item. It reads only versions that the summary does not describe.
// If no version is signed according to the summary, it reads all versions, because a wrong answer would tell
// clients that the provider is absent.
func (g *gateway) listVersions(ctx context.Context, view catalog.View, item *catalog.Item, fromCache bool) ([]*listedJSON, error) {
	summary := view.Summary(ctx, item)
	out, err := g.listSigned(ctx, view, item, summary, fromCache)
	if err == nil && len(out) == 0 && len(summary) > 0 {
		return g.listSigned(ctx, view, item, nil, fromCache)
	}
	return out, err
}

// listSigned describes the signed versions in an item, oldest first. A version with invalid content is listed
// without a description. If it were omitted, clients would silently install an older version.
//
// If a version cannot be read, listSigned fails, because the version may or may not be signed. But if fromCache
// is true, the list is older than this request, and the version may be unreadable for a long time. Then
// listSigned lists that version without a description, so that clients can install other versions. If no
// version at all can be read, listSigned always fails.
func (g *gateway) listSigned(ctx context.Context, view catalog.View, item *catalog.Item, summary artifact.Summary, fromCache bool) ([]*listedJSON, error) {
	a, versions := item.Address, item.Versions
	out := make([]*listedJSON, len(versions))
	trouble := make([]error, len(versions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(versionReads)
	for i, v := range versions {
		group.Go(func() error {
			if ctx.Err() != nil && !fromCache {
				return ctx.Err() // the read of another version has failed
			}
			if offer, ok := item.Offer(v); ok && offer.Signed {
				// The offer contains everything that a list needs. So the list does not cause a request to the
				// origin for each version.
				out[i] = listed(v, offer.Protocols, offer.Platforms)
				return nil
			}
			if described, ok := summary[v]; ok {
				if described.Signed() {
					out[i] = listed(v, described.Protocols, described.Platforms)
				}
				return nil
			}
			var err error
			if out[i], err = g.listVersion(ctx, view, a, v); err == nil {
				return nil
			}
			out[i] = &listedJSON{Version: v.String()}
			switch trouble[i] = fmt.Errorf("version %s: %w", v, err); {
			case isContent(err):
				trouble[i] = nil
				level := slog.LevelWarn
				if errors.Is(err, verify.ErrRefused) {
					level = slog.LevelDebug // this was logged when the index was first read
				}
				g.Log.Log(ctx, level, "cannot describe", "provider", a.String(), "version", v.String(), "err", hint.Brief(err))
			case !fromCache:
				return trouble[i]
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := cmp.Or(trouble...); err != nil {
		if !slices.ContainsFunc(out, func(l *listedJSON) bool { return l != nil && l.Platforms != nil }) {
			return nil, err
		}
		g.Log.DebugContext(ctx, "versions are listed without a description", "provider", a.String(), "err", hint.Brief(err))
	}
	return slices.DeleteFunc(out, func(l *listedJSON) bool { return l == nil }), nil
}

// listVersion describes a version if it is signed, and otherwise returns nil. The verdict comes from the index
// or, if the index has none, from the manifest of the evidence.
func (g *gateway) listVersion(ctx context.Context, view catalog.View, a provider.Address, v provider.Version) (*listedJSON, error) {
	item, err := view.Version(ctx, a, v)
	if err != nil {
		if StatusOf(err) == http.StatusNotFound {
			return nil, nil // deleted since it was listed
		}
		return nil, err
	}
	found := item.Found
	if verdict, err := artifact.ReadVerdict(ctx, view.Metadata(a), found); err != nil || verdict != trust.Signed {
		return nil, err
	}
	return listed(v, found.Protocols, found.Platforms()), nil
}

func listed(v provider.Version, known []string, platforms []provider.Platform) *listedJSON {
	out := &listedJSON{Version: v.String(), Protocols: protocols(known)}
	for _, p := range platforms {
		out.Platforms = append(out.Platforms, platformJSON{p.OS, p.Arch})
	}
	return out
}

var protocolVersion = regexp.MustCompile(`^[0-9]{1,6}(\.[0-9]{1,6}){0,2}$`)

// protocols returns the valid plugin protocol versions. Clients would refuse the whole response because of one
// invalid protocol version.
func protocols(all []string) []string {
	out := []string{}
	for _, p := range all {
		if protocolVersion.MatchString(p) {
			out = append(out, p)
		}
	}
	return out
}

// aboutJSON describes a version. The protocol does not specify this document, but registry.terraform.io serves
// it. Dependabot fails if the member source is missing, but accepts null.
type aboutJSON struct {
	Source      *string `json:"source"` // null: unknown
	PublishedAt string  `json:"published_at,omitempty"`
}

// serveAbout serves the source and the publication date of a signed version.
func (g *gateway) serveAbout(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	s, err := g.signedVersion(r, a)
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

// serveDownload describes the package for one platform, with the publisher's signed documents.
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
	s, err := g.signedVersion(r, a)
	if err != nil {
		return err
	}
	g.askSize(within, r, s, platform)
	out, err := s.download(r.Context(), platform, func(base string, f file) string {
		return absolute(g.Access.Link(r, a, fileURL(base, f), f.digest))
	}, g.hashes)
	if err != nil {
		return fmt.Errorf("%s %s for %s: %w", a, s.version, platform, err)
	}
	return writeJSON(w, r, out)
}

// signedVersion is a version with its evidence.
type signedVersion struct {
	address  provider.Address
	version  provider.Version
	found    *artifact.Version
	evidence *artifact.Evidence
}

// signedVersion reads the version in a request's path, and its evidence. It fails with errUnsigned if the
// version is not signed.
func (g *gateway) signedVersion(r *http.Request, a provider.Address) (*signedVersion, error) {
	v, err := versionOf(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.metadata)
	defer cancel()
	s := &signedVersion{address: a, version: v}
	if s.found, s.evidence, err = g.evidence(ctx, g.View(r), a, v); err != nil {
		return nil, fmt.Errorf("read signed %w", catalog.Named(a, v, err))
	}
	return s, nil
}

// sumsName returns the file name of the checksum document. The file name of its signature has the additional
// suffix .sig.
func (s *signedVersion) sumsName() string {
	return "terraform-provider-" + s.address.Type() + "_" + s.version.String() + "_SHA256SUMS"
}

// download describes the package for a platform, and lists the hashes of all signed packages of the version. It
// fails with errAbsent if the version has no such platform, and with [artifact.ErrMissing] if the registry
// lacks the package's manifest.
func (s *signedVersion) download(ctx context.Context, platform provider.Platform, link func(base string, f file) string, hashes func(artifact.Package) []provider.Hash) (*downloadJSON, error) {
	if m, ok := s.found.MissingFor(platform); ok {
		return nil, m.Err()
	}
	vouched, err := vouchedFor(ctx, s.found, s.evidence, s.address, s.version)
	if err != nil {
		return nil, err
	}
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
		Protocols: protocols(s.found.Protocols), OS: platform.OS, Arch: platform.Arch,
		Filename: p.Filename, SHASum: p.Digest.Encoded(),
		DownloadURL:         link(base, packageFile(p)),
		SHASumsURL:          link(base, documentFile(s.sumsName(), s.evidence.SHA256SUMS)),
		SHASumsSignatureURL: link(base, documentFile(s.sumsName()+".sig", s.evidence.Signature)),
		SigningKeys:         s.evidence.SigningKeys,
		Packages:            map[string]packageJSON{}, About: s.evidence.Record.About,
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

// askSize sets the size of the package for the given platform if the version does not state that size. This is
// the case until the registry has the package. If askSize cannot find out the size, it logs the reason.
func (g *gateway) askSize(ctx context.Context, r *http.Request, s *signedVersion, platform provider.Platform) {
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

// serveChecksums replays the checksum document or its signature, byte for byte.
func (g *gateway) serveChecksums(w http.ResponseWriter, r *http.Request, a provider.Address) error {
	filename := mux.Vars(r)["filename"]
	if !provider.ValidFilename(filename) {
		return errAbsent
	}
	s, err := g.signedVersion(r, a)
	if err != nil {
		return err
	}
	var data []byte
	h := w.Header()
	switch filename {
	case s.sumsName():
		data = s.evidence.SHA256SUMS
		h.Set("Content-Type", "text/plain; charset=utf-8")
	case s.sumsName() + ".sig":
		data = s.evidence.Signature
		h.Set("Content-Type", "application/pgp-signature")
	default:
		return errAbsent
	}
	d := digest.FromBytes(data)
	if !access.Covers(r.Context(), d) {
		g.Access.ForbidCapability(w)
		return nil
	}
	h.Set("ETag", strconv.Quote(d.String()))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	return nil
}

// file is a file whose URL is in a document of the gateway. Clients send no credentials when they fetch the
// file.
type file struct {
	dir, name string        // the file's path is VERSION/dir/name
	digest    digest.Digest // the digest of the file's bytes
}

func packageFile(p artifact.Package) file {
	return file{p.Platform.String(), p.Filename, p.Digest}
}

// missingFile returns the file of a missing package, with the package's standard name. Requests for the file
// fail.
func missingFile(a provider.Address, v provider.Version, m artifact.MissingPackage) file {
	return file{m.Platform.String(), provider.PackageFilename(a, v, m.Platform), m.Manifest}
}

func documentFile(name string, data []byte) file {
	return file{checksumsDir, name, digest.FromBytes(data)}
}

// fileURL returns the URL of a file, relative to the document that contains the URL. base leads from the
// document to the version. No other code builds the URLs of files. The URLs remain relative in the mirror's
// documents. In the documents of the registry protocol, [gateway.references] makes them absolute.
func fileURL(base string, f file) string { return base + f.dir + "/" + f.name }
