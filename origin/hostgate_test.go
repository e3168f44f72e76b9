package origin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHostsThatAreNotAskedTakeNothing shows that every request releases its slot, whether it
// succeeds, fails or is cancelled. When the last request to a host ends, the host's slots
// are removed.
func TestHostsThatAreNotAskedTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		gate := newHostGate(roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Host, "broken") {
				return nil, broken
			}
			return &http.Response{Body: http.NoBody}, nil
		}), 1)
		ask := func(ctx context.Context, host string) (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			return gate.RoundTrip(req)
		}
		for i := range 100 {
			resp, err := ask(t.Context(), fmt.Sprintf("h%d.example", i))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			resp.Body.Close() // a second Close does not release a second slot
			if _, err := ask(t.Context(), fmt.Sprintf("broken%d.example", i)); !errors.Is(err, broken) {
				t.Fatal(err)
			}
		}
		first, err := ask(t.Context(), "slow.example")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { _, err := ask(ctx, "slow.example"); ended <- err }()
		synctest.Wait()
		if n := len(gate.hosts); n != 1 {
			t.Errorf("%d hosts have slots, want one", n)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		next := make(chan error)
		go func() {
			resp, err := ask(t.Context(), "slow.example")
			if err == nil {
				resp.Body.Close()
			}
			next <- err
		}()
		synctest.Wait()
		first.Body.Close()
		if err := <-next; err != nil {
			t.Error(err)
		}
		if n := len(gate.hosts); n != 0 {
			t.Errorf("%d hosts still have slots at the end", n)
		}
	})
}

// TestHostsShareNoSlots shows that a host has a free slot while all slots of other hosts are
// in use.
func TestHostsShareNoSlots(t *testing.T) {
	gate := newHostGate(roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: http.NoBody}, nil
	}), 1)
	synctest.Test(t, func(t *testing.T) {
		for i := range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://h%d.example/", i), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := gate.RoundTrip(req)
			if err != nil {
				t.Fatalf("host %d waits for another host: %v", i, err)
			}
			defer resp.Body.Close()
		}
	})
}
