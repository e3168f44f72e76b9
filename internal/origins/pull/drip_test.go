package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/memnet"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	testrelease "github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// internet is a network in memory. It contains origins, and the transport through which a Puller requests their
// packages. A test sets the addresses of each name.
type internet struct {
	t         *testing.T
	net       *memnet.Network
	transport *http.Transport
	services  *disco.Disco
	servers   []*http.Server

	mu       sync.Mutex // guards the fields below
	resolves map[string][]string
	dead     map[string]bool     // addresses that no longer answer
	closed   map[string][]string // the additional addresses of a name, which refuse connections
	origins  map[string]*testorigin.Origin
	dripping map[string]int // the number of downloads in flight from each host
}

func newInternet(t *testing.T) *internet {
	n := &internet{
		t: t, net: memnet.New(), services: disco.New(),
		resolves: map[string][]string{}, dead: map[string]bool{}, closed: map[string][]string{}, origins: map[string]*testorigin.Origin{}, dripping: map[string]int{},
	}
	n.transport = &http.Transport{DialContext: n.dial}
	return n
}

// close stops all servers and closes the connections of clients.
func (n *internet) close() {
	for _, s := range n.servers {
		s.Close()
	}
	time.Sleep(dialTimeout)
}

// dialTimeout is how long a client tries to connect. The attempt continues even after its request has ended.
const dialTimeout = 30 * time.Second

// dial connects to the next address of a name, and reports its attempts to the request's trace as a net.Dialer does.
func (n *internet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, _ := net.SplitHostPort(address)
	trace := httptrace.ContextClientTrace(ctx)
	n.mu.Lock()
	for _, address := range n.closed[host] {
		if trace != nil && trace.ConnectStart != nil {
			trace.ConnectStart(network, net.JoinHostPort(address, port))
		}
	}
	if all := n.resolves[host]; len(all) > 0 {
		host, n.resolves[host] = all[0], append(all[1:len(all):len(all)], all[0])
	}
	dead := n.dead[host]
	n.mu.Unlock()
	address = net.JoinHostPort(host, port)
	if trace != nil && trace.ConnectStart != nil {
		trace.ConnectStart(network, address)
	}
	if dead {
		time.Sleep(dialTimeout)
		return nil, os.ErrDeadlineExceeded
	}
	return n.net.Dial(ctx, network, address)
}

// die closes the connections to an address. From then on, the address does not answer.
func (n *internet) die(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead[address] = true
	n.net.Fail(net.JoinHostPort(address, "80"), memnet.Refused())
}

// listen starts a server at an address.
func (n *internet) listen(address string, h http.Handler) {
	l, err := n.net.Listen(net.JoinHostPort(address, "80"))
	if err != nil {
		n.t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	n.servers = append(n.servers, s)
	go s.Serve(l)
}

// resolve makes a name resolve to addresses, and starts their servers.
func (n *internet) resolve(name string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		known := false
		for _, others := range n.resolves {
			for _, other := range others {
				known = known || a == other
			}
		}
		if !known {
			n.listen(a, http.HandlerFunc(n.serve))
		}
	}
	n.resolves[name] = addresses
}

// serve passes a request to the origin of the request's host.
func (n *internet) serve(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	o := n.origins[strings.TrimSuffix(r.Host, ":80")]
	n.mu.Unlock()
	o.ServeHTTP(w, r)
}

// origin creates an origin with versions of a provider. Its host is name.
func (n *internet) origin(name string, versions ...string) *testorigin.Origin {
	n.t.Helper()
	o := testorigin.New(testorigin.Options{})
	for _, v := range versions {
		r, err := testrelease.Build(testrelease.Spec{
			Host: name, Namespace: "acme", Type: "widget", Version: v,
			Contents: []testrelease.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-widget": []byte(name + v + strings.Repeat("x", 5000))}}},
		})
		if err != nil {
			n.t.Fatal(err)
		}
		o.Add(r)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.origins[name] = o
	n.services.ForceHostServices(svchost.Hostname(name), map[string]any{"providers.v1": "http://" + name + testorigin.ServicePath})
	return o
}

// drip makes an origin send packages of size bytes, in pieces of piece bytes, with a pause before each piece.
func (n *internet) drip(name string, size, piece int, pause time.Duration) {
	n.origins[name].Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".zip") {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if r.Method == http.MethodHead {
			return true
		}
		count := func(by int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.dripping[name] += by
		}
		count(1)
		defer count(-1)
		flush := http.NewResponseController(w).Flush
		flush()
		for sent := 0; sent < size; sent += piece {
			select {
			case <-time.After(pause):
				w.Write(make([]byte, min(piece, size-sent)))
				flush()
			case <-r.Context().Done():
				return true
			}
		}
		return true
	})
}

