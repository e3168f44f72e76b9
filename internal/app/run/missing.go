package run

import (
	"context"
	"slices"
	"sync"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// Missing is a provider, a version or a package that the gateway does not have.
type Missing struct {
	Provider provider.Address
	// Version is the missing version. The zero value means that the command accepts any of Versions, and that the
	// gateway has none of them.
	Version  provider.Version
	Versions provider.VersionSet // the zero value means any version
	Platform provider.Platform   // the platform of the missing package; the zero value means all
	Denied   error               // says that the configuration denies the version; nil if it does not
	// Unsigned is the newest version that would do and that the registry stores without a signature that the gateway
	// accepts. The zero value means that there is none.
	Unsigned provider.Version
	Pulled   bool // pull-through covers the provider, so the origin lacks the version, too, or is unavailable
}

// maxRequests is the maximum number of recorded lists. The same maximum applies to recorded packages, and to recorded
// modules.
const maxRequests = 100

// requests records what the gateway listed, and which packages and modules it lacked.
type requests struct {
	mu       sync.Mutex
	lists    []list
	packages []Missing
	modules  []module.Address // the modules that the gateway lacked
	notices  []string         // what the user was told
}

// said reports whether the user was told a text before, or has been told enough.
func (r *requests) said(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.notices, text) || len(r.notices) >= maxRequests {
		return true
	}
	r.notices = append(r.notices, text)
	return false
}

// list is a list of versions that a client got.
type list struct {
	provider provider.Address
	versions []provider.Version
	denied   []provider.Version // the versions that the list lacks because they are denied, oldest first
}

func (r *requests) listed(a provider.Address, versions, denied []provider.Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.lists, func(l list) bool { return l.provider == a })
	switch {
	case i >= 0:
		r.lists[i].versions, r.lists[i].denied = versions, denied
	case len(r.lists) < maxRequests:
		r.lists = append(r.lists, list{a, versions, denied})
	}
}

func (r *requests) lacks(a provider.Address, v provider.Version, p provider.Platform) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := Missing{Provider: a, Version: v, Platform: p}
	if len(r.packages) < maxRequests && !slices.Contains(r.packages, m) {
		r.packages = append(r.packages, m)
	}
}

func (r *requests) lacksModule(a module.Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.modules) < maxRequests && !slices.Contains(r.modules, a) {
		r.modules = append(r.modules, a)
	}
}

// missingModules returns the modules that the gateway lacked.
func (r *requests) missingModules() []module.Address {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.modules)
}

// reasons explain why a gateway lacks a version.
type reasons interface {
	Pulls(subject.Address) bool
	Denied(provider.Address, provider.Version) error
	// Stored returns the versions in the registry, signed or not, oldest first, or nil if they are unknown.
	Stored(context.Context, provider.Address) []provider.Version
}

// missing returns what a command needs and the gateway lacks. With upgrade, the command ignores the lock file.
func (r *requests) missing(ctx context.Context, n needs, upgrade bool, why reasons) []Missing {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Missing
	for _, l := range r.lists {
		if m, ok := n.missingFrom(l, upgrade); ok {
			m.Unsigned = m.newest(why.Stored(ctx, m.Provider))
			out = append(out, m)
		}
	}
	out = append(out, r.packages...)
	for i, m := range out {
		out[i].Pulled = why.Pulls(m.Provider)
		v := m.Version
		if v.IsZero() { // the constraint may name a single version
			v, _ = provider.ParseVersion(m.Versions.String())
		}
		if !v.IsZero() {
			out[i].Denied = why.Denied(m.Provider, v)
		}
	}
	return out
}

// newest returns the newest version that would do, or the zero value. The versions are sorted, oldest first.
func (m Missing) newest(versions []provider.Version) provider.Version {
	switch {
	case !m.Version.IsZero():
		versions = slices.DeleteFunc(slices.Clone(versions), func(v provider.Version) bool { return v != m.Version })
	case !m.Versions.IsZero():
		versions = m.Versions.Matches(versions)
	}
	if len(versions) == 0 {
		return provider.Version{}
	}
	return versions[len(versions)-1]
}

// missingFrom returns what a command needs and a list of versions lacks. The bool is false if nothing is missing.
func (n needs) missingFrom(l list, upgrade bool) (Missing, bool) {
	i := slices.IndexFunc(n.locked, func(p lockfile.Provider) bool { return p.Address == l.provider })
	if i >= 0 && !upgrade && !slices.Contains(l.versions, n.locked[i].Version) {
		return Missing{Provider: l.provider, Version: n.locked[i].Version}, true
	}
	for _, required := range n.required {
		set := required.versions
		if !required.isFor(l.provider) || set.IsZero() || len(set.Matches(l.versions)) > 0 {
			continue
		}
		if denied := set.Matches(l.denied); len(denied) > 0 {
			return Missing{Provider: l.provider, Version: denied[len(denied)-1]}, true
		}
		if len(l.versions)+len(l.denied) > 0 {
			return Missing{Provider: l.provider, Versions: set}, true
		}
	}
	switch {
	case len(l.versions) > 0:
		return Missing{}, false
	case len(l.denied) > 0:
		return Missing{Provider: l.provider, Version: l.denied[len(l.denied)-1]}, true
	}
	return Missing{Provider: l.provider}, true
}
