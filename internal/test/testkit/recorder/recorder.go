// Package recorder records the requests to an HTTP handler. It also lets a test respond to some requests in
// place of the handler.
//
// A request is recorded before the handler gets it. Its status is recorded before the client gets the response.
// Therefore a test can count requests as soon as it has its response.
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
	Query      string // as the client sent it
	Range      string // the Range header
	Authorized bool   // whether the request had an Authorization header
	Status     int    // the status of the response; 0 if there is no response, or none yet
}

// An Intercept can respond to a request in place of the handler. It returns true if it did. It can panic with
// [http.ErrAbortHandler] to close the connection.
type Intercept = func(w http.ResponseWriter, r *http.Request) (handled bool)

// A Recorder is a handler that wraps another handler. Its methods are safe for concurrent use.
type Recorder struct {
	next http.Handler

	mu        sync.Mutex
	requests  []*Request
	intercept Intercept
}

// New returns a recorder that wraps next.
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
	// If the handler wrote nothing, net/http sends status 200.
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

// Intercept makes the recorder call f for every request, before it calls the handler. If f is nil, the recorder
// calls only the handler. The recorder can call f concurrently.
func (rec *Recorder) Intercept(f Intercept) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.intercept = f
}

// Reset removes the records of all requests.
func (rec *Recorder) Reset() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.requests = nil
}

// Requests returns the requests that match all filters, in the order in which they arrived.
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

// Status matches requests whose response had the given status.
func Status(status int) Filter {
	return func(r Request) bool { return r.Status == status }
}

// Authorized matches requests with credentials.
func Authorized() Filter {
	return func(r Request) bool { return r.Authorized }
}

// A response records the status that a handler sends.
type response struct {
	http.ResponseWriter
	rec  *Recorder
	seen *Request
}

func (w *response) WriteHeader(status int) {
	if status >= 200 { // a smaller status is informational, and another status follows
		w.status(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.status(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher], because some handlers assert that type.
func (w *response) Flush() {
	w.status(http.StatusOK)
	// An error only means that the client has to wait longer.
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap returns the wrapped writer. [http.ResponseController] calls it.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// status records the status of the response. Only the first call has an effect.
func (w *response) status(status int) {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	if w.seen.Status == 0 {
		w.seen.Status = status
	}
}
