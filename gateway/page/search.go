package page

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// frontView is the page at the root.
type frontView struct {
	Host      string // the gateway's host
	Setup     Setup
	Providers listView // some of the known providers
	Modules   listView // some of the known modules
	More      bool     // there are others
	Pending   bool
	Locked    bool // providers and modules are visible only after signing in
	Pulls     bool // missing versions are fetched from origins
}

// front shows the client configuration to everyone, and some providers and modules to users who may read them.
func (p *page) front(w http.ResponseWriter, r *http.Request) {
	at := p.gatewayURL(r)
	v := frontView{Host: at.Host, Pulls: p.pulls && p.MayFetch(r)}
	who, err := p.Access.Person(r)
	if err != nil && r.Header.Get("Authorization") != "" {
		p.Access.Refused(err) // a request without a token is not a refusal
	}
	var hosts []svchost.Hostname
	if v.Locked = err != nil; !v.Locked {
		k := p.directory.known(r.Context())
		providers, modules := split(readable(who, k.entries))
		hosts = hostsOf(modules)
		v.More, v.Pending = max(len(providers), len(modules)) > frontEntries, k.pending
		shown := p.overviews(r, slices.Concat(first(providers), first(modules)))
		n := len(first(providers))
		v.Providers, v.Modules = listView{shown.Base, shown.Found[:n]}, listView{shown.Base, shown.Found[n:]}
	}
	if p.Setup != nil {
		v.Setup = p.Setup(at.String(), !v.Locked, hosts)
	}
	p.render(w, r, http.StatusOK, "front", layout{Title: "Providers at " + v.Host, Front: true, View: v})
}

// split returns the providers and the modules among entries.
func split(all []entry) (providers, modules []entry) {
	by := subject.ByKind(all, func(e entry) subject.Address { return e.Address })
	return by[subject.Provider], by[subject.Module]
}

// hostsOf returns the hosts of sorted modules.
func hostsOf(modules []entry) []svchost.Hostname {
	var out []svchost.Hostname
	for _, e := range modules {
		out = append(out, svchost.Hostname(e.Hostname()))
	}
	return slices.Compact(out)
}

// first returns the entries for the front page.
func first(all []entry) []entry { return all[:min(len(all), frontEntries)] }

// searchView is the result of a search.
type searchView struct {
	Query    string
	Found    listView
	Total    string   // such as 2 providers and 1 module
	Maybe    listView // suggestions if the query lacks a host name
	Bad      bool     // no address can contain the query
	Complete bool     // the search covered all providers and modules in the registry
	Pending  bool
	Pulls    bool // missing versions are fetched from origins
	Pages    pager
}

// search redirects to the page of a provider or module if the query is its address. Otherwise it lists the providers
// and modules whose addresses contain all words of the query.
func (p *page) search(w http.ResponseWriter, r *http.Request) {
	who := p.known(w, r)
	if who == nil {
		return
	}
	query := cleanQuery(r.URL.Query().Get("q"))
	if e, version, ok := exact(fromRegistryPage(query)); ok && !lacksHost(e) {
		w.Header().Set("Location", "./"+e.versionPage(version))
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	k := p.directory.known(r.Context())
	words := strings.Fields(strings.ToLower(query))
	all := readable(who, slices.DeleteFunc(k.entries, func(e entry) bool { return !matches(e, words) }))
	if len(words) == 1 {
		slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(rank(a, words[0]), rank(b, words[0])) })
	}
	v := searchView{Query: query, Total: counted(all), Complete: k.complete, Pending: k.pending, Pulls: p.pulls && p.MayFetch(r)}
	v.Maybe = newList(r, suggestions(query, all))
	v.Bad = len(all) == 0 && !plausible(query)
	var from, to int
	v.Pages, from, to = newPager(len(all), searchesPerPage, r.URL.Query().Get("page"))
	v.Pages.Query, v.Pages.What, v.Pages.Back, v.Pages.On = query, "the list", "Before", "Further"
	v.Found = p.overviews(r, all[from:to])
	title := "Providers and modules"
	if query != "" {
		title = "Search for " + query
	}
	p.render(w, r, http.StatusOK, "search", layout{Title: title, Query: query, View: v})
}

// sourceLine matches an address. The address may be quoted, and may be the value of a source attribute.
var sourceLine = regexp.MustCompile(`^(?:source\s*=\s*)?"?([^"]*)"?$`)

