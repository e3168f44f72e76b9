package transfer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// run is a batch of transfers that have names and take a given time.
type run struct {
	*batch[pusher.Result]
	mu      sync.Mutex
	started []string
	now     int
	most    int // the maximum number of concurrent transfers
	reports []string
}

func newRun(jobs int) *run {
	r := &run{}
	r.batch = newBatch(jobs, func(result *pusher.Result) { r.reports = append(r.reports, string(result.Tag)) })
	return r
}

func (r *run) start(name string, lasts time.Duration, err error) error {
	return r.add(func() (*pusher.Result, error) {
		r.mu.Lock()
		r.started = append(r.started, name)
		r.now++
		r.most = max(r.most, r.now)
		r.mu.Unlock()
		time.Sleep(lasts)
		r.mu.Lock()
		r.now--
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return &pusher.Result{Tag: ociaddr.Tag(name)}, nil
	})
}

func names(results []*pusher.Result) string {
	var out []string
	for _, r := range results {
		out = append(out, string(r.Tag))
	}
	return strings.Join(out, " ")
}

// TestBatchReportsInOrder shows that a batch reports results in the order in which the
// transfers started, even if the transfers end in the reverse order.
func TestBatchReportsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(3)
		for i := range 6 {
			if err := r.start(fmt.Sprint(i), time.Duration(6-i)*time.Second, nil); err != nil {
				t.Fatal(err)
			}
		}
		results, err := r.wait(nil)
		if got := names(results); err != nil || got != "0 1 2 3 4 5" || strings.Join(r.reports, " ") != got {
			t.Errorf("results %s, reports %v, %v", got, r.reports, err)
		}
		if r.most != 3 {
			t.Errorf("%d at once", r.most)
		}
	})
}

// TestBatchWithoutJobs shows that a batch with 0 jobs runs the default number of transfers.
func TestBatchWithoutJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(0)
		for i := range pusher.DefaultJobs + 1 {
			if err := r.start(fmt.Sprint(i), time.Second, nil); err != nil {
				t.Fatal(err)
			}
		}
		if results, err := r.wait(nil); err != nil || len(results) != pusher.DefaultJobs+1 || r.most != pusher.DefaultJobs {
			t.Errorf("%d results, %d at once, %v", len(results), r.most, err)
		}
	})
}

// TestBatchStopsAfterAFailure shows that after a failure, running transfers are allowed to
// finish, and no further transfer is started.
func TestBatchStopsAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("refused")
		r := newRun(2)
		ended := errors.Join(r.start("0", 3*time.Second, nil), r.start("1", time.Second, failure))
		var stopped error
		for i := 2; stopped == nil && i < 9; i++ {
			stopped = r.start(fmt.Sprint(i), time.Second, nil)
		}
		results, err := r.wait(stopped)
		if ended != nil || !errors.Is(stopped, errStopped) || !errors.Is(err, failure) {
			t.Errorf("%v, %v, %v", ended, stopped, err)
		}
		slices.Sort(r.started)
		if got := names(results); got != "0" || strings.Join(r.started, " ") != "0 1" {
			t.Errorf("results %s, started %v", got, r.started)
		}
	})
}

// TestBatchReturnsTheSourcesError shows that a batch returns the error of the source if no
// transfer has failed.
func TestBatchReturnsTheSourcesError(t *testing.T) {
	source, first := errors.New("source"), errors.New("first")
	r := newRun(1)
	if _, err := r.wait(source); !errors.Is(err, source) {
		t.Errorf("%v", err)
	}
	r = newRun(1)
	if err := r.start("0", 0, first); err != nil {
		t.Fatal(err)
	}
	if _, err := r.wait(source); !errors.Is(err, first) {
		t.Errorf("%v", err)
	}
}

func TestNewest(t *testing.T) {
	var have []provider.Version
	for _, v := range []string{"1.0.0", "1.1.0", "2.0.0"} {
		have = append(have, provider.MustParseVersion(v))
	}
	const a = "registry.acme.example/acme/null"
	for arg, want := range map[string][2]string{ // the expected versions: if All is not set, and if All is set
		a:            {"1.0.0 1.1.0 2.0.0", "1.0.0 1.1.0 2.0.0"},
		a + "@1.0.0": {"1.0.0", "1.0.0"},
		a + "@9.0.0": {"9.0.0", "9.0.0"},
		a + "@~>1.0": {"1.1.0", "1.0.0 1.1.0"},
		a + "@> 3.0": {"", ""},
	} {
		q, err := query.Providers.ParseOne(arg)
		if err != nil {
			t.Fatal(err)
		}
		for i, all := range []bool{false, true} {
			var got []string
			for _, v := range newest(q, have, all) {
				got = append(got, v.String())
			}
			if strings.Join(got, " ") != want[i] {
				t.Errorf("%s, all %v: %v, want %s", arg, all, got, want[i])
			}
		}
	}
}

func TestParseLocation(t *testing.T) {
	for s, want := range map[string]Location{
		"":                         {},
		"embedded":                 {Kind: Embedded},
		"oci:dir":                  {Folder, "dir"},
		"oci-archive:a.tar":        {Archive, "a.tar"},
		"mirror:/srv":              {Mirror, "/srv"},
		"ghcr.io/acme/${type}":     {Template, "ghcr.io/acme/${type}"},
		"localhost:5000/a/${type}": {Template, "localhost:5000/a/${type}"},
	} {
		if got, err := ParseLocation("--from", s); got != want || err != nil {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"oci:", "mirror:", "./folder", "/folder", "ghcr.io"} {
		if got, err := ParseLocation("--from", s); err == nil {
			t.Errorf("%q: %+v", s, got)
		}
	}
}
