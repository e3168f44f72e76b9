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

// errNoVersionList means that a document has no list of versions. Such a document must not
// count as an empty list, because clients of a mirror without versions fall back to
// another origin.
var errNoVersionList = errors.New(`the document has no list of versions: "versions" is missing`)
