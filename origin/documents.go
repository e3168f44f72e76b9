package origin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

// Limits of an origin's documents about a provider. A decoded document within these limits
// takes less than 64 MiB of memory.
const (
	maxVersions  = 10_000  // of a provider; the longest list of a public provider has fewer than 2,000
	maxPlatforms = 128     // of one version; Go supports fewer than 50
	maxProtocols = 16      // of one version; real ones have one or two, and package artifact stores at most this many
	maxWarnings  = 64      // in one list
	maxURL       = 8 << 10 // bytes; real URLs, with the signatures of object storage, have fewer than 2,000
	maxHashes    = 64      // of one package; real ones have one for each of two schemes
)

var (
	// listLimits are the limits of documents about all versions of a provider. The longest
	// document of a public provider is about 2 MiB long, and has 160,000 values.
	listLimits = document.Limits{Bytes: 8 << 20, Values: 400_000, Elements: maxVersions}
	// indexLimits are the limits of the list of versions of a network mirror or a mirror
	// folder, a JSON object. Repeated members count, although encoding/json merges them.
	indexLimits = document.Limits{Bytes: 8 << 20, Values: 2*maxVersions + 1_000, Elements: maxVersions}
	// versionLimits are the limits of documents about one version or one package. Most of
	// their bytes are signing keys.
	versionLimits = document.Limits{Bytes: 4 << 20, Values: 20_000, Elements: 1_000}
)

// checkCount returns an error that wraps [document.ErrTooLarge] if n exceeds most. The
// parameter what names the counted things in the error.
func checkCount(what string, n, most int) error {
	if n <= most {
		return nil
	}
	return fmt.Errorf("%w: %d %s, more than %d", document.ErrTooLarge, n, what, most)
}

// member is a member of a JSON object. It distinguishes a missing member from null.
type member[T any] struct {
	value T
	given bool
}

// UnmarshalJSON implements [json.Unmarshaler]. It is not called for a missing member.
func (m *member[T]) UnmarshalJSON(data []byte) error {
	m.given = true
	return json.Unmarshal(data, &m.value)
}

// errNoVersionList means that a document has no list of versions. It must not count as an empty
// list, because clients of a mirror without versions fall back to another origin.
var errNoVersionList = errors.New(`the document has no list of versions: "versions" is missing`)

// reference resolves a URL in a document against the document's own URL. Errors begin
// with the quoted raw URL, except for the errors of checkLocalReference.
func reference(at *url.URL, raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("%.200q, which has more than %d bytes", raw, maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil || raw == "" {
		return nil, fmt.Errorf("%.200q", raw)
	}
	if u = at.ResolveReference(u); len(u.String()) > maxURL {
		return nil, fmt.Errorf("%.200q, which is relative to a URL of %d bytes", raw, len(at.String()))
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%.200q, which is not of the scheme https or http", raw)
	}
	return u, checkLocalReference(at, u)
}
