package artifact

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// readBounded reads a manifest of the given size in bytes, or of any size up to [MaxManifestBytes] if size is not
// positive.
func readBounded(r io.Reader, size int64) ([]byte, error) {
	if size > MaxManifestBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, size, MaxManifestBytes)
	}
	data, err := document.ReadAll(r, MaxManifestBytes)
	switch {
	case errors.Is(err, document.ErrTooLarge):
		return nil, fmt.Errorf("%w: %v", ErrTooLarge, err)
	case err != nil:
		return nil, err
	case size > 0 && int64(len(data)) != size:
		return nil, fmt.Errorf("%w: %d bytes, announced were %d", ErrDamaged, len(data), size)
	}
	return data, nil
}

// fetchVerified fetches and verifies the content of a descriptor. The content can have at
// most limit bytes.
func fetchVerified(ctx context.Context, store Fetcher, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := checkDescriptor(desc, limit); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	if err := download(ctx, store, desc, &data); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

// download writes the content of a descriptor to w, and then checks its size and digest.
func download(ctx context.Context, store Fetcher, desc ocispec.Descriptor, w io.Writer) error {
	body, err := store.Fetch(ctx, desc)
	if errors.Is(err, errdef.ErrNotFound) {
		// The error does not wrap errdef.ErrNotFound. To the callers of this package,
		// errdef.ErrNotFound means that a tag does not exist.
		return fmt.Errorf("%w: %w: %v", ErrNotProvider, ErrMissing, err)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	hash := desc.Digest.Algorithm().Digester()
	n, err := io.Copy(io.MultiWriter(w, hash.Hash()), io.LimitReader(body, desc.Size+1))
	if err != nil {
		return err
	}
	if n != desc.Size || hash.Digest() != desc.Digest {
		return fmt.Errorf("%w: %s with %d bytes, got %s with %d", ErrDamaged, desc.Digest, desc.Size, hash.Digest(), n)
	}
	return nil
}

// checkDescriptor returns an error unless desc is a valid descriptor of at most limit
// bytes of content.
func checkDescriptor(desc ocispec.Descriptor, limit int64) error {
	if len(desc.MediaType) > maxMediaType {
		return fmt.Errorf("%w: the media type %.80q has more than %d bytes", ErrNotProvider, desc.MediaType, maxMediaType)
	}
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("%w: digest %.80q: %v", ErrNotProvider, desc.Digest, err)
	}
	switch {
	case desc.Size <= 0:
		return fmt.Errorf("%w: %s has a size of %d bytes", ErrNotProvider, desc.Digest, desc.Size)
	case desc.Size > limit:
		return fmt.Errorf("%w: %s has %d bytes, more than %d", ErrTooLarge, desc.Digest, desc.Size, limit)
	}
	return nil
}

// FetchManifest fetches a manifest and verifies it against its descriptor.
func FetchManifest(ctx context.Context, store Fetcher, desc ocispec.Descriptor) ([]byte, error) {
	return fetchVerified(ctx, store, desc, MaxManifestBytes)
}

// manifestLimits limits the JSON of an index, a manifest or a record. The index of a
// version usually has about 20 entries with about 15 values each.
var manifestLimits = document.Limits{Bytes: MaxManifestBytes, Values: 50_000, Elements: 5_000}

const (
	// maxMediaType is the maximum length of a media type in bytes. RFC 6838 allows 127
	// for the type and 127 for the subtype.
	maxMediaType = 255
	// maxProtocols is the maximum number of plugin protocols of one version. Real
	// versions have one or two.
	maxProtocols = 16
	// maxProtocolBytes is the maximum length in bytes of the protocols joined by commas.
	maxProtocolBytes = 256
)

// parseProtocols returns the plugin protocols in an annotation. It returns nil if they exceed the limits, because
// protocols are only informative.
func parseProtocols(annotation string) []string {
	if len(annotation) > maxProtocolBytes {
		return nil
	}
	return knownProtocols(strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' }))
}

// knownProtocols returns the given protocols, or nil if they exceed the limits.
func knownProtocols(all []string) []string {
	if len(all) > maxProtocols || len(strings.Join(all, ",")) > maxProtocolBytes {
		return nil
	}
	return all
}

// Unmarshal decodes an index, a manifest or a record. It returns [ErrTooLarge] if the document
// has more bytes or more values than a manifest may have. It returns [ErrNotProvider] if the
// document is otherwise invalid.
func Unmarshal(data []byte, out any) error {
	return unmarshalWithin(manifestLimits, data, out, ErrNotProvider)
}

// unmarshalWithin is like [Unmarshal], but it checks the given limits, and its error wraps the error
// wrong instead of [ErrNotProvider].
func unmarshalWithin(limits document.Limits, data []byte, out any, wrong error) error {
	switch err := limits.Unmarshal(data, out); {
	case errors.Is(err, document.ErrTooLarge):
		return fmt.Errorf("%w: %v", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("%w: %v", wrong, err)
	}
	return nil
}

// Content is what [Rehash] finds in a package.
type Content struct {
	H1s     provider.H1s // empty if clients could refuse the zip
	Program error        // wraps [provider.ErrNoProgram] if no client can run the package
}

// Rehash downloads a package to a temporary file. It checks the file against the size and
// the SHA-256 of p, and against the h1: hash if p has one. It returns what the package
// contains. typ is the type of the provider.
//
// ErrDamaged and ErrNotProvider mean that the package is bad. Other errors mean that the
// registry, the connection or the temporary file failed.
func Rehash(ctx context.Context, store Fetcher, typ string, p Package) (Content, error) {
	none := Content{}
	scratch, err := downloadZip(ctx, store, p.Layer())
	if err != nil {
		return none, err
	}
	defer scratch.Close()
	h1s, err := provider.HashContent(ctx, scratch, p.Size)
	switch {
	case errors.Is(err, provider.ErrNotZip):
		return none, fmt.Errorf("%w: the package: %v", ErrNotProvider, err)
	case errors.Is(err, provider.ErrNoH1) && p.H1.IsZero(): // clients could refuse the zip
	case errors.Is(err, provider.ErrNoH1):
		return none, fmt.Errorf("%w: the index gives %s: %v", ErrDamaged, p.H1, err)
	case err != nil:
		return none, err
	case !p.H1.IsZero() && !h1s.Has(p.H1):
		return none, fmt.Errorf("%w: the package has %v, the index gives %s", ErrDamaged, h1s, p.H1)
	}
	out := Content{H1s: h1s}
	if err := provider.CheckProgram(ctx, scratch, p.Size, typ, p.Platform); errors.Is(err, provider.ErrNoProgram) {
		out.Program = err
	}
	return out, nil
}

// downloadZip downloads a zip to a temporary file, and then checks its size and digest. The caller must close the file,
// which removes it. If the process is killed, the file remains only on operating systems that have no files without a
// name.
func downloadZip(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (*fill.Temp, error) {
	if desc.Size > provider.MaxZipBytes {
		return nil, fmt.Errorf("%w: the zip has %d bytes according to the manifest, and the maximum is %d", ErrDamaged, desc.Size, int64(provider.MaxZipBytes))
	}
	scratch, err := fill.NewTemp("", "ocibridge-*.zip")
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
	}
	if err := download(ctx, store, desc, scratch); err != nil {
		scratch.Close()
		return nil, err
	}
	return scratch, nil
}

// RehashZip downloads the zip of a module to a temporary file, and describes its files. It
// checks the zip against the size and the SHA-256 of p, and the files against the h1: hash if p
// has one. It refuses links, names outside the folder, and duplicate names, and it unpacks every
// file. It ignores directory entries, which other tools write.
//
// ErrDamaged and ErrNotModule mean that the zip is bad. Other errors mean that the registry,
// the connection or the temporary file failed.
func RehashZip(ctx context.Context, store Fetcher, p Package) (provider.ZipFiles, error) {
	scratch, err := downloadZip(ctx, store, p.Layer())
	if err != nil {
		return provider.ZipFiles{}, err
	}
	defer scratch.Close()
	return checkZip(ctx, scratch, p)
}

// checkZip does what [RehashZip] does after the download.
func checkZip(ctx context.Context, zip io.ReaderAt, p Package) (provider.ZipFiles, error) {
	out, err := provider.HashFiles(ctx, zip, p.Size)
	switch {
	case errors.Is(err, provider.ErrNoH1): // it may also wrap ErrNotZip
		return out, fmt.Errorf("%w: the zip: %v", ErrNotModule, err)
	case err != nil:
		return out, err
	case !p.H1.IsZero() && out.H1 != p.H1:
		return out, fmt.Errorf("%w: the files in the zip have %s, the manifest gives %s", ErrDamaged, out.H1, p.H1)
	}
	return out, nil
}

// FetchZip returns the zip of a module after it has checked the size and the digest. It holds the zip in
// memory. ErrTooLarge means that the zip has more than limit bytes. ErrDamaged means that the registry has other bytes.
func FetchZip(ctx context.Context, store Fetcher, p Package, limit int64) ([]byte, error) {
	return fetchVerified(ctx, store, p.Layer(), limit)
}

// OpenZip downloads the zip of a module to a temporary file, checks it like [RehashZip], and opens it. The caller must close
// the second result, which removes the file.
func OpenZip(ctx context.Context, store Fetcher, p Package) (*zip.Reader, io.Closer, error) {
	scratch, err := downloadZip(ctx, store, p.Layer())
	if err != nil {
		return nil, nil, err
	}
	var opened *zip.Reader
	_, err = checkZip(ctx, scratch, p)
	if err == nil {
		opened, err = zip.NewReader(scratch, p.Size)
	}
	if err != nil {
		scratch.Close()
		return nil, nil, err
	}
	return opened, scratch, nil
}
