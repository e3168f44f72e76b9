package approval

import (
	"path"
	"regexp"
	"strings"
)

// identityPattern returns the regular expression for an identity in which * matches any number of characters other than /. The
// identity must be valid UTF-8.
func identityPattern(identity string) string {
	parts := strings.Split(identity, "*")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return `\A` + strings.Join(parts, `[^/]*`) + `\z`
}

// onlyStars takes the special meaning from all characters of a pattern of package path, except for *.
var onlyStars = strings.NewReplacer(`\`, `\\`, `?`, `\?`, `[`, `\[`)

// matches reports whether an identity in a certificate matches the identity of a requirement.
func matches(pattern, identity string) bool {
	ok, err := path.Match(onlyStars.Replace(pattern), identity)
	return ok && err == nil
}