// drips makes an origin send one byte about every five seconds. The pause is a little shorter, so that no byte arrives
// exactly at the end of a minute. It would be unclear to which minute that byte belongs.
func (n *internet) drips(name string) { n.drip(name, 1<<20, 1, 5*time.Second-time.Millisecond) }

// drippings returns the number of downloads in flight from a host.
func (n *internet) drippings(name string) int {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dripping[name]
}

func (n *internet) puller(o Options) *Puller {
	n.t.Helper()
	o.Origin, o.Policy, o.Spool = origin.NewRegistry(origin.RegistryOptions{Transport: n.transport, Services: n.services}), allowUnsigned, n.t.TempDir()
	p, err := New(o)
	if err != nil {
		n.t.Fatal(err)
	}
	p.Begin()
	return p
}

// get reads a package as a client of the gateway does, and returns an error unless the package is complete.
func (n *internet) get(ctx context.Context, p *Puller, host, version string) error {
	store := of(p, provider.MustParseAddress(host+"/acme/widget"))
	found, err := store.Complete(ctx, provider.MustParseVersion(version), nil)
	if err != nil {
		return err
	}
	return fetched(ctx, store, found.Packages[0])
}

// asks starts a client that reads a package, and returns a channel that receives the client's error.
func (n *internet) asks(ctx context.Context, p *Puller, host, version string) <-chan error {
	got := make(chan error, 1)
	go func() { got <- n.get(ctx, p, host, version) }()
	return got
}

// served fails the test unless a client gets a package within the given time.
func (n *internet) served(p *Puller, host, version string, within time.Duration) {
	n.t.Helper()
	start := time.Now()
	if err := n.get(n.t.Context(), p, host, version); err != nil || time.Since(start) > within {
		n.t.Errorf("%s %s: after %s: %v", host, version, time.Since(start), err)
	}
}

func versions(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%d.0.0", i+1))
	}
	return out
}

const soon = time.Second

// TestDrippingDownloads shows that eight slow downloads from one origin do not block a package from another origin, and
// that the slow downloads fail.
func TestDrippingDownloads(t *testing.T) {
	for name, tc := range map[string]struct {
		drip  func(*internet)
		alive int // the number of downloads that have begun
		says  string
	}{
		"a byte in five seconds": {func(n *internet) { n.drips("evil.test") }, 6, "the origin sent 12 bytes in 1m0s: at least 16 KiB/s are needed"},
		"a silent body":          {func(n *internet) { n.drip("evil.test", 5000, 1, time.Hour) }, 6, "the origin sent nothing for 1m0s"},
		"no answer": {func(n *internet) {
			n.origins["evil.test"].Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, ".zip") {
					<-r.Context().Done()
				}
				return false
			})
		}, 0, "the origin sent nothing for 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newInternet(t)
				defer n.close()
				n.resolve("evil.test", "198.51.100.1")
				n.resolve("good.test", "198.51.100.2")
				n.origin("evil.test", versions(8)...)
				n.origin("good.test", "1.0.0")
				tc.drip(n)
				p := n.puller(Options{})
				defer p.Close()
				start := time.Now()
				var got []<-chan error
				for _, v := range versions(8) {
					got = append(got, n.asks(t.Context(), p, "evil.test", v))
				}
				if under := n.drippings("evil.test"); under != tc.alive || p.Usage().Fetching != 6 {
					t.Errorf("%d downloads of one origin are under way: %+v", under, p.Usage())
				}
				n.served(p, "good.test", "1.0.0", soon)
				slow := 0
				for _, result := range got {
					var busy *catalog.BusyError
					switch err := <-result; {
					case err == nil:
						t.Error("a slow package arrived completely")
					case strings.Contains(err.Error(), tc.says) && errors.Is(err, catalog.ErrSource):
						slow++
					case !errors.As(err, &busy) || errors.Is(err, catalog.ErrSource):
						t.Error(err)
					}
				}
				if took := time.Since(start); slow != 6 || took > time.Minute+soon {
					t.Errorf("%d downloads failed for being slow, after %s", slow, took)
				}
				synctest.Wait()
				if usage := p.Usage(); usage.Fetching != 0 {
					t.Errorf("in use: %+v", usage)
				}
			})
		})
	}
}

