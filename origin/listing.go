package origin

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/ocibridge/ocibridge/provider"
)

// member is a member of a JSON object. It distinguishes a missing member from null.
type member[T any] struct {
	value T
	given bool
}

// UnmarshalJSON implements [json.Unmarshaler]. encoding/json does not call it for a
// missing member.
func (m *member[T]) UnmarshalJSON(data []byte) error {
	m.given = true
	return json.Unmarshal(data, &m.value)
}

// errNoVersionList means that a document has no list of versions, so it says nothing about
// versions. If it counted as an empty list, clients would fall back to another origin.
var errNoVersionList = errors.New(`the document has no list of versions: "versions" is missing`)

// Only returns a copy of the listing with the given versions, which l must contain,
// oldest first. The copy shares no memory with the decoded document, so callers can keep
// it. Consecutive versions with the same platforms share one slice.
func (l *Listing) Only(versions []provider.Version) *Listing {
	out := &Listing{
		Versions: slices.Clone(versions), Warnings: l.Warnings, OriginWarnings: l.OriginWarnings,
		platforms: map[provider.Version][]provider.Platform{}, protocols: map[provider.Version][]string{},
	}
	for _, v := range versions {
		if platforms, ok := l.platforms[v]; ok {
			out.platforms[v] = slices.Clone(platforms)
		}
		if protocols, ok := l.protocols[v]; ok {
			out.protocols[v] = protocols
		}
	}
	out.sharePlatforms()
	return out
}

// Bytes estimates the memory in bytes of a listing that [Listing.Only] returned.
func (l *Listing) Bytes() int64 {
	n := 1<<10 + 16*len(l.OriginWarnings) // their texts are shared with Warnings
	for _, w := range l.Warnings {
		n += 32 + len(w)
	}
	var last []provider.Platform
	for _, v := range l.Versions {
		n += 80
		if platforms, ok := l.platforms[v]; ok {
			n += 200 // the map entry
			if !slices.Equal(platforms, last) {
				for _, p := range platforms {
					n += 48 + len(p.OS) + len(p.Arch)
				}
			}
			last = platforms
		}
		if protocols, ok := l.protocols[v]; ok {
			n += 200 + 16*len(protocols) // the strings are short
		}
	}
	return int64(n)
}
