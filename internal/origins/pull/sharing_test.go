package pull

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/origin"
)

// from returns the claims of n downloads from the same host, which has the given names and addresses.
func from(n int, hosts ...string) []claim { return slices.Repeat([]claim{{hosts: hosts}}, n) }

// TestShareOfOneHost shows that one host can have all slots but two, and always at least one.
func TestShareOfOneHost(t *testing.T) {
	for places, share := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: 6, 256: 254} {
		evil := claim{hosts: []string{"evil"}}
		if !admits(places, from(share-1, "evil"), evil) {
			t.Errorf("of %d slots, a host gets fewer than %d", places, share)
		}
		if admits(places, from(share, "evil"), evil) {
			t.Errorf("of %d slots, a host gets more than %d", places, share)
		}
		if got := admits(places, from(share, "evil"), claim{hosts: []string{"good"}}); got != (places > share) {
			t.Errorf("of %d slots, another host gets one: %t", places, got)
		}
	}
}

// TestAdmits checks whether a download may have one of eight slots, given the downloads that have a slot.
func TestAdmits(t *testing.T) {
	background := slices.Repeat([]claim{{background: true}}, 4)
	for name, tc := range map[string]struct {
		held []claim
		c    claim
		want bool
	}{
		"the first":                        {nil, claim{hosts: []string{"a"}}, true},
		"no place is left":                 {from(8), claim{}, false},
		"hosts that are not known":         {from(7), claim{}, true},
		"one name":                         {from(6, "a"), claim{hosts: []string{"a"}}, false},
		"another name":                     {from(6, "a"), claim{hosts: []string{"b"}}, true},
		"a name that is not connected yet": {from(6, "a", "192.0.2.1"), claim{hosts: []string{"b"}}, true},
		"six names of one address": {[]claim{
			{hosts: []string{"a", "1"}}, {hosts: []string{"b", "1"}}, {hosts: []string{"c", "1"}},
			{hosts: []string{"d", "1"}}, {hosts: []string{"e", "1"}}, {hosts: []string{"f", "1"}},
		}, claim{hosts: []string{"g", "1"}}, false},
		"six addresses of one name": {[]claim{
			{hosts: []string{"a", "1"}}, {hosts: []string{"a", "2"}}, {hosts: []string{"a", "3"}},
			{hosts: []string{"a", "4"}}, {hosts: []string{"a", "5"}}, {hosts: []string{"a", "6"}},
		}, claim{hosts: []string{"b", "4"}}, false},
		"names and addresses in a chain": {[]claim{
			{hosts: []string{"f", "5"}}, {hosts: []string{"e", "5"}}, {hosts: []string{"e", "4"}},
			{hosts: []string{"c", "4"}}, {hosts: []string{"c", "3"}}, {hosts: []string{"a", "3"}},
		}, claim{hosts: []string{"a"}}, false},
		"half in the background":           {background, claim{background: true}, false},
		"half in the background, a client": {background, claim{}, true},
	} {
		if got := admits(8, tc.held, tc.c); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !admits(1, nil, claim{background: true}) {
		t.Error("a background download may not have the only slot")
	}
}

// TestNext checks which download in the queue gets the next slot, if one host has six of eight slots.
func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		queue []claim
		want  int
	}{
		"nobody":                             {nil, -1},
		"who came first":                     {[]claim{{}, {}}, 0},
		"a client before the background":     {[]claim{{background: true}, {}}, 1},
		"the background":                     {[]claim{{background: true}}, 0},
		"past a host that has its share":     {[]claim{{hosts: []string{"a"}}, {background: true, hosts: []string{"b"}}}, 1},
		"none but a host that has its share": {[]claim{{hosts: []string{"a"}}}, -1},
	} {
		if got := next(8, from(6, "a"), tc.queue); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// TestToEnd checks which download is cancelled for a waiting client, if all four slots are taken.
func TestToEnd(t *testing.T) {
	read := claim{bytes: 1, age: time.Hour}
	slow, fast := claim{unread: true, bytes: 100 << 10, age: time.Minute}, claim{unread: true, bytes: 10 << 20, age: time.Minute}
	late := claim{unread: true, age: preemptAfter - 1}
	old := claim{unread: true, bytes: 50 << 20, age: time.Hour} // 14 KiB/s: the slowest, although it has the most bytes
	of := func(c claim, hosts ...string) claim { c.hosts = hosts; return c }
	for name, tc := range map[string]struct {
		held    []claim
		waiting claim
		want    int
	}{
		"the slowest":                          {[]claim{fast, slow, fast, fast}, claim{}, 1},
		"the slowest, not the one with least":  {[]claim{fast, fast, old, claim{unread: true, bytes: 1 << 20, age: time.Minute}}, claim{}, 2},
		"none that a client reads":             {[]claim{read, fast, read, read}, claim{}, 1},
		"all are read":                         {[]claim{read, read, read, read}, claim{}, -1},
		"none that has just begun":             {[]claim{late, fast, late, late}, claim{}, 1},
		"one of the host that has its share":   {[]claim{slow, of(fast, "a"), of(read, "a")}, of(claim{}, "a"), 1},
		"of the others, where that is no help": {[]claim{slow, of(read, "a"), of(read, "a")}, of(claim{}, "a"), -1},
		"one more than there are places now":   {[]claim{slow, slow, slow, slow, slow}, claim{}, -1},
	} {
		if got := victim(4, tc.held, tc.waiting); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// TestOnlyClientsHaveDownloadsEnd shows that, while only a background download waits for a slot, no download is
// cancelled. If a client waits for a slot, a download that no client reads is cancelled.
func TestOnlyClientsHaveDownloadsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 2})
		ended := make(chan struct{})
		var slow *reservation
		slow, err := l.reserve(t.Context(), 1, demand{
			background: true, isRead: func() bool { return false },
			preempt: func() bool { close(ended); go slow.done(); return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		urgent := make(chan struct{})
		got := make(chan error)
		go func() {
			_, err := l.reserve(t.Context(), 1, demand{background: true, urgent: urgent})
			got <- err
		}()
		time.Sleep(time.Hour)
		select {
		case <-ended:
			t.Fatal("the download was cancelled for another one in the background")
		default:
		}
		start := time.Now()
		close(urgent)
		if err := <-got; err != nil || time.Since(start) != 0 {
			t.Errorf("with a client, the download gets the other slot after %s: %v", time.Since(start), err)
		}
		if _, err := l.reserve(t.Context(), 1, demand{}); err != nil || time.Since(start) != preemptAfter {
			t.Errorf("a client gets a slot after %s: %v", time.Since(start), err)
		}
		<-ended
		_, err = l.reserve(t.Context(), 1, demand{})
		wantBusy(t, err, "max_concurrent", retrySlot)
	})
}

// TestYieldRefused shows that, if a client begins to read the download that was chosen to be cancelled, another
// download is cancelled instead.
func TestYieldRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 2})
		var refusing, yielding *reservation
		asked := 0
		reserve := func(yield func() bool) *reservation {
			r, err := l.reserve(t.Context(), 1, demand{isRead: func() bool { return false }, preempt: yield})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		refusing = reserve(func() bool { asked++; refusing.isRead = func() bool { return true }; return false })
		yielding = reserve(func() bool { yielding.done(); return true })
		yielding.write(1)
		start := time.Now()
		if _, err := l.reserve(t.Context(), 1, demand{}); err != nil || time.Since(start) != 2*preemptAfter || asked != 1 {
			t.Errorf("after %s, and %d refusals: %v", time.Since(start), asked, err)
		}
	})
}

