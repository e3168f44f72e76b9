// Package archives answers requests for the bytes of packages: out of a cache on
// disk, streamed from the registry, or by the registry's own redirect to where it
// keeps them.
//
// Invariants:
//
//   - No answer is complete before the digest of the whole archive is known to be
//     right: the last bytes of every answer, of a range too, wait for that, and
//     the answer is broken off where it is wrong.
//   - The cache hands out only what was hashed since the process began, and was not
//     touched on disk since; see [Cache].
//   - However many clients wait for an archive, the cache fetches it once.
//   - Trouble with the cache is for the log. Clients are then answered past it.
//   - Memory does not depend on the size of archives: [CopyBuffer] an answer, and as
//     much a fetch.
package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/telemetry"
)

var (
	// ErrDigest means that a blob is not what its descriptor says.
	ErrDigest = errors.New("the registry sent other bytes than the digest says")
	// ErrStalled means that the registry accepted a request and left it there.
	ErrStalled = errors.New("the registry sends nothing")
	// ErrGone means that the registry does not have the blob that its manifest names.
	ErrGone = errors.New("the registry does not have the package that its manifest names")
)

// Limits are how long others may keep an answer waiting.
type Limits struct {
	// Start is how long the registry may take until an archive begins.
	Start time.Duration
	// RegistryStall and ClientStall are how long the one or the other may leave a
	// transfer without a byte.
	RegistryStall, ClientStall time.Duration
	// Resumes is how often one transfer that broke is taken up again.
	Resumes int
}

// Options configure a [Handler].
type Options struct {
	Cache    *Cache       // nil: every archive is streamed from the registry
	Log      *slog.Logger // nil: nobody reads it
	Limits   Limits
	Counters *telemetry.ArchiveCounters // nil: nobody counts
}

// Handler answers requests for archives.
type Handler struct {
	cache    *Cache
	log      *slog.Logger
	limits   Limits
	counters *telemetry.ArchiveCounters
}

// New returns a handler.
func New(o Options) *Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Counters == nil {
		o.Counters = &telemetry.ArchiveCounters{}
	}
	return &Handler{o.Cache, o.Log, o.Limits, o.Counters}
}

// Archive is what is asked for.
type Archive struct {
	Package artifact.Package
	// Store has it. If it tells whether it has a blob, as oras-go's
	// remote.Repository does, HEAD is answered by that.
	Store artifact.Fetcher
	// Source names the origin that Store fetches the package from; "" for the registry.
	// Requests for the same package from another source do not wait for this one.
	Source string
	// Redirect returns where the registry sends those who ask for the blob, "" if
	// it answers them itself; nil: clients are sent nowhere.
	Redirect func(context.Context, ocispec.Descriptor) (string, error)
}

// Serve answers GET and HEAD for an archive. An error means that nothing was
// answered, and that the registry is why. An answer that must not be taken for
// complete ends in a panic with [http.ErrAbortHandler], its reason in the log.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, a Archive) error {
	r = h.withoutRange(r)
	if status := h.outcome(r, a); status != http.StatusOK && status != http.StatusPartialContent {
		h.serve(w, r, a, sized(a.Package.Size)) // what the client has is told apart without the archive
		return nil
	}
	if r.Method == http.MethodHead {
		if err := h.exists(r.Context(), a); err != nil {
			return err
		}
		h.serve(w, r, a, sized(a.Package.Size))
		return nil
	}
	if to := h.redirect(r.Context(), a); to != "" {
		w.Header().Set("Location", to)
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusTemporaryRedirect)
		h.counters.Redirected.Add(a.Package.Size)
		return nil
	}
	return h.send(w, r, a)
}

// send answers with an archive's bytes.
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
			h.counters.BrokenOff.Add(1)
			h.log.ErrorContext(ctx, "archive broken off", "path", r.URL.Path, "err", err)
		}
		// Whatever was sent is incomplete, and the client must see that it is.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// withoutRange takes away a Range that is not honoured, as RFC 9110 (section
