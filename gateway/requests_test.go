package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// withID returns a copy of c that sends the given request ID.
func (c *client) withID(id string) *client {
	shows := *c.http
	shows.Transport = withHeader{"X-Request-Id", id, c.http.Transport}
	return &client{c.t, c.s, &shows}
}

func TestRequestIDs(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.options.Log = slog.New(telemetry.Handler(slog.NewTextHandler(b.log, nil)))
	s := httptest.NewServer(gateway.NewBacked(b.options))
	t.Cleanup(s.Close)
	c := &client{t, s, s.Client()}

	own := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	seen := map[string]bool{}
	for range 3 { // from the registry, from the catalog, and from memory
		id := c.get(prefix + "index.json").header.Get("X-Request-Id")
		if !own.MatchString(id) || seen[id] {
			t.Errorf("id %q after %v", id, seen)
		}
		seen[id] = true
		if n := strings.Count(b.log.String(), " request_id="+id); n != 1 {
			t.Errorf("%d lines of the log have %s:\n%s", n, id, b.log)
		}
	}
	for _, id := range []string{"4bf92f35-77b3.4da6_a3ce", "a", strings.Repeat("x", 64), "Root=1-67891233-abcdef012345678912345678"} {
		if got := c.withID(id).get(prefix + "index.json").header.Get("X-Request-Id"); got != id {
			t.Errorf("%q became %q", id, got)
		}
		if !strings.Contains(b.log.String(), "request_id="+id) && !strings.Contains(b.log.String(), `request_id="`+id) {
			t.Errorf("the log does not have %s", id)
		}
	}
	for _, id := range []string{strings.Repeat("x", 65), "a b", "a\tb", "ü", `"`, "a,b", "{}"} {
		if got := c.withID(id).get(prefix + "index.json").header.Get("X-Request-Id"); !own.MatchString(got) {
			t.Errorf("%q was answered with %q", id, got)
		}
	}
}

// TestLongRequests shows that the log shortens long methods, paths and User-Agents.
func TestLongRequests(t *testing.T) {
	b := newBench(t)
	b.options.Log = slog.New(slog.NewTextHandler(b.log, nil))
	req := httptest.NewRequest(strings.Repeat("M", 50_000), "/"+strings.Repeat("p", 50_000), nil)
	req.Header.Set("User-Agent", strings.Repeat("u", 50_000))
	gateway.NewBacked(b.options).ServeHTTP(httptest.NewRecorder(), req)
	for _, c := range []string{"M", "p", "u"} {
		if !strings.Contains(b.log.String(), strings.Repeat(c, 1000)) {
			t.Errorf("no %s in the log:\n%s", c, b.log)
		}
	}
	if n := len(b.log.String()); n > 4000 {
		t.Errorf("a line of %d bytes", n)
	}
}

// TestRequestIDOfErrors shows that all log lines about a failing request have the request's ID, including
// lines about the registry. The registry does not receive the ID.
func TestRequestIDOfErrors(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.options.Log = slog.New(telemetry.Handler(slog.NewTextHandler(b.log, nil)))
	var sent atomic.Int32 // the number of IDs that the registry received
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Request-Id") != "" {
			sent.Add(1)
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	if a := b.serve().withID("troubled").get(prefix + "index.json"); a.status != http.StatusBadGateway || a.header.Get("X-Request-Id") != "troubled" {
		t.Errorf("%+v", a)
	}
	for line := range strings.Lines(b.log.String()) {
		if !strings.Contains(line, "request_id=troubled") {
			t.Errorf("a line without the id: %s", line)
		}
	}
	if !strings.Contains(b.log.String(), "cannot answer") {
		t.Errorf("the log is\n%s", b.log)
	}
	if sent.Load() != 0 || len(b.registry.Requests()) == 0 {
		t.Errorf("the registry was sent %d ids in %d requests", sent.Load(), len(b.registry.Requests()))
	}
}

// hooked has hooks that record their calls.
type hooked struct {
	mu       sync.Mutex
	began    int
	answered []string // route, method and status
}

func (h *hooked) hooks() gateway.Hooks {
	return gateway.Hooks{
		Began: func() { h.mu.Lock(); defer h.mu.Unlock(); h.began++ },
		Ended: func(route, method string, status int, _ time.Duration) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.answered = append(h.answered, route+" "+method+" "+http.StatusText(status))
		},
	}
}