// cleanQuery returns the address in a query, which may be a pasted line of a configuration.
func cleanQuery(q string) string {
	q = strings.TrimSpace(strings.ToValidUTF8(q[:min(len(q), maxQuery)], ""))
	if m := sourceLine.FindStringSubmatch(q); m != nil {
		q = strings.TrimSpace(m[1])
	}
	return strings.Trim(strings.TrimPrefix(q, "https://"), "/")
}

// registryPage matches the URL of a provider's or module's page at a public registry.
var registryPage = regexp.MustCompile(`^(registry\.terraform\.io|search\.opentofu\.org)/(?:providers?/([^/]+/[^/?#]+)|modules?/([^/]+/[^/]+/[^/?#]+))(?:/v?([0-9][^/?#]*))?`)

// fromRegistryPage converts the URL of a page at a public registry into ADDRESS or ADDRESS@VERSION. It returns all other
// queries unchanged.
func fromRegistryPage(query string) string {
	m := registryPage.FindStringSubmatch(query)
	if m == nil {
		return query
	}
	out := strings.Replace(m[1], "search.", "registry.", 1) + "/" + m[2] + m[3]
	if m[4] != "" {
		out += "@" + m[4]
	}
	return out
}

// exact parses ADDRESS or ADDRESS@VERSION, if the query has that form. It ignores a module's folder, as in
// ADDRESS//FOLDER. The version is zero if the query has none.
func exact(query string) (e entry, v provider.Version, ok bool) {
	name, version, versioned := strings.Cut(query, "@")
	if a, err := provider.ParseAddress(name); err == nil {
		e.Address = a
	} else {
		name, _, _ = strings.Cut(name, "//")
		m, err := module.ParseAddress(name)
		if err != nil {
			return e, v, false
		}
		e.Address = m
	}
	if !versioned {
		return e, v, true
	}
	v, err := provider.ParseVersion(strings.TrimPrefix(version, "v"))
	return e, v, err == nil
}

// lacksHost reports whether a provider's address may be the address of a module without its host name, such as
// terraform-aws-modules/vpc/aws.
func lacksHost(e entry) bool { return e.Parts()[3] == "" && !strings.ContainsAny(e.Hostname(), ".:") }

// counted returns the number of entries in words.
func counted(all []entry) string {
	by := subject.ByKind(all, func(e entry) subject.Address { return e.Address })
	var out []string
	for _, kind := range subject.Kinds {
		if n := len(by[kind]); n > 0 {
			out = append(out, hint.Count(n, string(kind)))
		}
	}
	return strings.Join(out, " and ")
}

// matches reports whether an address, in its path form or its displayed form, contains all words. The words must
// be in lower case.
func matches(e entry, words []string) bool {
	if len(words) == 0 {
		return true
	}
	path, shown := e.Path(), ""
	for _, word := range words {
		if strings.Contains(path, word) {
			continue
		}
		if !strings.Contains(e.Hostname(), "xn--") {
			return false // the path form and the displayed form are the same
		}
		if shown == "" {
			shown = strings.ToLower(e.String())
		}
		if !strings.Contains(shown, word) {
			return false
		}
	}
	return true
}

// rank orders the results of a search for one word: names that are equal to the word, names that begin with the word,
// and all others.
func rank(e entry, word string) int {
	switch {
	case e.name() == word:
		return 0
	case strings.HasPrefix(e.name(), word):
		return 1
	}
	return 2
}

// suggestions returns the addresses at public registries that a query may mean. Like clients, it adds the namespace
// hashicorp to a single word that the search has not found.
func suggestions(query string, found []entry) (out []entry) {
	switch {
	case strings.Count(query, "/") == 1:
	case strings.Count(query, "/") == 2:
		if e, _, ok := exact(query); ok && !slices.Contains(found, e) {
			out = append(out, e)
		}
	case query != "" && !strings.ContainsAny(query, "/ ") && len(found) == 0:
		query = "hashicorp/" + query
	default:
		return nil
	}
	for _, host := range []string{"registry.opentofu.org/", "registry.terraform.io/"} {
		if e, _, ok := exact(host + query); ok {
			out = append(out, e)
		}
	}
	return out
}

// plausible reports whether a query can be part of an address.
func plausible(query string) bool {
	return strings.Count(query, "/") <= 3 && utf8.RuneCountInString(query) <= 253 && !strings.ContainsAny(query, `\<>"'{}|^%$#!?&=+;,`+"`")
}

// pager is the position of a page in a list. Pages are counted from 1.
type pager struct {
	Page, Pages    int
	Before, Beyond int // the neighbouring pages; 0 if there is none

	Query          string // the search query in the links, or ""
	What, Back, On string // the label, and the texts of its links
}

// newPager returns the requested page, or the nearest existing one. The page shows the elements from:to of
// the list.
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
