package lastuse

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	widget = provider.MustParseAddress("registry.acme.example/acme/widget")
	vpc    = module.MustParseAddress("registry.acme.example/acme/vpc/aws")
	noon   = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

func TestCounts(t *testing.T) {
	const pkg, manifest = "/providers/registry.acme.example/acme/widget/1.0.0/linux_amd64/a.zip", "/v2/acme/widget/manifests/1.0.0"
	for _, tt := range []struct {
		name, method, path string
		status             int
		want               bool
	}{
		{"sent", "GET", pkg, 200, true},
		{"a range", "GET", pkg, 206, true},
		{"known to the client", "GET", pkg, 304, true},
		{"redirected", "GET", pkg, 307, true},
		{"broken off", "GET", pkg, 0, true},
		{"HEAD", "HEAD", pkg, 200, false},
		{"HEAD of a tag", "HEAD", manifest, 200, true},
		{"no token", "GET", pkg, 401, false},
		{"another's", "GET", pkg, 403, false},
		{"absent", "GET", pkg, 404, false},
		{"no such range", "GET", pkg, 416, false},
		{"denied", "GET", manifest, 451, false},
		{"registry down", "GET", pkg, 503, false},
		{"short path", "HEAD", "/v2", 200, false},
	} {
		if got := Counts(tt.method, tt.path, tt.status); got != tt.want || Counts([]byte(tt.method), []byte(tt.path), tt.status) != got {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestForgotten shows that the version whose use is the longest ago is forgotten, and that nothing is then said about the
// time before its use.
func TestForgotten(t *testing.T) {
	times := newTimes(2, noon)
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	versions := []provider.Version{provider.MustParseVersion("1.0.0"), provider.MustParseVersion("1.1.0"), provider.MustParseVersion("1.2.0")}
	wants := func(of subject.Address, v int, last, since time.Time) {
		t.Helper()
		if gotLast, gotSince := times.Last(of, versions[v]); !gotLast.Equal(last) || !gotSince.Equal(since) {
			t.Errorf("%s %s: %v, since %v; want %v, since %v", of, versions[v], gotLast, gotSince, last, since)
		}
	}
	wants(widget, 0, time.Time{}, noon)
	times.Add(widget, versions[0], at(1))
	times.Add(widget, versions[1], at(2))
	times.Add(widget, versions[0], at(4))
	times.Add(widget, versions[0], at(3)) // ended earlier, and was recorded later
	wants(widget, 0, at(4), noon)
	wants(vpc, 0, time.Time{}, noon)
	wants(widget, 1, at(2), noon) // a look is not a use
	times.Add(vpc, versions[0], at(5))
	wants(widget, 1, time.Time{}, at(2))
	wants(widget, 0, at(4), at(2))
	wants(vpc, 0, at(5), at(2))
	times.Add(widget, versions[2], at(6))
	wants(widget, 0, time.Time{}, at(4))
}

// TestNobodyRemembers shows that no times can be used like times.
func TestNobodyRemembers(t *testing.T) {
	var none *Times
	none.Add(widget, provider.MustParseVersion("1.0.0"), noon)
	if at, since := none.Last(widget, provider.MustParseVersion("1.0.0")); !at.IsZero() || !since.IsZero() {
		t.Errorf("%v since %v", at, since)
	}
}

// fill adds concurrent uses of more versions than times can remember.
func fill(times *Times) {
	var users sync.WaitGroup
	for user := range 4 {
		users.Go(func() {
			for i := range MaxVersions {
				v := provider.MustParseVersion(fmt.Sprintf("%d.%d.0", user, i))
				times.Add(widget, v, noon)
				times.Last(widget, v)
			}
		})
	}
	users.Wait()
}

// TestBound shows that the number of remembered versions is bounded, and that another use of a known version allocates
// nothing.
func TestBound(t *testing.T) {
	times := New()
	fill(times)
	if n := times.last.Len(); n != MaxVersions {
		t.Errorf("%d versions", n)
	}
	of, v := subject.Address(widget), provider.MustParseVersion("9.0.0")
	times.Add(of, v, noon)
	if n := testing.AllocsPerRun(100, func() { times.Add(of, v, time.Now()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMemory(t *testing.T) {
	cost.Kept(t, 8<<20, func() any {
		times := New()
		fill(times)
		return times
	})
}

func BenchmarkCounts(b *testing.B) {
	method, path := []byte("HEAD"), []byte("/v2/acme/widget/manifests/1.0.0")
	b.ReportAllocs()
	for b.Loop() {
		Counts(method, path, 200)
	}
}

func BenchmarkAdd(b *testing.B) {
	times, of, v := New(), subject.Address(widget), provider.MustParseVersion("1.0.0")
	b.ReportAllocs()
	for b.Loop() {
		times.Add(of, v, noon)
	}
}
