package page

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// frontView is the page at the root.
type frontView struct {
	Host      string // the gateway's host
	Setup     Setup
	CA        string       // the link to the certificate of the gateway's CA, or "" if there is none
	Tab       string       // the ID of the part of Setup that is shown first
	Providers tableView    // one page of the known providers
	Modules   tableView    // one page of the known modules
	Total     string       // such as 2 providers and 1 module
	What      string       // what is known to be served: Providers, Modules, or both, also if nothing is known
	Newest    bool         // the tables begin with the last change
	Undated   undatedView  // only with Newest
	Trouble   *troubleView // nil if the registry answers
	Locked    bool         // providers and modules are visible only after signing in
	Pulls     bool         // missing versions are fetched from origins
}

// undatedView says what the order of the tables does not know.
type undatedView struct {
	Of      int  // the number of providers and modules
	Count   int  // the number of those whose last change is unknown
	Reading bool // the gateway has not yet read everything about them
}

// front shows the client configuration to everyone, and providers and modules to users who may read them.
func (p *page) front(w http.ResponseWriter, r *http.Request) {
	at := p.gatewayURL(r)
	v := frontView{Host: at.Host, Pulls: p.pulls && p.MayFetch(r), Newest: r.URL.Query().Get("order") == "newest"}
	who, err := p.Access.Person(r)
	if err != nil && r.Header.Get("Authorization") != "" {
		p.Access.Refused(err) // a request without a token is not a refusal
	}
	v.What = "Providers and modules"
	var ofProviders, ofModules []svchost.Hostname
	if v.Locked = err != nil; !v.Locked {
		ofProviders, ofModules = p.frontTables(r, who, &v)
	}
	if p.Setup != nil {
		v.Setup = p.Setup(at.String(), !v.Locked, ofProviders, ofModules)
		v.Tab = v.Setup.first()
	}
	if len(p.CA) > 0 {
		v.CA = "." + caPath
	}
	p.render(w, r, http.StatusOK, "front", layout{Title: v.What + " at " + v.Host, Front: true, View: v})
}

// frontTables adds the tables of the front page, and returns the hosts of the providers and of the modules that the client may
// read.
func (p *page) frontTables(r *http.Request, who *access.Client, v *frontView) (ofProviders, ofModules []svchost.Hostname) {
	k := p.directory.known(r.Context())
	providers, modules := p.readable(who, k.providers), p.readable(who, k.modules)
	ofProviders, ofModules = hostsOf(providers), hostsOf(modules)
	v.Total = counted(len(providers), len(modules))
	switch {
	case len(modules) == 0 && len(providers) > 0:
		v.What = "Providers"
	case len(providers) == 0 && len(modules) > 0:
		v.What = "Modules"
	}
	if v.Newest {
		o, reading := p.newestFirst(r.Context(), k, who)
		noProviders, noModules := p.readable(who, o.providers.undated), p.readable(who, o.modules.undated)
		v.Undated = undatedView{len(providers) + len(modules), len(noProviders) + len(noModules), reading}
		providers = slices.Concat(p.readable(who, o.providers.dated), noProviders)
		modules = slices.Concat(p.readable(who, o.modules.dated), noModules)
	}
	asked, order := r.URL.Query(), ""
	if v.Newest {
		order = "newest"
	}
	pages, from, to := newPager(len(providers), frontEntries, asked.Get("providers"))
	modulePages, fromModule, toModule := newPager(len(modules), frontEntries, asked.Get("modules"))
	pages.label("the providers", "Previous", "Next")
	pages.link("providers", "#providers", url.Values{"order": {order}, "modules": {modulePages.current()}})
	modulePages.label("the modules", "Previous", "Next")
	modulePages.link("modules", "#modules", url.Values{"order": {order}, "providers": {pages.current()}})
	rows := p.overviews(r.Context(), k, slices.Concat(providers[from:to], modules[fromModule:toModule]))
	if v.Newest {
		// The rows may have just been read again.
		last := func(a, b overviewView) int { return b.Changed.Compare(a.Changed) }
		slices.SortStableFunc(rows[:to-from], last)
		slices.SortStableFunc(rows[to-from:], last)
	}
	v.Providers, v.Modules = newTable(r, rows[:to-from], !v.Newest), newTable(r, rows[to-from:], !v.Newest)
	v.Providers.Pages, v.Modules.Pages, v.Modules.Modules = pages, modulePages, true
	v.Trouble = p.troubleOf(k, v.Providers, v.Modules)
	v.Providers.Incomplete, v.Modules.Incomplete = v.Trouble == nil && v.Providers.lacksAnswers(), v.Trouble == nil && v.Modules.lacksAnswers()
	return ofProviders, ofModules
}

// split returns the providers and the modules among entries.
func split(all []entry) (providers, modules []entry) {
	by := subject.ByKind(all, func(e entry) subject.Address { return e.Address })
	return by[subject.Provider], by[subject.Module]
}