// 14.2) allows: for HEAD it means nothing; several at once would be read out of
// order, and all of a whole that is not there twice; and without a cache a part
// could not be verified without fetching the whole.
func (h *Handler) withoutRange(r *http.Request) *http.Request {
	ranges := r.Header.Get("Range")
	if ranges == "" || h.cache != nil && r.Method == http.MethodGet && !strings.Contains(ranges, ",") {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Del("Range")
	return r
}

// outcome returns the status of the answer by what the client says that it has
// and wants.
func (h *Handler) outcome(r *http.Request, a Archive) int {
	head := *r
	head.Method = http.MethodHead
	probe := &statusOnly{header: http.Header{}}
	h.serve(probe, &head, a, sized(a.Package.Size))
	return probe.status
}

// serve answers a request out of content. It returns how much was sent, and why the
// answer is not complete.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, a Archive, content content) (sent int64, err error) {
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("ETag", strconv.Quote(a.Package.Digest.String()))
	out := newAnswer(w, content, h.limits.ClientStall)
	out.ranges = h.cache != nil
	http.ServeContent(out, r, "", time.Time{}, content)
	if r.Method == http.MethodHead {
		return 0, nil
	}
	return out.sent, out.end()
}

// exists reports as an error why a GET would not be answered with the archive, as
// far as that is cheap to know.
func (h *Handler) exists(ctx context.Context, a Archive) error {
	if h.cache != nil && h.cache.has(a.blob()) {
		return nil
	}
	store, ok := a.Store.(interface {
		Exists(context.Context, ocispec.Descriptor) (bool, error)
	})
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.limits.Start)
	defer cancel()
	found, err := store.Exists(ctx, a.Package.Layer())
	var answer *errcode.ErrorResponse
	var network net.Error
	switch {
	case err == nil && !found:
		return fmt.Errorf("%w: %s", ErrGone, a.Package.Filename)
	// The store asks by GET where HEAD is 404: then the client's GET would fail, too.
	case errors.As(err, &answer) && (answer.Method == http.MethodGet || isTrouble(answer.StatusCode)), errors.As(err, &network), ctx.Err() != nil:
		return fmt.Errorf("ask for %s: %w", a.Package.Filename, err)
	}
	// Some registries do not know HEAD, answer it without what clients want to see
	// there, or send it on to storage that allows GET alone.
	return nil
}

// isTrouble reports whether a registry that answers a HEAD so is in trouble.
func isTrouble(status int) bool {
	return status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented
}

// redirect returns where the client is to be sent. Where the registry cannot say,
// the archive is answered here, and so is the trouble.
func (h *Handler) redirect(ctx context.Context, a Archive) string {
	if a.Redirect == nil {
		return ""
	}
	within, cancel := context.WithTimeout(ctx, h.limits.Start)
	defer cancel()
	to, err := a.Redirect(within, a.Package.Layer())
	if err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "no redirect: the archive is answered by the gateway", "file", a.Package.Filename, "err", err)
	}
	return to
}

// open opens an archive in the cache or, past it, in the registry, and says what
// counts the answers from there.
func (h *Handler) open(ctx context.Context, a Archive) (content, *telemetry.Served, error) {
	if h.cache != nil {
		c, err := h.cache.open(ctx, a, h.limits)
		if err == nil {
			if c.kept {
				return c, &h.counters.Cached, nil
			}
			return c, &h.counters.Fetched, nil
		}
		if !errors.Is(err, errBypass) {
			return nil, nil, fmt.Errorf("open %s: %w", a.Package.Filename, err)
		}
	}
	c, err := openStream(ctx, a.Store, a.Package.Layer(), h.limits)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", a.Package.Filename, err)
	}
	return c, &h.counters.Streamed, nil
}

// content is an archive as one answer reads it.
type content interface {
	io.ReadSeekCloser
	// verify waits until the whole archive is known to be what its digest says, and
	// fails if it is not.
	verify() error
}

// sized stands for the content of an answer that has none.
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

// statusOnly keeps the status of an answer that nobody gets.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(p []byte) (int, error) { return len(p), nil }
