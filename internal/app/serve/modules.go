package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
)

// checkFallThrough returns an error if anyone could make the gateway request the discovery document of any host, and
// redirect browsers there. addr and controlled are as in [Settings.pullRules].
func (s *Settings) checkFallThrough(addr net.Addr, controlled bool) error {
	open := func(m config.ModuleMirror) bool { return m.FallThrough && !m.NamesHosts() }
	if !s.reachable(addr) || controlled || !slices.ContainsFunc(s.Config.ModuleMirrors(), open) {
		return nil
	}
	return UsageError{hint.New("with fall_through, everyone who can connect could make the gateway ask any host: other machines can connect, there is no access control, and include names no hosts",
		`name the hosts in include of the module_mirror block, such as ["registry.opentofu.org/*/*/*"], or add token or oidc blocks`)}
}

// moduleRepository returns the repository from which clients download a module directly. ok is false if the module's
// module_mirror block does not have direct.
func (s *site) moduleRepository(a module.Address) (repo ociaddr.Repository, ok bool) {
	if !s.settings.Config.ModuleMirror(a).Direct {
		return repo, false
	}
	repo, err := s.repositories.Templates.Repository(a)
	return repo, err == nil
}

// checkDirect returns an error if clients cannot download modules from a registry, because it speaks plain HTTP.
func (s *site) checkDirect() error {
	for _, m := range s.settings.Config.ModuleMirrors() {
		r, ok := m.Template.Registry()
		if ok && m.Direct && s.repositories.Client.Connections.AllowsPlainHTTP(r) {
			return UsageError{hint.New(fmt.Sprintf("direct = true in a module_mirror block is for registries with TLS, and requests to %s go over plain HTTP: OpenTofu would refuse it", r),
				"leave out direct, or set up TLS at the registry")}
		}
	}
	return nil
}

// moduleOrigin returns the function that finds the origin of modules whose module_mirror block has fall_through. It
// returns nil if no block has fall_through. A module has no origin if its host's discovery document has no module
// registry. A module that may be pulled through has none, because its origin could have versions that clients must not get.
// For a [Local], it returns [Settings].moduleOrigin.
func (s *site) moduleOrigin() func(context.Context, module.Address) (*url.URL, error) {
	if s.settings.moduleOrigin != nil {
		return s.settings.moduleOrigin
	}
	c := s.settings.Config
	if !slices.ContainsFunc(c.ModuleMirrors(), func(m config.ModuleMirror) bool { return m.FallThrough }) {
		return nil
	}
	var named []subject.Pattern // the hosts that the user names may have private addresses
	for _, m := range c.ModuleMirrors() {
		named = append(named, m.Template.Selector().Include...)
	}
	origins := s.settings.Origins.Pull(named, s.via)
	own := s.address.URL.Hostname()
	return func(ctx context.Context, a module.Address) (*url.URL, error) {
		if !c.ModuleMirror(a).FallThrough || a.Hostname() == own || s.pulls != nil && s.pulls(a) {
			return nil, nil // the gateway is itself the origin of its own modules
		}
		base, err := origins.Modules(ctx, a.ServiceHost())
		if errors.Is(err, origin.ErrNoModules) {
			return nil, nil
		}
		return base, err
	}
}
