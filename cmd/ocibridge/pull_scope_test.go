package main

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
	"testing/synctest"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	onLoopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8443}
	everywhere = &net.TCPAddr{IP: net.IPv6unspecified, Port: 8443}
)

func patterns(list ...string) (out []provider.Pattern) {
	for _, s := range list {
		out = append(out, provider.MustParsePattern(s))
	}
	return out
}

// TestPullingNeedsAnAllowList: a gateway that others reach is no proxy to anywhere.
func TestPullingNeedsAnAllowList(t *testing.T) {
	const named, all = "registry.opentofu.org/hashicorp/*", "*/*/*"
	for name, tc := range map[string]struct {
		include    []provider.Pattern
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
		s := settings{file: &config.Config{File: "ocibridge.hcl", PullThrough: &config.PullThrough{Enabled: true, Selector: provider.Selector{Include: tc.include}},
			Gateway: config.Gateway{PublicURL: tc.publicURL}}}
		p, err := (&serveFlags{http: tc.http}).pulling(s, tc.addr, false, tc.controlled)
		if tc.refused {
			if !errors.As(err, new(usageError)) || !strings.Contains(hint.Of(err), "include") {
				t.Errorf("%s: %v (%s)", name, err, hint.Of(err))
			}
		} else if err != nil || p == nil || p.byDefault {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if p, err := (&serveFlags{http: tc.http, noPull: true}).pulling(s, tc.addr, false, tc.controlled); p != nil || err != nil {
			t.Errorf("%s, and --no-pull-through: %+v, %v", name, p, err)
		}
	}
}

// TestPullingByDefault is on where nothing is configured and nobody else gets in.
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
		s := settings{file: &config.Config{File: tc.file}}
		p, err := (&serveFlags{http: tc.http}).pulling(s, tc.addr, tc.embedded, false)
		if err != nil || (p != nil) != tc.on {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if p != nil && (!p.byDefault || len(p.Platforms) != 1 || p.Platforms[0].String() != runtime.GOOS+"_"+runtime.GOARCH) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestNamedHosts(t *testing.T) {
	named := namedHosts(patterns("registry.acme.internal/*/*", "a.example:8443/acme/*", "*/*/*"), map[svchost.Hostname]map[string]any{
		"one.example":   {"providers.v1": "https://localhost:9443/v1/providers/"},
		"two.example":   {"providers.v1": "https://Mirror.Internal/providers/"},
		"three.example": {"modules.v1": "https://modules.internal/", "providers.v1": "/relative/"},
	})
	for hostPort, want := range map[string]bool{
		"registry.acme.internal:443": true, "REGISTRY.acme.internal.:443": true, "x.registry.acme.internal:443": false,
		"registry.acme.internal:8443": false, "registry.acme.internal:6443": false, "registry.acme.internal:80": false,
		"a.example:8443": true, "a.example:443": false,
		"localhost:9443": true, "localhost:443": false, "127.0.0.1:9443": false,
		"mirror.internal:443": true, "mirror.internal:80": false,
		"modules.internal:443": false, "one.example:443": false, "169.254.169.254:80": false, ":443": false,
	} {
		host, port, err := net.SplitHostPort(hostPort)
		if err != nil {
			t.Fatal(err)
		}
		if got := named(host, port); got != want {
			t.Errorf("%s is named: %t", hostPort, got)
		}
	}
}

// TestPassedOn: who comes by way of a proxy gets nothing fetched where that is on by
// default, and who comes from this gateway itself never does.
func TestPassedOn(t *testing.T) {
	own := "1.1 ocibridge-own"
	for _, tc := range []struct {
		name, value       string
		byDefault, always bool // is it passed on?
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
			answer := func(status int) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			}
			h := (&pulling{byDefault: byDefault, via: own}).answering(answer(http.StatusOK), answer(http.StatusTeapot), slog.New(slog.NewTextHandler(&log, nil)))
			want := http.StatusOK
			if tc.always || byDefault && tc.byDefault {
				want = http.StatusTeapot
			}
			for range 2 {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set(tc.name, tc.value)
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != want {
					t.Errorf("%s: %s, by default %t: status %d", tc.name, tc.value, byDefault, w.Code)
				}
			}
			if n := strings.Count(log.String(), "level=WARN"); (n == 1) != (want == http.StatusTeapot) {
				t.Errorf("%s: %s, by default %t: the log says\n%s", tc.name, tc.value, byDefault, log.String())
			}
		}
	}
}

// TestServicesAreDiscoveredAnew: a gateway may run for months.
func TestServicesAreDiscoveredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		own := provider.MustParseAddress("registry.acme.example/acme/widget")
		o := &pullOrigin{make: func() *origin.Registry { made++; return origin.NewRegistry(origin.RegistryOptions{}) }}
		for range 3 {
			first := o.registry(own)
			time.Sleep(rediscoverAfter - time.Second)
			if o.registry(own) != first {
				t.Error("another one, too early")
			}
			time.Sleep(time.Second)
		}
		if made != 3 {
			t.Errorf("%d are made", made)
		}
	})
}

// TestMadeUpHostsTakeLittle: others may have as many hosts asked as they can name,
// and of each it is kept where its services are.
func TestMadeUpHostsTakeLittle(t *testing.T) {
	made := 0
	o := &pullOrigin{make: func() *origin.Registry { made++; return origin.NewRegistry(origin.RegistryOptions{}) }}
	for i := range 3 * maxDiscovered {
		a := provider.MustParseAddress(fmt.Sprintf("h%d.acme.example/acme/widget", i))
		if first := o.registry(a); o.registry(a) != first {
			t.Fatal("another one for the same host")
		}
		if len(o.hosts) > maxDiscovered {
			t.Fatalf("%d hosts are known", len(o.hosts))
		}
	}
	if made != 3 {
		t.Errorf("%d are made", made)
	}
}

// TestWhatServePrintsMeansTheEmbeddedRegistry: users paste it into the CLI
// configuration, which serve and push read, too.
func TestWhatServePrintsMeansTheEmbeddedRegistry(t *testing.T) {
	const parts = "/${hostname}/${namespace}/${type}"
	for name, tc := range map[string]struct {
		listens, file, template string
		own                     bool
	}{
		"by default":         {template: "localhost:8443" + parts, own: true},
		"by flag":            {listens: "localhost:9443", file: "localhost:7443", template: "localhost:9443" + parts, own: true},
		"by the file":        {file: "localhost:9443", template: "localhost:9443" + parts, own: true},
		"another port":       {template: "localhost:5000" + parts},
		"another repository": {template: "localhost:8443/providers" + parts},
	} {
		s := settings{file: &config.Config{Gateway: config.Gateway{Listen: tc.file}}, cli: &cliconfig.Config{OCIMirrors: []cliconfig.OCIMirror{{RepositoryTemplate: tc.template}}}}
		set, err := (&registryFlags{listens: tc.listens}).templateSet(s, nil)
		if err != nil || (len(set) == 0) != tc.own {
			t.Errorf("%s: %v, %v", name, set, err)
		}
	}
}
