package run

import (
	"slices"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/lockfile"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// publicHosts are the hosts of the clients' default registries.
var publicHosts = []svchost.Hostname{terraformHost, openTofuHost}

const (
	terraformHost = svchost.Hostname("registry.terraform.io")
	openTofuHost  = svchost.Hostname("registry.opentofu.org")
)

// servedHosts returns the hosts of which a template selects providers, sorted. A host that an
// include pattern names is served in any case. A host in others is served only if a template
// selects some of its providers.
func servedHosts(set templates.Set, others []svchost.Hostname) []svchost.Hostname {
	var out []svchost.Hostname
	for _, t := range set {
		for _, p := range t.Selector().Include {
			if host, named := p.ServiceHost(); named && selectsHost(set, host) {
				out = append(out, host)
			}
		}
	}
	for _, host := range others {
		if selectsHost(set, host) {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// selectsHost reports whether a template can select a provider of the host. An empty set
// means the embedded registry, which has every provider.
func selectsHost(set templates.Set, host svchost.Hostname) bool {
	if len(set) == 0 {
		return true
	}
	matches := func(p provider.Pattern) bool {
		in, named := p.ServiceHost()
		return !named || in == host
	}
	whole := func(p provider.Pattern) bool {
		_, named := p.ServiceHost()
		return matches(p) && (!named || p.Parts() == 1)
	}
	return slices.ContainsFunc(set, func(t *templates.Template) bool {
		s := t.Selector()
		return !slices.ContainsFunc(s.Exclude, whole) && (len(s.Include) == 0 || slices.ContainsFunc(s.Include, matches))
	})
}

// lockedHosts returns the hosts of the providers in a lock file. The client reports the
// errors of the file.
func lockedHosts(name string) []svchost.Hostname {
	file, err := lockfile.Read(name)
	if err != nil {
		return nil
	}
	var out []svchost.Hostname
	for _, p := range file.Providers {
		out = append(out, p.Address.ServiceHost())
	}
	return out
}
