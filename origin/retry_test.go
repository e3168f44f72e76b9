package origin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/origin"
)

// inProcess is a transport that calls a handler. It is for use in a bubble of package
// synctest, where pauses take no real time and are measured exactly.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	resp := rec.Result()
	resp.Request = req
	resp.Body = &body{resp.Body, req.Context()}
	return resp, nil
}

// body is the body of a response. Its reads fail after the context of the request has ended,
// as in a real transport.
type body struct {
	io.ReadCloser
	ctx context.Context
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

func registryOver(transport http.RoundTripper) *origin.Registry {
	return origin.NewRegistry(origin.RegistryOptions{Transport: transport, Services: origin.NewDiscovery(transport)})
}

// TestRetries shows that requests to a failing origin are repeated, but only a limited number
// of times and for a limited time. A request is not repeated after any other response.
func TestRetries(t *testing.T) {
	const bound = 15 * time.Second
	for name, tc := range map[string]struct {
		status   int
		header   string // Retry-After
		failures int    // the number of failures before success
		asked    int    // the number of requests for the versions
		waits    time.Duration
		says     string // the error; "" means success
	}{
		"503 once":                      {status: 503, failures: 1, asked: 2},
		"503 some times":                {status: 503, failures: 4, asked: 5},
		"503 for ever":                  {status: 503, failures: 1000, asked: 6, says: "answered 503 Service Unavailable"},
		"500 for ever":                  {status: 500, failures: 1000, asked: 6, says: "answered 500 Internal Server Error"},
		"429, and wait a little":        {status: 429, header: "1", failures: 1, asked: 2},
		"429, and wait for ten seconds": {status: 429, header: "10", failures: 1, asked: 2, waits: 10 * time.Second},
		"503, and wait until a time":    {status: 503, header: "Sat, 01 Jan 2000 00:00:08 GMT", failures: 1, asked: 2, waits: 8 * time.Second},
		"429, and wait for ever again":  {status: 429, header: "25", failures: 1000, asked: 3, waits: 50 * time.Second, says: "answered 429 Too Many Requests"},
		"429, and wait for an hour":     {status: 429, header: "3600", failures: 1000, asked: 1, says: "answered 429 Too Many Requests"},
		"404":                           {status: 404, failures: 1, asked: 1, says: "answered 404"},
		"401":                           {status: 401, failures: 1, asked: 1, says: "answered 401"},
		"a redirect that leads nowhere": {status: 302, failures: 1, asked: 1, says: "answered 302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			rel := build(t, nil, "1.0.0")
			synctest.Test(t, func(t *testing.T) {
				server := testorigin.New(testorigin.Options{}, rel)
				failures := 0
				server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, "/versions") || failures == tc.failures {
						return false
					}
					failures++
					w.Header().Set("Retry-After", tc.header)
					w.WriteHeader(tc.status)
					return true
				})
				start := time.Now()
				_, err := registryOver(inProcess{server}).Versions(t.Context(), widget)
				if took := time.Since(start); took < tc.waits || took > tc.waits+bound {
					t.Errorf("it took %s", took)
				}
				if n := server.Count(recorder.PathSuffix("/versions")); n != tc.asked {
					t.Errorf("%d requests", n)
				}
				if tc.says != "" {
					checkError(t, err, tc.says, "")
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestEveryRequestIsRetried shows that every kind of request is repeated.
func TestEveryRequestIsRetried(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	for _, part := range []string{"/terraform.json", "/versions", "/download/", "_SHA256SUMS", ".zip"} {
		t.Run(part, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testorigin.New(testorigin.Options{}, rel)
				failed := map[string]bool{}
				server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, part) || failed[r.URL.Path] {
						return false
					}
					failed[r.URL.Path] = true
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				})
				client := registryOver(inProcess{server})
				l, err := client.Versions(t.Context(), widget)
				if err != nil {
					t.Fatal(err)
				}
				r, err := client.Release(t.Context(), widget, l, v1, platforms("linux_amd64"))
				if err != nil {
					t.Fatal(err)
				}
				read(t, r.Packages[0])
				if len(failed) != 1 {
					t.Errorf("failed %v", failed)
				}
			})
		})
	}
}

// silent is a transport to an origin that stops sending in the middle of its work.
type silent struct {
	inProcess
	headers, body string // the suffixes of the paths whose responses send no headers, or only the start of the body
}

func (s silent) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.headers != "" && strings.HasSuffix(req.URL.Path, s.headers) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	resp, err := s.inProcess.RoundTrip(req)
	if err == nil && s.body != "" && strings.HasSuffix(req.URL.Path, s.body) {
		resp.Body = &silentBody{body{resp.Body, req.Context()}}
	}
	return resp, err
}

type silentBody struct{ body }

