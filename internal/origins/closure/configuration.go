package closure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// Provider is a provider that is needed in the newest version that all requirements allow.
type Provider struct {
	Address  provider.Address
	Versions []provider.VersionSet // the conditions of all requirements; a version must meet each set
	By       Place                 // the first requirement
}

// Newest returns the newest version that all requirements allow. Otherwise it returns the first set that leaves no version.
func (p Provider) Newest(versions []provider.Version) (newest provider.Version, none provider.VersionSet, ok bool) {
	for _, set := range p.Versions {
		if versions = set.Matches(versions); len(versions) == 0 {
			return newest, set, false
		}
	}
	return versions[len(versions)-1], none, true
}

// Configuration returns what the configuration in dir needs. Sources without a host are at the public registries that the
// lock file names, because they are those of the client that wrote it. Otherwise, they are at both.
func Configuration(ctx context.Context, dir string, o Origin, jobs int) (*Needs, error) {
	// 1. Read the files on this machine.
	if _, err := os.ReadDir(dir); err != nil {
		return nil, hint.Wrap(err, "name the folder in which tofu init or terraform init is run")
	}
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

// The limits of the constraints of one provider.
const (
	maxConditions = 1_000
	maxJoined     = 1_000 // bytes of the conditions in one set
)

// conditions are the different conditions that all requirements for a provider have.
type conditions struct {
	first Place // the first requirement
	list  []string
	known map[string]bool
	err   error
	at    Place // the requirement that has err
}

// add adds the conditions of a requirement.
func (c *conditions) add(at Place, constraint string) {
	text := strings.TrimSuffix(strings.TrimSpace(constraint), ",")
	if text == "" || c.err != nil {
		return
	}
	if _, err := provider.ParseConstraint(text); err != nil {
		c.at, c.err = at, err
		return
	}
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); !c.known[one] {
			c.known[one] = true
			c.list = append(c.list, one)
		}
	}
	if len(c.list) > maxConditions {
		c.at, c.err = at, fmt.Errorf("its requirements have more than %d different conditions", maxConditions)
	}
}

// sets returns the conditions, joined to as few sets as possible: a set has a maximum length.
func (c *conditions) sets() (out []provider.VersionSet, err error) {
	for rest := c.list; ; {
		n, size := 0, 0
		for n < len(rest) && (n == 0 || size+len(rest[n]) <= maxJoined) {
			size += len(rest[n]) + len(", ")
			n++
		}
		set, err := provider.ParseConstraint(cmp.Or(strings.Join(rest[:n], ", "), ">= 0.0.0"))
		if err != nil {
			return nil, err
		}
		if out, rest = append(out, set), rest[n:]; len(rest) == 0 {
			return out, nil
		}
	}
}

// join adds a provider for all requirements that mean it, because clients select one version that meets all constraints.
func (n *Needs) join(required []Requirement, defaults []svchost.Hostname, locked *lockfile.File) {
	all := map[provider.Address]*conditions{}
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
			if all[a] == nil {
				all[a] = &conditions{first: r.At, known: map[string]bool{}}
			}
			all[a].add(r.At, r.Constraint)
		}
	}
	for a, c := range all {
		sets, err := c.sets()
		if err = cmp.Or(c.err, err); err != nil {
			n.Missing = append(n.Missing, Missing{cmp.Or(c.at, c.first), a.String(), hint.OneLine(err.Error())})
			continue
		}
		n.Providers = append(n.Providers, Provider{a, sets, c.first})
	}
	slices.SortFunc(n.Providers, func(a, b Provider) int { return strings.Compare(a.Address.Path(), b.Address.Path()) })
	slices.SortStableFunc(n.Missing, func(a, b Missing) int { return strings.Compare(a.At.String(), b.At.String()) })
}