// TestNamesOfOneAddress shows that all names that resolve to one address count as one host, and that all addresses of
// one name count as one host.
func TestNamesOfOneAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		resolve func(n *internet, name string, i int)
		silent  bool // the address accepts no connection
	}{
		"nine names of one address":                     {resolve: func(n *internet, name string, _ int) { n.resolve(name, "198.51.100.1") }},
		"nine names in one network of IPv6":             {resolve: func(n *internet, name string, i int) { n.resolve(name, fmt.Sprintf("2001:db8::%d", i+1)) }},
		"nine names of one address, which is not there": {resolve: func(n *internet, name string, _ int) { n.resolve(name, "198.51.100.1") }, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newInternet(t)
				defer n.close()
				n.resolve("good.test", "198.51.100.2")
				n.origin("good.test", "1.0.0")
				p := n.puller(Options{})
				defer p.Close()
				var got []<-chan error
				for i := range 9 {
					evil := fmt.Sprintf("evil%d.test", i)
					tc.resolve(n, evil, i)
					n.origin(evil, "1.0.0")
					n.drips(evil)
					store := of(p, provider.MustParseAddress(evil+"/acme/widget"))
					if _, err := store.Complete(t.Context(), provider.MustParseVersion("1.0.0"), nil); err != nil {
						t.Fatal(err)
					}
				}
				if tc.silent {
					n.die("198.51.100.1")
				}
				for i := range 9 {
					got = append(got, n.asks(t.Context(), p, fmt.Sprintf("evil%d.test", i), "1.0.0"))
				}
				synctest.Wait()
				if usage := p.Usage(); usage.Fetching != 6 {
					t.Errorf("%d downloads of one host are under way", usage.Fetching)
				}
				n.served(p, "good.test", "1.0.0", soon)
				for _, result := range got {
					if err := <-result; err == nil {
						t.Error("a package came whole")
					}
				}
			})
		})
	}
}

// TestAddressesOfOneName shows that a name counts as one host, even if it resolves to another address each time.
func TestAddressesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		n.resolve("evil.test", "198.51.100.11", "198.51.100.12", "198.51.100.13", "198.51.100.14")
		n.resolve("good.test", "198.51.100.2")
		n.origin("evil.test", versions(9)...)
		n.origin("good.test", "1.0.0")
		n.drips("evil.test")
		p := n.puller(Options{})
		defer p.Close()
		for _, v := range versions(9) {
			n.asks(t.Context(), p, "evil.test", v)
		}
		if under := n.drippings("evil.test"); under != 6 {
			t.Errorf("%d downloads of one name are under way", under)
		}
		n.served(p, "good.test", "1.0.0", soon)
	})
}

// TestHostsBehindAProxy shows that, if a proxy is configured, each name counts as a host of its own, although all
// connections go to the proxy's address.
func TestHostsBehindAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		n.resolve("proxy.test", "198.51.100.9")
		n.transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})
		p := n.puller(Options{})
		defer p.Close()
		ask := func(host string, downloads int) {
			n.origin(host, versions(downloads)...)
			n.drips(host)
			for _, v := range versions(downloads) {
				n.asks(t.Context(), p, host, v)
			}
		}
		ask("evil.test", 9)
		if under := n.drippings("evil.test"); under != 6 {
			t.Errorf("%d downloads of one host are under way", under)
		}
		ask("other.test", 1)
		ask("another.test", 1)
		if n.drippings("other.test") != 1 || n.drippings("another.test") != 1 {
			t.Errorf("%d and %d downloads of the other hosts are under way", n.drippings("other.test"), n.drippings("another.test"))
		}
	})
}