// hostsOf returns the hosts of entries that are sorted by host.
func hostsOf(all []entry) []svchost.Hostname {
	var out []svchost.Hostname
	for _, e := range all {
		if host := svchost.Hostname(e.Hostname()); len(out) == 0 || out[len(out)-1] != host {
			out = append(out, host)
		}
	}
	return out
}

// searchView is the result of a search.
type searchView struct {
	Query    string
	Key      string // the key that signed what was found, or "" if the query names none
	Found    tableView
	Total    string       // such as 2 providers and 1 module
	Maybe    []entry      // suggestions if the query lacks a host name
	Bad      bool         // no address can contain the query
	Complete bool         // the search covered all providers and modules in the registry
	Trouble  *troubleView // nil if the registry answers
	Pulls    bool         // missing versions are fetched from origins
}

// search redirects to the page of a provider or module if the query is its address. Otherwise it lists the providers
// and modules whose addresses contain all words of the query, or that a key in the query has signed.
func (p *page) search(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("suggest") {
		p.suggest(w, r)
		return
	}
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
	v := searchView{Query: query, Complete: k.complete, Pulls: p.pulls && p.MayFetch(r)}
	all := p.find(k, who, query)
	if key := keyOf(query); key != "" && len(all) == 0 {
		p.signers(r.Context(), k, who)
		v.Key, all = key, p.signedBy(k, who, key)
	}
	providers, modules := kinds(all)
	v.Total = counted(providers, modules)
	v.Maybe = suggestions(query, all)
	v.Bad = len(all) == 0 && v.Key == "" && !plausible(query)
	pages, from, to := newPager(len(all), searchesPerPage, r.URL.Query().Get("page"))
	pages.label("the list", "Previous", "Next")
	pages.link("page", "", url.Values{"q": {query}})
	v.Found = newTable(r, p.overviews(r.Context(), k, all[from:to]), false)
	v.Found.Pages, v.Found.Modules, v.Found.Mixed = pages, providers == 0, providers > 0 && modules > 0
	v.Trouble = p.troubleOf(k, v.Found)
	v.Found.Incomplete = v.Trouble == nil && v.Found.lacksAnswers()
	title := "Providers and modules"
	if query != "" {
		title = "Search for " + query
	}
	p.render(w, r, http.StatusOK, "search", layout{Title: title, Query: query, View: v})
}

// ranks is the number of ranks of a search for one word: equal names come first, then names that begin with the word.
const ranks = 3

// each calls f for the position of each entry that the client may read and whose address contains all words of a query.
func (p *page) each(k *index, who *access.Client, query string, f func(n, rank int)) {
	words := strings.Fields(strings.ToLower(query))
	for n := range k.matches(words) {
		if !p.mayRead(who, k.entries[n]) {
			continue
		}
		rank := 0
		if len(words) == 1 {
			rank = k.rank(n, words[0])
		}
		f(n, rank)
	}
}

// find returns the providers and modules that the client may read and whose addresses contain all words of a query, by rank.
func (p *page) find(k *index, who *access.Client, query string) []entry {
	var found [ranks][]entry
	p.each(k, who, query, func(n, rank int) { found[rank] = append(found[rank], k.entries[n]) })
	return slices.Concat(found[:]...)
}

// first returns the first entries of those that find returns, and the number of all of them.
func (p *page) first(k *index, who *access.Client, query string, most int) (first []entry, providers, modules int) {
	var found [ranks][]entry
	p.each(k, who, query, func(n, rank int) {
		e := k.entries[n]
		if e.Kind() == subject.Provider {
			providers++
		} else {
			modules++
		}
		if len(found[rank]) < most {
			found[rank] = append(found[rank], e)
		}
	})
	first = slices.Concat(found[:]...)
	return first[:min(len(first), most)], providers, modules
}

// matches returns the positions of the entries whose texts contain all words, in lower case. It looks for the first word in the
// texts of all entries at once, because a search while typing runs at each key. It leaves out the hosts, whose names are the longest
// part and mostly equal, unless the word may reach into one.
func (i *index) matches(words []string) iter.Seq[int] {
	return func(yield func(int) bool) {
		first, others := "", words
		if len(words) > 0 {
			first, others = words[0], words[1:]
		}
		for _, h := range i.hosts {
			of, word := i.paths, first
			if end, _, more := strings.Cut(first, "/"); strings.Contains(h.names, first) {
				word = "" // each entry of the host contains it
			} else if more && strings.Contains(h.names, end+"\n") {
				of = i.keys // it may begin in the host
			}
			for n := range of.containing(word, h.from, h.to) {
				if containsAll(i.keys.text(n), others) && !yield(n) {
					return
				}
			}
		}
	}
}

