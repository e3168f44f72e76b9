package document

import (
	"bytes"
	"encoding/json"
)

// Join encodes the parts, which are JSON objects, as one object with the members of all of them. It escapes nothing
// for HTML.
func Join(parts ...any) ([]byte, error) {
	out := []byte("{")
	for _, part := range parts {
		var object bytes.Buffer
		enc := json.NewEncoder(&object)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(part); err != nil {
			return nil, err
		}
		members := bytes.Trim(object.Bytes(), "\n")
		members = members[1 : len(members)-1]
		if len(members) > 0 && len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, members...)
	}
	return append(out, '}'), nil
}