func (b *silentBody) Read(p []byte) (int, error) {
	if n, err := b.body.Read(p[:min(len(p), 10)]); err == nil {
		return n, nil
	}
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// TestSilence shows that every request to a silent origin fails in the end.
func TestSilence(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	for name, tc := range map[string]struct {
		silent
		says, hint string
	}{
		"before discovery":   {silent{headers: "/terraform.json"}, "deadline exceeded", ""},
		"before JSON":        {silent{headers: "/versions"}, "deadline exceeded", ""},
		"within JSON":        {silent{body: "/versions"}, "deadline exceeded", "again"},
		"before a document":  {silent{headers: "_SHA256SUMS"}, "deadline exceeded", ""},
		"within a document":  {silent{body: "_SHA256SUMS"}, "deadline exceeded", ""},
		"before a package":   {silent{headers: ".zip"}, "the origin sent nothing for 1m0s", "again"},
		"within the package": {silent{body: ".zip"}, "the origin sent nothing for 1m0s", "again"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.Handler = testorigin.New(testorigin.Options{}, rel)
				start := time.Now()
				err := readWidget(t, registryOver(tc.silent))
				checkError(t, err, tc.says, tc.hint)
				if took := time.Since(start); took > 10*time.Minute {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// readWidget reads everything that a push of widget reads.
func readWidget(t *testing.T, client *origin.Registry) error {
	l, err := client.Versions(t.Context(), widget)
	if err != nil {
		return err
	}
	r, err := client.Release(t.Context(), widget, l, v1, platforms("linux_amd64"))
	if err != nil {
		return err
	}
	body, _, err := r.Packages[0].Open(t.Context())
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// TestSlowReader shows that the time limits apply only to the origin, and not to a slow
// reader of the download.
func TestSlowReader(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	synctest.Test(t, func(t *testing.T) {
		client := registryOver(inProcess{testorigin.New(testorigin.Options{}, rel)})
		l, err := client.Versions(t.Context(), widget)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Release(t.Context(), widget, l, v1, platforms("linux_amd64"))
		if err != nil {
			t.Fatal(err)
		}
		body, size, err := r.Packages[0].Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		var n int64
		for buf := make([]byte, 100); err == nil; {
			var m int
			m, err = body.Read(buf)
			n += int64(m)
			time.Sleep(time.Hour) // virtual time
		}
		if err != io.EOF || n != size {
			t.Errorf("read %d of %d bytes, %v", n, size, err)
		}
	})
}

// TestCanceled shows that a push ends immediately if it is cancelled, at every stage.
func TestCanceled(t *testing.T) {
	rel := build(t, nil, "1.0.0")
	for _, part := range []string{"/terraform.json", "/versions", "/download/linux/amd64", "_SHA256SUMS", ".zip"} {
		t.Run(part, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testorigin.New(testorigin.Options{}, rel)
				ctx, cancel := context.WithCancel(t.Context())
				server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, part) {
						cancel()
						w.WriteHeader(http.StatusServiceUnavailable) // so that the request is repeated
						return true
					}
					return false
				})
				start := time.Now()
				client := registryOver(inProcess{server})
				l, err := client.Versions(ctx, widget)
				if err == nil {
					var r *origin.Release
					if r, err = client.Release(ctx, widget, l, v1, platforms("linux_amd64")); err == nil {
						_, _, err = r.Packages[0].Open(ctx)
					}
				}
				if err == nil || !strings.Contains(fmt.Sprint(err), "context canceled") || time.Since(start) > 0 {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
			})
		})
	}
}

// losing is a transport that loses the connections of requests before a response begins. left
// is the number of further requests that lose their connection.
type losing struct {
	http.RoundTripper
	with error
	left int
}

func (l *losing) RoundTrip(req *http.Request) (*http.Response, error) {
	if l.left--; l.left >= 0 {
		return nil, l.with
	}
	return l.RoundTripper.RoundTrip(req)
}

// TestLostConnections shows that a request is repeated after its connection is lost, but only
// a limited number of times.
func TestLostConnections(t *testing.T) {
	for name, err := range map[string]error{
		"refused":            &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"reset":              &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		"closed":             io.EOF,
		"a broken write, h2": errors.New("http2: client connection force closed via ClientConn.Close"),
	} {
		for lost, fine := range map[int]bool{2: true, 100: false} {
			t.Run(fmt.Sprintf("%s, %d times", name, lost), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rel := build(t, pgp.For(t, "Acme"), "1.0.0")
					server := inProcess{testorigin.New(testorigin.Options{}, rel)}
					l := &losing{RoundTripper: server, with: err}
					registry := registryOver(l)
					if _, err := registry.Versions(t.Context(), widget); err != nil {
						t.Fatal(err)
					}
					l.left = lost
					if _, err := registry.Versions(t.Context(), widget); (err == nil) != fine {
						t.Error(err)
					}
				})
			})
		}
	}
}

// cutting is a transport that truncates the bodies of the first left responses to one kind of
// request. It has a mutex because SHA256SUMS and its signature are requested concurrently.
type cutting struct {
	inProcess
	part string // a substring of the paths of these requests
	left int

	mu    sync.Mutex
	asked int
}

func (b *cutting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.inProcess.RoundTrip(req)
	if !strings.Contains(req.URL.Path, b.part) {
		return resp, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked++; b.asked <= b.left {
		resp.Body = &brokenBody{resp.Body, 10, io.ErrUnexpectedEOF}
	}
	return resp, err
}

// TestBrokenAnswers shows that a document that breaks off is requested again, but only a
// limited number of times.
func TestBrokenAnswers(t *testing.T) {
	for _, part := range []string{"/terraform.json", "/versions", "/download/linux/amd64", "_SHA256SUMS", ".sig"} {
		for broken, fine := range map[int]bool{2: true, 100: false} {
			t.Run(fmt.Sprintf("%s, %d times", part, broken), func(t *testing.T) {
				rel := build(t, pgp.For(t, "Acme"), "1.0.0")
				synctest.Test(t, func(t *testing.T) {
					transport := &cutting{inProcess: inProcess{testorigin.New(testorigin.Options{}, rel)}, part: part, left: broken}
					err := readWidget(t, registryOver(transport))
					if fine && err != nil || transport.asked < 3 || transport.asked > 10 {
						t.Errorf("%d requests: %v", transport.asked, err)
					}
					if !fine {
						checkError(t, err, "unexpected EOF", "")
					}
				})
			})
		}
	}
}
