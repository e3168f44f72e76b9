package origin

import (
	"encoding/json"
	"slices"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// member is a member of a JSON object. A member that is null is there, and empty.
type member[T any] struct {
	value T
	given bool
}

// UnmarshalJSON implements [json.Unmarshaler]. A member that is missing has no call.
func (m *member[T]) UnmarshalJSON(data []byte) error {
	m.given = true
	return json.Unmarshal(data, &m.value)
}

// noVersionList is the error for a document without a list of versions. Such a document
// says nothing about versions. To take it for an empty list would send clients elsewhere.
func noVersionList(help string) error {
	return hint.New(`the document has no list of versions: "versions" is missing`, "%s, or a proxy has changed its answer", help)
}

// Only returns a listing of the given versions, which l lists, oldest first. It shares
// no memory with the document that l comes from, so that callers can keep it. Versions
// that follow each other and have the same platforms share a slice of them.
func (l *Listing) Only(versions []provider.Version) *Listing {
	out := &Listing{
		Versions: slices.Clone(versions), Warnings: l.Warnings, OriginWarnings: l.OriginWarnings, contents: l.contents,
		platforms: map[provider.Version][]provider.Platform{}, protocols: map[provider.Version][]string{},
	}
	var last []provider.Platform
	for _, v := range versions {
		if platforms, ok := l.platforms[v]; ok {
			if !slices.Equal(platforms, last) {
				last = slices.Clone(platforms)
			}
			out.platforms[v] = last
		}
		if protocols, ok := l.protocols[v]; ok {
			out.protocols[v] = protocols
		}
	}
	return out
}

// Bytes returns about how many bytes a listing takes in memory that [Listing.Only] has
// made, apart from the contents of a mirror folder.
func (l *Listing) Bytes() int64 {
	n := 1<<10 + 16*len(l.OriginWarnings) // they share their texts with Warnings
	for _, w := range l.Warnings {
		n += 32 + len(w)
	}
	var last []provider.Platform
	for _, v := range l.Versions {
		n += 80
		if platforms, ok := l.platforms[v]; ok {
			n += 200 // in the map
			if !slices.Equal(platforms, last) {
				for _, p := range platforms {
					n += 48 + len(p.OS) + len(p.Arch)
				}
			}
			last = platforms
		}
		if protocols, ok := l.protocols[v]; ok {
			n += 200 + 16*len(protocols) // their strings are short
		}
	}
	return int64(n)
}
