package config

import (
	"slices"

	"github.com/ocibridge/ocibridge/gateway/access"
)

// gateway checks the gateway block, and reads its token and oidc blocks.
func (d *decoder) gateway(g *Gateway) {
	b := d.of(g)
	if t := d.of(&g.TLS); t != nil {
		d.tls(&g.TLS, t)
		d.acme(g)
		if g.HTTP {
			d.conflict(b.at("http"), "Over plain HTTP there are no certificates: leave out http, or the tls block.")
		}
	}
	g.Tokens = d.tokens(g.TokenBlocks)
	g.OIDC = d.oidc(g.IssuerBlocks)
	if g.Login != nil && !g.AsksForTokens() {
		d.conflict(d.of(g.Login).header, "Without an oidc or token block the gateway asks for no token, and login has no effect: add an oidc block for the issuer, or leave out login.")
	}
}

func (d *decoder) tls(t *TLS, b *block) {
	switch {
	case b.has("cert_file") != b.has("key_file"):
		d.conflict(b.header, "cert_file and key_file go together: give both.")
	case t.CertFile != "" && t.SelfSigned:
		d.conflict(b.at("self_signed"), "cert_file and self_signed exclude each other: leave one of them out.")
	}
}

func (d *decoder) tokens(blocks []tokenBlock) []access.Token {
	var out []access.Token
	for i := range blocks {
		t, b := &blocks[i], d.of(&blocks[i])
		if !d.incomplete && slices.ContainsFunc(out, func(o access.Token) bool { return o.SHA256 == t.SHA256 && t.SHA256 != [32]byte{} }) {
			d.fail(b.at("sha256"), "Duplicate token", "Another token block has the same sum: give each its own token, or remove one of them.")
		}
		out = append(out, access.Token{
			Name: t.Name, SHA256: t.SHA256, Selector: d.selector(b, t.Include, t.Exclude), Expires: t.Expires, Operator: t.Operator,
		})
	}
	return out
}

func (d *decoder) oidc(blocks []oidcBlock) []access.Issuer {
	var out []access.Issuer
	for i := range blocks {
		o, b := &blocks[i], d.of(&blocks[i])
		issuer := access.Issuer{Name: o.Name, URL: o.Issuer, Audience: o.Audience}
		for i := range o.Rules {
			r := &o.Rules[i]
			issuer.Rules = append(issuer.Rules, access.Rule{Claims: r.Claims, Selector: d.selector(d.of(r), r.Include, r.Exclude)})
		}
		if len(o.Rules) == 0 {
			d.fail(b.header, "Missing rule block", "Without a rule block, no token of this issuer may read anything.")
		}
		out = append(out, issuer)
	}
	return out
}
