package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// TypeState is the artifact type of the manifest that holds a repository's [State].
const TypeState = "application/vnd.ocibridge.state.v1"

// annotationState contains the state as JSON text. The state is an annotation and not a
// layer, because a reader would need a second request for a layer.
const annotationState = annotationPrefix + "state"

// The maximum numbers of seen versions and of replaced manifests in a state. Origins list
// at most 10,000 versions.
const (
	maxSeen     = 20_000
	maxReplaced = 10_000
)

// stateLimits limits the JSON of a state. Each version takes one value, and each replaced
// manifest at most five.
var stateLimits = document.Limits{Bytes: MaxManifestBytes, Values: maxSeen + 5*maxReplaced + 100, Elements: maxSeen}

// State is what ocibridge records about the repository of a provider or a module. A writer merges
// its own state into the stored state.
type State struct {
	// Owner is the provider or the module to which the repository belongs.
	Owner subject.Address
	// Cooldown reports whether a sync with a cooldown has recorded all versions.
	Cooldown bool
	// Seen contains the time at which a sync first saw each version of a provider, or at which a
	// version of a module was first fetched from its origin. The zero time means that the version
	// already existed at the first sync with a cooldown.
	Seen map[provider.Version]time.Time
	// Replaced lists the manifests that no longer have a tag, and that prune has not deleted
	// yet. The list is sorted, and contains each digest once.
	Replaced []Replaced
	// Summary describes the versions of a provider. It is empty if the stored summary is invalid. An
	// encoded state contains only the newest versions of the summary: at most 10,000, and at
	// most 1.5 MiB.
	Summary Summary
}

// Manifest is the descriptor of a manifest.
type Manifest = ocispec.Descriptor

// Replaced is a manifest whose tag was moved to another manifest.
type Replaced struct {
	// Manifest contains only the media type, the digest and the size.
	Manifest
	// Version is the version that the tag names. It is zero if the manifest is an older
	// state.
	Version provider.Version `json:"version,omitzero"`
}

// Merge merges another state into s. For each version, Seen gets the earlier of the two times.
// Replaced gets the manifests of both states. If there are more than maxReplaced manifests,
// Merge drops some of them, beginning with the manifests of older states. The dropped manifests
// stay in the registry. If both states describe a version, Summary gets the description in
// other.
func (s *State) Merge(other State) {
	s.Cooldown = s.Cooldown || other.Cooldown
	if s.Seen == nil {
		s.Seen = map[provider.Version]time.Time{}
	}
	for v, at := range other.Seen {
		if mine, ok := s.Seen[v]; !ok || at.Before(mine) {
			s.Seen[v] = at
		}
	}
	s.Replaced = joinReplaced(s.Replaced, other.Replaced)
	if s.Summary == nil {
		s.Summary = Summary{}
	}
	maps.Copy(s.Summary, other.Summary)
}

// joinReplaced merges two lists of replaced manifests. The result is sorted. It contains
// each digest once, and at most maxReplaced manifests.
func joinReplaced(a, b []Replaced) []Replaced {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b Replaced) int {
		return cmp.Or(cmp.Compare(a.Manifest.Digest, b.Manifest.Digest), b.Version.Compare(a.Version))
	})
	all = slices.CompactFunc(all, func(a, b Replaced) bool { return a.Manifest.Digest == b.Manifest.Digest })
	slices.SortStableFunc(all, func(a, b Replaced) int { return cmp.Compare(stateRank(a), stateRank(b)) })
	return all[:min(len(all), maxReplaced)]
}

// stateRank ranks the indexes of versions before older states. Indexes are more important,
// because a registry does not delete platform manifests while an index refers to them.
func stateRank(r Replaced) int {
	if r.Version.IsZero() {
		return 1
	}
	return 0
}

// stateDocument is the JSON document of a state. Its times have the format of [seenText].
type stateDocument struct {
	Cooldown bool                        `json:"cooldown,omitempty"`
	Seen     map[provider.Version]string `json:"seen,omitempty"`
	Replaced []Replaced                  `json:"replaced,omitempty"`
}

// EncodeState returns the manifest of a state. The only blob of the manifest is [Config].
// The same state always gives the same bytes. Times are truncated to seconds. EncodeState
// returns [ErrTooLarge] or [ErrNotProvider] if ReadState would refuse the manifest. It leaves
// out the summary if the manifest would become too large.
func EncodeState(s State) (Blob, error) {
	if _, unnamed := s.Seen[provider.Version{}]; unnamed || s.Owner == nil || s.Owner.Path() == "" {
		return Blob{}, fmt.Errorf("%w: a state without an owner, or with a version without a name", ErrNotProvider)
	}
	d := stateDocument{s.Cooldown, map[provider.Version]string{}, joinReplaced(s.Replaced, nil)}
	for v, at := range s.Seen {
		d.Seen[v] = seenText(at)
	}
	if _, err := d.state(); err != nil {
		return Blob{}, err
	}
	text, err := document.Join(d)
	if err != nil {
		return Blob{}, err
	}
	annotations := map[string]string{
		ownerAnnotation(s.Owner): s.Owner.Path(),
		annotationState:          string(text),
	}
	summary, err := encodeSummary(s.Summary)
	if err != nil {
		return Blob{}, err
	}
	if summary != "" {
		annotations[annotationVersions] = summary
	}
	blob, err := encodeEmpty(TypeState, annotations)
	if errors.Is(err, ErrTooLarge) && summary != "" {
		delete(annotations, annotationVersions)
		return encodeEmpty(TypeState, annotations)
	}
	return blob, err
}

