package catalog

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// upstream reads from the repository of a provider or module during one fetch. It reads content by
// digest from the cache first. It records a failure of the registry, because errors of package
// artifact may hide the failure.
type upstream struct {
	c *Catalog
	question
	last   *answer // the last answer; nil: there is none
	before *answer // the last answer if it can be revalidated, else nil
	store  Store   // nil: only the cache is read

	signatures []approval.Signature // those that were read, for a question of kind approvals

	mu      sync.Mutex
	failure error
	read    map[digest.Digest][]byte // the content that was read from the registry
	bytes   int64                    // the total size of the content in read
	parts   []digest.Digest          // the digests in read, and those of the content that came from the cache
}

var _ artifact.ReferenceFetcher = (*upstream)(nil)

// errOffline means that content is not in the cache and that the registry must not be asked.
var errOffline = errors.New("not in the cache")

// fail records the registry's first failure. It returns err.
func (u *upstream) fail(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failure = cmp.Or(u.failure, err)
	return err
}

// failed records a failed request, unless package artifact has cancelled it. When package artifact
// refuses a version, it cancels the remaining requests for that version.
func (u *upstream) failed(ctx context.Context, err error) {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		u.fail(err)
	}
}

func (u *upstream) FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	if u.store == nil {
		return ocispec.Descriptor{}, nil, errOffline
	}
	desc, body, err := u.store.FetchReference(ctx, reference)
	if err != nil {
		if !errors.Is(err, errdef.ErrNotFound) {
			u.fail(err)
		}
		return desc, nil, err
	}
	defer body.Close()
	if desc.Size > artifact.MaxManifestBytes {
		return desc, io.NopCloser(http.NoBody), nil // the caller refuses the content because of desc.Size
	}
	data, err := u.readAll(ctx, body, artifact.MaxManifestBytes)
	if err != nil {
		return desc, nil, err
	}
	got := digest.FromBytes(data)
	if desc.Digest.Validate() == nil && desc.Digest.Algorithm() == digest.SHA256 && desc.Digest != got {
		u.fail(fmt.Errorf("%w: announced as %s, it is %s", artifact.ErrDamaged, desc.Digest, got))
	}
	if err := u.remember(got, data); err != nil {
		return desc, nil, err
	}
	return desc, io.NopCloser(bytes.NewReader(data)), nil
}

// Fetch implements [artifact.Fetcher] for metadata.
func (u *upstream) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	data, err := u.whole(ctx, desc)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// whole returns all content of a descriptor of at most 4 MiB.
func (u *upstream) whole(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if desc.Size > artifact.MaxManifestBytes {
		return nil, fmt.Errorf("%w: %s has %d bytes", artifact.ErrTooLarge, desc.Digest, desc.Size)
	}
	if data, ok := u.c.cached(u.subject, desc.Digest); ok {
		u.note(desc.Digest)
		return data, nil
	}
	if u.union {
		if data, ok := u.c.opts.Origin.Blob(u.provider(), desc.Digest); ok {
			return data, nil
		}
	}
	if u.store == nil {
		return nil, errOffline
	}
	body, err := u.store.Fetch(ctx, desc)
	if err != nil {
		if !errors.Is(err, errdef.ErrNotFound) {
			u.failed(ctx, err)
		}
		return nil, err
	}
	defer body.Close()
	data, err := u.readAll(ctx, body, desc.Size)
	if err != nil {
		return nil, err
	}
	if desc.Digest.Validate() != nil || desc.Digest.Algorithm().FromBytes(data) != desc.Digest {
		u.fail(fmt.Errorf("%w: %s", artifact.ErrDamaged, desc.Digest))
	} else if err := u.remember(desc.Digest, data); err != nil {
		return nil, err
	}
	return data, nil
}

// readAll reads a body. If the body is longer than limit bytes, readAll returns limit+1 bytes, so that the
// caller notices the excess.
func (u *upstream) readAll(ctx context.Context, body io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		u.failed(ctx, err)
	}
	return data, err
}

// note records that the answer depends on the content of a digest.
func (u *upstream) note(d digest.Digest) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.parts, d) {
		u.parts = append(u.parts, d)
	}
}