// TestConnectionsOfEarlierRequests shows that, if a connection for an earlier request is established late, it does not
// count as a connection to the host of the next request. A transport may still be connecting for a request that another
// connection has already served.
func TestConnectionsOfEarlierRequests(t *testing.T) {
	l := NewBudget(Limits{})
	room := reservedFor(t, l, "a.test")
	way := &route{room: room, cancel: func(error) { t.Error("the requests are cancelled") }}
	asks := func(name, address string, connected bool) {
		host := origin.AskedHost{Name: name, Connected: connected}
		if address != "" {
			host.Address = netip.MustParsePrefix(address)
		}
		way.asks(host)
	}
	asks("a.test", "", false)
	asks("a.test", "198.51.100.1/32", true)
	asks("bucket.test", "", false)
	asks("a.test", "198.51.100.2/32", false)
	asks("bucket.test", "198.51.100.3/32", true)
	asks("bucket.test", "198.51.100.4/32", false)
	if way.isCrowded(true) {
		t.Error("the host is crowded")
	}
	asks("a.test", "198.51.100.4/32", false)
	asks("bucket.test", "198.51.100.4/32", false)
	if want := []string{"bucket.test", "198.51.100.3/32"}; !slices.Equal(room.hosts, want) {
		t.Errorf("the package comes from %q, want %q", room.hosts, want)
	}
}

