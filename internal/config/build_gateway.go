package config

import (
	"slices"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/hint"
)

func (d *decoder) gateway(b *gatewayBlock) Gateway {
	g := Gateway{
		Listen:            parseOne(d, b.Body, "listen", b.Listen, parseListen),
		PublicURL:         parseOne(d, b.Body, "public_url", b.PublicURL, ParsePublicURL),
		MetricsListen:     parseOne(d, b.Body, "metrics_listen", b.MetricsListen, parseListen),
		VerifyRequired:    parseOne(d, b.Body, "verify", b.Verify, parseVerify),
		Redirect:          yes(b.Redirect),
		TagTTL:            parseOne(d, b.Body, "tag_ttl", b.TagTTL, parseDurationOrNone),
		StaleIfError:      parseOne(d, b.Body, "stale_if_error", b.StaleIfError, parseDurationOrNone),
		Deny:              parseEach(d, b.Body, "deny", b.Deny, parseDeny),
		CapabilityKeyFile: d.path(b.Body, "capability_key_file", b.CapabilityKeyFile),
		HTTP:              yes(b.HTTP),
		ShutdownDelay:     parseOne(d, b.Body, "shutdown_delay", b.ShutdownDelay, parseDuration),
		ShutdownTimeout:   parseOne(d, b.Body, "shutdown_timeout", b.ShutdownTimeout, parsePositiveDuration),
	}
	if b.TLS != nil {
		g.TLS = d.tls(b.TLS)
		g.TLS.ACME = d.acme(b.TLS, g.PublicURL)
		if g.HTTP {
			d.conflict(at(b.Body, "http"), "Over plain HTTP there are no certificates: leave out http, or the tls block.")
		}
	}
	if b.Cache != nil {
		g.Cache = &Cache{
			Directory: d.path(b.Cache.Body, "directory", b.Cache.Directory),
			MaxSize:   parseOne(d, b.Cache.Body, "max_size", orDefault[cacheBlock](b.Cache.MaxSize, "max_size"), parseSize),
		}
	}
	g.Tokens = d.tokens(b.Tokens)
	g.OIDC = d.oidc(b.OIDC)
	g.Login = d.login(b.Login, b)
	return g
}

func (d *decoder) tls(b *tlsBlock) TLS {
	t := TLS{
		CertFile: d.path(b.Body, "cert_file", b.CertFile), KeyFile: d.path(b.Body, "key_file", b.KeyFile),
		SelfSigned:   yes(b.SelfSigned),
		ClientCAFile: d.path(b.Body, "client_ca_file", b.ClientCAFile),
	}
	switch {
	case (b.CertFile == nil) != (b.KeyFile == nil):
		d.conflict(b.Range, "cert_file and key_file go together: give both.")
	case b.CertFile != nil && t.SelfSigned:
		d.conflict(at(b.Body, "self_signed"), "cert_file and self_signed exclude each other: leave one of them out.")
	}
	return t
}

func (d *decoder) tokens(blocks []tokenBlock) []access.Token {
	var out []access.Token
	for _, b := range blocks {
		t := access.Token{
			Name:     parseLabel(d, "token name", b.Range, b.Name, parseName),
			SHA256:   parseOne(d, b.Body, "sha256", b.SHA256, parseSHA256),
			Selector: d.selector(b.Body, b.Include, b.Exclude),
			Expires:  parseOne(d, b.Body, "expires", b.Expires, parseTime),
			Operator: yes(b.Operator),
		}
		switch {
		case slices.ContainsFunc(out, func(o access.Token) bool { return o.Name == t.Name && t.Name != "" }):
			d.duplicate(b.Range, "token", b.Name)
		case !d.incomplete && slices.ContainsFunc(out, func(o access.Token) bool { return o.SHA256 == t.SHA256 && t.SHA256 != [32]byte{} }):
			d.fail(at(b.Body, "sha256"), "Duplicate token", "Another token block has the same sum: give each its own token, or remove one of them.")
		}
		out = append(out, t)
	}
	return out
}

func (d *decoder) oidc(blocks []oidcBlock) []access.Issuer {
	var out []access.Issuer
	for _, b := range blocks {
		o := access.Issuer{
			Name:     parseLabel(d, "oidc name", b.Range, b.Name, parseName),
			URL:      parseOne(d, b.Body, "issuer", b.Issuer, parseIssuer),
			Audience: parseOne(d, b.Body, "audience", b.Audience, parseText),
		}
		for _, r := range b.Rules {
			if r.Claims != nil && len(r.Claims) == 0 {
				d.errorf(at(r.Body, "claims"), "claims", hint.New("a rule without claims is for every token that the issuer gives to anybody", "name the claims that a token must have"))
			}
			o.Rules = append(o.Rules, access.Rule{Claims: r.Claims, Selector: d.selector(r.Body, r.Include, r.Exclude)})
		}
		if len(b.Rules) == 0 {
			d.fail(b.Range, "Missing rule block", "Without a rule block, no token of this issuer may read anything.")
		}
		if slices.ContainsFunc(out, func(p access.Issuer) bool { return p.Name == o.Name && o.Name != "" }) {
			d.duplicate(b.Range, "oidc", b.Name)
		}
		out = append(out, o)
	}
	return out
}
