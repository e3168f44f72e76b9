package artifact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// manifestFetches is how many platform manifests of one version are fetched at
// once, where an index does not say what is in them.
const manifestFetches = 8

// maxMissing bounds the missing manifests of one version. Whoever reads the version
// again asks the registry for each of them again.
const maxMissing = 32

// Read returns what a tag of a provider's repository names. It takes one fetch
// for an index of ours, and one more a platform for one made by other tools.
//
// Errors of the store are passed on; errdef.ErrNotFound is always about the tag,
// since what an index names and the registry lacks is ErrNotProvider.
// ErrForeign, ErrNotProvider, ErrAmbiguous, ErrTooLarge and ErrDamaged say why
// content is refused.
func Read(ctx context.Context, store ReferenceFetcher, a provider.Address, v provider.Version) (*Version, error) {
	return read(ctx, store, a, v, 0)
}

// ReadAvailable is [Read] for readers who can use some platforms without the others.
// The platforms whose manifests the registry lacks are in Version.Missing. It is an
// error if the registry lacks the manifests of all platforms, or more than maxMissing.
func ReadAvailable(ctx context.Context, store ReferenceFetcher, a provider.Address, v provider.Version) (*Version, error) {
	return read(ctx, store, a, v, maxMissing)
}

// read is [Read], or [ReadAvailable] where as many manifests may be missing.
func read(ctx context.Context, store ReferenceFetcher, a provider.Address, v provider.Version, mayMiss int32) (*Version, error) {
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return nil, err
	}
	desc, data, err := fetchTag(ctx, store, string(tag))
	if err != nil {
		return nil, err
	}
	out, err := decodeIndex(desc, data)
	if err != nil {
		return nil, err
	}
	if err := out.checkOwner(a, v); err != nil {
		return nil, err
	}
	if err := resolvePackages(ctx, store, out, a, v, mayMiss); err != nil {
		return nil, err
	}
	return out, nil
}

// checkOwner refuses a version that says that it is another one.
func (v *Version) checkOwner(a provider.Address, ver provider.Version) error {
	if !v.Provider.IsZero() && v.Provider != a {
		return fmt.Errorf("%w: the index says that it is %s", ErrForeign, v.Provider)
	}
	if !v.Version.IsZero() && v.Version != ver {
		return fmt.Errorf("%w: the index says that it is version %s", ErrForeign, v.Version)
	}
	return nil
}

// fetchTag gets a manifest by tag. The descriptor is computed from what arrived:
// some registries send none, and a wrong one must not be believed.
func fetchTag(ctx context.Context, store ReferenceFetcher, tag string) (ocispec.Descriptor, []byte, error) {
	desc, body, err := store.FetchReference(ctx, tag)
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	defer body.Close()
	data, err := readBounded(body, desc.Size)
	if err != nil {
		return ocispec.Descriptor{}, nil, fmt.Errorf("tag %s: %w", tag, err)
	}
	got := digest.FromBytes(data)
	if isSHA256(desc.Digest) && desc.Digest != got {
		return ocispec.Descriptor{}, nil, fmt.Errorf("tag %s: %w: announced as %s, it is %s", tag, ErrDamaged, desc.Digest, got)
	}
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: got, Size: int64(len(data))}, data, nil
}

// Children returns the digest of the manifest that a tag names and, if that is an
// index of whatever kind, of the manifests that it names.
func Children(ctx context.Context, store ReferenceFetcher, tag string) ([]digest.Digest, digest.Digest, error) {
	desc, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return nil, "", err
	}
	var index struct {
		Manifests []struct {
			Digest digest.Digest `json:"digest"`
		} `json:"manifests"`
	}
	if err := Unmarshal(data, &index); err != nil {
		return nil, "", fmt.Errorf("tag %s: %w", tag, err)
	}
	var out []digest.Digest
	for _, m := range index.Manifests {
		out = append(out, m.Digest)
	}
	return out, desc.Digest, nil
}

