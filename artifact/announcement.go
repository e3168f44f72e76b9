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
	annotationAt   = annotationPrefix + "at"           // when the announcement was written, in RFC 3339 and UTC
	annotationDone = annotationPrefix + "done"         // "true" when the version's index contains everything announced
)

// typePlaceholder is the artifact type of the manifest that [Placeholder] returns.
const typePlaceholder = "application/vnd.ocibridge.placeholder.v1"

// Announcement tells concurrent pushes of a version which packages and which signed
// evidence a push of some platforms has stored. In the registry, an announcement is an
// index like a version's index, under its own tag. The ID makes the digest of the index
// unique.
type Announcement struct {
	Version
	ID   string
	At   time.Time // the registry's time when the announcement was written, to the second
	Done bool      // whether the version's index contained everything that the push announced
}

// EncodeAnnouncement returns the index of an announcement. It returns the same errors as
// [EncodeIndex].
func EncodeAnnouncement(a Announcement) (Blob, error) {
	more := map[string]string{annotationID: a.ID, annotationAt: a.At.UTC().Format(time.RFC3339)}
	if a.Done {
		more[annotationDone] = "true"
	}
	return encodeIndex(a.Version, more)
}

// ReadAnnouncement returns the announcement under a tag. It returns the same errors as
// [Read]. It also returns ErrNotProvider if the manifest is not an announcement.
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
	if found.Owner == nil || found.Version.IsZero() {
		return nil, fmt.Errorf("%w: the announcement names no provider or no version", ErrNotProvider)
	}
	if err := found.checkOwner(a, v, "index"); err != nil {
		return nil, err
	}
	for _, p := range found.Packages {
		if p.Digest == "" {
			return nil, fmt.Errorf("%w: the announcement does not describe the package for %s", ErrNotProvider, p.Platform)
		}
	}
	var index ocispec.Index
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

// Placeholder returns a manifest whose only blob is [Config]. To find out whether the registry allows deletions,
// a push deletes a placeholder. To delete a tag, a push moves the tag to a placeholder with an ID, and then
// deletes the placeholder by its digest.
func Placeholder(id string) (Blob, error) {
	var annotations map[string]string
	if id != "" {
		annotations = map[string]string{annotationID: id}
	}
	return encodeEmpty(typePlaceholder, annotations)
}

// ReadPlaceholder returns the descriptor of the manifest under a tag, and whether it is a placeholder.
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
