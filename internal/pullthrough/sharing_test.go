package pullthrough

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// from are n downloads from one host.
func from(n int, hosts ...string) []claim { return slices.Repeat([]claim{{hosts: hosts}}, n) }

// TestShareOfOneHost: one host has all places but two, and one at least.
func TestShareOfOneHost(t *testing.T) {
	for places, share := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: 6, 256: 254} {
		evil := claim{hosts: []string{"evil"}}
		if !admits(places, from(share-1, "evil"), evil) {
			t.Errorf("of %d places, a host has fewer than %d", places, share)
		}
		if admits(places, from(share, "evil"), evil) {
			t.Errorf("of %d places, a host has more than %d", places, share)
		}
		if got := admits(places, from(share, "evil"), claim{hosts: []string{"good"}}); got != (places > share) {
			t.Errorf("of %d places, another host has one: %t", places, got)
		}
	}
}

// TestAdmits with eight places.
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
		t.Error("one place: it is for the background, too")
	}
}

// TestNext with eight places, six of them taken.
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

// TestToEnd with four places.
func TestToEnd(t *testing.T) {
	read := claim{bytes: 1, age: time.Hour}
	slow, fast := claim{unread: true, bytes: 100 << 10, age: time.Minute}, claim{unread: true, bytes: 10 << 20, age: time.Minute}
	late := claim{unread: true, age: yieldAfter - 1}
	old := claim{unread: true, bytes: 50 << 20, age: time.Hour} // 14 KiB/s, and the most bytes
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
		if got := toEnd(4, tc.held, tc.waiting); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// TestOnlyClientsHaveDownloadsEnd: a download in the background waits, until a client
// wants it.
func TestOnlyClientsHaveDownloadsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 2})
		ended := make(chan struct{})
		var slow *reservation
		slow, err := l.reserve(t.Context(), 1, party{
			background: true, isRead: func() bool { return false },
			yield: func() bool { close(ended); go slow.done(); return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		urgent := make(chan struct{})
		got := make(chan error)
		go func() {
			_, err := l.reserve(t.Context(), 1, party{background: true, urgent: urgent})
			got <- err
		}()
		time.Sleep(time.Hour)
		select {
		case <-ended:
			t.Fatal("it ends for another one in the background")
		default:
		}
		start := time.Now()
		close(urgent)
		if err := <-got; err != nil || time.Since(start) != 0 {
			t.Errorf("as a client it has the other place after %s: %v", time.Since(start), err)
		}
		if _, err := l.reserve(t.Context(), 1, party{}); err != nil || time.Since(start) != yieldAfter {
			t.Errorf("a client has a place after %s: %v", time.Since(start), err)
		}
		<-ended
		_, err = l.reserve(t.Context(), 1, party{})
		wantBusy(t, err, "max_concurrent", retryPlace)
	})
}

// TestYieldRefused: what a client reads by now does not end, and others may.
func TestYieldRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBudget(Limits{MaxConcurrent: 2})
		var refusing, yielding *reservation
		asked := 0
		reserve := func(yield func() bool) *reservation {
			r, err := l.reserve(t.Context(), 1, party{isRead: func() bool { return false }, yield: yield})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		refusing = reserve(func() bool { asked++; refusing.isRead = func() bool { return true }; return false })
		yielding = reserve(func() bool { yielding.done(); return true })
		yielding.write(1)
		start := time.Now()
		if _, err := l.reserve(t.Context(), 1, party{}); err != nil || time.Since(start) != 2*yieldAfter || asked != 1 {
			t.Errorf("after %s, and %d refusals: %v", time.Since(start), asked, err)
		}
	})
}

// TestConnectionsOfEarlierRequests: a transport may connect for a request that another
// connection has served by then. The address is not that of the host which came next.
func TestConnectionsOfEarlierRequests(t *testing.T) {
	l := NewBudget(Limits{})
	room, err := l.reserve(t.Context(), -1, party{hosts: []string{"a.test"}})
	if err != nil {
		t.Fatal(err)
	}
	way := &route{room: room, cancel: func(error) { t.Error("it is ended") }}
	way.asks("a.test", netip.Prefix{})
	way.asks("a.test", netip.MustParsePrefix("198.51.100.1/32"))
	way.asks("bucket.test", netip.Prefix{})
	way.asks("a.test", netip.MustParsePrefix("198.51.100.2/32"))
	way.asks("bucket.test", netip.MustParsePrefix("198.51.100.3/32"))
	if way.isOver(true) {
		t.Error("it is over")
	}
	way.asks("a.test", netip.MustParsePrefix("198.51.100.4/32"))
	if want := []string{"bucket.test", "198.51.100.3/32"}; !slices.Equal(room.hosts, want) {
		t.Errorf("it comes from %q, want %q", room.hosts, want)
	}
}
