package artifact

import (
	"context"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
)

const (
	annotationID   = annotationPrefix + "announcement" // on the index of an announcement: its ID
	annotationAt   = annotationPrefix + "at"           // when it was written, in RFC 3339 and UTC
	annotationDone = annotationPrefix + "done"         // "true", once the version's index has all of it
)

// typePlaceholder is the artifact type of a manifest that means nothing.
const typePlaceholder = "application/vnd.ocibridge.placeholder.v1"

// Announcement is what a push of some platforms of a version tells other pushes of the
// version: the packages, and the signed evidence, that it has stored. In the registry it
// is an index as a version's, under a tag of its own. Its ID makes its digest unique.
type Announcement struct {
	Version
	ID   string
	At   time.Time // by the registry's clock, to the second
	Done bool      // its push saw all of it in the version's index
}

// EncodeAnnouncement returns the index of an announcement. Errors are those of
// [EncodeIndex].
func EncodeAnnouncement(a Announcement) (Blob, error) {
	more := map[string]string{annotationID: a.ID, annotationAt: a.At.UTC().Format(time.RFC3339)}
	if a.Done {
		more[annotationDone] = "true"
	}
	return encodeIndex(a.Version, more)
}

// ReadAnnouncement returns the announcement that a tag names. Errors are those of
// [Read]; ErrNotProvider also means that it is no announcement.
func ReadAnnouncement(ctx context.Context, store ReferenceFetcher, tag string, a provider.Address, v provider.Version) (*Announcement, error) {
	desc, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return nil, err
	}
	return decodeAnnouncement(desc, data, a, v)
}

func decodeAnnouncement(desc ocispec.Descriptor, data []byte, a provider.Address, v provider.Version) (*Announcement, error) {
	found, err := decodeIndex(desc, data)
	if err != nil {
		return nil, err
	}
	if found.Provider.IsZero() || found.Version.IsZero() {
		return nil, fmt.Errorf("%w: the announcement does not say of what", ErrNotProvider)
	}
	if err := found.checkOwner(a, v); err != nil {
		return nil, err
	}
	for _, p := range found.Packages {
		if p.Digest == "" {
			return nil, fmt.Errorf("%w: the announcement does not say what the package for %s is", ErrNotProvider, p.Platform)
		}
	}
	var index struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := Unmarshal(data, &index); err != nil {
		return nil, err
	}
	text := index.Annotations[annotationAt]
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.UTC().Format(time.RFC3339) != text || index.Annotations[annotationID] == "" {
		return nil, fmt.Errorf("%w: the announcement has no ID or no time", ErrNotProvider)
	}
	return &Announcement{Version: *found, ID: index.Annotations[annotationID], At: at, Done: index.Annotations[annotationDone] == "true"}, nil
}

// Placeholder returns a manifest that means nothing: to find out whether manifests can
// be deleted, or, with an ID, to move a tag to before it is deleted with its manifest.
// Its one blob is that of [Config].
func Placeholder(id string) (Blob, error) {
	var annotations map[string]string
	if id != "" {
		annotations = map[string]string{annotationID: id}
	}
	return encodeEmpty(typePlaceholder, annotations)
}

// ReadPlaceholder reports whether a tag names a placeholder.
func ReadPlaceholder(ctx context.Context, store ReferenceFetcher, tag string) (ocispec.Descriptor, bool, error) {
	desc, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return desc, false, err
	}
	var m ocispec.Manifest
	if err := Unmarshal(data, &m); err != nil {
		return desc, false, err
	}
	desc.MediaType = ocispec.MediaTypeImageManifest
	return desc, m.ArtifactType == typePlaceholder, nil
}
