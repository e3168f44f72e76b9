package gateway

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// hostName matches the names of hosts. Unlike in DNS, underscores are allowed, because names of containers and
// of nginx's upstreams may have them. A final dot marks a fully qualified name.
var hostName = regexp.MustCompile(`^[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?)*\.?$`)

// maxHost is the maximum length of a host with its port, in bytes.
const maxHost = 253 + len(":65535")

// ValidHost reports whether a Host header is a name or an IP address, with or without a port. Only a valid
// Host may appear in a document, or in the configuration that users copy from the page.
func ValidHost(s string) bool {
	u, err := url.Parse("//" + s)
	if err != nil || u.Host != s || len(s) > maxHost {
		return false
	}
	if port := u.Port(); s != u.Hostname() && s != "["+u.Hostname()+"]" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return false
		}
	}
	if strings.HasPrefix(s, "[") {
		ip, err := netip.ParseAddr(u.Hostname())
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	return hostName.MatchString(u.Hostname())
}
