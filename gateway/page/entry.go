package page

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// entry is a provider or a module. The other address is zero.
type entry struct {
	provider provider.Address
	module   module.Address
}

func (e entry) isModule() bool { return !e.module.IsZero() }

// What returns "provider" or "module".
func (e entry) What() string {
	if e.isModule() {
		return "module"
	}
	return "provider"
}

// String returns the address in the form for people.
func (e entry) String() string {
	if e.isModule() {
		return e.module.String()
	}
	return e.provider.String()
}

// path returns the address in the form for URLs.
func (e entry) path() string {
	if e.isModule() {
		return e.module.Path()
	}
	return e.provider.Path()
}

// Hostname returns the address's hostname in Punycode.
func (e entry) Hostname() string {
	if e.isModule() {
		return e.module.Hostname()
	}
	return e.provider.Hostname()
}

// Namespace returns the address's second part.
func (e entry) Namespace() string {
	if e.isModule() {
		return e.module.Namespace()
	}
	return e.provider.Namespace()
}

// name returns the address's third part.
func (e entry) name() string {
	if e.isModule() {
		return e.module.Name()
	}
	return e.provider.Type()
}

// Short returns the address after the namespace: TYPE or NAME/SYSTEM.
func (e entry) Short() string {
	if e.isModule() {
		return e.module.Name() + "/" + e.module.System()
	}
	return e.provider.Type()
}

// Page returns the path of the entry's page, relative to the root.
func (e entry) Page() string { return e.versionPage(provider.Version{}) }

// versionPage returns the path of a version's page. If v is zero, it returns the path of the entry's page.
func (e entry) versionPage(v provider.Version) string {
	path := "p/" + e.path()
	if e.isModule() {
		path = "m/" + e.path()
	}
	if !v.IsZero() {
		path += "/" + url.PathEscape(v.String())
	}
	return path
}

// byName orders entries by the parts of their addresses. It would be slow to format each address for the comparison.
func byName(a, b entry) int {
	return cmp.Or(strings.Compare(a.Hostname(), b.Hostname()), strings.Compare(a.Namespace(), b.Namespace()),
		strings.Compare(a.name(), b.name()), strings.Compare(a.module.System(), b.module.System()))
}

// readable returns the entries that the subject may read. It overwrites the given slice.
func readable(who *access.Subject, all []entry) []entry {
	return slices.DeleteFunc(all, func(e entry) bool {
		if e.isModule() {
			return !who.MayReadModule(e.module)
		}
		return !who.MayRead(e.provider)
	})
}

// entriesOf returns the entries of providers and modules.
func entriesOf(providers []provider.Address, modules []module.Address) []entry {
	out := make([]entry, 0, len(providers)+len(modules))
	for _, a := range providers {
		out = append(out, entry{provider: a})
	}
	for _, a := range modules {
		out = append(out, entry{module: a})
	}
	return out
}
