package origin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// used returns the number of shards without a free slot.
func (h *hostSlots) used() (n int) {
	for _, slots := range h.shards {
		if !slots.TryAcquire(1) {
			n++
			continue
		}
		slots.Release(1)
	}
	return n
}

// TestHostsThatAreNotAskedTakeNothing shows that a slot is released however a request
// ends, so hosts without a pending request hold no slots.
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
			resp.Body.Close() // closing twice releases one slot
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
		if n := gate.used(); n != 1 {
			t.Errorf("%d shards are in use by one host", n)
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
		if n := gate.used(); n != 0 {
			t.Errorf("%d shards are still in use at the end", n)
		}
	})
}
