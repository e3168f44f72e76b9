package page

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/provider"
)

// frontView is the page at the root.
type frontView struct {
	Host      string // the gateway's host
	Setup     Setup
	Providers listView // some of the known providers
	More      bool     // there are other providers
	Pending   bool
	Locked    bool // providers are visible only after signing in
	Pulls     bool // missing versions are fetched from origins
}

// front shows the client configuration to everyone, and some providers to users who may read them.
func (p *page) front(w http.ResponseWriter, r *http.Request) {
	at := p.gatewayURL(r)
	v := frontView{Host: at.Host, Pulls: p.pulls && p.MayFetch(r)}
	who, err := p.Access.Person(r)
	if err != nil && r.Header.Get("Authorization") != "" {
		p.Access.Refused(err) // a request without a token is not a refusal
	}
	if v.Locked = err != nil; !v.Locked {
		k := p.directory.known(r.Context())
		all := readable(who, k.providers)
		v.More, v.Pending = len(all) > frontProviders, k.pending
		v.Providers = p.overviews(r, all[:min(len(all), frontProviders)])
	}
	if p.Setup != nil {
		v.Setup = p.Setup(at.String(), !v.Locked)
	}
	p.render(w, r, http.StatusOK, "front", layout{Title: "Providers at " + v.Host, Front: true, View: v})
}

// searchView is the result of a search.
type searchView struct {
	Query    string
	Found    listView
	Total    int
	Maybe    listView // suggestions if the query lacks a host name
	Bad      bool     // no address can contain the query
	Complete bool     // the registry has no other providers
	Pending  bool
	Pulls    bool // missing versions are fetched from origins
	Pages    pager
}

