// Package originclient creates clients of origin registries from the user's configuration for Terraform and OpenTofu: the
// services in host blocks, the API tokens, and the logins in .netrc.
//
// There are two kinds of clients. [User.Registry] returns the client for a user's command. It may contact any host. But an
// origin on another machine cannot refer it to this machine or to a link-local address. [User.Pull] returns the client for
// a gateway, which sends requests on behalf of the gateway's clients. It connects only to public addresses and to the hosts
// that the user names. It never sends the .netrc login for all hosts.
package originclient

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/origin"
)

// User is the part of the user's configuration that concerns origins.
type User struct {
	CLI       *cliconfig.Config
	Netrc     origin.Netrc
	UserAgent string
	CAs       []byte // a PEM bundle of certificate authorities to trust in addition to the system's; nil means none
}

// Registry returns a client for commands that the user runs.
func (u User) Registry() *origin.Registry {
	return u.client(origin.NewLenientGuard(namedHosts(nil, u.CLI.Services(), "providers.v1", "modules.v1")), "")
}

// Pull returns a client for a gateway's pull-through. It sends the given Via header, so that origins and the gateway itself
// recognise requests of this gateway. It connects to hosts in the include patterns at any address, and to other hosts only
// at public addresses.
func (u User) Pull(include []subject.Pattern, via string) *origin.Registry {
	u.Netrc.NoDefault = true
	return u.client(origin.NewGuard(namedHosts(include, u.CLI.Services(), "providers.v1", "modules.v1")), via)
}

// Names reports whether the user names a host: in an include pattern, or in a host block of the CLI configuration.
func (u User) Names(include []subject.Pattern, host svchost.Hostname) bool {
	_, ok := u.CLI.Services()[host]
	return ok || slices.ContainsFunc(include, func(p subject.Pattern) bool {
		of, named := p.ServiceHost()
		return named && of == host
	})
}

// client returns a client whose connections the guard checks. via is the value of the Via header, or "" for none.
func (u User) client(guard *origin.Guard, via string) *origin.Registry {
	base := outgoing.Transport()
	outgoing.Trust(base, u.CAs)
	transport := guard.Transport(base)
	services := func() *disco.Disco {
		out := origin.NewDiscovery(transport, disco.WithCredentials(u.CLI.CredentialsSource()))
		for host, s := range u.CLI.Services() {
			out.ForceHostServices(host, s)
		}
		return out
	}
	return origin.NewRegistry(origin.RegistryOptions{
		Transport: transport, Guard: guard, Services: services(), Rediscover: services, UserAgent: u.UserAgent, Via: via, Netrc: &u.Netrc,
	})
}

// namedHosts returns a function that reports whether the user has named a host and port. A guard allows connections to
// these at any address. An include pattern names its host and port, which is 443 by default. A host block of the CLI
// configuration names the hosts and ports in the URLs of the services with the given IDs.
func namedHosts(include []subject.Pattern, services map[svchost.Hostname]map[string]any, ids ...string) func(host, port string) bool {
	named := map[string]bool{}
	for _, p := range include {
		if host, ok := p.ServiceHost(); ok {
			u := url.URL{Host: string(host)}
			named[net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))] = true
		}
	}
	for _, s := range services {
		for _, id := range ids {
			text, _ := s[id].(string)
			if u, err := url.Parse(text); err == nil && u.Host != "" {
				port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
				named[net.JoinHostPort(strings.ToLower(u.Hostname()), port)] = true
			}
		}
	}
	return func(host, port string) bool {
		host = strings.TrimSuffix(strings.ToLower(host), ".")
		return named[net.JoinHostPort(host, port)]
	}
}