func TestHooks(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	var seen hooked
	b.options.Hooks, b.options.Archives = seen.hooks(), &telemetry.ArchiveCounters{}
	b.options.Ready = http.HandlerFunc(gateway.Healthz)
	b.options.PublicURL = parseURL(t, "https://providers.acme.example/")
	b.options.Registry = b.registry.Truth
	s := httptest.NewServer(gateway.NewBacked(b.options))
	t.Cleanup(s.Close)
	c := &client{t, s, s.Client()}
	var want []string
	for _, q := range []struct{ method, path, want string }{
		{"GET", prefix + "index.json", "index GET OK"},
		{"GET", prefix + "index.json", "index GET OK"}, // from memory
		{"HEAD", prefix + "1.0.0.json", "version HEAD OK"},
		{"GET", prefix + "1.0.0.json", "version GET OK"},
		{"GET", archivePath("1.0.0", linux), "archive GET OK"},
		{"GET", archivePath("9.0.0", linux), "archive GET Not Found"},
		{"GET", "/hosts/" + host + "/v1/providers/acme/widget/versions", "versions GET Not Found"},
		{"GET", "/hosts/" + host + "/v1/providers/acme/widget/1.0.0/download/linux/amd64", "download GET Not Found"},
		{"GET", "/.well-known/terraform.json", "discovery GET OK"},
		{"GET", "/v2/", "registry GET OK"},
		{"GET", "/healthz", "health GET OK"},
		{"GET", "/readyz", "health GET OK"},
		{"GET", "/nowhere", "other GET Not Found"},
		{"POST", prefix + "index.json", "other POST Method Not Allowed"},
	} {
		c.do(q.method, q.path)
		want = append(want, q.want)
	}
	s.Close() // waits for running requests
	if !slices.Equal(seen.answered, want) || seen.began != len(want) {
		t.Errorf("%d began; the hooks saw\n%s\nwant\n%s", seen.began, strings.Join(seen.answered, "\n"), strings.Join(want, "\n"))
	}
	if n := b.options.Archives; n.Streamed.Answers.Load() != 1 || n.Streamed.Bytes.Load() != uint64(len(zip(t, linux))) {
		t.Errorf("archives: %d, %d bytes", n.Streamed.Answers.Load(), n.Streamed.Bytes.Load())
	}
}

// TestBrokenOff shows that hooks and counters treat a response that ends early as broken off.
func TestBrokenOff(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(1 << 20)})
	var seen hooked
	b.options.Hooks, b.options.Archives = seen.hooks(), &telemetry.ArchiveCounters{}
	b.limits.Resumes = 1
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "1048576")
		w.Write(make([]byte, 1000))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	c := b.serve()
	resp, err := c.http.Get(c.s.URL + archivePath("1.0.0", linux))
	if err == nil { // the first piece arrived, and the client waits for the rest
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the client sees no error")
	}
	c.s.Close()
	if len(seen.answered) != 1 || seen.answered[0] != "archive GET " || b.options.Archives.BrokenOff.Load() != 1 {
		t.Errorf("the hooks saw %q; %d broken off", seen.answered, b.options.Archives.BrokenOff.Load())
	}
}

// FuzzRequestID checks that the ID in a response is the client's ID if the client's ID is valid, and
// otherwise a new ID.
func FuzzRequestID(f *testing.F) {
	for _, id := range []string{"", "4bf92f35-77b3.4da6_a3ce", "Root=1-67891233-abcdef012345678912345678", strings.Repeat("x", 65), "a b", "a\nlevel=ERROR", "ü", "a\x1b[2K", `"`} {
		f.Add(id)
	}
	word := regexp.MustCompile(`^[A-Za-z0-9_.:=+/-]{1,64}$`)
	own := regexp.MustCompile(`^[A-Z2-7]{26}$`)
	h := gateway.NewBacked(gateway.Backed{Repository: func(context.Context, subject.Address) (catalog.Store, error) { return &emptyStore{}, nil }})
	f.Fuzz(func(t *testing.T, id string) {
		r, w := httptest.NewRequest(http.MethodGet, "/healthz", nil), httptest.NewRecorder()
		r.Header.Set("X-Request-Id", id)
		h.ServeHTTP(w, r)
		got := w.Header().Get("X-Request-Id")
		if word.MatchString(id) && got != id || !word.MatchString(id) && !own.MatchString(got) {
			t.Errorf("%q was answered with %q", id, got)
		}
	})
}
