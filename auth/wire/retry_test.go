package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// step is the result of one request to a script: a response with status and retryAfter, or
// err.
type step struct {
	status     int
	err        error
	retryAfter string
}

// script is a transport that returns the results of its steps in order. After the last
// step, it repeats the last result.
type script struct {
	steps  []step
	bodies []string
	slept  []time.Duration // the times between successive requests
	last   time.Time       // the time of the last request
	open   int             // the number of responses whose body is not closed
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		b, _ := io.ReadAll(req.Body)
		_ = req.Body.Close()
		body = string(b)
	}
	if len(s.bodies) > 0 {
		s.slept = append(s.slept, time.Since(s.last))
	}
	s.last = time.Now()
	st := s.steps[min(len(s.bodies), len(s.steps)-1)]
	s.bodies = append(s.bodies, body)
	if st.err != nil {
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: st.err}
	}
	resp := &http.Response{StatusCode: st.status, Header: http.Header{}, Request: req, Body: &countedBody{strings.NewReader("answer"), s}}
	s.open++
	if st.retryAfter != "" {
		resp.Header.Set("Retry-After", st.retryAfter)
	}
	return resp, nil
}

type countedBody struct {
	io.Reader
	script *script
}

func (b *countedBody) Close() error {
	if b.script != nil {
		b.script.open--
	}
	b.script = nil // a second Close does not count
	return nil
}

// newTestRetrier returns a retrier whose waits always have the maximum length.
func newTestRetrier(next http.RoundTripper, log *slog.Logger) *retrier {
	t := newRetrier(next, time.Second/2, log)
	t.jitter = func(limit time.Duration) time.Duration { return limit }
	return t
}

var discard = slog.New(slog.DiscardHandler)

// onceReader hides the type of a reader. Without it, net/http would recognise the type and
// set GetBody, so that the body could be read again.
type onceReader struct{ io.Reader }

