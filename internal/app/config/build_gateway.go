package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// gateway checks the gateway block, and converts its token and oidc blocks.
func (d *decoder) gateway(g *Gateway) {
	b := d.of(g)
	if t := d.of(&g.TLS); t != nil {
		switch {
		case t.has("cert_file") != t.has("key_file"):
			d.conflict(t.header, "cert_file and key_file go together: give both.")
		case g.TLS.CertFile != "" && g.TLS.SelfSigned:
			d.conflict(t.at("self_signed"), "cert_file and self_signed exclude each other: leave one of them out.")
		}
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

func (d *decoder) tokens(blocks []tokenBlock) []access.Token {
	var out []access.Token
	for i := range blocks {
		t, b := &blocks[i], d.of(&blocks[i])
		if !d.incomplete && slices.ContainsFunc(out, func(o access.Token) bool { return o.Name != t.Name && o.SHA256 == t.SHA256 && t.SHA256 != [32]byte{} }) {
			d.fail(b.at("sha256"), "Duplicate token", "Another token block has the same sum: give each its own token, or remove one of them.")
		}
		out = append(out, access.Token{
			Name: t.Name, SHA256: t.SHA256, Selector: selectorOf(d, b, t.Include, t.Exclude), Expires: t.Expires, Operator: t.Operator,
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
			issuer.Rules = append(issuer.Rules, access.Rule{Claims: r.Claims, Selector: selectorOf(d, d.of(r), r.Include, r.Exclude)})
		}
		if len(o.Rules) == 0 {
			d.fail(b.header, "Missing rule block", "Without a rule block, no token of this issuer may read anything.")
		}
		out = append(out, issuer)
	}
	return out
}

// maxDomains is the maximum number of domains in an acme block.
const maxDomains = 100

// acme checks the acme block. If the block does not set domains, the host of public_url
// becomes its only domain.
func (d *decoder) acme(g *Gateway) {
	a := g.TLS.ACME
	if a == nil {
		return
	}
	b := d.of(a)
	if d.of(&g.TLS).has("cert_file") || g.TLS.SelfSigned {
		d.conflict(b.header, "cert_file, self_signed and acme exclude each other: leave all but one of them out.")
	}
	if b.has("accept_terms") && !a.AcceptTerms && !d.missing {
		d.fail(b.at("accept_terms"), "Terms not agreed to", "An authority issues certificates only to users who agree to its terms: write true once you have read them, or leave out the acme block.")
	}
	if !b.has("domains") && !d.incomplete && g.PublicURL != "" {
		if u, err := url.Parse(g.PublicURL); err == nil {
			a.Domains = []string{u.Hostname()}
			if _, err = parseDomain(u.Hostname()); err != nil {
				d.errorf(b.header, "acme", err)
			}
		}
	}
	switch {
	case !b.has("domains") && g.PublicURL == "", b.isEmpty("domains"):
		d.conflict(b.header, "There is no name to have a certificate for: give domains, or public_url in the gateway block.")
	case len(a.Domains) > maxDomains:
		d.errorf(b.at("domains"), "domains", hint.New(fmt.Sprintf("there are more than %d", maxDomains), "name only those that clients reach the gateway by"))
	}
}

func (d *decoder) pullThrough(p *pullThroughBlock) *PullThrough {
	if p == nil {
		return nil
	}
	return &PullThrough{
		Enabled:   p.Enabled,
		Scope:     pull.Scope{Selector: selectorOf(d, d.of(p), p.Include, p.Exclude), Versions: p.Versions, Platforms: p.Platforms, Cooldown: p.Cooldown},
		Limits:    pull.Limits{MaxConcurrent: p.MaxConcurrent, MaxPerDay: p.MaxPerDay, MaxSize: p.MaxSize, MaxSpool: p.MaxSpool},
		Retention: p.Retention,
	}
}

// ErrRetentionElsewhere means that there is a retention block, although the registry is not the
// embedded registry.
var ErrRetentionElsewhere = hint.New("retention is for the embedded registry, and the configured repositories are in another registry",
	"leave out the retention block, and let that registry remove what nobody pulls, as Harbor's tag retention does")

// checkRetention reports a retention block that has no effect.
func (d *decoder) checkRetention(f *fileBlock, c *Config) {
	if c.PullThrough == nil || c.PullThrough.Retention == nil {
		return
	}
	b := d.of(f.PullThrough.Retention)
	switch {
	case !b.has("unused") && !b.has("max_size"):
		d.conflict(b.header, "Neither unused nor max_size says what to remove: give one of them.")
	case c.namesRepositories():
		d.errorf(b.header, "retention", ErrRetentionElsewhere)
	}
}

// checkOrigins warns if serve would refuse to start with these settings. serve refuses to start
// if clients on other machines could make the gateway send requests to any host. The warning is
// not an error, because a flag can change the address to listen on.
func (d *decoder) checkOrigins(f *fileBlock, c *Config) {
	g, p := c.Gateway, c.PullThrough
	host, _, err := net.SplitHostPort(g.Listen)
	beyond := err == nil && !ociaddr.Registry(host).IsLoopback() || g.PublicURL != "" || g.HTTP
	if !beyond || g.AsksForTokens() {
		return
	}
	for i, m := range c.modules {
		if m.FallThrough && !m.NamesHosts() && len(c.modules) == len(f.ModuleMirrors) {
			d.warn(d.of(&f.ModuleMirrors[i]).header, "Redirects for everybody", `With this, serve refuses to start: whoever reaches the gateway could have it ask any host. Let include name the hosts, or add token or oidc blocks.`)
		}
	}
	if p == nil || !p.Enabled || p.NamesHosts() {
		return
	}
	d.warn(d.of(f.PullThrough).header, "Pull-through for everybody", `With this, serve refuses to start: whoever reaches the gateway could have it fetch from anywhere. Let include name what may be fetched, or add token or oidc blocks.`)
}

// checkCooldown warns if serve would refuse to start because of the cooldown. For a
// cooldown, serve stores the time at which it first saw each version. It stores these times
// in the folder of the cache, or else in the data folder if the registry is embedded. If the
// cache is off and the registry is not embedded, serve refuses to start.
func (d *decoder) checkCooldown(f *fileBlock, c *Config) {
	p := c.PullThrough
	if p == nil || !p.Enabled || p.Cooldown == 0 || c.Gateway.Cache == nil || c.Gateway.Cache.Enabled || !c.namesRepositories() {
		return
	}
	d.warn(d.of(f.PullThrough).header, "A cooldown without a cache", `With this, serve refuses to start: since when versions are known is kept in the folder of the cache. Leave out enabled = false in the cache block.`)
}