// TestHostAtTheEndOfRedirects shows that, if an origin redirects a download to a storage host, the download counts for
// the storage host, and not for the origin.
func TestHostAtTheEndOfRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		n.resolve("bucket.test", "198.51.100.1")
		n.origin("bucket.test", versions(1)...)
		n.drips("bucket.test")
		p := n.puller(Options{})
		defer p.Close()
		for i, host := range []string{"a.test", "b.test", "c.test"} {
			n.resolve(host, fmt.Sprintf("198.51.100.%d", i+2))
			n.origin(host, versions(4)...).Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				redirect := strings.HasSuffix(r.URL.Path, ".zip") && !strings.Contains(r.URL.Path, "4.0.0")
				if redirect {
					http.Redirect(w, r, "http://bucket.test"+r.URL.Path, http.StatusFound)
				}
				return redirect
			})
		}
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			for _, v := range versions(3) {
				n.asks(t.Context(), p, host, v)
			}
		}
		if under := n.drippings("bucket.test"); under != 6 || p.Usage().Fetching != 6 {
			t.Errorf("%d downloads of the storage are under way: %+v", under, p.Usage())
		}
		// These origins send a package themselves.
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			n.served(p, host, "4.0.0", soon)
		}
	})
}

// TestAddressThatRefuses shows that, if an address of a name refuses the connection, downloads from that name do not
// count for the address. Here, the address belongs to another origin.
func TestAddressThatRefuses(t *testing.T) {
	for name, drip := range map[string]func(*internet){
		"while the package comes": func(n *internet) { n.drips("evil.test") },
		"before the answer": func(n *internet) {
			n.origins["evil.test"].Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, ".zip") {
					<-r.Context().Done()
				}
				return false
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newInternet(t)
				defer n.close()
				n.resolve("evil.test", "198.51.100.1")
				n.resolve("good.test", "198.51.100.2")
				n.origin("evil.test", versions(6)...)
				n.origin("good.test", "1.0.0")
				n.closed["evil.test"] = []string{"198.51.100.2"}
				drip(n)
				p := n.puller(Options{})
				defer p.Close()
				for _, v := range versions(6) {
					n.asks(t.Context(), p, "evil.test", v)
				}
				synctest.Wait()
				if usage := p.Usage(); usage.Fetching != 6 {
					t.Errorf("%d downloads are under way", usage.Fetching)
				}
				n.served(p, "good.test", "1.0.0", soon)
			})
		})
	}
}

// TestResumedThroughRedirects shows that, if a download breaks off again and again and each retry is redirected to
// another name, the download counts only for the last host.
func TestResumedThroughRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		n.resolve("evil.test", "198.51.100.1")
		n.resolve("good.test", "198.51.100.2")
		n.origin("good.test", "1.0.0")
		n.origin("bucket.test", "1.0.0")
		const breaks, piece = 40, 1 << 20
		at := 0 // index of the next name
		n.origin("evil.test", "1.0.0").Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, ".zip") || r.Method == http.MethodHead {
				return false
			}
			at++
			name := fmt.Sprintf("n%d.test", at)
			n.resolve(name, fmt.Sprintf("198.51.100.%d", 100+at))
			n.mu.Lock()
			n.origins[name] = n.origins["bucket.test"]
			n.mu.Unlock()
			http.Redirect(w, r, "http://"+name+r.URL.Path, http.StatusFound)
			return true
		})
		n.origins["bucket.test"].Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			const size = (breaks + 1) * piece
			var have int
			fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &have)
			w.Header().Set("Content-Length", fmt.Sprint(size-have))
			if have > 0 {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", have, size-1, size))
				w.WriteHeader(http.StatusPartialContent)
			}
			if have < breaks*piece {
				w.Write(make([]byte, piece))
				panic(http.ErrAbortHandler)
			}
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		})
		p := n.puller(Options{Limits: Limits{MaxConcurrent: 2}})
		defer p.Close()
		n.asks(t.Context(), p, "evil.test", "1.0.0")
		time.Sleep((breaks + 1) * time.Second)
		synctest.Wait()
		if at != breaks+1 {
			t.Errorf("the download was redirected %d times", at)
		}
		p.limit.mu.Lock()
		hosts := p.limit.held[0].hosts
		p.limit.mu.Unlock()
		if want := []string{fmt.Sprintf("n%d.test", at), fmt.Sprintf("198.51.100.%d/32", 100+at)}; !slices.Equal(hosts, want) {
			t.Errorf("the download counts for %q, want %q", hosts, want)
		}
	})
}

