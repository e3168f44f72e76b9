package cliconfig

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/ocibridge/ocibridge/auth"
)

// apiToken is an API token in the Authorization header of a request.
type apiToken struct{ auth.Secret }

var _ svcauth.HostCredentials = apiToken{}

// PrepareRequest implements [svcauth.HostCredentials].
func (t apiToken) PrepareRequest(req *http.Request) {
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Authorization", "Bearer "+t.Reveal())
}

// filedToken is a host's token from one source.
type filedToken struct {
	token  auth.Secret // empty if the source says that the host has no token
	source string      // the file, or the name of the variable
}

// TokenHost is a host that has an API token.
type TokenHost struct {
	Host   svchost.Hostname
	Source string // the file, or the name of the variable
}

// TokenHosts returns the hosts with a token in a TF_TOKEN_ variable or in a credentials block, sorted. It does
// not run the credentials helper, which could know tokens of further hosts.
func (c *Config) TokenHosts() []TokenHost {
	filed := maps.Clone(c.tokens)
	maps.Copy(filed, c.env)
	var out []TokenHost
	for _, host := range slices.Sorted(maps.Keys(filed)) {
		if f := filed[host]; !f.token.IsZero() {
			out = append(out, TokenHost{host, f.source})
		}
	}
	return out
}

// CredentialsSource returns the source of hosts' tokens: a TF_TOKEN_ variable first, then a credentials block,
// then the credentials helper. Only the helper can fail. A block without a token means that the host has no
// token. The source is safe for concurrent use, and its results reveal a token only to the request that they
// prepare.
func (c *Config) CredentialsSource() svcauth.CredentialsSource { return source{c} }

type source struct{ config *Config }

// ForHost implements [svcauth.CredentialsSource].
func (s source) ForHost(ctx context.Context, host svchost.Hostname) (svcauth.HostCredentials, error) {
	filed, ok := s.config.env[host]
	if !ok {
		filed, ok = s.config.tokens[host]
	}
	t := filed.token
	if !ok && s.config.helper != nil {
		var err error
		if t, err = s.config.helper.get(ctx, host); err != nil {
			return nil, err
		}
	}
	if t.IsZero() {
		return nil, nil
	}
	return apiToken{t}, nil
}

const tokenPrefix = "TF_TOKEN_"

// tokensFromEnviron reads the TF_TOKEN_ variables. Like the clients, it ignores invalid host names and empty
// values.
func tokensFromEnviron(environ []string) map[svchost.Hostname]filedToken {
	out := map[svchost.Hostname]filedToken{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		encoded, ok := strings.CutPrefix(name, tokenPrefix)
		if !ok || value == "" {
			continue
		}
		if host, err := hostFromVariable(encoded); err == nil {
			out[host] = filedToken{auth.NewSecret(value), name}
		}
	}
	return out
}

// hostFromVariable decodes the host in the name of a TF_TOKEN_ variable. Shells allow neither dashes nor dots
// in names, so two underscores mean a dash, and one underscore means a dot. Host names contain no underscores.
// Punycode is converted to Unicode first, because svchost.ForComparison refuses it.
func hostFromVariable(encoded string) (svchost.Hostname, error) {
	s := strings.ReplaceAll(encoded, "__", "-")
	s = strings.ReplaceAll(s, "_", ".")
	return svchost.ForComparison(svchost.ForDisplay(s))
}
