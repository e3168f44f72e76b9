package run

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/templates"
)

// publicHosts are the hosts of the clients' default registries.
var publicHosts = []svchost.Hostname{terraformHost, openTofuHost}

const (
	terraformHost = svchost.Hostname("registry.terraform.io")
	openTofuHost  = svchost.Hostname("registry.opentofu.org")
)

// hostRule selects the hosts whose providers or modules a template covers.
type hostRule struct {
	subject.Selector
	// hasRepository reports whether the template yields a repository for an example of the host's providers or modules.
	hasRepository func(host string) bool
}

// rulesOf returns the rules for hosts of one kind. Without any templates, there is one rule for providers, for the
// embedded registry.
func rulesOf(kind subject.Kind, all templates.Set) (rules []hostRule) {
	if len(all) == 0 && kind.Traits().Mirrors {
		return []hostRule{{hasRepository: func(string) bool { return false }}}
	}
	for _, t := range all.Of(kind) {
		rules = append(rules, hostRule{t.Selector(), t.HasRepository})
	}
	return rules
}

// servedHosts returns the sorted hosts that a rule selects. It considers the hosts in the parameter others, and the
// hosts in the include patterns of the rules.
func servedHosts(rules []hostRule, others []svchost.Hostname) []svchost.Hostname {
	out := slices.Clone(others)
	for _, r := range rules {
		for _, p := range r.Include {
			if host, named := p.ServiceHost(); named {
				out = append(out, host)
			}
		}
	}
	out = slices.DeleteFunc(out, func(host svchost.Hostname) bool { return !selectsHost(rules, host) })
	slices.Sort(out)
	return slices.Compact(out)
}

// selectsHost reports whether a rule can select a provider or module of the host, and the rule's template can yield a
// repository for this provider or module.
func selectsHost(rules []hostRule, host svchost.Hostname) bool {
	matches := func(p subject.Pattern) bool {
		in, named := p.ServiceHost()
		return !named || in == host
	}
	whole := func(p subject.Pattern) bool {
		_, named := p.ServiceHost()
		return matches(p) && (!named || p.Parts() == 1)
	}
	return slices.ContainsFunc(rules, func(r hostRule) bool {
		return !slices.ContainsFunc(r.Exclude, whole) && (len(r.Include) == 0 || slices.ContainsFunc(r.Include, matches)) && (!hasPort(host) || r.hasRepository(string(host)))
	})
}

// hasPort reports whether a host has a port. The name of a repository cannot contain a port.
func hasPort(host svchost.Hostname) bool { return strings.Contains(string(host), ":") }

// needs are the providers and modules that the files in the folder of a command name.
type needs struct {
	locked   []lockfile.Provider
	required []requirement
	// modules are the hosts of called modules. "" is the client's default registry.
	modules []svchost.Hostname
}

// readNeeds reads a folder. The client reports errors in the folder's files.
func readNeeds(dir string) (n needs) {
	if file, err := lockfile.Read(filepath.Join(dir, lockfile.Name)); err == nil {
		n.locked = file.Providers
	}
	found := searchModules(dir)
	n.required, n.modules = found.required, found.hosts
	return n
}

// hosts returns the hosts of all providers. A provider whose source has no host is at the given default registries.
func (n needs) hosts(defaults []svchost.Hostname) (out []svchost.Hostname) {
	for _, p := range n.locked {
		out = append(out, p.Address.ServiceHost())
	}
	for _, r := range n.required {
		if r.isShort {
			out = append(out, defaults...)
		} else {
			out = append(out, r.provider.ServiceHost())
		}
	}
	return out
}

// moduleHosts returns the hosts of all called modules, like hosts.
func (n needs) moduleHosts(defaults []svchost.Hostname) (out []svchost.Hostname) {
	for _, host := range n.modules {
		if host == "" {
			out = append(out, defaults...)
		} else {
			out = append(out, host)
		}
	}
	return out
}

// defaultHosts returns the default registry of the client that a command runs. For another program, it returns the
// default registries of both clients.
func defaultHosts(command string) []svchost.Hostname {
	switch clientName(command) {
	case "terraform":
		return []svchost.Hostname{terraformHost}
	case "tofu":
		return []svchost.Hostname{openTofuHost}
	}
	return publicHosts
}

// clientName returns the name of a command's program, without folder and extension.
func clientName(command string) string {
	return strings.TrimSuffix(strings.ToLower(filepath.Base(command)), ".exe")
}
