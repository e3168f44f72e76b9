package run

import (
	"path/filepath"
	"slices"
	"strings"

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

// selectsHost reports whether a template can select a provider of the host, and gives it a
// repository. An empty set means the embedded registry, which has every provider, unless its
// host has a port.
func selectsHost(set templates.Set, host svchost.Hostname) bool {
	if len(set) == 0 {
		return !hasPort(host)
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
		return !slices.ContainsFunc(s.Exclude, whole) && (len(s.Include) == 0 || slices.ContainsFunc(s.Include, matches)) && (!hasPort(host) || hasRepository(t, host))
	})
}

// hasPort reports whether a host has a port. The name of a repository cannot contain a port.
func hasPort(host svchost.Hostname) bool { return strings.Contains(string(host), ":") }

// hasRepository reports whether a template gives an example of the host's providers a repository.
func hasRepository(t *templates.Template, host svchost.Hostname) bool {
	a, err := provider.AddressFromURL(string(host), "example", "example")
	if err == nil {
		_, err = t.Repository(a)
	}
	return err == nil
}

// needs are what the folder of a command says about providers.
type needs struct {
	locked   []lockfile.Provider
	required []requirement
}

// readNeeds reads a folder. The client reports the errors of its files.
func readNeeds(dir string) (n needs) {
	if file, err := lockfile.Read(filepath.Join(dir, lockfile.Name)); err == nil {
		n.locked = file.Providers
	}
	n.required = readRequirements(dir)
	return n
}

// hosts returns the hosts of all providers. Those without a host in their source are at the
// given default registries.
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

// defaultHosts returns the default registries of the client that a command is, or of both
// clients if the command is neither.
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
