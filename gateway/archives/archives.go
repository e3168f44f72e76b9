// Package archives serves the bytes of packages. It reads them from a cache on disk, streams
// them from the registry, or passes on the registry's redirect to its storage. The cache also
// keeps packages unpacked, for commands on the same machine.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// Invariants:
//
//   - No response is complete before the digest of the whole archive is verified. The last
//     bytes of every response, even one with a range, wait for the verification. If the digest
//     is wrong, the response is broken off.
//   - The cache serves only archives that this process has hashed, and that have not
//     changed on disk since; see [Cache].
//   - However many clients wait for an archive, the cache fetches it once.
//   - A failure of the cache goes to the log. Clients then get the archive from the
//     registry.
//   - The use of memory does not depend on the size of archives. Each response and each fetch
//     holds [CopyBuffer] bytes.
package archives

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/respond"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

var (
	// ErrDigest means that a blob does not match its descriptor.
	ErrDigest = errors.New("the registry sent other bytes than the digest says")
	// ErrStalled means that the registry accepted a request and then sent no bytes for too long.
	ErrStalled = errors.New("the registry sends nothing")
	// ErrGone means that the registry does not have the blob that a package's manifest names.
	ErrGone = errors.New("the registry does not have the package that its manifest names")
)

// Limits are the times for which the registry and the client may delay a response.
type Limits struct {
	Start         time.Duration // the maximum time before the registry begins to send an archive
	RegistryStall time.Duration // the maximum time without a byte from the registry
	ClientStall   time.Duration // the maximum time that the client may take to read a piece
	Resumes       int           // the maximum number of times that a broken transfer is resumed
}

// Options configure a [Handler].
type Options struct {
	Cache    *Cache       // if nil, every archive is streamed from the registry
	Log      *slog.Logger // if nil, nothing is logged
	Limits   Limits
	Counters *telemetry.ArchiveCounters // if nil, nothing is counted
}

// Handler answers requests for archives.
type Handler struct{ o Options }

// New returns a handler.
func New(o Options) *Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Counters = cmp.Or(o.Counters, &telemetry.ArchiveCounters{})
	return &Handler{o}
}

// Blob is a package in the registry or at its origin.
type Blob interface {
	// Open opens the package. size is the package's size in bytes. body begins with the
	// package's byte at start. start is offset, or 0 if the source cannot skip bytes.
	Open(ctx context.Context, size, offset int64) (body io.ReadCloser, start int64, err error)
	// Exists reports whether the package can be opened. It is called for HEAD requests.
	Exists(context.Context) (bool, error)
	// Redirect returns the URL to which the registry redirects clients, or "" if the registry
	// sends the package itself.
	Redirect(context.Context) (string, error)
}

// Archive is a requested archive.
type Archive struct {
	Package artifact.Package
	Blob    Blob
	// Source names the origin that may have the package, or is "" if the registry has it. Requests
	// for the same package from different sources do not wait for each other.
	Source string
}

// Serve answers a GET or HEAD request for an archive. An error means that the registry has
// failed, and that Serve has sent nothing. If the response is incomplete, Serve logs the
// reason and panics with [http.ErrAbortHandler].
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, a Archive) error {
	r = h.withoutRange(r)
	if status := h.status(r, a); status != http.StatusOK && status != http.StatusPartialContent {
		h.serve(w, r, a, sized(a.Package.Size)) // the response has no content
		return nil
	}
	if r.Method == http.MethodHead {
		if err := h.check(r.Context(), a); err != nil {
			return err
		}
		h.serve(w, r, a, sized(a.Package.Size))
		return nil
	}
	if to := h.redirect(r.Context(), a); to != "" {
		respond.Redirect(w, to)
		h.o.Counters.Redirected.Add(a.Package.Size)
		return nil
	}
	return h.send(w, r, a)
}

