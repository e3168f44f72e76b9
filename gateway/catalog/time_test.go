package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/provider"
)

// The tests of this file run in virtual time.

func inTime(t *testing.T, change func(*catalog.Options), f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newBench(t, change)) })
}

func TestCurrentThenRevalidated(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		pass(22 * time.Second)
		b.want("[1.0.0]", true, "[]")
		pass(8 * time.Second)
		b.want("[1.0.0]", true, "[1 head 1 list]")
		pass(20 * time.Second)
		b.want("[1.0.0]", true, "[]")
		b.publish(b.t, widget, v110, "two")
		b.publish(b.t, widget, v100, "altered")
		pass(10 * time.Second)
		b.want("[1.0.0 1.1.0]", true, "[1 get 1 head 1 list]")
	})
}

// TestClockThatWasPutBack shows that, if the clock is put back, answers do not stay current for longer.
func TestClockThatWasPutBack(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		b.PutClockBack(widget, time.Hour)
		b.want("[1.0.0]", true, "[1 list]")
		b.want("[1.0.0]", true, "[]")
	})
}

func TestNothingIsCurrentWithoutTTL(t *testing.T) {
	inTime(t, func(o *catalog.Options) { o.TagTTL = -1 }, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		b.want("[1.0.0]", true, "[1 head 1 list]")
	})
}

// TestRefreshedWhileInUse shows that, if clients use an answer constantly, no client waits for it, however slow the
// registry is.
func TestRefreshedWhileInUse(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		b.failing(func(context.Context, provider.Address, string) error { pass(2 * time.Second); return nil })
		start := time.Now()
		for range 60 {
			pass(5 * time.Second)
			if _, err := b.Versions(b.t.Context(), widget); err != nil {
				b.t.Error(err)
			}
			if _, err := b.Version(b.t.Context(), widget, v100); err != nil {
				b.t.Error(err)
			}
		}
		if took := time.Since(start); took != 300*time.Second {
			b.t.Errorf("clients waited for %s", took-300*time.Second)
		}
		synctest.Wait()
		if got := b.requests(); got != "[12 head 12 list]" { // every 25 s
			b.t.Errorf("requests to the registry: %s", got)
		}
	})
}

func TestOneRequestForAll(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.failing(func(context.Context, provider.Address, string) error { pass(time.Second); return nil })
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if item, err := b.Version(b.t.Context(), widget, v100); err != nil || item.Found == nil {
					b.t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := b.requests(); got != "[1 get]" {
			b.t.Errorf("requests to the registry: %s", got)
		}
	})
}

// TestClientThatGoesAway shows that, if a client leaves, its fetch continues. Other clients get the answer, and so
// does the next request of the client that has left.
func TestClientThatGoesAway(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.failing(func(context.Context, provider.Address, string) error { pass(time.Second); return nil })
		ctx, gone := context.WithCancel(b.t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.Version(ctx, widget, v100); !errors.Is(err, context.Canceled) {
				b.t.Errorf("the client that left: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := b.Version(b.t.Context(), widget, v100); err != nil {
				b.t.Errorf("the client that stayed: %v", err)
			}
		})
		synctest.Wait()
		gone()
		wg.Wait()
		if got := b.requests(); got != "[1 get]" {
			b.t.Errorf("requests to the registry: %s", got)
		}
	})
}

// TestServedStaleForADay shows that, whatever the failure of the registry is, the last good answer is served stale for
// a day and no longer.
func TestServedStaleForADay(t *testing.T) {
	for name, err := range map[string]error{
		"unreachable": unreachable, "500": answered(500, ""), "503": answered(503, ""), "429": answered(429, "TOOMANYREQUESTS"),
		"credentials rejected": answered(401, "UNAUTHORIZED"), "forbidden": answered(403, "DENIED"), "404 of something else": answered(404, ""),
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, nil, func(b *bench) {
				b.want("[1.0.0]", true, "[1 get 1 list]")
				b.down(err)
				pass(24*time.Hour - time.Second)
				if item, err := b.Versions(b.t.Context(), widget); err != nil || len(item.Versions) != 1 {
					b.t.Errorf("%v", err)
				}
				if item, err := b.Version(b.t.Context(), widget, v100); err != nil || item.Found == nil {
					b.t.Errorf("%v", err)
				}
				pass(time.Minute)
				_, err := b.Versions(b.t.Context(), widget)
				if err == nil || errors.Is(err, catalog.ErrAbsent) {
					b.t.Errorf("after a day: %v", err)
				}
				_, err = b.Version(b.t.Context(), widget, v100)
				if err == nil || errors.Is(err, catalog.ErrAbsent) {
					b.t.Errorf("after a day: %v", err)
				}
				b.down(nil)
				b.requests()
				pass(time.Minute)
				b.want("[1.0.0]", true, "[1 head 1 list]")
			})
		})
	}
}

// TestMissingManifestIsAFailure shows that, while a manifest of a new index is missing, the last good answer is
// served. A replica can receive another tool's index before it receives the manifests of that index.
func TestMissingManifestIsAFailure(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		k.want("[1.0.0]", true, "[1 get 1 list]")
		manifest := k.publishBare(k.t, widget, v100, "altered")
		pass(time.Minute)
		k.want("[1.0.0]", true, "[1 blob 1 get 1 head 1 list]")
		k.restart()
		k.want("[1.0.0]", true, "[1 blob 1 get 1 head 1 list]")
		k.blobs[manifest.Descriptor.Digest] = manifest.Data
		pass(time.Minute)
		k.want("[1.0.0]", true, "[1 blob 1 get 1 head 1 list]")
		k.want("[1.0.0]", true, "[]")
	})
}

func TestNothingIsStaleWithoutStaleIfError(t *testing.T) {
	inTime(t, func(o *catalog.Options) { o.StaleIfError = -1 }, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		b.down(unreachable)
		pass(time.Minute)
		b.want("", false, "[1 head 1 list]")
	})
}

// TestOutageIsNotWaitedFor shows that, if the registry hangs, only one client waits for it, and only for two seconds.
// The other clients get stale answers immediately, and the registry gets few requests.
func TestOutageIsNotWaitedFor(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.publish(b.t, gadget, v100, "another")
		b.want("[1.0.0]", true, "[1 get 1 list]")
		if _, err := b.Versions(b.t.Context(), gadget); err != nil {
			b.t.Fatal(err)
		}
		b.failing(hangs)
		pass(time.Minute)
		b.requests()
		start := time.Now()
		b.Versions(b.t.Context(), widget)
		if took := time.Since(start); took != 2*time.Second {
			b.t.Errorf("the first client waited for %s", took)
		}
		pass(6 * time.Second) // the deadline of the first request has passed
		synctest.Wait()
		start = time.Now()
		for range 100 {
			for _, a := range []provider.Address{widget, gadget} {
				if _, err := b.Versions(b.t.Context(), a); err != nil {
					b.t.Error(err)
				}
			}
			pass(100 * time.Millisecond)
		}
		if took := time.Since(start); took != 10*time.Second {
			b.t.Errorf("others waited for %s", took-10*time.Second)
		}
		if got := b.requests(); got != "[3 list]" { // the first request, and one after each pause of 5 s
			b.t.Errorf("requests to the registry: %s", got)
		}
		b.down(nil)
		pass(time.Minute)
		b.requests()
		b.want("[1.0.0]", true, "[1 head 1 list]")
	})
}

// TestQuestionsAreBounded shows that, if the registry hangs, the number of requests to it is limited, even if clients
// give up immediately. If a client would exceed the maximum, it gets an error, and nothing is reported as absent.
func TestQuestionsAreBounded(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.seen(widget)
		pass(time.Minute)
		b.failing(hangs)
		b.requests()
		var wg sync.WaitGroup
		var busy atomic.Int32
		ctx, giveUp := context.WithCancel(b.t.Context())
		const clients = 2000
		for i := range clients {
			wg.Go(func() {
				_, err := b.Versions(ctx, provider.MustParseAddress(fmt.Sprintf("registry.acme.example/acme/x%d", i)))
				switch {
				case errors.Is(err, catalog.ErrBusy):
					busy.Add(1)
				case !errors.Is(err, context.Canceled):
					b.t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		giveUp()
		wg.Wait()
		if got, want := b.requests(), fmt.Sprintf("[%d list]", catalog.MaxFlights); got != want || busy.Load() != clients-catalog.MaxFlights {
			b.t.Errorf("requests to the registry: %s, want %s; %d clients got ErrBusy", got, want, busy.Load())
		}
		b.seen(widget) // the last good answer
		if got := b.requests(); got != "[]" {
			b.t.Errorf("requests to the registry: %s", got)
		}
		pass(8 * time.Second) // the deadline of the requests has passed
		synctest.Wait()       // all requests have ended
		b.down(nil)
		b.publish(b.t, gadget, v100, "another")
		b.seen(gadget)
	})
}

// TestRejectedCredentialAffectsOneRepository shows that, if the registry rejects a credential for one repository,
// other repositories are not affected.
func TestRejectedCredentialAffectsOneRepository(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.publish(b.t, gadget, v100, "another")
		b.want("[1.0.0]", true, "[1 get 1 list]")
		if _, err := b.Versions(b.t.Context(), gadget); err != nil {
			b.t.Fatal(err)
		}
		b.failing(func(_ context.Context, a provider.Address, _ string) error {
			if a == widget {
				return answered(403, "DENIED")
			}
			return nil
		})
		pass(time.Minute)
		b.Versions(b.t.Context(), widget)
		b.publish(b.t, gadget, v110, "new")
		if item, err := b.Versions(b.t.Context(), gadget); err != nil || len(item.Versions) != 2 {
			b.t.Errorf("%+v, %v", item, err)
		}
	})
}

// TestAbsenceIsRememberedOnlyWhileCurrent shows that, if the answer that a version is absent has expired, the version
// is not reported as absent during an outage.
func TestAbsenceIsRememberedOnlyWhileCurrent(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		ask := func(absent bool, requests string) {
			b.t.Helper()
			_, err := b.Versions(b.t.Context(), gadget)
			if err == nil || errors.Is(err, catalog.ErrAbsent) != absent {
				b.t.Errorf("versions: %v", err)
			}
			_, err = b.Version(b.t.Context(), gadget, v100)
			if err == nil || errors.Is(err, catalog.ErrAbsent) != absent {
				b.t.Errorf("version: %v", err)
			}
			if got := b.requests(); got != requests {
				b.t.Errorf("asked for %s, want %s", got, requests)
			}
		}
		ask(true, "[1 get 1 list]") // the list also confirms that the version is absent
		pass(10 * time.Second)
		b.down(unreachable)
		ask(true, "[]")
		pass(30 * time.Second)
		ask(false, "[1 get 1 list]")
		b.down(nil)
		ask(true, "[1 get 1 list]")
		b.publish(b.t, gadget, v100, "there now")
		pass(30 * time.Second)
		if item, err := b.Version(b.t.Context(), gadget, v100); err != nil || item.Found == nil {
			b.t.Errorf("%+v, %v", item, err)
		}
	})
}

// TestAbsentThenListed shows that, as soon as the list contains a version that was absent, every kind of request finds
// the version.
func TestAbsentThenListed(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.seen(widget)
		pass(20 * time.Second)
		absent, err := b.Version(b.t.Context(), widget, v110)
		if !errors.Is(err, catalog.ErrAbsent) {
			b.t.Fatalf("before it is pushed: %v", err)
		}
		b.CacheDocument(absent, catalog.MirrorDocument, "absent", 6)
		b.publish(b.t, widget, v110, "new")
		path := widget.Path() + "/1.1.0.json"
		if _, ok := b.Warm(path, time.Now()); !ok {
			b.t.Error("the absence was not cached, although the list has not changed")
		}
		pass(12 * time.Second)
		if item, err := b.Versions(b.t.Context(), widget); err != nil || len(item.Versions) != 2 {
			b.t.Fatalf("%+v, %v", item, err)
		}
		if item, ok := b.Warm(path, time.Now()); ok {
			b.t.Errorf("warm: %v", item.Document(catalog.MirrorDocument))
		}
		if item, err := b.Version(b.t.Context(), widget, v110); err != nil || item.Found == nil {
			b.t.Errorf("though it is listed: %v", err)
		}
	})
	// A listed version is not reported as absent even while the registry is down.
	inTime(t, nil, func(b *bench) {
		b.seen(widget)
		pass(20 * time.Second)
		b.Version(b.t.Context(), widget, v110)
		b.publish(b.t, widget, v110, "new")
		pass(12 * time.Second)
		b.seen(widget)
		b.down(unreachable)
		if _, err := b.Version(b.t.Context(), widget, v110); err == nil || errors.Is(err, catalog.ErrAbsent) {
			b.t.Errorf("though it is listed: %v", err)
		}
	})
}

// TestWhatWasDeletedIsGone shows that, if a version was deleted, an outage does not bring back its earlier answer.
func TestWhatWasDeletedIsGone(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		delete(b.tags, widget)
		pass(time.Minute)
		b.want("", false, "[1 get 1 head 1 list]")
		b.down(unreachable)
		pass(time.Minute)
		_, err := b.Versions(b.t.Context(), widget)
		if err == nil || errors.Is(err, catalog.ErrAbsent) {
			b.t.Errorf("%v", err)
		}
	})
}

