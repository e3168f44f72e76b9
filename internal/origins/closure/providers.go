package closure

import (
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/provider"
)

// Requirement is a provider that a module needs.
type Requirement struct {
	Source     string // HOSTNAME/NAMESPACE/TYPE, or NAMESPACE/TYPE at the default registry of the client
	Constraint string // "" allows every version
	Problem    string // the reason why the requirement is not usable; "" if it is
	At         Place
}

// builtIn reports whether the provider is built into the clients.
func (r Requirement) builtIn() bool { return strings.HasPrefix(r.Source, "terraform.io/builtin/") }

// Addresses returns the providers that a requirement means, with the given default registries. It returns nil for a provider
// that is built into the clients, and for an address that is not valid.
func (r Requirement) Addresses(defaults []svchost.Hostname) (out []provider.Address) {
	if r.builtIn() {
		return nil
	}
	if strings.Count(r.Source, "/") == 2 {
		if a, err := provider.ParseAddress(r.Source); err == nil {
			out = append(out, a)
		}
		return out
	}
	for _, host := range defaults {
		if a, err := provider.ParseAddress(string(host) + "/" + r.Source); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// requirements returns the providers that the files of a folder require, and those that they use without requiring them.
func requirements(in Release, f *calls.Folder) (out []Requirement) {
	sources := map[string]string{}
	for _, r := range f.Required {
		q := Requirement{Source: "hashicorp/" + r.Name, Constraint: r.Version.Text, At: Place{in, r.File, r.Line}}
		switch {
		case r.Source.Set && !r.Source.Constant:
			q.Problem = "the source of the provider is no constant"
		case r.Source.Set && strings.Count(r.Source.Text, "/") == 0:
			q.Source = "hashicorp/" + r.Source.Text
		case r.Source.Set:
			q.Source = r.Source.Text
		}
		if r.Version.Set && !r.Version.Constant {
			q.Problem = "the version of the provider is no constant"
		}
		sources[r.Name] = q.Source
		out = append(out, q)
	}
	for _, u := range f.Uses {
		source := sources[u.Name]
		if source == "" && u.Name == "terraform" {
			continue // the provider that is built into the clients
		}
		if source == "" {
			source = "hashicorp/" + u.Name
		} else if u.Version.Text == "" {
			continue
		}
		out = append(out, Requirement{Source: source, Constraint: u.Version.Text, At: Place{in, u.File, u.Line}})
	}
	return out
}
