package hint

import "github.com/agext/levenshtein"

// Nearest returns the element of names that name is probably a misspelling of: the one with the smallest edit
// distance to name. It returns "" if this distance is more than two, or more than half of the length of name.
func Nearest(name string, names []string) string {
	best, least := "", 3
	if len(name) > maxName {
		return ""
	}
	for _, n := range names {
		if d := levenshtein.Distance(name, n, nil); d < least && 2*d <= len(name) {
			best, least = n, d
		}
	}
	return best
}

// maxName is the maximum length in bytes of a name for which Nearest searches.
const maxName = 64
