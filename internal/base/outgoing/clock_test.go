package outgoing

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	local := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	answer := func(date string) *http.Response {
		header := http.Header{}
		if date != "" {
			header.Set("Date", date)
		}
		return &http.Response{Header: header}
	}
	for name, tc := range map[string]struct {
		dates []string
		want  time.Time
	}{
		"no answer":            {nil, local},
		"the same time":        {[]string{"Sat, 21 Nov 2026 12:00:00 GMT"}, local},
		"ahead":                {[]string{"Sat, 21 Nov 2026 17:00:00 GMT"}, local.Add(5 * time.Hour)},
		"behind":               {[]string{"Fri, 20 Nov 2026 12:00:00 GMT"}, local.Add(-24 * time.Hour)},
		"in an obsolete form":  {[]string{"Saturday, 21-Nov-26 13:00:00 GMT"}, local.Add(time.Hour)},
		"no date":              {[]string{""}, local},
		"no time":              {[]string{"tomorrow"}, local},
		"the last answer":      {[]string{"Sat, 21 Nov 2026 17:00:00 GMT", "Sat, 21 Nov 2026 13:00:00 GMT"}, local.Add(time.Hour)},
		"the last with a date": {[]string{"Sat, 21 Nov 2026 17:00:00 GMT", "", "now"}, local.Add(5 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			now := local
			c := NewClock(func() time.Time { return now })
			req, err := http.NewRequestWithContext(WithClock(t.Context(), c), http.MethodGet, "https://registry.example/v2/", nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, date := range tc.dates {
				ReadClock(req, answer(date))
			}
			if got := c.Now(); !got.Equal(tc.want) {
				t.Errorf("%s, want %s", got, tc.want)
			}
			now = now.Add(time.Minute)
			if got := c.Now(); !got.Equal(tc.want.Add(time.Minute)) {
				t.Errorf("a minute later: %s", got)
			}
		})
	}
}

// TestClocksOfRequests shows that the response to a request sets only the clock in the
// context of that request. Requests without a clock are allowed, and requests may be
// concurrent.
func TestClocksOfRequests(t *testing.T) {
	hour := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
	c, other := NewClock(func() time.Time { return hour.Add(-time.Hour) }), NewClock(nil)
	resp := &http.Response{Header: http.Header{"Date": {hour.Format(http.TimeFormat)}}}
	var wg sync.WaitGroup
	for _, ctx := range []context.Context{WithClock(t.Context(), c), t.Context(), WithClock(t.Context(), c)} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://registry.example/v2/", nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { ReadClock(req, resp) })
	}
	wg.Wait()
	if got := c.Now(); !got.Equal(hour) {
		t.Errorf("%s", got)
	}
	if got := other.Now(); got.IsZero() || got.Equal(hour) {
		t.Errorf("a clock that no request has: %s", got)
	}
}

// TestClockAndCaches shows that ReadClock ignores the Date header of a response from a
// cache.
func TestClockAndCaches(t *testing.T) {
	local := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := NewClock(func() time.Time { return local })
	req, err := http.NewRequestWithContext(WithClock(t.Context(), c), http.MethodHead, "https://registry.example/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	ReadClock(req, &http.Response{Header: http.Header{"Date": {"Sat, 21 Nov 2026 10:00:00 GMT"}, "Age": {"7200"}}})
	if got := c.Now(); !got.Equal(local) {
		t.Errorf("%s", got)
	}
}
