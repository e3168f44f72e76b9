package page

import (
	"cmp"
	"context"
	"iter"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	listTimeout  = time.Minute            // how long a registry may take to list its repositories
	listPatience = 2 * time.Second        // how long a request waits for the first list, before the page shows the known names
	agedPatience = 250 * time.Millisecond // how long a request waits if there is an older list
	// listRest is the minimum pause between two lists, as a multiple of the duration of the previous one. It reduces the
	// load on registries with many repositories, or whose list needs a request for each repository.
	listRest     = 20
	savedTimeout = 2 * time.Second // how long the page reads names on disk
	savedTTL     = 30 * time.Second
	maxListed    = 20_000 // the maximum number of providers and modules in a list; the rest is dropped
)

// indexTTL is how long an index is used. After indexRest, an answer that is new in the catalog's memory ends it: it may be
// about a provider that is not in the index.
const indexTTL, indexRest = 5 * time.Second, 500 * time.Millisecond

// directory knows the names of providers and modules. They come from the configuration, from the requests of clients
// and, if the registry has a catalog, from the catalog.
type directory struct {
	configured []entry
	catalog    *catalog.Catalog
	lists      *fresh.Cache[string, listed]  // the registry's list, with "" as the only key; nil if the registry has no catalog
	saved      *fresh.Cache[string, []entry] // the entries on disk, with "" as the only key

	building sync.Mutex // held while a new index is built
	last     atomic.Pointer[index]
}

// listed is a list of providers and modules.
type listed struct {
	entries  []entry
	changed  map[entry]time.Time // when the lists of versions last changed, if the registry knows
	appeared map[entry]time.Time // when the gateway saw that the registry's list had gained the entry
	complete bool                // the registry has no others
	covers   bool                // the entries include all those of a complete list
	pending  bool                // the list of the registry has not arrived yet
	failed   bool                // a registry failed to send the latest list
	// at is when the registries last sent their lists. It is zero if they have not since the start of the gateway.
	at time.Time
}

func newDirectory(o Options) *directory {
	d := &directory{configured: entriesOf(o.Configured), catalog: o.Catalog}
	d.saved = fresh.New(fresh.Options[string, []entry]{
		Key:     func(name string) string { return name },
		Timeout: savedTimeout, Log: o.Log,
		Fetch: func(ctx context.Context, _ string, _ *fresh.Answer[[]entry]) (fresh.Answer[[]entry], error) {
			return fresh.Answer[[]entry]{Value: entriesOf(o.Catalog.Saved(ctx, maxListed)), TTL: savedTTL}, nil
		},
	})
	if o.List == nil {
		return d
	}
	d.lists = fresh.New(fresh.Options[string, listed]{
		Key:     func(name string) string { return name },
		Timeout: listTimeout, Patience: agedPatience, Log: o.Log,
		Fetch: func(ctx context.Context, _ string, last *fresh.Answer[listed]) (fresh.Answer[listed], error) {
			began := time.Now()
			l := requestList(ctx, o, last)
			ttl := cmp.Or(o.ListTTL, 30*time.Second)
			if !l.failed {
				ttl = max(ttl, listRest*time.Since(began))
			}
			return fresh.Answer[listed]{Value: l, TTL: ttl, StaleFor: fresh.Forever}, nil
		},
	})
	return d
}

// index has the known names, without duplicates. It does not change, so that requests share it.
type index struct {
	listed                // in natural order
	keys      texts       // of the entries: the texts in which a search looks for words
	paths     texts       // the same without hosts, from the slash behind it
	hosts     []hostRange // of the entries, in their order
	names     []int       // for each entry, the beginning of its name in keys
	providers []entry
	modules   []entry

	of    *fresh.Answer[listed] // the registry's list
	size  int                   // the number of answers in the catalog's memory
	built time.Time
}

// texts are the texts of entries, in lower case, one after another in the order of the entries.
type texts struct {
	all  string
	ends []int // for each entry, the end of its text
}

// hostRange is the range of the entries of one host.
type hostRange struct {
	names    string // both forms of the host's name, in lower case, each with "\n" at its end
	from, to int
}

// begin returns where the text of the n-th entry begins.
func (t texts) begin(n int) int {
	if n == 0 {
		return 0
	}
	return t.ends[n-1]
}

// text returns the text of the n-th entry.
func (t texts) text(n int) string { return t.all[t.begin(n):t.ends[n]] }