// keyText matches the fingerprint of an OpenPGP key, or its 64-bit ID.
var keyText = regexp.MustCompile(`^(?:0X)?([0-9A-F]{16}|[0-9A-F]{40}|[0-9A-F]{64})$`)

// keyOf returns the fingerprint or the ID in a query, in upper case, or "" if the query is neither.
func keyOf(query string) string {
	text := strings.NewReplacer(" ", "", ":", "").Replace(strings.ToUpper(query))
	if m := keyText.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// signers reads the newest versions of a bounded number of providers that no page has shown yet.
func (p *page) signers(ctx context.Context, k *index, who *access.Client) {
	var unread []entry
	for _, e := range p.readable(who, k.providers) {
		if p.summaries.Last(e) == nil && len(unread) < keyReads {
			unread = append(unread, e)
		}
	}
	p.overviews(ctx, k, unread)
}

// signedBy returns the providers whose newest version was signed by a key when it was pushed, as far as it has been read, and those for
// which the configuration pins the key.
func (p *page) signedBy(k *index, who *access.Client, key string) (out []entry) {
	for _, e := range p.readable(who, k.providers) {
		isKey := func(fingerprint string) bool {
			return strings.HasSuffix(fingerprint, key) || len(fingerprint) == 64 && strings.HasPrefix(fingerprint, key)
		}
		a, ok := e.Address.(provider.Address)
		s := p.summaries.Last(e)
		if s != nil && s.Value.Newest != nil && isKey(s.Value.Newest.Signer) || ok && slices.ContainsFunc(p.Policy(a).Keys, isKey) {
			out = append(out, e)
		}
	}
	return out
}

// suggestionsView is the answer to a search while typing, as JSON.
type suggestionsView struct {
	Found []suggestionView `json:"found"`
	Total string           `json:"total"` // the number of all that was found, such as 2 providers and 1 module, or what to do
}

type suggestionView struct {
	Kind    string `json:"kind"`
	Address string `json:"address"`
	Page    string `json:"page"` // relative to the root
}

// suggest answers a search while typing. It sends no request about a single provider or module. Without a valid token, it
// does not make the browser prompt for one.
func (p *page) suggest(w http.ResponseWriter, r *http.Request) {
	who, err := p.Access.Person(r)
	if err != nil {
		p.Access.Refused(err)
		http.Error(w, "no valid token", http.StatusUnauthorized)
		return
	}
	query := cleanQuery(r.URL.Query().Get("q"))
	v := suggestionsView{Found: []suggestionView{}}
	if e, version, ok := exact(fromRegistryPage(query)); ok && !lacksHost(e) {
		v.Found = append(v.Found, suggestionView{e.What(), strings.TrimSuffix(e.String()+" "+version.String(), " "), e.versionPage(version)})
	} else if query != "" {
		k := p.directory.known(r.Context())
		all, providers, modules := p.first(k, who, query, suggestedEntries)
		v.Total = counted(providers, modules)
		if key := keyOf(query); key != "" && len(all) == 0 {
			all = p.signedBy(k, who, key)
			v.Total = cmp.Or(counted(len(all), 0), "Press Enter to search for the key")
		}
		for _, e := range all[:min(len(all), suggestedEntries)] {
			v.Found = append(v.Found, suggestionView{e.What(), e.String(), e.Page()})
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "no answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(data)
}

// sourceLine matches the source attribute in a line or a block of a configuration. quoted matches an address in quotes, and scheme the
// beginning of a URL.
var (
	sourceLine = regexp.MustCompile(`\bsource\s*=\s*"([^"]*)"`)
	quoted     = regexp.MustCompile(`^(?:source\s*=\s*)?"?([^"]*)"?$`)
	scheme     = regexp.MustCompile(`^(?i:https?://)`)
)

// cleanQuery returns the address in a query, which may be a pasted piece of a configuration.
func cleanQuery(q string) string {
	q = strings.TrimSpace(strings.ToValidUTF8(q[:min(len(q), maxQuery)], ""))
	for _, form := range []*regexp.Regexp{sourceLine, quoted} {
		if m := form.FindStringSubmatch(q); m != nil {
			q = strings.TrimSpace(m[1])
			break
		}
	}
	return strings.Trim(scheme.ReplaceAllString(q, ""), "/")
}

// The URLs of a provider's or module's page: at a public registry, and at HCP Terraform and Terraform Enterprise. Those
// show their own registry as private, and registry.terraform.io as public.
var (
	registryPage = regexp.MustCompile(`^(registry\.terraform\.io|search\.opentofu\.org)/(?:providers?/([^/]+/[^/?#]+)|modules?/([^/]+/[^/]+/[^/?#]+))(?:/v?([0-9][^/?#]*))?`)
	platformPage = regexp.MustCompile(`^([^/]+)/app/[^/]+/registry/(?:providers/(private|public)/([^/]+/[^/?#]+)|modules/(private|public)/([^/]+/[^/]+/[^/?#]+))(?:/v?([0-9][^/?#]*))?`)
)

// fromRegistryPage converts the URL of a page at a registry into ADDRESS or ADDRESS@VERSION. It returns all other queries
// unchanged.
func fromRegistryPage(query string) string {
	var address, version string
	if m := registryPage.FindStringSubmatch(query); m != nil {
		address, version = strings.Replace(m[1], "search.", "registry.", 1)+"/"+m[2]+m[3], m[4]
	} else if m := platformPage.FindStringSubmatch(query); m != nil {
		host := m[1]
		if m[2]+m[4] == "public" {
			host = "registry.terraform.io"
		}
		address, version = host+"/"+m[3]+m[5], m[6]
	} else {
		return query
	}
	if version != "" {
		address += "@" + version
	}
	return address
}

// exact parses ADDRESS, ADDRESS@VERSION or ADDRESS VERSION, if the query has such a form. It ignores a module's folder, as in
// ADDRESS//FOLDER. The version is zero if the query has none.
func exact(query string) (e entry, v provider.Version, ok bool) {
	name, version, versioned := strings.Cut(query, "@")
	if !versioned {
		name, version, versioned = strings.Cut(query, " ")
	}
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

// kinds returns the numbers of providers and modules among entries.
func kinds(all []entry) (providers, modules int) {
	for _, e := range all {
		if e.Kind() == subject.Provider {
			providers++
		}
	}
	return providers, len(all) - providers
}

// counted returns the numbers of providers and modules in words.
func counted(providers, modules int) string {
	var out []string
	if providers > 0 {
		out = append(out, hint.Count(providers, string(subject.Provider)))
	}
	if modules > 0 {
		out = append(out, hint.Count(modules, string(subject.Module)))
	}
	return strings.Join(out, " and ")
}

// containsAll reports whether a text contains all words.
func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// rank orders the results of a search for one word: names that are equal to the word, names that begin with the word,
// and all others.
func (i *index) rank(n int, word string) int {
	rest, begins := strings.CutPrefix(i.keys.all[i.names[n]:i.keys.ends[n]], word)
	switch {
	case begins && strings.IndexByte("/\n", rest[0]) >= 0:
		return 0
	case begins:
		return 1
	}
	return 2
}

// suggestions returns the addresses at public registries that a query may mean. Like clients, it adds the namespace
// hashicorp to a single word that the search has not found.
func suggestions(query string, found []entry) []entry {
	var whole []entry // last, because few hosts have no dot
	switch {
	case strings.Count(query, "/") == 1:
	case strings.Count(query, "/") == 2:
		if e, _, ok := exact(query); ok && !slices.Contains(found, e) {
			whole = append(whole, e)
		}
	case query != "" && !strings.ContainsAny(query, "/ ") && len(found) == 0:
		query = "hashicorp/" + query
	default:
		return nil
	}
	return append(atPublicRegistries(query), whole...)
}

// The hosts of the public registries.
const openTofuHost, terraformHost = "registry.opentofu.org", "registry.terraform.io"

// atPublicRegistries returns the providers or modules at the public registries that an address without a host may mean.
func atPublicRegistries(address string) (out []entry) {
	for _, host := range []string{openTofuHost, terraformHost} {
		if e, _, ok := exact(host + "/" + address); ok {
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
	Before, Beyond string // links to the neighbouring pages; "" if there is none

	What, Back, On string // the label, and the texts of its links
}

// newPager returns the requested page, or the nearest existing one. The page shows the elements from:to of
// the list.
func newPager(total, size int, asked string) (p pager, from, to int) {
	p.Pages = max(1, (total+size-1)/size)
	n, _ := strconv.Atoi(asked)
	p.Page = min(max(n, 1), p.Pages)
	from = (p.Page - 1) * size
	return p, from, min(from+size, total)
}

// label sets the name of the list, and the texts of the links.
func (p *pager) label(what, back, on string) { p.What, p.Back, p.On = what, back, on }

// current returns the page for a link, or "" for the first page.
func (p *pager) current() string {
	if p.Page == 1 {
		return ""
	}
	return strconv.Itoa(p.Page)
}

// link sets the links. parameter is the name of the parameter that selects a page, and others are the other parameters.
// The fragment is "", or begins with #.
func (p *pager) link(parameter, fragment string, others url.Values) {
	to := func(n int) string {
		q := url.Values{parameter: {strconv.Itoa(n)}}
		for name, values := range others {
			if values[0] != "" {
				q[name] = values
			}
		}
		return "?" + q.Encode() + fragment
	}
	if p.Page > 1 {
		p.Before = to(p.Page - 1)
	}
	if p.Page < p.Pages {
		p.Beyond = to(p.Page + 1)
	}
}