// send sends an archive's bytes.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, a Archive) (err error) {
	ctx, end := telemetry.Start(r.Context(), "archive", slog.String("file", a.Package.Filename), slog.Int64("size", a.Package.Size))
	defer func() { end(err) }()
	content, from, err := h.open(ctx, a)
	if err != nil {
		return err
	}
	defer content.Close()
	sent, err := h.serve(w, r.WithContext(ctx), a, content)
	from.Add(sent)
	if err != nil {
		if r.Context().Err() == nil {
			h.o.Counters.BrokenOff.Add(1)
			h.o.Log.ErrorContext(ctx, "archive broken off", "path", r.URL.Path, "err", err)
		}
		// The client must see that the response is incomplete.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// withoutRange removes the Range header where the gateway ignores it, as RFC 9110 (section 14.2)
// allows. A HEAD request has no ranges. A request for several ranges would read an archive out of
// order, and could read it more than once. Without a cache, the gateway would have to fetch the
// whole archive to verify a range.
func (h *Handler) withoutRange(r *http.Request) *http.Request {
	ranges := r.Header.Get("Range")
	if ranges == "" || h.o.Cache != nil && r.Method == http.MethodGet && !strings.Contains(ranges, ",") {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Del("Range")
	return r
}

// status returns the status of the response, which depends on the request's conditions and range.
func (h *Handler) status(r *http.Request, a Archive) int {
	head := *r
	head.Method = http.MethodHead
	probe := &statusOnly{header: http.Header{}}
	h.serve(probe, &head, a, sized(a.Package.Size))
	return probe.status
}

// serve answers a request with content. It returns the number of sent bytes, and an error if the
// response is incomplete.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, a Archive, content content) (sent int64, err error) {
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("ETag", strconv.Quote(a.Package.Digest.String()))
	out := newAnswer(w, content, h.o.Limits.ClientStall)
	out.ranges = h.o.Cache != nil
	http.ServeContent(out, r, "", time.Time{}, content)
	if r.Method == http.MethodHead {
		return 0, nil
	}
	return out.sent, out.end()
}

// check returns an error if the registry says, without sending the archive, that a GET would fail.
func (h *Handler) check(ctx context.Context, a Archive) error {
	if h.o.Cache != nil && h.o.Cache.has(a.blob()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.o.Limits.Start)
	defer cancel()
	found, err := a.Blob.Exists(ctx)
	var answer *errcode.ErrorResponse
	switch {
	case err == nil && !found:
		return fmt.Errorf("%w: %s", ErrGone, a.Package.Filename)
	// If the registry answers HEAD with 404, the store sends a GET. If that GET fails, the
	// client's GET would fail, too.
	case errors.As(err, &answer) && (answer.Method == http.MethodGet || isOutage(answer.StatusCode)), errors.As(err, new(net.Error)), ctx.Err() != nil:
		return fmt.Errorf("ask for %s: %w", a.Package.Filename, err)
	}
	// Some registries do not support HEAD, omit headers, or redirect HEAD to storage that only allows GET.
	return nil
}

// isOutage reports whether a registry that answers HEAD with the given status is unavailable.
func isOutage(status int) bool {
	return status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented
}

// redirect returns the URL to which the client is redirected, or "" if the gateway sends the archive
// itself. It logs a failure of the registry, and then returns "".
func (h *Handler) redirect(ctx context.Context, a Archive) string {
	if a.Source != "" {
		return ""
	}
	within, cancel := context.WithTimeout(ctx, h.o.Limits.Start)
	defer cancel()
	to, err := a.Blob.Redirect(within)
	if err != nil && ctx.Err() == nil {
		h.o.Log.WarnContext(ctx, "no redirect: the archive is answered by the gateway", "file", a.Package.Filename, "err", err)
	}
	return to
}

// open opens an archive in the cache or, if the cache cannot store it, in the registry. It also
// returns the counter of the sent bytes.
func (h *Handler) open(ctx context.Context, a Archive) (content, *telemetry.Served, error) {
	if h.o.Cache != nil {
		c, err := h.o.Cache.open(ctx, a, h.o.Limits)
		switch {
		case err == nil && c.hit:
			return c, &h.o.Counters.Cached, nil
		case err == nil:
			return c, &h.o.Counters.Fetched, nil
		case !errors.Is(err, errBypass):
			return nil, nil, fmt.Errorf("open %s: %w", a.Package.Filename, err)
		}
	}
	c, err := openStream(ctx, a, h.o.Limits)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", a.Package.Filename, err)
	}
	return c, &h.o.Counters.Streamed, nil
}

