package origin

import (
	"net/netip"
	"testing"
)

// TestInsideAddresses shows which addresses count as local. Addresses of private
// networks do not count as local, because companies have origins there.
func TestInsideAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.9.8.7": true, "::1": true, "0.0.0.0": true, "::": true, "169.254.169.254": true, "fe80::1%eth0": true,
		"::ffff:127.0.0.1": true, "::ffff:a9fe:a9fe": true, "::7f00:1": true, "64:ff9b::a9fe:a9fe": true, "2002:7f00:1::": true,
		"fd00:ec2::254": true, "fd20:ce::254": true, "100.100.100.200": true, "192.0.0.192": true, "168.63.129.16": true,
		"10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "fd00::1": false, "100.64.0.1": false,
		"8.8.8.8": false, "2606:4700::1111": false, "64:ff9b::8.8.8.8": false, "64:ff9b::10.0.0.1": false,
	} {
		if err := checkLocalAddress(netip.MustParseAddr(address)); (err != nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
