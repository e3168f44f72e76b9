package origin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// errInside means that an origin out there sends its clients to this machine or to
// the link that it is on, where clouds have their metadata.
var errInside = errors.New("an origin elsewhere leads there")

// leadsInside refuses a URL that an origin gives, or redirects to, whose host is
// this machine or on its link by the look of it, unless the origin's own is. What
// names resolve to is not looked at: push asks no more than clients do, and stores
// nothing that is not verified.
func leadsInside(from, to *url.URL) error {
	if !isInside(to.Hostname()) || isInside(from.Hostname()) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s: %w: %s", shown(to), errInside, from.Host), "that is this machine, or what is next to it: ask whoever runs the origin")
}

func isInside(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.WithZone("").Unmap()
		return addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified()
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	// A number at the end is an address in a form that not all read alike.
	return last == "localhost" || last != "" && strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}