// TestManyRedirectedToOneHost shows that, if many origins redirect more downloads to one host than there are slots, all
// downloads succeed. The host sends only as many packages concurrently as its share allows.
func TestManyRedirectedToOneHost(t *testing.T) {
	for name, tc := range map[string]struct {
		places   int
		origins  int
		versions int           // the number of versions of each origin
		takes    time.Duration // duration of a download
		slow     time.Duration // duration of a redirect
	}{
		"eight places":                       {8, 20, 1, 4 * time.Second, 100 * time.Millisecond},
		"one origin":                         {8, 1, 20, 4 * time.Second, 100 * time.Millisecond},
		"two origins":                        {8, 2, 10, 4 * time.Second, 100 * time.Millisecond},
		"one place for a host":               {3, 20, 1, time.Second, 100 * time.Millisecond},
		"redirects slower than clients wait": {12, 12, 1, 4 * time.Second, 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newInternet(t)
				defer n.close()
				sending, most := 0, 0
				sends := func(by int) {
					n.mu.Lock()
					defer n.mu.Unlock()
					sending += by
					most = max(most, sending)
				}
				n.listen("198.51.100.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						sends(1)
						defer sends(-1)
						time.Sleep(tc.takes)
					}
					host, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
					r.URL.Path = "/" + path
					n.origins[host].ServeHTTP(w, r)
				}))
				n.resolves["bucket.test"] = []string{"198.51.100.1"}
				p := n.puller(Options{Limits: Limits{MaxConcurrent: tc.places}})
				defer p.Close()
				var got []<-chan error
				for i := range tc.origins {
					host := fmt.Sprintf("o%d.test", i)
					n.resolve(host, fmt.Sprintf("198.51.100.%d", i+2))
					n.origin(host, versions(tc.versions)...).Intercept(func(w http.ResponseWriter, r *http.Request) bool {
						redirects := strings.HasSuffix(r.URL.Path, ".zip") && r.Method == http.MethodGet && r.Host == host
						if redirects {
							time.Sleep(tc.slow)
							http.Redirect(w, r, "http://bucket.test/"+host+r.URL.Path, http.StatusFound)
						}
						return redirects
					})
				}
				for _, v := range versions(tc.versions) {
					for i := range tc.origins {
						got = append(got, n.asks(t.Context(), p, fmt.Sprintf("o%d.test", i), v))
					}
				}
				for i, result := range got {
					if err := <-result; err != nil {
						t.Errorf("client %d: %v", i, err)
					}
				}
				if share := max(1, tc.places-leftToOthers); most != share {
					t.Errorf("the host sent %d packages concurrently, and its share is %d", most, share)
				}
			})
		})
	}
}

// TestRedirectedToBusyHosts shows that, if a download is redirected to several busy hosts one after another, it waits
// for a slot of each host, and then succeeds.
func TestRedirectedToBusyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		p := n.puller(Options{Limits: Limits{MaxConcurrent: 3}}) // a host has one slot
		defer p.Close()
		for i := range 4 {
			host := fmt.Sprintf("b%d.test", i)
			n.resolve(host, fmt.Sprintf("198.51.100.%d", i+1))
			n.origin(host, "1.0.0").Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, ".zip") && r.Method == http.MethodGet {
					time.Sleep(time.Duration(i+1) * 5 * time.Second)
				}
				return false
			})
		}
		n.resolve("good.test", "198.51.100.10")
		tries := 0
		n.origin("good.test", "1.0.0").Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, ".zip") || r.Method != http.MethodGet {
				return false
			}
			redirects := tries < 4
			if redirects {
				http.Redirect(w, r, fmt.Sprintf("http://b%d.test%s", tries, r.URL.Path), http.StatusFound)
			}
			tries++
			return redirects
		})
		n.asks(t.Context(), p, "b0.test", "1.0.0")
		n.asks(t.Context(), p, "b1.test", "1.0.0")
		synctest.Wait()
		got, start := n.asks(t.Context(), p, "good.test", "1.0.0"), time.Now()
		synctest.Wait()
		n.asks(t.Context(), p, "b2.test", "1.0.0")
		time.Sleep(7 * time.Second)
		n.asks(t.Context(), p, "b3.test", "1.0.0")
		if err := <-got; err != nil || tries != 5 || time.Since(start) > slotPatience {
			t.Errorf("after %s, and %d tries: %v", time.Since(start), tries, err)
		}
	})
}