// ReadAll returns a whole archive, after its digest is verified. It holds the archive in memory, so the caller must check
// the size first. The errors are like those of [Handler.Serve].
func (h *Handler) ReadAll(ctx context.Context, a Archive) ([]byte, error) {
	c, _, err := h.open(ctx, a)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	data := make([]byte, a.Package.Size)
	if _, err = io.ReadFull(c, data); err == nil {
		err = c.verify()
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", a.Package.Filename, err)
	}
	return data, nil
}

// content reads an archive for one response.
type content interface {
	io.ReadSeekCloser
	// verify waits until the whole archive is verified. It fails if the digest is wrong.
	verify() error
}

// sized is the content of a response without a body. Only its size is used.
type sized int64

func (s sized) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset += int64(s)
	}
	return offset, nil
}

func (sized) Read([]byte) (int, error) { return 0, io.EOF }
func (sized) Close() error             { return nil }
func (sized) verify() error            { return nil }

// statusOnly is an [http.ResponseWriter] that records the status and sends nothing.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(p []byte) (int, error) { return len(p), nil }

// CopyBuffer is the number of bytes of an archive that a response or a fetch holds in memory.
const CopyBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([CopyBuffer]byte) }}

// answer is an [http.ResponseWriter] that sends an archive's bytes to a client. It withholds the
// last bytes until the whole archive is verified. It limits the time that the client may take to
// read each piece.
type answer struct {
	http.ResponseWriter
	content content
	client  *http.ResponseController
	stall   time.Duration
	ranges  bool  // whether the client may request ranges
	left    int64 // the number of bytes that are not sent yet
	sent    int64
	err     error // the reason why the response ends early, or nil
}

func newAnswer(w http.ResponseWriter, c content, stall time.Duration) *answer {
	return &answer{ResponseWriter: w, content: c, client: http.NewResponseController(w), stall: stall}
}

func (a *answer) WriteHeader(status int) {
	if status == http.StatusOK || status == http.StatusPartialContent {
		a.left, a.err = strconv.ParseInt(a.Header().Get("Content-Length"), 10, 64)
		if !a.ranges {
			a.Header().Set("Accept-Ranges", "none")
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.err == nil && int64(len(p)) >= a.left {
		a.err = a.content.verify()
	}
	if a.err != nil {
		return 0, a.err
	}
	_ = a.client.SetWriteDeadline(time.Now().Add(a.stall)) // does not fail for the writers of net/http's server
	n, err := a.ResponseWriter.Write(p)
	a.sent += int64(n)
	if a.left -= int64(n); a.left > 0 {
		_ = a.client.Flush() // shows the client that its archive has begun, even if the registry is slow
		// Without this, HTTP/2 would enforce the deadline while the gateway waits for the registry.
		_ = a.client.SetWriteDeadline(time.Time{})
	}
	a.err = err
	return n, err
}

// ReadFrom implements [io.ReaderFrom], so that io.Copy allocates no buffer.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[CopyBuffer]byte)
	defer buffers.Put(buf)
	sent, err := io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{r}, buf[:])
	if a.err == nil {
		a.err = err
	}
	return sent, err
}

// end returns the reason why the response is incomplete, or nil.
func (a *answer) end() error {
	if a.err == nil && a.left > 0 {
		return io.ErrUnexpectedEOF
	}
	return a.err
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
