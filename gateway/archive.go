package gateway

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/provider"
)

// copyBuffer is how much of an archive is held in memory, and held back until
// what follows it is there or the digest is known.
const copyBuffer = 64 << 10

// serveArchive streams a package. HEAD is answered from the manifest: Terraform
// asks it before every download.
func (g *gateway) serveArchive(w http.ResponseWriter, r *http.Request) {
	p, store, err := g.archive(r)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	if !access.Covers(r.Context(), p.Digest) {
		access.Forbid(w)
		return
	}
	t := &transfer{store: store, desc: p.Layer(), limits: g.limits}
	defer t.close()
	if r.Method == http.MethodGet {
		if err := t.open(r.Context(), g.limits.start); err != nil {
			g.fail(w, r, fmt.Errorf("open %s: %w", p.Filename, err))
			return
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Length", strconv.FormatInt(p.Size, 10))
	h.Set("ETag", strconv.Quote(p.Digest.String()))
	if r.Method == http.MethodHead {
		return
	}
	if err := stream(r.Context(), w, t, p); err != nil {
		if r.Context().Err() == nil {
			g.log.Error("archive broken off", "path", r.URL.Path, "err", err)
		}
		// Whatever was sent is incomplete, and the client must see that it is.
		panic(http.ErrAbortHandler)
	}
}

// archive finds the package that a request is for.
func (g *gateway) archive(r *http.Request) (*artifact.Package, Store, error) {
	vars := mux.Vars(r)
	a, err := addressOf(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %v", errAbsent, err)
	}
	v, err := provider.ParseVersion(vars["version"])
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %v", errAbsent, err)
	}
	platform, err := provider.ParsePlatform(vars["platform"])
	if err != nil || !provider.ValidFilename(vars["filename"]) {
		return nil, nil, errAbsent
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.start)
	defer cancel()
	found, store, err := g.version(ctx, a, v)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s %s: %w", a, v, err)
	}
	for i := range found.Packages {
		if p := &found.Packages[i]; p.Platform == platform && p.Filename == vars["filename"] {
			return p, store, nil
		}
	}
	return nil, nil, errAbsent
}

// errDigest means that a blob is not what its descriptor says.
var errDigest = errors.New("the registry sent other bytes than the digest says")

// stream copies a package to the client and checks it on the way: the last bytes
// leave only once the digest of all is right.
func stream(ctx context.Context, w http.ResponseWriter, t *transfer, p *artifact.Package) error {
	hash := sha256.New()
	blob := readerFunc(func(b []byte) (int, error) { return t.read(ctx, b) })
	in := bufio.NewReaderSize(io.TeeReader(blob, hash), copyBuffer)
	buf := make([]byte, copyBuffer)
	client := http.NewResponseController(w)
	for {
		n, err := io.ReadFull(in, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		_, err = in.Peek(1)
		last := err == io.EOF
		if err != nil && !last {
			return err
		}
		if last && hex.EncodeToString(hash.Sum(nil)) != p.Digest.Encoded() {
			return fmt.Errorf("%w: sha256:%x instead of %s", errDigest, hash.Sum(nil), p.Digest)
		}
		// Not every ResponseWriter has deadlines; those of a server do.
		_ = client.SetWriteDeadline(time.Now().Add(t.limits.clientStall))
		if _, err := w.Write(buf[:n]); err != nil || last {
			return err
		}
		// HTTP/2 would enforce it while we wait for the registry, too.
		_ = client.SetWriteDeadline(time.Time{})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// transfer reads a blob of exactly the size announced. Where the connection to
// the registry breaks or stalls it goes on from there, unseen by whoever reads:
// clients do not try again.
type transfer struct {
	store   artifact.Fetcher
	desc    ocispec.Descriptor
	limits  limits
	offset  int64
	resumes int
	conn    *connection // nil: none is open
}

// read reads on as an [io.Reader] does.
func (t *transfer) read(ctx context.Context, p []byte) (int, error) {
	for {
		if t.offset == t.desc.Size {
			return 0, t.end()
		}
		n, err := t.readOnce(ctx, p)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			continue
		case err == io.EOF:
			// The registry ended it in good order: it has no more.
			return 0, fmt.Errorf("%w: %d bytes instead of %d", errDigest, t.offset, t.desc.Size)
		}
		t.close()
		if t.resumes++; t.resumes > t.limits.resumes || ctx.Err() != nil {
			return 0, fmt.Errorf("after %d of %d bytes: %w", t.offset, t.desc.Size, err)
		}
	}
}

// readOnce reads on, opening the blob at the current offset if it is not open.
func (t *transfer) readOnce(ctx context.Context, p []byte) (int, error) {
	if t.conn == nil {
		if err := t.open(ctx, t.limits.registryStall); err != nil {
			return 0, err
		}
	}
	if left := t.desc.Size - t.offset; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := t.conn.Read(p)
	t.offset += int64(n)
	return n, err
}

// end reports the end of the blob, or that there is more of it than announced.
func (t *transfer) end() error {
	var one [1]byte
	if n, _ := t.conn.Read(one[:]); n > 0 {
		return fmt.Errorf("%w: more than %d", errDigest, t.desc.Size)
	}
	return io.EOF
}

// open asks the registry for the blob from the current offset on.
func (t *transfer) open(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	c := &connection{cancel: cancel, limit: t.limits.registryStall}
	c.timer = time.AfterFunc(within, func() {
		c.stalled.Store(true)
		cancel()
	})
	var err error
	if c.body, err = t.store.Fetch(ctx, t.desc); err == nil {
		err = c.skip(t.offset)
	}
	if err != nil {
		c.close()
		return c.explain(err)
	}
	t.conn = c
	return nil
}

// close ends what is open.
func (t *transfer) close() {
	if t.conn != nil {
		t.conn.close()
		t.conn = nil
	}
}

// connection is one answer of the registry with a blob. It is cancelled when it
// stalls, which it can only while something is read from it: a client that takes
// its time is no fault of the registry.
type connection struct {
	body    io.ReadCloser // nil: it never came
	limit   time.Duration
	timer   *time.Timer
	cancel  context.CancelFunc
	stalled atomic.Bool
}

// Read implements [io.Reader].
func (c *connection) Read(p []byte) (int, error) {
	c.timer.Reset(c.limit)
	defer c.timer.Stop()
	n, err := c.body.Read(p)
	return n, c.explain(err)
}

// skip goes to an offset: by a request for a range if the registry takes them,
// else by reading what comes before it.
func (c *connection) skip(offset int64) error {
	if offset == 0 {
		return nil
	}
	if seeker, ok := c.body.(io.Seeker); ok {
		c.timer.Reset(c.limit)
		_, err := seeker.Seek(offset, io.SeekStart)
		c.timer.Stop()
		if err == nil {
			return nil
		}
		// Some announce ranges and refuse them. The body is still at its start.
	}
	_, err := io.CopyN(io.Discard, c, offset)
	return err
}

// explain names the stall where that is why a request was cancelled.
func (c *connection) explain(err error) error {
	if err != nil && err != io.EOF && c.stalled.Load() {
		return fmt.Errorf("%w: %v", errStalled, err)
	}
	return err
}

func (c *connection) close() {
	c.timer.Stop()
	if c.body != nil {
		c.body.Close()
	}
	c.cancel()
}
