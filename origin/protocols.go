package origin

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/provider"
)

var protocol = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,4}){0,2}$`)

// knownProtocols returns the valid protocol versions in the first list that contains a
// valid version. There are several lists because an origin may omit the protocols from
// the list of versions or from the document about a package.
func knownProtocols(lists ...[]string) []string {
	for _, list := range lists {
		var out []string
		for _, p := range list {
			if protocol.MatchString(p) && !slices.Contains(out, p) && len(out) < maxProtocols {
				out = append(out, p)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// protocolsOf returns the protocols that are stored with a version. They are the
// protocols of the first platform. If the first platform has no protocols, they are the
// protocols in the list of versions.
func protocolsOf(metas []*packageMeta, listed []string) []string {
	return knownProtocols(metas[0].Protocols, listed)
}

// warnProtocols returns a warning if the platforms of a version have different protocols
// or none, and "" otherwise. A version has a single list of protocols for all its
// platforms. Clients decide from this list whether they can run the provider.
func warnProtocols(host string, platforms []provider.Platform, metas []*packageMeta, listed []string) string {
	first := protocolsOf(metas, listed)
	var others names
	for i, m := range metas {
		if own := knownProtocols(m.Protocols, listed); !sameProtocols(own, first) {
			others = append(others, fmt.Sprintf("%s has %s", platforms[i], joinProtocols(own)))
		}
	}
	switch {
	case len(others) > 0:
		return fmt.Sprintf("%s gives platforms different protocols: %s has %s, which count for all; %s",
			host, platforms[0], joinProtocols(first), others)
	case len(first) == 0:
		return fmt.Sprintf("%s gives no protocols: clients that cannot run this version install it all the same", host)
	}
	return ""
}

func sameProtocols(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func joinProtocols(ps []string) string { return cmp.Or(strings.Join(ps, ", "), "none") }