func TestRetry(t *testing.T) {
	const uploads = "https://r.test/v2/a/b/blobs/uploads/"
	var (
		sec       = time.Second
		exhausted = []time.Duration{sec / 2, sec, 2 * sec}
		once      = []time.Duration{sec / 2}
	)
	tests := []struct {
		name   string
		method string
		url    string
		body   io.Reader
		form   bool
		steps  []step
		slept  []time.Duration
		status int
	}{
		{name: "success at once", steps: []step{{status: 200}}, status: 200},
		{name: "429 and success", steps: []step{{status: 429}, {status: 200}}, slept: once, status: 200},
		{name: "502", steps: []step{{status: 502}, {status: 200}}, slept: once, status: 200},
		{name: "503", steps: []step{{status: 503}, {status: 200}}, slept: once, status: 200},
		{name: "504", steps: []step{{status: 504}, {status: 200}}, slept: once, status: 200},
		{name: "500 of a GET", steps: []step{{status: 500}, {status: 200}}, slept: once, status: 200},
		{name: "500 of a HEAD", method: "HEAD", steps: []step{{status: 500}, {status: 200}}, slept: once, status: 200},
		{name: "500 of a PUT", method: "PUT", body: strings.NewReader("x"), steps: []step{{status: 500}}, status: 500},
		{name: "501", steps: []step{{status: 501}}, status: 501},
		{name: "404", steps: []step{{status: 404}}, status: 404},
		{name: "401", steps: []step{{status: 401}}, status: 401},
		{name: "attempts run out", steps: []step{{status: 503}}, slept: exhausted, status: 503},
		{name: "reset", steps: []step{{err: syscall.ECONNRESET}, {status: 200}}, slept: once, status: 200},
		{name: "refused", steps: []step{{err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, {status: 200}}, slept: once, status: 200},
		{name: "closed", steps: []step{{err: io.EOF}, {err: io.ErrUnexpectedEOF}, {status: 200}}, slept: []time.Duration{sec / 2, sec}, status: 200},
		{name: "another error", steps: []step{{err: errors.New("x509: no")}}},
		{name: "reset for ever", steps: []step{{err: syscall.ECONNRESET}}, slept: exhausted},
		{name: "PUT with a body to be had again", method: "PUT", body: strings.NewReader("x"), steps: []step{{status: 503}, {err: io.EOF}, {status: 201}}, slept: []time.Duration{sec / 2, sec}, status: 201},
		{name: "PUT with a body that passes once", method: "PUT", body: onceReader{strings.NewReader("x")}, steps: []step{{status: 503}}, status: 503},
		{name: "DELETE", method: "DELETE", steps: []step{{status: 503}, {status: 202}}, slept: once, status: 202},
		{name: "PATCH", method: "PATCH", body: strings.NewReader("x"), steps: []step{{status: 503}}, status: 503},
		{name: "POST that opens an upload", method: "POST", url: uploads, steps: []step{{status: 503}, {status: 202}}, slept: once, status: 202},
		{name: "POST for a token", method: "POST", form: true, body: strings.NewReader("x"), steps: []step{{status: 429}, {status: 200}}, slept: once, status: 200},
		{name: "any other POST", method: "POST", body: strings.NewReader("x"), steps: []step{{status: 503}}, status: 503},

		{name: "Retry-After in seconds", steps: []step{{status: 429, retryAfter: "7"}, {status: 200}}, slept: []time.Duration{7 * sec}, status: 200},
		{name: "Retry-After with 503", steps: []step{{status: 503, retryAfter: " 60 "}, {status: 200}}, slept: []time.Duration{60 * sec}, status: 200},
		{name: "Retry-After as a date", steps: []step{{status: 503, retryAfter: "Sat, 01 Jan 2000 00:00:11 GMT"}, {status: 200}}, slept: []time.Duration{11 * sec}, status: 200},
		{name: "Retry-After in the past", steps: []step{{status: 503, retryAfter: "Fri, 31 Dec 1999 23:55:00 GMT"}, {status: 200}}, slept: once, status: 200},
		{name: "Retry-After of zero", steps: []step{{status: 429, retryAfter: "0"}, {status: 200}}, slept: once, status: 200},
		{name: "Retry-After that is none", steps: []step{{status: 429, retryAfter: "soon"}, {status: 200}}, slept: once, status: 200},
		{name: "Retry-After beyond the cap", steps: []step{{status: 429, retryAfter: "61"}}, status: 429},
		{name: "Retry-After beyond all bounds", steps: []step{{status: 429, retryAfter: "99999999999999999999"}, {status: 200}}, slept: once, status: 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				url := tt.url
				if url == "" {
					url = "https://r.test/v2/a/b/manifests/1.0.0"
				}
				req, err := http.NewRequestWithContext(t.Context(), tt.method, url, tt.body)
				if err != nil {
					t.Fatal(err)
				}
				if tt.form {
					req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
				server := &script{steps: tt.steps}
				transport := newTestRetrier(server, discard)

				resp, err := transport.RoundTrip(req)
				if status := statusOf(resp); status != tt.status || (err == nil) != (tt.status != 0) {
					t.Errorf("status %d, %v; want %d", status, err, tt.status)
				}
				if !slices.Equal(server.slept, tt.slept) {
					t.Errorf("waited %v, want %v", server.slept, tt.slept)
				}
				if len(server.bodies) != len(tt.slept)+1 {
					t.Errorf("%d requests after %d waits", len(server.bodies), len(tt.slept))
				}
				for _, body := range server.bodies {
					if tt.body != nil && body != "x" {
						t.Errorf("a request had the body %q", body)
					}
				}
				if resp != nil {
					if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "answer" {
						t.Errorf("the answer reads %q, %v", b, err)
					}
					_ = resp.Body.Close()
				}
				if server.open != 0 {
					t.Errorf("%d answers were left open", server.open)
				}
			})
		})
	}
}

