package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/files"
)

// blobs serves the blobs of repositories from their files. All other requests, and those for blobs that cannot be
// opened, go to next, which is distribution.
//
// Distribution would hold a buffer of 4 MiB for each blob that a client reads, however slowly. blobs holds no bytes of a
// blob. A garbage collection may delete a blob while it is read: on Unix, the open file keeps its content, and on Windows
// the deletion fails.
type blobs struct {
	root   string // the folder of distribution's storage format
	next   http.Handler
	closed context.Context // ends when the registry is closed
}

func (b *blobs) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if blob := b.open(req); blob != nil {
		defer blob.Close()
		blob.serve(w, req)
		return
	}
	b.next.ServeHTTP(w, req)
}

// openBlob is an open blob.
type openBlob struct {
	*os.File
	digest digest.Digest // the canonical digest, under which the blob is stored
}

// open opens the blob that a request reads. It returns nil if the request is not for a blob, or the blob cannot be opened.
func (b *blobs) open(req *http.Request) *openBlob {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil
	}
	name, d, ok := parsePath(req.URL.Path, "blobs")
	if !ok || d.Validate() != nil {
		return nil
	}
	if _, err := reference.WithName(name); err != nil {
		return nil
	}
	return b.openIn(name, d)
}

// openIn opens a blob of a repository, or returns nil. A blob belongs to a repository if the repository has a link to it,
// which names the canonical digest of the blob.
func (b *blobs) openIn(name string, d digest.Digest) *openBlob {
	link, err := os.ReadFile(filepath.Join(b.root, "repositories", filepath.FromSlash(name), "_layers", string(d.Algorithm()), d.Encoded(), "link"))
	if err != nil {
		return nil
	}
	canonical, err := digest.Parse(string(link))
	if err != nil {
		return nil
	}
	f, _, err := files.Open(filepath.Join(b.root, filepath.FromSlash(blobPath(canonical))))
	if err != nil {
		return nil
	}
	return &openBlob{f, canonical}
}

// serve answers a request with the headers that distribution sends.
func (o *openBlob) serve(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Docker-Distribution-Api-Version", "registry/2.0")
	h.Set("Docker-Content-Digest", o.digest.String())
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Etag", strconv.Quote(o.digest.String()))
	h.Set("Cache-Control", "max-age=31536000") // the content of a digest never changes
	http.ServeContent(w, req, "", time.Time{}, o)
}

// blobTransport answers requests for blobs in the goroutine of the client. All other requests go to next, which sends them
// over a pipe. A pipe takes several buffers of 64 KiB for each body.
type blobTransport struct {
	*blobs
	next *http.Transport
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *blobTransport) CloseIdleConnections() { t.next.CloseIdleConnections() }

func (t *blobTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	// A response with several ranges has parts that are not in the file.
	if req.Method != http.MethodGet || strings.Contains(req.Header.Get("Range"), ",") {
		return t.next.RoundTrip(req)
	}
	blob := t.open(req)
	if blob == nil {
		return t.next.RoundTrip(req)
	}
	if t.closed.Err() != nil {
		blob.Close()
		return nil, net.ErrClosed
	}
	return blob.response(req)
}

// response returns the response to a GET. It first serves a HEAD, which gives the same header, and moves the file to the
// first byte of the response.
func (o *openBlob) response(req *http.Request) (*http.Response, error) {
	head := req.WithContext(req.Context())
	head.Method = http.MethodHead
	probe := &buffered{header: http.Header{}, status: http.StatusOK}
	o.serve(probe, head)
	out := &http.Response{
		Status: fmt.Sprintf("%d %s", probe.status, http.StatusText(probe.status)), StatusCode: probe.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: probe.header, Body: io.NopCloser(&probe.body), ContentLength: int64(probe.body.Len()), Request: req,
	}
	if probe.status != http.StatusOK && probe.status != http.StatusPartialContent {
		o.Close()
		return out, nil // not modified, or no such range
	}
	size, err := strconv.ParseInt(probe.header.Get("Content-Length"), 10, 64)
	if err != nil {
		o.Close()
		return nil, err
	}
	out.ContentLength, out.Body = size, &blobBody{req.Context(), o.File, size}
	return out, nil
}

// blobBody is the body of a response with a blob. It behaves like a body from a network: a read fails once the context
// of the request has ended, and a file that is shorter than announced is an error.
type blobBody struct {
	ctx  context.Context
	file *os.File
	left int64
}

func (b *blobBody) Read(p []byte) (int, error) {
	switch err := b.ctx.Err(); {
	case err != nil:
		return 0, err
	case b.left == 0:
		return 0, io.EOF
	}
	n, err := b.file.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *blobBody) Close() error { return b.file.Close() }

// wholeTags returns a handler that removes tags without a manifest from lists of tags. Distribution creates a tag in two
// steps: first the folder of the tag, then the link to the manifest. A list of tags shows every folder, also between the two
// steps, or after a crash between them.
func (r *Registry) wholeTags(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, ok := strings.CutPrefix(req.URL.Path, "/v2/")
		if ok {
			name, ok = strings.CutSuffix(name, "/tags/list")
		}
		if !ok || req.Method != http.MethodGet {
			next.ServeHTTP(w, req)
			return
		}
		answer := &buffered{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(answer, req)
		body := answer.body.Bytes()
		var list struct {
			Name string   `json:"name"`
			Tags []string `json:"tags"`
		}
		if answer.status == http.StatusOK && json.Unmarshal(body, &list) == nil {
			if whole := slices.DeleteFunc(slices.Clone(list.Tags), func(tag string) bool { return r.namesNothing(name, tag) }); len(whole) < len(list.Tags) {
				list.Tags = whole
				body, _ = json.Marshal(list) // strings can always be encoded
			}
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(answer.status)
		_, _ = w.Write(body) // an error means that the client has gone
	})
}

// namesNothing reports whether it is certain that a tag has no link to a manifest.
func (r *Registry) namesNothing(repository, tag string) bool {
	_, err := os.Lstat(filepath.Join(storage(r.dir), "repositories", filepath.FromSlash(repository), "_manifests", "tags", tag, "current", "link"))
	return errors.Is(err, fs.ErrNotExist)
}

// buffered is an [http.ResponseWriter] that stores the status and the body of a response.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }
