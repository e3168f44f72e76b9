package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// viaAuth makes the gateway use package auth for requests to the registry, as the command serve does.
func (b *bench) viaAuth() {
	client := auth.New(auth.Options{Login: login.Options{Defaults: &login.Defaults{}}, Wire: wire.Options{Transport: b.registry.Server.Client().Transport, RetryDelay: time.Millisecond}})
	b.options.Repository = func(ctx context.Context, a subject.Address) (catalog.Store, error) {
		var repo *remote.Repository
		repo, err := client.Repository(ctx, ociaddr.Repository{Registry: ociaddr.Registry(strings.TrimPrefix(b.registry.Server.URL, "http://")), Name: a.Path()})
		if err != nil {
			return nil, err
		}
		return repo, nil
	}
}

// TestRetryAfterIsPassedOn shows that the gateway passes on the registry's Retry-After. It reduces
// values above five minutes to five minutes, and replaces implausible values with the default.
func TestRetryAfterIsPassedOn(t *testing.T) {
	date := func(after time.Duration) string { return time.Now().Add(after).UTC().Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		status      int
		after       string
		least, most int // in seconds; Retry-After counts down while the test runs
	}{
		"seconds":      {429, "200", 100, 200},
		"503":          {503, "200", 100, 200},
		"date":         {429, date(200 * time.Second), 100, 200},
		"hours":        {429, "86400", 300, 300},
		"a date later": {503, date(24 * time.Hour), 300, 300},
		"2^31 seconds": {429, "2147483648", 5, 5}, // not a plausible delay
		"2^31-1":       {429, "2147483647", 300, 300},
		"date passed":  {429, date(-time.Hour), 5, 5},
		"nonsense":     {503, "soon", 5, 5},
		"none":         {429, "", 5, 5},
		"other status": {502, "200", 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
			b.viaAuth()
			b.limits = gateway.Limits{Metadata: 5 * time.Second, Start: 5 * time.Second}
			b.lie("/v2/", func(w http.ResponseWriter, _ *http.Request) {
				if tc.after != "" {
					w.Header().Set("Retry-After", tc.after)
				}
				w.WriteHeader(tc.status)
			})
			status := map[bool]int{true: http.StatusBadGateway, false: http.StatusServiceUnavailable}[tc.status == 502]
			c := b.serve()
			for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", archivePath("1.0.0", linux), hostsPrefix + "versions"} {
				a := c.get(path)
				if after, err := strconv.Atoi(a.header.Get("Retry-After")); a.status != status || err != nil || after < tc.least || after > tc.most {
					t.Errorf("%s: %d, Retry-After %q; want %d, between %d and %d", path, a.status, a.header.Get("Retry-After"), status, tc.least, tc.most)
				}
			}
		})
	}
}

// TestDefaultRetryAfter shows that clients get the default Retry-After if an origin answers with 429 or
// 503, but without Retry-After.
func TestDefaultRetryAfter(t *testing.T) {
	b := newBench(t)
	busy := fmt.Errorf("%w: %w", catalog.ErrSource, &outgoing.LaterError{Err: errors.New("answered 429")})
	b.options.Repository = func(context.Context, subject.Address) (catalog.Store, error) { return nil, busy }
	a := b.serve().get(prefix + "index.json")
	b.checkTrouble(a, "index.json", http.StatusServiceUnavailable)
	if after := a.header.Get("Retry-After"); after != "5" {
		t.Errorf("Retry-After %q", after)
	}
}

// TestLimitOfFetches checks the status and the Retry-After of a response if a limit on fetches from
// origins is reached.
func TestLimitOfFetches(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"a limit of pull_through": {&catalog.BusyError{Limit: "max_per_day", RetryAfter: 6 * time.Hour}, 6 * 60 * 60},
		"a limit about to end":    {&catalog.BusyError{Limit: "max_per_day"}, 1},
		"too many documents":      {document.ErrBusy, 10},
	} {
		err := fmt.Errorf("%w: %w", catalog.ErrSource, tc.err)
		if status, wait := gateway.StatusOf(err), gateway.RetryAfterOf(err); status != http.StatusServiceUnavailable || wait != tc.want {
			t.Errorf("%s: status %d, retry after %d s, want %d s", name, status, wait, tc.want)
		}
	}
}