// TestCheckIsAskedOnce shows that the catalog runs the check once for each index, and caches a refusal as well.
func TestCheckIsAskedOnce(t *testing.T) {
	var checks atomic.Int32
	var refuse atomic.Bool
	refused := errors.New("signed by nobody known")
	check := func(ctx context.Context, s artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		checks.Add(1)
		if _, err := artifact.ReadEvidence(ctx, s, *found.Evidence); err != nil {
			return nil, err
		}
		if refuse.Load() {
			return nil, refused
		}
		out := *found
		out.Protocols = []string{"checked"}
		return &out, nil
	}
	inTime(t, func(o *catalog.Options) { o.Check = check }, func(b *bench) {
		item, err := b.Version(b.t.Context(), widget, v100)
		if err != nil || item.Found.Protocols[0] != "checked" {
			b.t.Fatalf("%+v, %v", item, err)
		}
		if got := b.requests(); got != "[3 blob 1 get]" {
			b.t.Errorf("requests to the registry: %s", got)
		}
		if e, err := b.evidence(); err != nil || e.SHA256SUMS == nil {
			b.t.Errorf("%v", err)
		}
		if got := b.requests(); got != "[]" {
			b.t.Errorf("requests for evidence that was read already: %s", got)
		}
		refuse.Store(true)
		b.publish(b.t, widget, v100, "altered")
		for range 3 {
			pass(time.Minute)
			if _, err := b.Version(b.t.Context(), widget, v100); !errors.Is(err, refused) {
				b.t.Errorf("%v", err)
			}
		}
		if n := checks.Load(); n != 2 {
			b.t.Errorf("%d checks", n)
		}
		// During an outage, the catalog neither serves the earlier answer nor reports the version as refused.
		b.down(answered(http.StatusServiceUnavailable, ""))
		pass(time.Minute)
		if item, err := b.Version(b.t.Context(), widget, v100); err == nil || errors.Is(err, refused) {
			b.t.Errorf("%+v, %v", item, err)
		}
	})
}

// TestFailureDuringACheckIsNoRefusal shows that, if the registry fails during a check, the version is not refused. The
// check runs again once the registry is back.
func TestFailureDuringACheckIsNoRefusal(t *testing.T) {
	check := func(ctx context.Context, s artifact.Fetcher, _ provider.Address, _ provider.Version, found *artifact.Version) (*artifact.Version, error) {
		if _, err := artifact.ReadEvidence(ctx, s, *found.Evidence); err != nil {
			return nil, errors.New("no evidence") // the error does not mention the outage
		}
		return found, nil
	}
	inTime(t, func(o *catalog.Options) { o.Check = check }, func(b *bench) {
		b.failing(func(_ context.Context, _ provider.Address, what string) error {
			if what == "blob" {
				return unreachable
			}
			return nil
		})
		if _, err := b.Version(b.t.Context(), widget, v100); !errors.Is(err, unreachable) {
			b.t.Errorf("%v", err)
		}
		b.down(nil)
		if _, err := b.Version(b.t.Context(), widget, v100); err != nil {
			b.t.Errorf("%v", err)
		}
	})
}

func TestCloseCancelsRequests(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.failing(hangs)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.Versions(b.t.Context(), widget); err == nil {
				b.t.Error("an answer")
			}
		})
		synctest.Wait()
		start := time.Now()
		b.Close()
		wg.Wait()
		if _, err := b.Versions(b.t.Context(), widget); err == nil || time.Since(start) != 0 {
			b.t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// TestPanics shows that a document that makes its reader panic costs the answer to one question, in a request and in the
// background. The registry counts as available, so the catalog asks it about other providers, and has a stale answer for this one.
func TestPanics(t *testing.T) {
	var log bytes.Buffer
	inTime(t, func(o *catalog.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		b.publish(b.t, gadget, v100, "gadget")
		if _, err := b.Versions(b.t.Context(), gadget); err != nil {
			b.t.Error(err)
		}
		b.failing(func(_ context.Context, a provider.Address, _ string) error {
			if a == widget {
				panic("a bug")
			}
			return nil
		})
		pass(time.Minute)
		if item, err := b.Versions(b.t.Context(), widget); err != nil || len(item.Versions) != 1 {
			b.t.Errorf("a stale answer: %+v, %v", item, err)
		}
		b.requests()
		if item, err := b.Versions(b.t.Context(), gadget); err != nil || len(item.Versions) != 1 || b.requests() == "[]" {
			b.t.Errorf("another provider: %+v, %v", item, err)
		}
		if _, err := b.Examine(b.t.Context(), widget, v110); !errors.As(err, new(*panics.Error)) {
			b.t.Errorf("a version: %v", err)
		}
		b.RunInBackground(func() { panic("a bug") })
	})
	if n := strings.Count(log.String(), "msg=panic"); n != 3 {
		t.Errorf("the log has %d panics:\n%s", n, &log)
	}
}