// TestTriedAddresses shows that, until a request is connected, only the last two addresses that it has tried are
// counted. A name with many addresses therefore takes no more memory than a name with two addresses.
func TestTriedAddresses(t *testing.T) {
	l := NewBudget(Limits{})
	room := reservedFor(t, l, "a.test")
	way := &route{room: room, cancel: func(error) { t.Error("the requests are cancelled") }}
	want := func(hosts ...string) {
		t.Helper()
		if !slices.Equal(room.hosts, hosts) {
			t.Errorf("the download counts for %q, want %q", room.hosts, hosts)
		}
	}
	address := func(i byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, i}), 32) }
	way.asks(origin.AskedHost{Name: "a.test"})
	want("a.test")
	for i := range byte(100) {
		way.asks(origin.AskedHost{Name: "a.test", Address: address(i)})
		way.asks(origin.AskedHost{Name: "a.test", Address: address(i)})
	}
	want("a.test", "198.51.100.98/32", "198.51.100.99/32")
	way.asks(origin.AskedHost{Name: "a.test", Address: address(7), Connected: true})
	want("a.test", "198.51.100.7/32")
	way.asks(origin.AskedHost{Name: "a.test", Address: address(8)})
	want("a.test", "198.51.100.7/32")
}

// reservedFor makes a reservation for a host with the given names and addresses. It fails the test if the reservation
// fails.
func reservedFor(t *testing.T, l *Budget, hosts ...string) *reservation {
	t.Helper()
	r, err := l.reserve(t.Context(), -1, demand{hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCrowdedDownloadLosesItsPlace shows that, if a download is redirected to a busy host, it loses its slot
// immediately. It then waits ahead of downloads that came later. The sum of its waits is at most a client's patience.
func TestCrowdedDownloadLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 3})
		first, second, third := reservedFor(t, l, "a.test"), reservedFor(t, l, "b.test"), reservedFor(t, l, "c.test")
		order := make(chan string, 3)
		wait := func(name string, r *reservation, after time.Duration, busy bool) {
			go func() {
				start := time.Now()
				err := l.waitForSlot(t.Context(), r)
				if took := time.Since(start); took != after || busy != (err != nil) {
					t.Errorf("%s: after %s: %v", name, took, err)
				}
				order <- name
			}()
			synctest.Wait()
		}
		time.Sleep(2 * slotPatience) // the origins are slow to redirect
		if !first.asks([]string{"bucket.test"}, false) {
			t.Error("the first download has no slot")
		}
		if third.asks([]string{"bucket.test"}, false) || l.Usage().Fetching != 2 {
			t.Errorf("the third download has a slot: %+v", l.Usage())
		}
		// The third download waits, but it does not block the second download, which still has its slot.
		first.done()
		if !second.asks([]string{"bucket.test"}, false) {
			t.Error("the second download has no slot")
		}
		reservedFor(t, l, "d.test")
		reservedFor(t, l, "e.test")
		fourth := &reservation{budget: l, demand: demand{hosts: []string{"bucket.test"}}, patience: slotPatience}
		wait("fourth", fourth, 25*time.Second, false)
		wait("third", third, 20*time.Second, false)
		time.Sleep(20 * time.Second)
		second.done()
		synctest.Wait()
		if !third.asks([]string{"c.test"}, false) || !slices.Contains(third.claim().hosts, "bucket.test") {
			t.Errorf("before it is redirected to the host that it waited for, the download counts for %q", third.claim().hosts)
		}
		time.Sleep(5 * time.Second)
		if third.asks([]string{"d.test"}, false) {
			t.Error("the third download has a slot")
		}
		wait("third again", third, 10*time.Second, true)
		time.Sleep(2 * slotPatience)
		for _, want := range []string{"third", "fourth", "third again"} {
			if got := <-order; got != want {
				t.Errorf("the wait of the %s ended before that of the %s", got, want)
			}
		}
	})
}

