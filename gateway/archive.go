package gateway

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/mux"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// copyBuffer is how much of an archive is held in memory, and held back until
	// what follows it is there or the digest is known.
	copyBuffer = 64 << 10
	// stallTimeout is how long the registry, or the client, may leave a transfer
	// without a byte.
	stallTimeout = 60 * time.Second
	// maxResumes is how often one transfer that broke is taken up again.
	maxResumes = 8
)

// serveArchive streams a package. HEAD is answered from the manifest: Terraform
// asks it before every download.
func (g *gateway) serveArchive(w http.ResponseWriter, r *http.Request) {
	p, store, err := g.archive(r)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	src := newBlobReader(r.Context(), store, p.Layer())
	defer src.Close()
	if r.Method == http.MethodGet {
		if err := src.open(); err != nil {
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
	if err := stream(w, src, p); err != nil {
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
	ctx, cancel := context.WithTimeout(r.Context(), archiveStartTimeout)
	defer cancel()
	found, store, err := g.version(ctx, a, v)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s %s: %w", a, v, err)
	}
	for i := range found.Packages {
		if p := &found.Packages[i]; p.Platform.String() == vars["platform"] && p.Filename == vars["filename"] {
			return p, store, nil
		}
	}
	return nil, nil, errAbsent
}

// errDigest means that a blob is not what its digest says.
var errDigest = errors.New("the registry sent other bytes than the digest says")

// stream copies a package to the client and checks it on the way: the last bytes
// leave only once the digest of all is right.
func stream(w http.ResponseWriter, src io.Reader, p *artifact.Package) error {
	hash := sha256.New()
	client := http.NewResponseController(w)
	in := bufio.NewReaderSize(io.TeeReader(src, hash), copyBuffer)
	buf := make([]byte, copyBuffer)
	for {
		n, err := io.ReadFull(in, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if _, err := in.Peek(1); err == io.EOF {
			if sum := hash.Sum(nil); provider.ZipHash([sha256.Size]byte(sum)) != p.ZipHash() {
				return fmt.Errorf("%w: sha256:%x instead of %s", errDigest, sum, p.Digest)
			}
			_, err = w.Write(buf[:n])
			return err
		} else if err != nil {
			return err
		}
		// Not every ResponseWriter has deadlines; those of a server do.
		_ = client.SetWriteDeadline(time.Now().Add(stallTimeout))
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// blobReader reads a blob of exactly the size announced. Where the connection to
// the registry breaks or stalls it goes on from there, unseen by the reader:
// clients do not try again.
type blobReader struct {
	ctx     context.Context
	store   artifact.Fetcher
	desc    ocispec.Descriptor
	offset  int64
	resumes int

	body   io.ReadCloser
	stall  *time.Timer
	cancel context.CancelFunc
}

func newBlobReader(ctx context.Context, store artifact.Fetcher, desc ocispec.Descriptor) *blobReader {
	return &blobReader{ctx: ctx, store: store, desc: desc}
}

func (b *blobReader) Read(p []byte) (int, error) {
	for {
		if b.offset == b.desc.Size {
			return 0, b.end()
		}
		n, err := b.readOnce(p)
		if n > 0 {
			return n, nil
		}
		if err == nil {
			continue
		}
		b.Close()
		if b.resumes++; b.resumes > maxResumes || b.ctx.Err() != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // shorter than its descriptor says
			}
			return 0, fmt.Errorf("after %d of %d bytes: %w", b.offset, b.desc.Size, err)
		}
	}
}

// readOnce reads on, opening the blob at the current offset if it is not open.
func (b *blobReader) readOnce(p []byte) (int, error) {
	if b.body == nil {
		if err := b.open(); err != nil {
			return 0, err
		}
	}
	if left := b.desc.Size - b.offset; int64(len(p)) > left {
		p = p[:left]
	}
	b.stall.Reset(stallTimeout)
	n, err := b.body.Read(p)
	b.offset += int64(n)
	return n, err
}

func (b *blobReader) open() error {
	ctx, cancel := context.WithCancel(b.ctx)
	stall := time.AfterFunc(stallTimeout, cancel)
	body, err := b.store.Fetch(ctx, b.desc)
	if err == nil && b.offset > 0 {
		if seeker, ok := body.(io.Seeker); ok {
			_, err = seeker.Seek(b.offset, io.SeekStart)
		} else {
			_, err = io.CopyN(io.Discard, body, b.offset)
		}
	}
	if err != nil {
		if body != nil {
			body.Close()
		}
		stall.Stop()
		cancel()
		return err
	}
	b.body, b.stall, b.cancel = body, stall, cancel
	return nil
}

// end reports the end of the blob, or that there is more of it than announced.
func (b *blobReader) end() error {
	if b.body == nil {
		return io.EOF
	}
	var one [1]byte
	if n, _ := b.body.Read(one[:]); n > 0 {
		return fmt.Errorf("%w: more than %d", errDigest, b.desc.Size)
	}
	return io.EOF
}

// Close ends the transfer that is under way, if one is.
func (b *blobReader) Close() error {
	if b.body == nil {
		return nil
	}
	err := b.body.Close()
	b.stall.Stop()
	b.cancel()
	b.body = nil
	return err
}
