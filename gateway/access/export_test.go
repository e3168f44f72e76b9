package access

import (
	"crypto/subtle"

	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// CountComparisons makes the control count the bytes that it compares in constant time.
// It returns the counter.
func CountComparisons(c *Control) *int {
	n := new(int)
	c.equal = func(a, b []byte) int {
		*n += len(a)
		return subtle.ConstantTimeCompare(a, b)
	}
	return n
}

// ErrOwnKey is the reason why a token with a key in its header is refused.
var ErrOwnKey = errOwnKey

// CheckToken returns the reason why a token is refused before its signature is
// verified.
func CheckToken(token string) error {
	_, err := parseToken(token)
	return err
}

// ParseKeySet returns the number of usable keys in a key set.
func ParseKeySet(body []byte) (int, error) {
	set, err := parseKeySet(body)
	if err != nil {
		return 0, err
	}
	return len(set.Keys), nil
}

// Everything reports whether a selector selects all addresses of the kinds.
func Everything(s subject.Selector, kinds []subject.Kind) bool { return everything(s, kinds) }
