// Package recorder records the requests to an HTTP handler, and lets a test answer some of the requests
// instead of the handler.
//
// A request is recorded before the handler gets it, and its status before the client gets it, so a test can
// count requests as soon as it has its answer.
package recorder

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A Request is the record of one request.
type Request struct {
	Method     string
	Path       string // unescaped, without the query
	Query      string // as sent
	Range      string // the Range header
	Authorized bool   // whether there was an Authorization header
	Status     int    // 0 if there is no answer, or not yet
}

// An Intercept can answer a request instead of the handler, and then returns true. It can panic with
// [http.ErrAbortHandler] to cut the connection.
type Intercept = func(w http.ResponseWriter, r *http.Request) (handled bool)

// A Recorder is a handler that wraps another. Its methods may be called at any time.
type Recorder struct {
	next http.Handler

	mu        sync.Mutex
	requests  []*Request
	intercept Intercept
}

// New returns a recorder for next.
func New(next http.Handler) *Recorder {
	return &Recorder{next: next}
}

var _ http.Handler = (*Recorder)(nil)

// ServeHTTP implements [http.Handler].
func (rec *Recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen, intercept := rec.record(r)
	watched := &response{ResponseWriter: w, rec: rec, seen: seen}
	if intercept == nil || !intercept(watched, r) {
		rec.next.ServeHTTP(watched, r)
	}
	// A handler that writes nothing answers 200.
	watched.status(http.StatusOK)
}

func (rec *Recorder) record(r *http.Request) (*Request, Intercept) {
	seen := &Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Range: r.Header.Get("Range"), Authorized: r.Header.Get("Authorization") != "",
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.requests = append(rec.requests, seen)
	return seen, rec.intercept
}

// Intercept makes the recorder call f for every request before the handler; nil ends this. Several calls of f
// may run concurrently.
func (rec *Recorder) Intercept(f Intercept) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.intercept = f
}

// Reset forgets all requests.
func (rec *Recorder) Reset() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.requests = nil
}

// Requests returns the requests that match all filters, in order of arrival.
func (rec *Recorder) Requests(filters ...Filter) []Request {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var out []Request
	for _, r := range rec.requests {
		if !slices.ContainsFunc(filters, func(f Filter) bool { return !f(*r) }) {
			out = append(out, *r)
		}
	}
	return out
}

// Count returns the number of requests that match all filters.
func (rec *Recorder) Count(filters ...Filter) int {
	return len(rec.Requests(filters...))
}

// A Filter reports whether it matches a request.
type Filter func(Request) bool

// Method matches requests with one of the given methods.
func Method(methods ...string) Filter {
	return func(r Request) bool { return slices.Contains(methods, r.Method) }
}

// Writes matches requests that change a registry.
func Writes() Filter {
	return Method(http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
}

// Path matches requests for exactly the given path.
func Path(path string) Filter {
	return func(r Request) bool { return r.Path == path }
}

// PathContains matches requests whose path contains part.
func PathContains(part string) Filter {
	return func(r Request) bool { return strings.Contains(r.Path, part) }
}

// PathSuffix matches requests whose path ends with suffix.
func PathSuffix(suffix string) Filter {
	return func(r Request) bool { return strings.HasSuffix(r.Path, suffix) }
}

// Status matches requests that were answered with the given status.
func Status(status int) Filter {
	return func(r Request) bool { return r.Status == status }
}

// Authorized matches requests with credentials.
func Authorized() Filter {
	return func(r Request) bool { return r.Authorized }
}

// A response records the status of an answer.
type response struct {
	http.ResponseWriter
	rec  *Recorder
	seen *Request
}

func (w *response) WriteHeader(status int) {
	if status >= 200 { // other statuses are informational, and precede the answer
		w.status(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.status(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher] for handlers that assert its type.
func (w *response) Flush() {
	w.status(http.StatusOK)
	// An error only means that the client waits longer.
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap returns the wrapped writer to [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// status records the status of the answer. Only the first call has an effect.
func (w *response) status(status int) {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	if w.seen.Status == 0 {
		w.seen.Status = status
	}
}
