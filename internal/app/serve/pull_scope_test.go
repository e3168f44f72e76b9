package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	onLoopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8443}
	everywhere = &net.TCPAddr{IP: net.IPv6unspecified, Port: 8443}
)

func patterns(list ...string) (out []subject.Pattern) {
	for _, s := range list {
		out = append(out, provider.MustParsePattern(s))
	}
	return out
}

// TestPullingNeedsAnAllowList shows that if other machines can reach a gateway without access control, pull-through
// requires an allow list of hosts.
func TestPullingNeedsAnAllowList(t *testing.T) {
	const named, all = "registry.opentofu.org/hashicorp/*", "*/*/*"
	for name, tc := range map[string]struct {
		include    []subject.Pattern
		addr       net.Addr
		http       bool
		publicURL  string
		controlled bool
		refused    bool
	}{
		"on this machine":                   {addr: onLoopback},
		"for everybody":                     {addr: everywhere, refused: true},
		"for everybody, all named":          {addr: everywhere, include: patterns(named)},
		"for everybody, all let in":         {addr: everywhere, include: patterns(all), refused: true},
		"for everybody, one of all":         {addr: everywhere, include: patterns(named, all), refused: true},
		"for those with tokens":             {addr: everywhere, controlled: true},
		"behind a proxy":                    {addr: onLoopback, http: true, refused: true},
		"behind a proxy, all named":         {addr: onLoopback, http: true, include: patterns(named)},
		"by another name":                   {addr: onLoopback, publicURL: "https://providers.example/", refused: true},
		"by another name, and with a token": {addr: onLoopback, publicURL: "https://providers.example/", controlled: true},
	} {
		c := &config.Config{File: "ocibridge.hcl", PullThrough: &config.PullThrough{Enabled: true, Scope: pull.Scope{Selector: subject.Selector{Include: tc.include}}},
			Gateway: config.Gateway{PublicURL: tc.publicURL, HTTP: tc.http}}
		s := Settings{Config: c}
		p, err := s.pullRules(tc.addr, false, tc.controlled)
		if tc.refused {
			if !errors.As(err, new(UsageError)) || !strings.Contains(hint.Of(err), "include") {
				t.Errorf("%s: %v (%s)", name, err, hint.Of(err))
			}
		} else if err != nil || p == nil || p.byDefault {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		c.PullThrough.Enabled = false
		if p, err := s.pullRules(tc.addr, false, tc.controlled); p != nil || err != nil {
			t.Errorf("%s, and not enabled: %+v, %v", name, p, err)
		}
	}
}

// TestPullingByDefault shows that if nothing is configured, the registry is embedded, and other machines cannot
// reach the gateway, then pull-through is on.
func TestPullingByDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		file, publicURL string
		addr            net.Addr
		http, embedded  bool
		on              bool
	}{
		"nothing configured": {addr: onLoopback, embedded: true, on: true},
		"a file":             {addr: onLoopback, embedded: true, file: "ocibridge.hcl"},
		"a registry":         {addr: onLoopback},
		"for everybody":      {addr: everywhere, embedded: true},
		"behind a proxy":     {addr: onLoopback, embedded: true, http: true},
	} {
		s := Settings{Config: &config.Config{File: tc.file, Gateway: config.Gateway{HTTP: tc.http}}}
		p, err := s.pullRules(tc.addr, tc.embedded, false)
		if err != nil || (p != nil) != tc.on {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if p != nil && (!p.byDefault || len(p.Platforms) != 1 || p.Platforms[0].String() != runtime.GOOS+"_"+runtime.GOARCH) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestPassedOn shows that a request causes no fetch if this gateway itself sent it, or if a browser sent it for a
// page of another site. If pull-through is on by default, a request that came through a proxy causes no fetch
// either.
func TestPassedOn(t *testing.T) {
	own := "1.1 ocibridge-own"
	for _, tc := range []struct {
		name, value       string
		byDefault, always bool // whether the request causes no fetch if pull-through is on by default, and in all cases
	}{
		{"Accept", "text/html", false, false},
		{"forwarded", "for=192.0.2.1", true, false},
		{"X-Forwarded-For", "", true, false},
		{"x-forwarded-proto", "https", true, false},
		{"X-Real-IP", "192.0.2.1", true, false},
		{"Via", "1.1 squid", true, false},
		{"Via", "1.1 ocibridge-other", true, false},
		{"Sec-Fetch-Site", "same-origin", false, false},
		{"Sec-Fetch-Site", "none", false, false},
		{"Sec-Fetch-Site", "cross-site", true, true},
		{"Sec-Fetch-Site", "same-site", true, true},
		{"Via", "1.1 squid, " + own + ", 1.1 varnish", true, true},
	} {
		for _, byDefault := range []bool{true, false} {
			var log strings.Builder
			fetches := (&pullRules{byDefault: byDefault, via: own}).fetches(slog.New(slog.NewTextHandler(&log, nil)))
			want := !tc.always && !(byDefault && tc.byDefault)
			for range 2 {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set(tc.name, tc.value)
				if got := fetches(r); got != want {
					t.Errorf("%s: %s, by default %t: the request may cause a fetch: %t", tc.name, tc.value, byDefault, got)
				}
			}
			if n := strings.Count(log.String(), "level=WARN"); (n == 1) == want {
				t.Errorf("%s: %s, by default %t: the log says\n%s", tc.name, tc.value, byDefault, log.String())
			}
		}
	}
}

// TestFallThroughNeedsAnAllowList shows that if other machines can reach a gateway without access control, the
// redirects of modules require an allow list of hosts.
func TestFallThroughNeedsAnAllowList(t *testing.T) {
	const named, all = `include = ["registry.opentofu.org/*/*/*"]`, `include = ["registry.opentofu.org/*/*/*", "*/*/*/*"]`
	for name, tc := range map[string]struct {
		include    string
		addr       net.Addr
		public     string
		controlled bool
		refused    bool
	}{
		"on this machine":           {addr: onLoopback},
		"for everybody":             {addr: everywhere, refused: true},
		"for everybody, all named":  {addr: everywhere, include: named},
		"for everybody, one of all": {addr: everywhere, include: all, refused: true},
		"for those with tokens":     {addr: everywhere, controlled: true},
		"by another name":           {addr: onLoopback, public: `public_url = "https://modules.example/"`, refused: true},
	} {
		for _, fallThrough := range []bool{true, false} {
			c, err := config.Parse(config.Environment{}, "ocibridge.hcl", fmt.Appendf(nil,
				"module_mirror {\n  repository_template = \"ghcr.io/acme/${hostname}/${namespace}/${name}/${system}\"\n  fall_through = %t\n  %s\n}\ngateway {\n  %s\n}\n",
				fallThrough, tc.include, tc.public))
			if err != nil {
				t.Fatal(err)
			}
			s := Settings{Config: c}
			err = s.checkFallThrough(tc.addr, tc.controlled)
			if refused := tc.refused && fallThrough; refused != errors.As(err, new(UsageError)) || !refused && err != nil || refused && !strings.Contains(hint.Of(err), "include") {
				t.Errorf("%s, fall_through = %t: %v (%s)", name, fallThrough, err, hint.Of(err))
			}
		}
	}
}