// search redirects to a provider's page if the query is its address. Otherwise it lists the providers whose
// address contains all words of the query.
func (p *page) search(w http.ResponseWriter, r *http.Request) {
	who := p.known(w, r)
	if who == nil {
		return
	}
	query := cleanQuery(r.URL.Query().Get("q"))
	if a, version, ok := exact(fromRegistryPage(query)); ok {
		w.Header().Set("Location", "./"+providerPath(a, version))
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	k := p.directory.known(r.Context())
	words := strings.Fields(strings.ToLower(query))
	all := readable(who, slices.DeleteFunc(k.providers, func(a provider.Address) bool { return !matches(a, words) }))
	if len(words) == 1 {
		slices.SortStableFunc(all, func(a, b provider.Address) int { return cmp.Compare(rank(a, words[0]), rank(b, words[0])) })
	}
	v := searchView{Query: query, Total: len(all), Complete: k.complete, Pending: k.pending, Pulls: p.pulls && p.MayFetch(r)}
	v.Maybe = newList(r, suggestions(query, all))
	v.Bad = len(all) == 0 && !plausible(query)
	var from, to int
	v.Pages, from, to = newPager(len(all), searchesPerPage, r.URL.Query().Get("page"))
	v.Pages.Query, v.Pages.What, v.Pages.Back, v.Pages.On = query, "the list", "Before", "Further"
	v.Found = p.overviews(r, all[from:to])
	title := "Providers"
	if query != "" {
		title = "Search for " + query
	}
	p.render(w, r, http.StatusOK, "search", layout{Title: title, Query: query, View: v})
}

// sourceLine matches an address. The address may be quoted, and may be the value of a source attribute.
var sourceLine = regexp.MustCompile(`^(?:source\s*=\s*)?"?([^"]*)"?$`)

// cleanQuery returns the address in a query without the text around it, because users may paste a line of
// their configuration.
func cleanQuery(q string) string {
	if len(q) > maxQuery {
		q = q[:maxQuery]
	}
	q = strings.TrimSpace(strings.ToValidUTF8(q, ""))
	if m := sourceLine.FindStringSubmatch(q); m != nil {
		q = strings.TrimSpace(m[1])
	}
	return strings.Trim(strings.TrimPrefix(q, "https://"), "/")
}

// registryPage matches the URL of a provider's page at a public registry.
var registryPage = regexp.MustCompile(`^(registry\.terraform\.io|search\.opentofu\.org)/providers?/([^/]+/[^/?#]+)(?:/v?([0-9][^/?#]*))?`)

// fromRegistryPage converts the URL of a provider's page at a public registry into ADDRESS or ADDRESS@VERSION.
// It returns all other queries unchanged.
func fromRegistryPage(query string) string {
	m := registryPage.FindStringSubmatch(query)
	if m == nil {
		return query
	}
	out := strings.Replace(m[1], "search.", "registry.", 1) + "/" + m[2]
	if m[3] != "" {
		out += "@" + m[3]
	}
	return out
}

// exact parses ADDRESS or ADDRESS@VERSION. The version is zero if the query has none. The bool is false if the
// query has another form.
func exact(query string) (provider.Address, provider.Version, bool) {
	name, version, versioned := strings.Cut(query, "@")
	a, err := provider.ParseAddress(name)
	if err != nil {
		return a, provider.Version{}, false
	}
	if !versioned {
		return a, provider.Version{}, true
	}
	v, err := provider.ParseVersion(strings.TrimPrefix(version, "v"))
	return a, v, err == nil
}

// matches reports whether an address contains all words. The words are in lower case. Each word may match the
// address in its path form or its displayed form.
func matches(a provider.Address, words []string) bool {
	path, shown := a.Path(), ""
	for _, word := range words {
		if strings.Contains(path, word) {
			continue
		}
		if !strings.Contains(a.Hostname(), "xn--") {
			return false // the path form and the displayed form are the same
		}
		if shown == "" {
			shown = strings.ToLower(a.String())
		}
		if !strings.Contains(shown, word) {
			return false
		}
	}
	return true
}

// rank orders the results of a search for one word: types that are equal to the word, types that begin with it, and all
// other providers.
func rank(a provider.Address, word string) int {
	switch {
	case a.Type() == word:
		return 0
	case strings.HasPrefix(a.Type(), word):
		return 1
	}
	return 2
}

// suggestions returns the addresses at public registries that a query may mean. Like clients, it adds the namespace
// hashicorp to a single word, if the search has found nothing.
func suggestions(query string, found []provider.Address) (out []provider.Address) {
	switch {
	case strings.Count(query, "/") == 1:
	case query != "" && !strings.ContainsAny(query, "/ ") && len(found) == 0:
		query = "hashicorp/" + query
	default:
		return nil
	}
	for _, host := range []string{"registry.opentofu.org/", "registry.terraform.io/"} {
		if a, err := provider.ParseAddress(host + query); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// plausible reports whether a query can be part of an address.
func plausible(query string) bool {
	return strings.Count(query, "/") <= 2 && utf8.RuneCountInString(query) <= 253 && !strings.ContainsAny(query, `\<>"'{}|^%$#!?&=+;,`+"`")
}

// providerPath returns the relative path of a provider's page, or of a version's page if v is not zero.
func providerPath(a provider.Address, v provider.Version) string {
	path := "p/" + a.Path()
	if !v.IsZero() {
		path += "/" + url.PathEscape(v.String())
	}
	return path
}

// pager is the position of a page in a list. Pages are counted from 1.
type pager struct {
	Page, Pages    int
	Before, Beyond int // the neighbouring pages; 0 if there is none

	Query          string // the search query in the links, or ""
	What, Back, On string // the label, and the texts of its links
}

// newPager returns the requested page, or the nearest existing page. The page shows the list's elements
// from:to.
func newPager(total, size int, asked string) (p pager, from, to int) {
	p.Pages = max(1, (total+size-1)/size)
	n, _ := strconv.Atoi(asked)
	p.Page = min(max(n, 1), p.Pages)
	if p.Page > 1 {
		p.Before = p.Page - 1
	}
	if p.Page < p.Pages {
		p.Beyond = p.Page + 1
	}
	from = (p.Page - 1) * size
	return p, from, min(from+size, total)
}