// TestDownloadsYield shows that, if a client waits for a slot, only the slowest download that no client reads is
// cancelled. The next client that requests the package of the cancelled download starts the download again.
func TestDownloadsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		const rate = 32 << 10 // bytes per second
		for i, host := range []string{"read.test", "slow.test", "fast.test", "good.test", "last.test", "late.test"} {
			n.resolve(host, fmt.Sprintf("198.51.100.%d", i+1))
			n.origin(host, "1.0.0")
		}
		n.drip("read.test", 600*rate, rate, time.Second)
		n.drip("slow.test", 600*rate, rate, time.Second)
		n.drip("fast.test", 600*rate, 2*rate, time.Second)
		n.drip("last.test", 600*rate, 3*rate, time.Second)
		p := n.puller(Options{Limits: Limits{MaxConcurrent: 3}, Events: func(e Event) {
			if e.Kind == Fetched && e.Subject.Hostname() == "slow.test" && !errors.Is(e.Err, context.Canceled) {
				t.Errorf("the preempted download is reported as the origin's failure: %v", e.Err)
			}
		}})
		defer p.Close()
		want := func(read, slow, fast, last int) {
			t.Helper()
			if got, want := []int{n.drippings("read.test"), n.drippings("slow.test"), n.drippings("fast.test"), n.drippings("last.test")}, []int{read, slow, fast, last}; !slices.Equal(got, want) {
				t.Errorf("under way are %d, want %d", got, want)
			}
		}
		leaving, leave := context.WithCancel(t.Context())
		n.asks(t.Context(), p, "read.test", "1.0.0")
		n.asks(leaving, p, "slow.test", "1.0.0")
		n.asks(leaving, p, "fast.test", "1.0.0")
		time.Sleep(10 * time.Second)
		leave()
		want(1, 1, 1, 0) // downloads continue without their clients
		n.served(p, "good.test", "1.0.0", preemptAfter+soon)
		want(1, 0, 1, 0)
		n.asks(t.Context(), p, "slow.test", "1.0.0")
		want(1, 1, 1, 0) // the download was not remembered as failed
		n.asks(t.Context(), p, "last.test", "1.0.0")
		time.Sleep(preemptAfter)
		want(1, 1, 0, 1)
		// If clients read all downloads, no download is cancelled.
		var busy *catalog.BusyError
		start := time.Now()
		if err := n.get(t.Context(), p, "late.test", "1.0.0"); !errors.As(err, &busy) || time.Since(start) != slotPatience {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		want(1, 1, 0, 1)
		// A download that a client has begun to read cannot be cancelled, even if it was already chosen.
		p.mu.Lock()
		downloads := slices.Collect(maps.Values(p.downloads))
		p.mu.Unlock()
		for _, d := range downloads {
			if p.preempt(d) {
				t.Errorf("%s was cancelled", d.want.subject)
			}
		}
	})
}

// TestPushOfWhatYielded shows that, if the download of a push is cancelled in favour of a client, the push is retried
// after its pause, however often its downloads are cancelled.
func TestPushOfWhatYielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		for i, host := range []string{"slow.test", "good.test"} {
			n.resolve(host, fmt.Sprintf("198.51.100.%d", i+1))
			n.origin(host, versions(10)...)
		}
		n.drip("slow.test", 1<<30, 1<<20, time.Second)
		var pushed []error
		p := n.puller(Options{Limits: Limits{MaxConcurrent: 1}, Push: func(ctx context.Context, r *origin.Release) (*pusher.Result, error) {
			if r.Origin == "good.test" {
				return &pusher.Result{}, nil
			}
			body, _, err := r.Packages[0].Open(ctx)
			if err == nil {
				_, err = io.Copy(io.Discard, body)
				body.Close()
			}
			pushed = append(pushed, err)
			return nil, err
		}})
		defer p.Close()
		leaving, leave := context.WithCancel(t.Context())
		n.asks(leaving, p, "slow.test", "1.0.0")
		time.Sleep(15 * time.Second)
		leave()
		for i, v := range versions(10) { // more often than a failed push is retried
			n.served(p, "good.test", v, preemptAfter+soon)
			time.Sleep(pushPause + 10*time.Second)
			synctest.Wait()
			var busy *catalog.BusyError
			if len(pushed) != i+1 || !errors.As(pushed[i], &busy) || errors.Is(pushed[i], catalog.ErrSource) || n.drippings("slow.test") != 1 {
				t.Fatalf("pushed %d times, %d downloads under way: %v", len(pushed), n.drippings("slow.test"), pushed)
			}
		}
	})
}
