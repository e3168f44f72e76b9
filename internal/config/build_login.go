package config

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// login reads a login block, and checks it against the rest of the gateway block.
func (d *decoder) login(b *loginBlock, g *gatewayBlock) *gateway.Login {
	if b == nil {
		return nil
	}
	l := &gateway.Login{
		Client: parseOne(d, b.Body, "client", b.Client, parseText),
		Authz:  parseOne(d, b.Body, "authz", b.Authz, parseEndpoint),
		Token:  parseOne(d, b.Body, "token", b.Token, parseEndpoint),
		Scopes: parseEach(d, b.Body, "scopes", b.Scopes, parseScope),
	}
	if b.Ports != nil {
		l.Ports = d.ports(at(b.Body, "ports"), b.Ports)
	}
	if len(g.Tokens)+len(g.OIDC) == 0 {
		d.conflict(b.Range, "Without an oidc or token block the gateway asks for no token, and a login is for nothing: add an oidc block for the issuer, or leave out login.")
	}
	return l
}

// ports reads a range of ports. Clients never use the last port of a range, and panic on a
// range of one port.
func (d *decoder) ports(r hcl.Range, ports []int) [2]int {
	if len(ports) != 2 || ports[0] < 1024 || ports[1] > 65535 || ports[0] >= ports[1] {
		d.errorf(r, "ports", hint.New("it is no range of ports", "write two that differ, from 1024 to 65535, such as [10000, 10010]"))
		return [2]int{}
	}
	return [2]int{ports[0], ports[1]}
}

// parseEndpoint reads the URL of an endpoint. It may have a query, because some issuers read
// the token's purpose from it.
func parseEndpoint(s string) (string, error) {
	u, err := parseHTTPSWithQuery(s)
	if err == nil && (u.Fragment != "" || u.ForceQuery) {
		err = hint.New("the URL has a fragment", "leave it out")
	}
	return s, err
}

// parseScope reads a scope of OAuth 2.0 (RFC 6749, section 3.3).
func parseScope(s string) (string, error) {
	for _, c := range s {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return "", hint.New(fmt.Sprintf("%q is no scope", s), "write one scope an element, without blanks, such as [\"openid\", \"profile\"]")
		}
	}
	if s == "" {
		return "", hint.New("a scope is empty", "leave it out")
	}
	return s, nil
}