// containing returns which entries of a range have texts that contain a word. It looks in all texts at once.
func (t texts) containing(word string, from, to int) iter.Seq[int] {
	return func(yield func(int) bool) {
		at, all := t.begin(from), t.all[:t.begin(to)]
		for n := from; n < to; n++ {
			end := t.ends[n]
			if at >= end {
				continue
			}
			found := strings.Index(all[at:], word)
			if found < 0 {
				return
			}
			if at += found; at >= end {
				continue
			}
			if at = end; !yield(n) {
				return
			}
		}
	}
}

// known returns the known names. If the registry's list is missing or too old, known requests a new list and waits
// briefly. Concurrent callers share one request. As long as there is no list, the names on disk are known, too.
func (d *directory) known(ctx context.Context) *index { return d.within(ctx, listPatience) }

// now is like known, but does not wait for the registry's list.
func (d *directory) now(ctx context.Context) *index { return d.within(ctx, summaryPatience) }

// within returns the known names, and waits at most patience for the registry's list.
func (d *directory) within(ctx context.Context, patience time.Duration) *index {
	list := d.listed(ctx, patience)
	if i := d.current(list); i != nil {
		return i
	}
	d.building.Lock()
	defer d.building.Unlock()
	if i := d.current(list); i != nil {
		return i
	}
	i := d.build(context.WithoutCancel(ctx), list) // other clients use it, too
	d.last.Store(i)
	return i
}

// current returns the last index, or nil if it is out of date. list is the registry's list.
func (d *directory) current(list *fresh.Answer[listed]) *index {
	i := d.last.Load()
	if i == nil || i.of != list {
		return nil
	}
	age := time.Since(i.built)
	if age >= indexTTL || age >= indexRest && i.size != d.catalog.Size().Entries {
		return nil
	}
	return i
}

// note ends the current index if it lacks an entry that exists.
func (d *directory) note(e entry) {
	if i := d.last.Load(); i != nil && !i.has(e) {
		d.last.CompareAndSwap(i, nil)
	}
}

func (d *directory) build(ctx context.Context, list *fresh.Answer[listed]) *index {
	i := &index{of: list, size: d.catalog.Size().Entries, built: time.Now()}
	switch {
	case list != nil:
		i.listed = list.Value
	case d.lists != nil:
		i.pending = true
	}
	all := slices.Concat(i.entries, d.configured, entriesOf(d.catalog.Known()))
	if i.pending || i.failed {
		if saved, err := d.saved.Get(ctx, ""); err == nil {
			all = append(all, saved.Value...)
		}
	}
	slices.SortFunc(all, byName)
	i.entries = slices.Compact(all)
	var keys, paths strings.Builder
	for n, e := range i.entries {
		host, path, _ := strings.Cut(e.Path(), "/")
		i.names = append(i.names, keys.Len()+len(host)+len("/")+strings.IndexByte(path, '/')+len("/"))
		keys.WriteString(e.key() + "\n")
		paths.WriteString("/" + strings.ToLower(path) + "\n")
		i.keys.ends, i.paths.ends = append(i.keys.ends, keys.Len()), append(i.paths.ends, paths.Len())
		if n == 0 || i.entries[n-1].Hostname() != host {
			i.hosts = append(i.hosts, hostRange{names: host + "\n" + strings.ToLower(displayHost(host)) + "\n", from: n})
		}
		i.hosts[len(i.hosts)-1].to = n + 1
	}
	i.keys.all, i.paths.all = keys.String(), paths.String()
	i.providers, i.modules = split(i.entries)
	return i
}

// has reports whether an entry is known.
func (i *index) has(e entry) bool {
	_, ok := slices.BinarySearchFunc(i.entries, e, byName)
	return ok
}

// listed returns the registry's list, or nil if there is none, or if it has not arrived within patience.
func (d *directory) listed(ctx context.Context, patience time.Duration) *fresh.Answer[listed] {
	if d.lists == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := d.lists.Get(ctx, "")
	if err != nil {
		return nil
	}
	return a
}