// TestNothingEndsForClientsThatLeft shows that, if the clients of a waiting download have left, no other download is
// cancelled in favour of the waiting download.
func TestNothingEndsForClientsThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 1})
		var unread *reservation
		unread, err := l.reserve(t.Context(), -1, demand{
			isRead:  func() bool { return false },
			preempt: func() bool { unread.done(); return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		var comesBack atomic.Bool
		waiting := demand{isRead: comesBack.Load, preempt: func() bool { return true }}
		start := time.Now()
		_, err = l.reserve(t.Context(), -1, waiting)
		if wantBusy(t, err, "max_concurrent", retrySlot); time.Since(start) != slotPatience {
			t.Errorf("after %s", time.Since(start))
		}
		start = time.Now()
		time.AfterFunc(3*preemptAfter-time.Second, func() { comesBack.Store(true) })
		if _, err := l.reserve(t.Context(), -1, waiting); err != nil || time.Since(start) != 3*preemptAfter {
			t.Errorf("with a client that came back, after %s: %v", time.Since(start), err)
		}
	})
}

// TestRedirectsThatEnd shows that, if an origin first redirects a download to a busy host and later sends packages
// itself, its downloads do not use up the busy host's share.
func TestRedirectsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInternet(t)
		defer n.close()
		n.resolve("busy.test", "198.51.100.1")
		n.origin("busy.test", versions(8)...)
		n.drip("busy.test", 1<<20, 1<<18, time.Second) // each download takes four seconds
		n.resolve("slow.test", "198.51.100.2")
		n.origin("slow.test", versions(6)...)
		n.drips("slow.test")
		redirects := make(chan struct{})
		n.origins["slow.test"].Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, ".zip") {
				return false
			}
			select {
			case <-redirects:
				<-r.Context().Done()
			default:
				http.Redirect(w, r, "http://busy.test"+r.URL.Path, http.StatusFound)
			}
			return true
		})
		p := n.puller(Options{})
		defer p.Close()
		for _, v := range versions(6) {
			n.asks(t.Context(), p, "busy.test", v)
		}
		synctest.Wait()
		n.asks(t.Context(), p, "slow.test", "1.0.0") // waits for busy.test
		synctest.Wait()
		close(redirects)
		time.Sleep(3500 * time.Millisecond)
		for _, v := range versions(6)[1:] {
			n.asks(t.Context(), p, "slow.test", v)
		}
		time.Sleep(5 * time.Second)
		if sent := n.drippings("busy.test"); sent != 0 || p.Usage().Fetching != 6 {
			t.Fatalf("busy.test sends %d, and %d are under way", sent, p.Usage().Fetching)
		}
		var busy *catalog.BusyError
		if err := n.get(t.Context(), p, "busy.test", "8.0.0"); errors.As(err, &busy) {
			t.Errorf("the download gets no slot: %v", err)
		}
	})
}