// flaw is something in an index that keeps it, or one entry of it, from being
// read. [Read] refuses an index for its first one; [Lint] shows them all.
type flaw struct {
	where string // such as linux_amd64; "" for the index as a whole
	err   error
	// minor: clients pass over the entry, and the index is read without it.
	minor bool
}

// decodeIndex reads an index as OpenTofu does. Packages whose entry does not say
// what is in their manifest have no digest yet.
func decodeIndex(desc ocispec.Descriptor, data []byte) (*Version, error) {
	v, flaws := examineIndex(desc, data)
	for _, f := range flaws {
		if !f.minor {
			return nil, f.err
		}
	}
	return v, nil
}

// examineIndex reads of an index what can be read, and says what cannot.
func examineIndex(desc ocispec.Descriptor, data []byte) (*Version, []flaw) {
	var index ocispec.Index
	var flaws []flaw
	refuse := func(where string, format string, args ...any) {
		flaws = append(flaws, flaw{where: where, err: fmt.Errorf(format, args...)})
	}
	v := &Version{Index: desc}
	if err := Unmarshal(data, &index); err != nil {
		refuse("", "%w", err)
		return v, flaws
	}
	v.Index.MediaType = index.MediaType
	if index.MediaType != ocispec.MediaTypeImageIndex {
		refuse("", "%w: its media type is %.80q", ErrNotProvider, index.MediaType)
	}
	if index.ArtifactType != TypeProvider {
		refuse("", "%w: its artifact type is %.80q", ErrNotProvider, index.ArtifactType)
	}
	if err := describe(v, index.Annotations); err != nil {
		refuse("", "%w", err)
	}
	targets := 0
	for i, entry := range index.Manifests {
		switch entry.ArtifactType {
		case TypeTarget:
			targets++
			p, err := decodeEntry(entry)
			if err != nil {
				flaws = append(flaws, flaw{whereOf(i, entry), err, errors.Is(err, errPassedOver)})
				continue
			}
			v.Packages = append(v.Packages, p)
		case TypeEvidence:
			if v.Evidence != nil {
				refuse("evidence", "%w: two entries with evidence", ErrAmbiguous)
				continue
			}
			if err := checkDescriptor(entry, MaxManifestBytes); err != nil {
				refuse("evidence", "evidence: %w", err)
				continue
			}
			v.Evidence = &ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size, Annotations: verdictAnnotation(entry)}
		}
	}
	slices.SortStableFunc(v.Packages, func(a, b Package) int { return a.Platform.Compare(b.Platform) })
	for i := 1; i < len(v.Packages); i++ {
		if p := v.Packages[i].Platform; p == v.Packages[i-1].Platform {
			refuse(p.String(), "%w: two packages for %s", ErrAmbiguous, p)
		}
	}
	if targets == 0 {
		refuse("", "%w: it holds no package; is it a container image?", ErrNotProvider)
	}
	return v, flaws
}

// whereOf names an entry of an index by its platform, or by its place.
func whereOf(i int, entry ocispec.Descriptor) string {
	if entry.Platform != nil {
		if p, err := provider.NewPlatform(entry.Platform.OS, entry.Platform.Architecture); err == nil {
			return p.String()
		}
	}
	return fmt.Sprintf("entry %d", i+1)
}

// parseOwner reads the annotation that names a provider.
func parseOwner(s string) (provider.Address, error) {
	host, rest, _ := strings.Cut(s, "/")
	namespace, typ, _ := strings.Cut(rest, "/")
	a, err := provider.AddressFromPath(host, namespace, typ)
	if err != nil {
		return a, fmt.Errorf("%w: annotation %s: %v", ErrNotProvider, annotationProvider, err)
	}
	return a, nil
}