func statusOf(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

func TestRetryNeverWaitsBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &script{steps: []step{{status: 429, retryAfter: "4"}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://r.test/v2/a/tags/list", nil)
		resp, err := newTestRetrier(server, discard).RoundTrip(req)
		if err != nil || resp.StatusCode != 429 {
			t.Fatalf("%v, %v; want the last answer", resp, err)
		}
		if want := []time.Duration{4 * time.Second, 4 * time.Second}; !slices.Equal(server.slept, want) {
			t.Errorf("waited %v, want %v", server.slept, want)
		}
	})
}

func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &script{steps: []step{{status: 503, retryAfter: "60"}}}
		transport := newTestRetrier(server, discard)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://r.test/", nil)
		if _, err := transport.RoundTrip(req); !errors.Is(err, context.Canceled) || len(server.bodies) != 1 || server.open != 0 {
			t.Errorf("%v after %d requests, %d answers open", err, len(server.bodies), server.open)
		}
		if took := time.Since(server.last); took != time.Second {
			t.Errorf("the request ends after %s", took)
		}
		// After the caller has cancelled, a reset connection is not an error of the
		// registry, and the request is not retried.
		server = &script{steps: []step{{err: syscall.ECONNRESET}}}
		transport.next = server
		if _, err := transport.RoundTrip(req); !errors.Is(err, syscall.ECONNRESET) || len(server.bodies) != 1 {
			t.Errorf("%v after %d requests", err, len(server.bodies))
		}
	})
}

func TestRetryWaitsAreBoundedAndJittered(t *testing.T) {
	transport := newTestRetrier(nil, discard)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://r.test/", nil)
	for delay, want := range map[time.Duration][]time.Duration{time.Second: {1, 2, 4}, 4 * time.Second: {4, 8, 10}, time.Minute: {10, 10, 10}} {
		transport.delay = delay
		for attempt, limit := range want {
			if got, err := (retryPolicy{transport, req}).Retry(attempt, nil, syscall.ECONNRESET); err != nil || got != limit*time.Second {
				t.Errorf("from %s, attempt %d: at most %s, %v", delay, attempt, got, err)
			}
		}
	}
	transport = newRetrier(nil, time.Second, discard)
	different := map[time.Duration]bool{}
	for range 50 {
		d, err := retryPolicy{transport, req}.Retry(1, nil, syscall.ECONNRESET)
		if err != nil || d < time.Second || d >= 2*time.Second {
			t.Errorf("wait %s, %v", d, err)
		}
		different[d] = true
	}
	if len(different) < 2 {
		t.Error("every wait is the same")
	}
}

func TestRetryOnRealConnections(t *testing.T) {
	var requests atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 1: // reset the connection
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		case 2: // close the connection without a response
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
		case 3:
			w.WriteHeader(http.StatusBadGateway)
		default:
			_, _ = io.Copy(w, r.Body)
		}
	}))
	defer srv.Close()
	var log bytes.Buffer
	transport := newRetrier(&http.Transport{}, time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", srv.URL+"/v2/a/manifests/1?secret=s3cr3t", strings.NewReader("hello"))
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "hello" || requests.Load() != 4 {
		t.Errorf("body %q after %d requests", b, requests.Load())
	}
	if s := log.String(); strings.Count(s, "repeated") != 3 || strings.Contains(s, "s3cr3t") {
		t.Errorf("log: %s", s)
	}
}

// TestRetriesAreLoggedWithoutTheTarget shows that the log of a retry omits the path of a
// redirected request. The path may have any length, and may contain a signature with
// which anyone can read a blob.
func TestRetriesAreLoggedWithoutTheTarget(t *testing.T) {
	var log bytes.Buffer
	transport := newRetrier(roundTripper(func(*http.Request) *http.Response { return answer(503, nil, "") }), time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://storage.test/s1gn4ture/blob", nil)
	req.Response = &http.Response{Request: req}
	_, _ = transport.RoundTrip(req)
	if s := log.String(); !strings.Contains(s, "repeated") || strings.Contains(s, "s1gn4ture") {
		t.Errorf("log: %s", s)
	}
}
