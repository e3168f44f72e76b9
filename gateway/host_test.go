package gateway_test

import (
	"net/url"
	"testing"

	"github.com/ocibridge/ocibridge/gateway"
)

func TestValidHost(t *testing.T) {
	for host, want := range map[string]bool{
		"example.com": true, "example.com:8443": true, "localhost": true, "10.0.0.1": true, "10.0.0.1:80": true, "[::1]": true, "[::1]:8443": true, "a-b.example": true,
		"": false, ":8443": false, "example.com:": false, "example.com:0": false, "example.com:65536": false, "example.com:08443": false, "example.com:http": false, "::1": false,
		"[::1": false, "[::1%25eth0]": false, "[10.0.0.1]": false, "[example.com]": false, "-a.example": false, "a..b": false, "a.example.": true, "a_b": true, "a.example.:8443": true, "a..": false, ".": false, "_": true, "a_b.example:80": true, "bücher.example": false,
		`a"b`: false, "a b": false, "a/b": false, "a@b": false, "a\nb": false, "${a}": false, "a:1:2": false, string(make([]byte, 300)): false,
	} {
		if got := gateway.ValidHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func FuzzValidHost(f *testing.F) {
	for _, host := range []string{"example.com:8443", "[::1]:8443", `a"b`, "a:1:2"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !gateway.ValidHost(host) {
			return
		}
		u, err := url.Parse("https://" + host + "/")
		if err != nil || u.Host != host || u.User != nil || u.Path != "/" || u.RawQuery+u.Fragment != "" {
			t.Errorf("%q passes, and is read as %+v, %v", host, u, err)
		}
	})
}