// describe reads the annotations of an index that say what it is.
func describe(v *Version, annotations map[string]string) error {
	if s := annotations[annotationProvider]; s != "" {
		a, err := parseOwner(s)
		if err != nil {
			return err
		}
		v.Provider = a
	}
	if s := annotations[annotationVersion]; s != "" {
		ver, err := provider.ParseVersion(s)
		if err != nil {
			return fmt.Errorf("%w: annotation %s: %v", ErrNotProvider, annotationVersion, err)
		}
		v.Version = ver
	}
	if s := annotations[annotationProtocols]; s != "" {
		v.Protocols = parseProtocols(s)
	}
	return nil
}

// errPassedOver: clients go on as if an entry were not there.
var errPassedOver = errors.New("clients pass this entry over")

// decodeEntry reads one entry. Its error wraps errPassedOver for one that OpenTofu
// passes over.
func decodeEntry(entry ocispec.Descriptor) (Package, error) {
	switch {
	case entry.MediaType != ocispec.MediaTypeImageManifest:
		return Package{}, fmt.Errorf("%w: an entry has the media type %.80q", ErrNotProvider, entry.MediaType)
	case entry.Platform == nil:
		return Package{}, fmt.Errorf("%w: an entry has no platform", ErrNotProvider)
	case entry.Platform.OSVersion != "":
		return Package{}, fmt.Errorf("%w: its platform has the os.version %.80q", errPassedOver, entry.Platform.OSVersion)
	}
	platform, err := provider.NewPlatform(entry.Platform.OS, entry.Platform.Architecture)
	if err != nil { // no client runs there, so none is troubled by it
		return Package{}, fmt.Errorf("%w: no client runs on %.80q, %.80q", errPassedOver, entry.Platform.OS, entry.Platform.Architecture)
	}
	if err := checkDescriptor(entry, MaxManifestBytes); err != nil {
		return Package{}, fmt.Errorf("%s: %w", platform, err)
	}
	p := Package{Platform: platform, Manifest: ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size}}
	annotate(&p, entry.Annotations)
	return p, nil
}

// annotate fills in what our own annotations say, all of it or nothing.
func annotate(p *Package, annotations map[string]string) {
	d := digest.Digest(annotations[annotationDigest])
	size, err := strconv.ParseInt(annotations[annotationSize], 10, 64)
	name := annotations[annotationFilename]
	if !isSHA256(d) || err != nil || size <= 0 || !provider.ValidFilename(name) {
		for _, key := range []string{annotationDigest, annotationSize, annotationFilename} {
			_, there := annotations[key]
			p.UnusedAnnotations = p.UnusedAnnotations || there
		}
		return
	}
	p.Digest, p.Size, p.Filename, p.H1 = d, size, name, annotatedH1(annotations)
}

// annotatedH1 returns the h1: hash in an annotation, none if there is none that
// reads.
func annotatedH1(annotations map[string]string) provider.Hash {
	h, err := provider.ParseHash(annotations[annotationH1])
	if err != nil || h.IsZip() {
		return provider.Hash{}
	}
	return h
}

func isSHA256(d digest.Digest) bool {
	return d.Validate() == nil && d.Algorithm() == digest.SHA256 // in this order: Algorithm panics on what is no digest
}

