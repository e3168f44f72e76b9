package origin

import (
	"encoding/json"
	"errors"
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