// maxRead is the maximum size in bytes of the content that is read from the registry for one answer.
// It is enough for an index, the manifest of its evidence and the four parts of the evidence, each
// of [artifact.MaxManifestBytes], or for thousands of platform manifests of the usual size.
const maxRead = 6 * artifact.MaxManifestBytes

// remember stores content whose digest was verified. It returns an error that wraps
// [artifact.ErrTooLarge] if the total size exceeds maxRead.
func (u *upstream) remember(d digest.Digest, data []byte) error {
	u.note(d)
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.read[d]; ok {
		return nil
	}
	if u.bytes += int64(len(data)); u.bytes > maxRead {
		return fmt.Errorf("%w: it names more than %d bytes of manifests and evidence", artifact.ErrTooLarge, maxRead)
	}
	if u.read == nil {
		u.read = map[digest.Digest][]byte{}
	}
	u.read[d] = data
	return nil
}

// cached returns content by its digest from disk, or from memory if there is no folder on disk.
func (c *Catalog) cached(of subject.Address, d digest.Digest) ([]byte, bool) {
	if c.disk != nil {
		return c.disk.content(of, d)
	}
	last := c.cache.Last(c.Registry().contentOf(content, of, ocispec.Descriptor{Digest: d}))
	if last == nil || last.Err != nil {
		return nil, false
	}
	return last.Value.content, true
}

// cacheContent caches the content of a fetch in memory, except for the index, which no later fetch
// reads again.
func (c *Catalog) cacheContent(u *upstream, index digest.Digest) {
	for d, data := range u.read {
		if d == index {
			continue
		}
		item := newItem(c.Registry().contentOf(content, u.subject, ocispec.Descriptor{Digest: d}))
		item.content = data
		a := c.newAnswer(item, nil)
		a.At = time.Now()
		c.cache.Put(item.about, a)
	}
}

// isNetwork reports whether a request got no response.
func isNetwork(err error) bool {
	return errors.As(err, new(*url.Error)) || errors.As(err, new(net.Error))
}

// condition makes the request for a list of tags conditional, and holds the result. It is a value of
// the request's context, because oras-go does not support conditional requests.
type condition struct {
	ifNoneMatch string
	etag        string // of the last response
	unchanged   bool
	nullTags    bool // the last response has null for "tags"
}

type conditionKey struct{}

// Conditional returns a client for the field Client of a remote.Repository. If the registry
// sends ETags, a [Catalog] with this client does not fetch an unchanged list of tags again.
func Conditional(client remote.Client) remote.Client { return conditional{client} }

type conditional struct{ next remote.Client }

func (c conditional) Do(req *http.Request) (*http.Response, error) {
	cond, ok := req.Context().Value(conditionKey{}).(*condition)
	if ok && cond.ifNoneMatch != "" {
		req.Header.Set("If-None-Match", cond.ifNoneMatch)
		cond.ifNoneMatch = "" // only the request for the first page is conditional
	}
	resp, err := c.next.Do(req)
	if err != nil || !ok {
		return resp, err
	}
	cond.etag, cond.nullTags = resp.Header.Get("ETag"), false
	cond.unchanged = resp.StatusCode == http.StatusNotModified
	if len(cond.etag) > maxETag {
		cond.etag = ""
	}
	if resp.StatusCode == http.StatusOK {
		begin := bufio.NewReaderSize(resp.Body, maxNullTags)
		data, _ := begin.Peek(maxNullTags)
		cond.nullTags = hasNullTags(data)
		resp.Body = struct {
			io.Reader
			io.Closer
		}{begin, resp.Body}
	}
	return resp, nil
}

// maxNullTags is the maximum length in bytes of a response that has null for its tags.
const maxNullTags = 4 << 10

// hasNullTags reports whether a response has null for its tags. Some versions of the
// distribution project's registry send null if there are no tags.
func hasNullTags(answer []byte) bool {
	var list map[string]json.RawMessage
	return json.Unmarshal(answer, &list) == nil && string(list["tags"]) == "null" && list["errors"] == nil
}

// maxETag is the maximum length in bytes of a usable ETag. Longer ETags are ignored.
const maxETag = 256
