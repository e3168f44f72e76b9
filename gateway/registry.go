package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// checksumsDir is the folder of a version's checksum document and signature in paths. No platform has this
// name.
const checksumsDir = "checksums"

// aboutJSON describes a version. The protocol does not specify this document, but registry.terraform.io serves
// it. Dependabot fails if the member source is missing, but accepts null.
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
// be parsed, because clients could fail on a document that is replayed to them.
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
