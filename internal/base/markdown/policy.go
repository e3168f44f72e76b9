package markdown

import (
	"fmt"
	"net/url"
	"regexp"

	"github.com/microcosm-cc/bluemonday"
)

// policy returns the allowed elements and attributes. Everything else is removed. The content of script and style elements is
// removed as well. Raw HTML can have no heading above level.
func policy(prefix string, level int) *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "b", "i", "del", "s",
		"sub", "sup", "kbd", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "details", "summary")
	id := regexp.QuoteMeta(prefix) + `[a-z0-9_-]*`
	for ; level <= 6; level++ {
		heading := fmt.Sprintf("h%d", level)
		p.AllowElements(heading)
		p.AllowAttrs("id").Matching(regexp.MustCompile("^" + id + "$")).OnElements(heading)
	}
	for attribute, value := range map[string]string{"class": "scroll", "tabindex": "0", "role": "group", "aria-label": "Table"} {
		p.AllowAttrs(attribute).Matching(regexp.MustCompile("^" + value + "$")).OnElements("div")
	}
	p.AllowAttrs("start").Matching(regexp.MustCompile(`^[0-9]{1,9}$`)).OnElements("ol")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|center|right)$`)).OnElements("th", "td")
	p.AllowAttrs("href").Matching(regexp.MustCompile(`^(https?://[^/]|mailto:|#` + id + `$|\?[a-zA-Z0-9=&%./_-]+(#` + id + `)?$)`)).OnElements("a")
	p.AllowRelativeURLs(true) // those that the pattern above allows
	p.AllowURLSchemes("mailto")
	for _, scheme := range []string{"http", "https"} {
		p.AllowURLSchemeWithCustomPolicy(scheme, func(u *url.URL) bool { return u.Host != "" && u.User == nil })
	}
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	return p
}
