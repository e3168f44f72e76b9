package run

import (
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/clients/configuration"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// The limits of a search. With --host, the user can name hosts that a limited search does not find. Clients parse the
// same files with the same library, without limits.
const (
	maxModules     = 256
	maxModuleFiles = 2_000
)

// requirement is a provider in a required_providers block.
type requirement struct {
	provider provider.Address
	// isShort is set if the source names no host. The provider is then at the client's default registry, and provider has
	// the host terraformHost.
	isShort  bool
	versions provider.VersionSet // the zero value if there is no valid constraint
}

// isFor reports whether a requirement is for a provider that a client has requested.
func (r requirement) isFor(a provider.Address) bool {
	if r.isShort {
		return slices.Contains(publicHosts, a.ServiceHost()) && r.provider.Namespace() == a.Namespace() && r.provider.Type() == a.Type()
	}
	return r.provider == a
}

// searchModules searches the module in a folder, and its local child modules. The client reports the errors of these
// modules.
func searchModules(dir string) *moduleSearch {
	s := &moduleSearch{}
	c := configuration.Read(dir, configuration.Limits{Folders: maxModules, Files: maxModuleFiles})
	for _, f := range c.Folders {
		for _, r := range f.Required {
			s.require(r)
		}
		for _, call := range f.Calls {
			s.call(call)
		}
	}
	return s
}

// moduleSearch is the result of a search for required_providers, and for calls of modules in registries, in a tree of modules.
type moduleSearch struct {
	required []requirement
	hosts    []svchost.Hostname // the hosts of called modules; "" is the client's default registry
}

// call adds the module in a call. It ignores sources that are not in a registry.
func (s *moduleSearch) call(c calls.Call) {
	address, _, _ := strings.Cut(c.Source.Text, "//") // the rest is a folder inside the module
	if _, err := module.ParseAddress(string(terraformHost) + "/" + address); err == nil {
		s.hosts = append(s.hosts, "")
	} else if a, err := module.ParseAddress(address); err == nil {
		s.hosts = append(s.hosts, a.ServiceHost())
	}
}

// require adds an entry of required_providers.
func (s *moduleSearch) require(of calls.Required) {
	source := "hashicorp/" + of.Name
	if of.Source.Set {
		if !of.Source.Constant {
			return
		}
		source = of.Source.Text
	}
	r := requirement{isShort: strings.Count(source, "/") < 2}
	switch strings.Count(source, "/") {
	case 0:
		source = string(terraformHost) + "/hashicorp/" + source
	case 1:
		source = string(terraformHost) + "/" + source
	}
	var err error
	if r.provider, err = provider.ParseAddress(source); err != nil {
		return
	}
	r.versions, _ = provider.ParseConstraint(of.Version.Text) // the client reports an invalid constraint
	s.required = append(s.required, r)
}
