package page

import (
	"net/url"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// entry is a provider or a module on a page.
type entry struct{ subject.Address }

// What returns the word for the entry's kind.
func (e entry) What() string { return string(e.Kind()) }

// name returns the type of a provider, or the name of a module.
func (e entry) name() string { return e.Parts()[2] }

// Short returns the address after the namespace: TYPE or NAME/SYSTEM.
func (e entry) Short() string {
	parts := e.Parts()
	return strings.TrimSuffix(parts[2]+"/"+parts[3], "/")
}

// Page returns the path of the entry's page, relative to the root.
func (e entry) Page() string { return e.versionPage(provider.Version{}) }

// versionPage returns the path of a version's page. If v is zero, it returns the path of the entry's page.
func (e entry) versionPage(v provider.Version) string {
	path := string(e.Kind()[:1]) + "/" + e.Path() // p/ for providers, m/ for modules
	if !v.IsZero() {
		path += "/" + url.PathEscape(v.String())
	}
	return path
}

// byName orders entries by the parts of their addresses.
func byName(a, b entry) int {
	first, second := a.Parts(), b.Parts()
	return slices.Compare(first[:], second[:])
}

// readable returns the entries that the client may read. It overwrites the given slice.
func readable(who *access.Client, all []entry) []entry {
	return slices.DeleteFunc(all, func(e entry) bool { return !who.MayRead(e.Address) })
}

// entriesOf returns the entries of addresses.
func entriesOf[A subject.Address](all []A) []entry {
	out := make([]entry, len(all))
	for i, a := range all {
		out[i].Address = a
	}
	return out
}
