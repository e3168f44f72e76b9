package artifact

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
)

// flaw is a problem that prevents an index, or one entry of an index, from being read.
// [Read] returns the first flaw that is not minor as its error. [Lint] reports all flaws.
type flaw struct {
	where string // a platform such as linux_amd64; "" for the whole index
	err   error
	// minor means that clients ignore the entry, and that the index is read without the
	// entry.
	minor bool
}

// decodeIndex decodes an index by OpenTofu's rules. If an entry has no usable annotations,
// its package has no digest yet.
func decodeIndex(desc ocispec.Descriptor, data []byte) (*Version, error) {
	v, flaws := examineIndex(desc, data)
	for _, f := range flaws {
		if !f.minor {
			return nil, f.err
		}
	}
	return v, nil
}

// examineIndex returns the readable part of an index, and the flaws of the other parts.
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
				flaws = append(flaws, flaw{entryName(i, entry), err, errors.Is(err, errIgnored)})
				continue
			}
			v.Packages = append(v.Packages, p)
		case TypeEvidence:
			if err := v.setEvidence(entry); err != nil {
				refuse("evidence", "%w", err)
			}
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

// setEvidence sets v.Evidence from the evidence entry of the index.
func (v *Version) setEvidence(entry ocispec.Descriptor) error {
	if v.Evidence != nil {
		return fmt.Errorf("%w: two entries with evidence", ErrAmbiguous)
	}
	if err := checkDescriptor(entry, MaxManifestBytes); err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	v.Evidence = &ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size, Annotations: verdictAnnotation(entry)}
	return nil
}

// entryName returns the platform of an index entry, or the position of the entry if it has
// no valid platform.
func entryName(i int, entry ocispec.Descriptor) string {
	if entry.Platform != nil {
		if p, err := provider.NewPlatform(entry.Platform.OS, entry.Platform.Architecture); err == nil {
			return p.String()
		}
	}
	return fmt.Sprintf("entry %d", i+1)
}

// parseOwner parses the annotation that names a provider.
func parseOwner(s string) (provider.Address, error) {
	host, rest, _ := strings.Cut(s, "/")
	namespace, typ, _ := strings.Cut(rest, "/")
	a, err := provider.AddressFromPath(host, namespace, typ)
	if err != nil {
		return a, fmt.Errorf("%w: annotation %s: %v", ErrNotProvider, annotationProvider, err)
	}
	return a, nil
}

// describe sets the fields of a version that come from the annotations of its index.
func describe(v *Version, annotations map[string]string) error {
	if s := annotations[annotationProvider]; s != "" {
		a, err := parseOwner(s)
		if err != nil {
			return err
		}
		v.Owner = a
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

// errIgnored means that clients ignore the entry of an index.
var errIgnored = errors.New("clients ignore this entry")

// decodeEntry decodes one entry of an index. The error wraps errIgnored if OpenTofu ignores
// the entry.
func decodeEntry(entry ocispec.Descriptor) (Package, error) {
	switch {
	case entry.MediaType != ocispec.MediaTypeImageManifest:
		return Package{}, fmt.Errorf("%w: an entry has the media type %.80q", ErrNotProvider, entry.MediaType)
	case entry.Platform == nil:
		return Package{}, fmt.Errorf("%w: an entry has no platform", ErrNotProvider)
	case entry.Platform.OSVersion != "":
		return Package{}, fmt.Errorf("%w: its platform has the os.version %.80q", errIgnored, entry.Platform.OSVersion)
	}
	platform, err := provider.NewPlatform(entry.Platform.OS, entry.Platform.Architecture)
	if err != nil { // no client runs on this platform, so no client is affected
		return Package{}, fmt.Errorf("%w: no client runs on %.80q, %.80q", errIgnored, entry.Platform.OS, entry.Platform.Architecture)
	}
	if err := checkDescriptor(entry, MaxManifestBytes); err != nil {
		return Package{}, fmt.Errorf("%s: %w", platform, err)
	}
	p := Package{Platform: platform, Manifest: ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size}}
	annotate(&p, entry.Annotations)
	return p, nil
}

// annotate sets the package's fields that come from the annotations of ocibridge. It sets
// either all of these fields or none.
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

// annotatedH1 returns the h1: hash in the annotations. It returns the zero hash if there is
// no h1: hash, or an invalid one.
func annotatedH1(annotations map[string]string) provider.Hash {
	h, err := provider.ParseHash(annotations[annotationH1])
	if err != nil || h.IsZip() {
		return provider.Hash{}
	}
	return h
}

func isSHA256(d digest.Digest) bool {
	return d.Validate() == nil && d.Algorithm() == digest.SHA256
}