// requestList requests the registry's list. If that fails, the result also has the entries of the last list, and its age.
func requestList(ctx context.Context, o Options, last *fresh.Answer[listed]) (l listed) {
	names := o.List(ctx)
	l.entries, l.complete, l.failed = entriesOf(names.All), names.Complete, names.Failed
	if len(l.entries) > maxListed {
		l.entries, l.complete = l.entries[:maxListed], false
	}
	if l.covers = l.complete && !l.failed; !l.failed {
		l.at = time.Now()
	}
	if last != nil && (l.failed || len(l.entries) == 0 && !l.complete) {
		l.entries, l.at, l.covers = append(l.entries, last.Value.entries...), last.Value.at, last.Value.covers
	}
	l.entries = slices.SortedFunc(slices.Values(l.entries), byName) // an index is built faster if this part is already sorted
	l.entries = slices.Compact(l.entries)
	if last != nil {
		l.appeared = appeared(&last.Value, l.entries)
	}
	if o.Changed == nil {
		return l
	}
	l.changed = map[entry]time.Time{}
	for _, e := range l.entries {
		if at := o.Changed(e.Address, provider.Version{}); !at.IsZero() {
			l.changed[e] = at
		}
	}
	return l
}

// appeared returns when the gateway saw the registry's list gain entries. A new repository was pushed about then. An entry that the last
// list lacks is new only if that list covers a complete one.
func appeared(last *listed, entries []entry) map[entry]time.Time {
	out := map[entry]time.Time{}
	now := time.Now().Round(0) // times are compared by the clock on the wall
	before := last.entries
	for _, e := range entries {
		for len(before) > 0 && byName(before[0], e) < 0 {
			before = before[1:]
		}
		switch at := last.appeared[e]; {
		case !at.IsZero() && !at.After(now): // a time in the future comes from a wrong clock
			out[e] = at
		case last.covers && (len(before) == 0 || before[0] != e):
			out[e] = now
		}
	}
	return out
}

// entry is a provider or a module on a page.
type entry struct{ subject.Address }

// What returns the word for the entry's kind.
func (e entry) What() string { return string(e.Kind()) }

// Short returns the address after the namespace: TYPE or NAME/SYSTEM.
func (e entry) Short() string {
	parts := e.Parts()
	return strings.TrimSuffix(parts[2]+"/"+parts[3], "/")
}

// Page returns the path of the entry's page, relative to the root.
func (e entry) Page() string { return e.versionPage(provider.Version{}) }

// versionPage returns the path of a version's page, or of the entry's page if v is zero.
func (e entry) versionPage(v provider.Version) string {
	path := subject.TraitsOf(e.Address).Page + "/" + e.Path()
	if !v.IsZero() {
		path += "/" + url.PathEscape(v.String())
	}
	return path
}

// key returns the lower-case texts in which a search looks for words: the path, and the displayed form if it differs.
func (e entry) key() string {
	path := strings.ToLower(e.Path())
	if strings.Contains(e.Hostname(), "xn--") {
		return path + "\n" + strings.ToLower(e.String())
	}
	return path
}

// byName orders entries by the parts of their addresses, in natural order.
func byName(a, b entry) int {
	first, second := a.Parts(), b.Parts()
	return slices.CompareFunc(first[:], second[:], natural)
}

// natural compares texts as people sort them: a number in a text counts as one character, so that p2 comes before p10.
// Only equal texts compare as equal.
func natural(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if first, second := digits(a[i:]), digits(b[j:]); first != "" && second != "" {
			i, j = i+len(first), j+len(second)
			first, second = strings.TrimLeft(first, "0"), strings.TrimLeft(second, "0")
			if c := cmp.Or(cmp.Compare(len(first), len(second)), strings.Compare(first, second)); c != 0 {
				return c
			}
			continue
		}
		if a[i] != b[j] {
			return cmp.Compare(a[i], b[j])
		}
		i, j = i+1, j+1
	}
	return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), strings.Compare(a, b))
}

// digits returns the digits at the beginning of a text.
func digits(text string) string {
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return text[:n]
}

// mayRead reports whether the client may read an entry.
func (p *page) mayRead(who *access.Client, e entry) bool {
	return p.Access == nil || who.MayRead(e.Address)
}

// readable returns those of the given entries that the client may read.
func (p *page) readable(who *access.Client, all []entry) []entry {
	if p.Access == nil {
		return all
	}
	var out []entry
	for _, e := range all {
		if p.mayRead(who, e) {
			out = append(out, e)
		}
	}
	return out
}

// entriesOf returns the entries of addresses.
func entriesOf[A subject.Address](all []A) []entry {
	out := make([]entry, len(all))
	for i, a := range all {
		out[i].Address = a
	}
	return out
}
