package closure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/configuration"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

// limits are the limits of a configuration on this machine.
var limits = configuration.Limits{Folders: 1_000, Files: 20_000}

// Needs is what init in the folder of a configuration needs, apart from what only a state needs.
type Needs struct {
	// Lock is the lock file; "" if there is none, or if it is empty. All providers in it are needed, in these versions.
	Lock      string
	Providers []Provider // those that are not in the lock file, sorted by address
	Modules   []Found
	Missing   []Missing
}

// Provider is a provider in the newest version that all requirements allow.
type Provider struct {
	Address  provider.Address
	Versions provider.VersionSet // ">= 0.0.0" if no requirement has a constraint
	By       Place               // the first requirement
}

// Check is [Result.Check].
func (n *Needs) Check() error { return (&Result{Missing: n.Missing}).Check() }

// Configuration returns what the configuration in dir needs. Sources without a host are at the public registries that the
// lock file names, because they are those of the client that wrote it. Otherwise, they are at both.
func Configuration(ctx context.Context, dir string, o Origin, jobs int) (*Needs, error) {
	// 1. Read the files on this machine.
	c := configuration.Read(dir, limits)
	if c.Partial {
		return nil, hint.New(fmt.Sprintf("%s: the configuration has more than %d folders or %d files", dir, limits.Folders, limits.Files), "name the folder of one configuration")
	}
	if empty(c) {
		return nil, hint.New(fmt.Sprintf("%s: there is no module block, required_providers block or resource in its .tf and .tofu files", dir), "name the folder in which tofu init or terraform init is run")
	}
	n := &Needs{}
	locked, err := lockfile.Read(filepath.Join(dir, lockfile.Name))
	if errors.Is(err, fs.ErrNotExist) {
		locked = &lockfile.File{}
	} else if err != nil {
		return nil, err
	}
	if len(locked.Providers) > 0 {
		n.Lock = locked.Name
	}
	defaults := lockedHosts(locked)
	// 2. Follow the calls.
	var called []calls.Call
	var required []Requirement
	for _, f := range c.Folders {
		called = append(called, f.Calls...)
		required = append(required, requirements(Release{}, &f.Folder)...)
		for _, s := range f.Skipped {
			n.Missing = append(n.Missing, Missing{Place{File: s.File, Line: s.Line}, "", "it was not read: " + s.Reason})
		}
	}
	result, err := Follow(ctx, Options{Origin: o, Calls: called, Defaults: defaults, Jobs: jobs})
	if err != nil {
		return nil, err
	}
	n.Modules, n.Missing = result.Releases, append(n.Missing, result.Missing...)
	// 3. Join the requirements for providers.
	n.join(append(required, result.Providers...), defaults, locked)
	return n, nil
}

// empty reports whether a configuration needs nothing.
func empty(c *configuration.Configuration) bool {
	return !slices.ContainsFunc(c.Folders, func(f configuration.Folder) bool {
		return len(f.Calls)+len(f.Required)+len(f.Uses)+len(f.Skipped) > 0
	})
}

// lockedHosts returns the public registries in a lock file, or all.
func lockedHosts(f *lockfile.File) (out []svchost.Hostname) {
	for _, host := range PublicHosts {
		if slices.ContainsFunc(f.Providers, func(p lockfile.Provider) bool { return p.Address.ServiceHost() == host }) {
			out = append(out, host)
		}
	}
	if out == nil {
		return PublicHosts
	}
	return out
}

// join adds a provider for all requirements that mean it, because clients select one version that meets all constraints.
func (n *Needs) join(required []Requirement, defaults []svchost.Hostname, locked *lockfile.File) {
	constraints := map[provider.Address][]string{}
	first := map[provider.Address]Place{}
	for _, r := range required {
		if r.Problem != "" {
			n.Missing = append(n.Missing, Missing{r.At, withoutSecrets(r.Source), r.Problem})
			continue
		}
		addresses := r.Addresses(defaults)
		if len(addresses) == 0 && !r.builtIn() {
			n.Missing = append(n.Missing, Missing{r.At, withoutSecrets(r.Source), "it is no address of a provider"})
		}
		for _, a := range addresses {
			if _, ok := locked.Provider(a); ok {
				continue
			}
			if _, ok := first[a]; !ok {
				first[a] = r.At
			}
			if text := strings.TrimSuffix(strings.TrimSpace(r.Constraint), ","); text != "" && !slices.Contains(constraints[a], text) {
				constraints[a] = append(constraints[a], text)
			}
		}
	}
	for a, at := range first {
		text := strings.Join(constraints[a], ", ")
		if text == "" {
			text = ">= 0.0.0"
		}
		set, err := provider.ParseConstraint(text)
		if err != nil {
			n.Missing = append(n.Missing, Missing{at, a.String(), err.Error()})
			continue
		}
		n.Providers = append(n.Providers, Provider{a, set, at})
	}
	slices.SortFunc(n.Providers, func(a, b Provider) int { return strings.Compare(a.Address.Path(), b.Address.Path()) })
	slices.SortStableFunc(n.Missing, func(a, b Missing) int { return strings.Compare(a.At.String(), b.At.String()) })
}