// resolvePackages completes the packages that the index alone does not describe
// from their manifests. Up to mayMiss packages whose manifests the registry lacks
// become missing packages, if others are left.
func resolvePackages(ctx context.Context, store Fetcher, v *Version, a provider.Address, ver provider.Version, mayMiss int32) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(manifestFetches)
	var missing atomic.Int32
	for i := range v.Packages {
		p := &v.Packages[i]
		if p.Digest != "" {
			continue
		}
		g.Go(func() error {
			layer, err := fetchLayer(ctx, store, p.Manifest)
			if errors.Is(err, ErrMissing) && missing.Add(1) <= mayMiss {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.Platform, err)
			}
			p.fill(layer, a, ver)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return v.separateMissing()
}

// separateMissing moves the packages without a digest to v.Missing. It is an error if
// no package is left.
func (v *Version) separateMissing() error {
	v.Packages = slices.DeleteFunc(v.Packages, func(p Package) bool {
		if p.Digest != "" {
			return false
		}
		v.Missing = append(v.Missing, MissingPackage{p.Platform, p.Manifest.Digest})
		return true
	})
	if len(v.Packages) == 0 && len(v.Missing) > 0 {
		return v.Missing[0].Err()
	}
	return nil
}

// fill completes a package from its layer. A layer without a usable file name has
// the one that packages are published under.
func (p *Package) fill(layer ocispec.Descriptor, a provider.Address, v provider.Version) {
	p.Digest, p.Size, p.H1 = layer.Digest, layer.Size, annotatedH1(layer.Annotations)
	if p.Filename = layer.Annotations[ocispec.AnnotationTitle]; !provider.ValidFilename(p.Filename) {
		p.Filename = provider.PackageFilename(a, v, p.Platform)
	}
}

// Resolve returns the descriptor of the manifest that a tag names, from what
// arrives.
func Resolve(ctx context.Context, store ReferenceFetcher, tag string) (ocispec.Descriptor, error) {
	desc, _, err := fetchTag(ctx, store, tag)
	return desc, err
}

// ReadPackage returns the package whose platform manifest a tag names.
func ReadPackage(ctx context.Context, store ReferenceFetcher, tag string, a provider.Address, v provider.Version, platform provider.Platform) (*Package, error) {
	desc, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return nil, err
	}
	return DecodePackage(desc, data, a, v, platform)
}

// DecodePackage returns a package as its platform manifest describes it.
func DecodePackage(desc ocispec.Descriptor, data []byte, a provider.Address, v provider.Version, platform provider.Platform) (*Package, error) {
	manifest, err := decodeManifest(data, TypeTarget)
	if err != nil {
		return nil, err
	}
	layer, err := zipLayer(manifest)
	if err != nil {
		return nil, err
	}
	desc.MediaType = manifest.MediaType
	p := &Package{Platform: platform, Manifest: desc}
	p.fill(layer, a, v)
	return p, nil
}

// fetchLayer returns the one archive/zip layer of a platform's manifest.
func fetchLayer(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (ocispec.Descriptor, error) {
	manifest, err := fetchManifest(ctx, store, desc, TypeTarget)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return zipLayer(manifest)
}

func zipLayer(manifest ocispec.Manifest) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	for _, l := range manifest.Layers {
		if l.MediaType == mediaTypeZip {
			found = append(found, l)
		}
	}
	switch {
	case len(found) == 0:
		return ocispec.Descriptor{}, fmt.Errorf("%w: its manifest has no %s layer", ErrNotProvider, mediaTypeZip)
	case len(found) > 1:
		return ocispec.Descriptor{}, fmt.Errorf("%w: its manifest has %d %s layers", ErrAmbiguous, len(found), mediaTypeZip)
	case !isSHA256(found[0].Digest) || found[0].Size <= 0:
		return ocispec.Descriptor{}, fmt.Errorf("%w: its layer %.80q of %d bytes has no SHA-256", ErrNotProvider, found[0].Digest, found[0].Size)
	}
	return found[0], nil
}

func fetchManifest(ctx context.Context, store Fetcher, desc ocispec.Descriptor, artifactType string) (ocispec.Manifest, error) {
	data, err := FetchManifest(ctx, store, desc)
	if err != nil {
		return ocispec.Manifest{}, err
	}
	return decodeManifest(data, artifactType)
}

func decodeManifest(data []byte, artifactType string) (ocispec.Manifest, error) {
	var m ocispec.Manifest
	if err := Unmarshal(data, &m); err != nil {
		return m, err
	}
	if m.MediaType != ocispec.MediaTypeImageManifest || m.ArtifactType != artifactType {
		return m, fmt.Errorf("%w: manifest of media type %.80q and artifact type %.80q", ErrNotProvider, m.MediaType, m.ArtifactType)
	}
	return m, nil
}