// ReadState returns the state of a repository, and the descriptor of the state's manifest. It
// returns the same errors as [Read]: errdef.ErrNotFound if the repository has no state, and
// [ErrForeign] if the state belongs to a different provider or module.
func ReadState(ctx context.Context, store ReferenceFetcher, a subject.Address) (*State, ocispec.Descriptor, error) {
	desc, data, err := fetchTag(ctx, store, string(ociaddr.StateTag))
	if err != nil {
		return nil, ocispec.Descriptor{}, err
	}
	desc.MediaType = ocispec.MediaTypeImageManifest
	s, err := decodeState(data, a)
	if err != nil {
		return nil, ocispec.Descriptor{}, fmt.Errorf("tag %s: %w", ociaddr.StateTag, err)
	}
	return s, desc, nil
}

func decodeState(data []byte, a subject.Address) (*State, error) {
	annotations, err := stateAnnotations(data, a)
	if err != nil {
		return nil, err
	}
	var d stateDocument
	if err := unmarshalWithin(stateLimits, []byte(annotations[annotationState]), &d, ErrNotProvider); err != nil {
		return nil, err
	}
	s, err := d.state()
	if err != nil {
		return nil, err
	}
	s.Owner = a
	// An invalid summary is no error, because the next writer replaces it.
	s.Summary, _ = decodeSummary(annotations[annotationVersions])
	return s, nil
}

// ownerAnnotation returns the key of the annotation with the path of an address.
func ownerAnnotation(a subject.Address) string {
	if l, ok := zipLayouts[a.Kind()]; ok {
		return l.annotation
	}
	return annotationProvider
}

// stateAnnotations returns the annotations of the state of a provider or a module.
func stateAnnotations(data []byte, a subject.Address) (map[string]string, error) {
	var m ocispec.Manifest
	if err := Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if m.ArtifactType != TypeState {
		return nil, fmt.Errorf("%w: its artifact type is %.80q, want %s", ErrNotProvider, m.ArtifactType, TypeState)
	}
	for kind, key := range map[subject.Kind]string{subject.Provider: annotationProvider, subject.Module: annotationModule} {
		if path := m.Annotations[key]; path != "" && kind != a.Kind() {
			return nil, fmt.Errorf("%w: the state belongs to the %s %.200q", ErrForeign, kind, path)
		}
	}
	owner, err := parseOwnerOf(a.Kind(), m.Annotations[ownerAnnotation(a)])
	if err != nil {
		return nil, err
	}
	if owner != a {
		return nil, fmt.Errorf("%w: the state belongs to %s", ErrForeign, owner)
	}
	return m.Annotations, nil
}

// state converts the document to a State without its provider.
func (d stateDocument) state() (*State, error) {
	switch {
	case len(d.Seen) > maxSeen:
		return nil, fmt.Errorf("%w: a state of %d versions, more than %d", ErrTooLarge, len(d.Seen), maxSeen)
	case len(d.Replaced) > maxReplaced:
		return nil, fmt.Errorf("%w: a state of %d replaced manifests, more than %d", ErrTooLarge, len(d.Replaced), maxReplaced)
	}
	out := &State{Cooldown: d.Cooldown, Seen: make(map[provider.Version]time.Time, len(d.Seen))}
	for v, text := range d.Seen {
		at, err := parseSeen(text)
		if err != nil {
			return nil, err
		}
		out.Seen[v] = at
	}
	for i, r := range d.Replaced {
		// A registry deletes manifests and blobs with different requests. Therefore r must
		// have the media type of a manifest.
		if !IsManifest(r.MediaType) {
			return nil, fmt.Errorf("%w: a replaced manifest has the media type %.80q", ErrNotProvider, r.MediaType)
		}
		if err := checkDescriptor(r.Manifest, MaxManifestBytes); err != nil {
			return nil, fmt.Errorf("replaced manifest: %w", err)
		}
		d.Replaced[i].Manifest = Manifest{MediaType: r.MediaType, Digest: r.Digest, Size: r.Size}
	}
	out.Replaced = joinReplaced(d.Replaced, nil)
	return out, nil
}

// IsOwned fetches a replaced manifest, and returns its bytes. owned reports whether the
// manifest is what the state says: the index or manifest of r.Version or, if r.Version is
// zero, an older state. IsOwned returns the errors of [FetchManifest] and
// [Unmarshal].
func IsOwned(ctx context.Context, store Fetcher, r Replaced, a subject.Address) (data []byte, owned bool, err error) {
	data, err = FetchManifest(ctx, store, r.Manifest)
	if err != nil {
		return nil, false, err
	}
	var m ocispec.Index // a state has the same fields
	if err := Unmarshal(data, &m); err != nil {
		return nil, false, err
	}
	_, announcement := m.Annotations[annotationID]
	_, want := TypeOf(a.Kind())
	if r.Version.IsZero() {
		want = TypeState
	}
	return data, m.ArtifactType == want && !announcement && m.Annotations[ownerAnnotation(a)] == a.Path() && m.Annotations[annotationVersion] == r.Version.String(), nil
}

// firstSync is the text for the zero time in [State.Seen].
const firstSync = "first sync"

// seenText formats the time at which a version was first seen. The zero time gives
// firstSync.
func seenText(at time.Time) string {
	if at.IsZero() {
		return firstSync
	}
	return at.UTC().Truncate(time.Second).Format(time.RFC3339)
}

// parseSeen parses a text that [seenText] returned.
func parseSeen(text string) (time.Time, error) {
	if text == firstSync {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() || seenText(at) != text {
		return time.Time{}, fmt.Errorf("%w: %.40q is not the time at which a version was seen", ErrNotProvider, text)
	}
	return at, nil
}
