package cliconfig

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/ocibridge/ocibridge/auth/login"
)

// apiToken is an API token in the Authorization header of a request.
type apiToken struct{ login.Secret }

var _ svcauth.HostCredentials = apiToken{}

// PrepareRequest implements [svcauth.HostCredentials].
func (t apiToken) PrepareRequest(req *http.Request) {
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Authorization", "Bearer "+t.Reveal())
}

// filedToken is the API token of a host from one source.
type filedToken struct {
	token  login.Secret // empty if the source has a block without a token for the host
	source string       // the file, or the name of the variable
}

// TokenHost is a host that has an API token.
type TokenHost struct {
	Host   svchost.Hostname
	Source string // the file, or the name of the variable
}

// TokenHosts returns the sorted hosts that have a token in a TF_TOKEN_ variable or in a credentials block. It does not
// run the credentials helper, so hosts whose tokens only the helper knows are missing.
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

// CredentialsSource returns a source of API tokens for hosts. For each host, the source looks for a TF_TOKEN_ variable
// first, then for a credentials block, and then runs the credentials helper. A credentials block without a token means
// that the host has no token. The source returns an error only if the helper fails. It is safe for concurrent use. Its
// results put a token only into the request that they prepare.
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

// tokensFromEnviron returns the tokens in the TF_TOKEN_ variables. Like the clients, it ignores variables with an
// invalid host name or an empty value.
func tokensFromEnviron(environ []string) map[svchost.Hostname]filedToken {
	out := map[svchost.Hostname]filedToken{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		encoded, ok := strings.CutPrefix(name, tokenPrefix)
		if !ok || value == "" {
			continue
		}
		if host, err := hostFromVariable(encoded); err == nil {
			out[host] = filedToken{login.NewSecret(value), name}
		}
	}
	return out
}

// hostFromVariable decodes the host in the name of a TF_TOKEN_ variable. Two underscores mean a dash, and one
// underscore means a dot, because shells allow neither dashes nor dots in the names of variables. Host names contain no
// underscores. hostFromVariable converts Punycode to Unicode, because svchost.ForComparison refuses Punycode.
func hostFromVariable(encoded string) (svchost.Hostname, error) {
	s := strings.ReplaceAll(encoded, "__", "-")
	s = strings.ReplaceAll(s, "_", ".")
	return svchost.ForComparison(svchost.ForDisplay(s))
}
