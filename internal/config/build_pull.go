package config

import (
	"net"

	"github.com/ocibridge/ocibridge/internal/pull"
	"github.com/ocibridge/ocibridge/ociaddr"
)

func (d *decoder) pullThrough(p *pullThroughBlock) *PullThrough {
	if p == nil {
		return nil
	}
	return &PullThrough{
		Enabled: p.Enabled,
		Scope:   pull.Scope{Selector: d.selector(d.of(p), p.Include, p.Exclude), Versions: p.Versions, Platforms: p.Platforms, Cooldown: p.Cooldown},
		Limits:  pull.Limits{MaxConcurrent: p.MaxConcurrent, MaxPerDay: p.MaxPerDay, MaxSize: p.MaxSize, MaxSpool: p.MaxSpool},
	}
}

// checkPullThrough warns if serve would refuse to start because any client could make the
// gateway fetch from any host. It only warns, because flags may change the address.
func (d *decoder) checkPullThrough(f *fileBlock, c *Config) {
	g, p := c.Gateway, c.PullThrough
	host, _, err := net.SplitHostPort(g.Listen)
	beyond := err == nil && !ociaddr.Registry(host).IsLoopback() || g.PublicURL != "" || g.HTTP
	if p == nil || !p.Enabled || !beyond || g.AsksForTokens() || p.NamesHosts() {
		return
	}
	d.warn(d.of(f.PullThrough).header, "Pull-through for everybody", `With this, serve refuses to start: whoever reaches the gateway could have it fetch from anywhere. Let include name what may be fetched, or add token or oidc blocks.`)
}

// checkCooldown warns if serve would refuse to start because it has no folder to store when
// it first saw each version. The data folder serves only with the embedded registry.
func (d *decoder) checkCooldown(f *fileBlock, c *Config) {
	p := c.PullThrough
	if p == nil || !p.Enabled || p.Cooldown == 0 || c.Gateway.Cache != nil || len(c.templates) == 0 {
		return
	}
	d.warn(d.of(f.PullThrough).header, "A cooldown without a cache", `With this, serve refuses to start: since when versions are known is kept in the folder of the cache block. Add one to the gateway block.`)
}
