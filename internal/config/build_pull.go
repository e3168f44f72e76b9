package config

import (
	"net"

	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

func (d *decoder) pullThrough(b *pullThroughBlock) *PullThrough {
	if b == nil {
		return nil
	}
	return &PullThrough{
		Enabled:       b.Enabled == nil || *b.Enabled,
		Selector:      d.selector(b.Body, b.Include, b.Exclude),
		Platforms:     parseEach(d, b.Body, "platforms", b.Platforms, provider.ParsePlatform),
		Versions:      parseOne(d, b.Body, "versions", b.Versions, provider.ParseConstraint),
		Cooldown:      parseOne(d, b.Body, "cooldown", b.Cooldown, parseDuration),
		MaxSize:       parseOne(d, b.Body, "max_size", b.MaxSize, parseSize),
		MaxConcurrent: d.positive(b.Body, "max_concurrent", b.MaxConcurrent, MaxCount),
		MaxPerDay:     parseOne(d, b.Body, "max_per_day", b.MaxPerDay, parseSize),
		MaxSpool:      parseOne(d, b.Body, "max_spool", b.MaxSpool, parseSize),
	}
}

// checkPullThrough warns if serve would refuse to start because any client could make the
// gateway fetch from any host. It only warns, because flags may change the address.
func (d *decoder) checkPullThrough(f *fileBlock, c *Config) {
	g, p := c.Gateway, c.PullThrough
	host, _, err := net.SplitHostPort(g.Listen)
	beyond := err == nil && !ociaddr.Registry(host).IsLoopback() || g.PublicURL != "" || g.HTTP
	if p == nil || !p.Enabled || !beyond || len(g.Tokens)+len(g.OIDC) > 0 || p.NamesHosts() {
		return
	}
	d.warn(f.PullThrough.Range, "Pull-through for everybody", `With this, serve refuses to start: whoever reaches the gateway could have it fetch from anywhere. Let include name what may be fetched, or add token or oidc blocks.`)
}

// checkCooldown warns if serve would refuse to start because it has no folder to store when
// it first saw each version. The data folder serves only with the embedded registry.
func (d *decoder) checkCooldown(f *fileBlock, c *Config) {
	p := c.PullThrough
	if p == nil || !p.Enabled || p.Cooldown == 0 || c.Gateway.Cache != nil || len(c.templates) == 0 {
		return
	}
	d.warn(f.PullThrough.Range, "A cooldown without a cache", `With this, serve refuses to start: since when versions are known is kept in the folder of the cache block. Add one to the gateway block.`)
}
