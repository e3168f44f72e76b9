package catalog

import (
	"bufio"
	"bytes"
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

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

func now() time.Time { return time.Now() }

// upstream is a repository as seen by what reads one answer out of it. What a
// digest names is read from the cache first; and it remembers whether the registry
// failed on the way, which the reader's error may not tell.
type upstream struct {
	c       *Catalog
	address provider.Address
	store   Store // nil: the registry is not to be asked

	mu      sync.Mutex
	trouble error
	read    map[digest.Digest][]byte // what came from the registry
	bytes   int64                    // the size of read
	parts   []digest.Digest          // with what came from the cache
}

var _ Store = (*upstream)(nil)

// errOffline means that something is not in the cache.
var errOffline = errors.New("not in the cache")

// fail takes note of the registry's first failure.
func (u *upstream) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.trouble == nil {
		u.trouble = err
	}
}

// failed records a failed request. It ignores a request that was cancelled because
// another one had decided the answer: package artifact cancels the remaining requests of
// a version that it refuses.
func (u *upstream) failed(ctx context.Context, err error) {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		u.fail(err)
	}
}

// Tags implements [Store].
func (u *upstream) Tags(ctx context.Context, last string, fn func([]string) error) error {
	if u.store == nil {
		return errOffline
	}
	return u.store.Tags(ctx, last, fn)
}

// FetchReference implements [artifact.ReferenceFetcher].
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
		return desc, io.NopCloser(http.NoBody), nil // refused for that before it is read
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

// Fetch implements [artifact.Fetcher], for what is small enough to be metadata.
func (u *upstream) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	data, err := u.whole(ctx, desc)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// whole returns what a digest names.
func (u *upstream) whole(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if desc.Size > artifact.MaxManifestBytes {
		return nil, fmt.Errorf("%w: %s has %d bytes", artifact.ErrTooLarge, desc.Digest, desc.Size)
	}
	if data, ok := u.c.cached(u.address, desc.Digest); ok {
		u.note(desc.Digest)
		return data, nil
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

// readAll reads a body, and one byte more than limit if it has more.
func (u *upstream) readAll(ctx context.Context, body io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		u.failed(ctx, err)
	}
	return data, err
}

// note takes note of content that was used.
func (u *upstream) note(d digest.Digest) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.parts, d) {
		u.parts = append(u.parts, d)
	}
}

// maxRead bounds the content that one answer reads from the registry, in bytes. It
// holds an index with its evidence, which has a manifest and four parts, if each has
// [artifact.MaxManifestBytes]. It also holds thousands of usual platform manifests.
const maxRead = 6 * artifact.MaxManifestBytes

// remember keeps content that is what its digest says. Its error wraps
// [artifact.ErrTooLarge].
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

// cached returns content by its digest, if it is in the cache: on disk, or in
// memory where there is none.
func (c *Catalog) cached(a provider.Address, d digest.Digest) ([]byte, bool) {
	if c.disk != nil {
		return c.disk.content(a, d)
	}
	e := c.cache.get(contentKey(a, d))
	if e == nil {
		return nil, false
	}
	s := e.state.Load()
	if s == nil || s.err != nil {
		return nil, false
	}
	return s.item.content, true
}

func contentKey(a provider.Address, d digest.Digest) string { return a.Path() + "@" + string(d) }

// keepContent keeps in memory what was read beside the index, which nobody reads
// twice.
func (c *Catalog) keepContent(a provider.Address, u *upstream, index digest.Digest) {
	for d, data := range u.read {
		if d == index {
			continue
		}
		item := &Item{Address: a, content: data}
		e := c.entry(contentKey(a, d), func() *entry {
			e := &entry{kind: content, address: a}
			e.state.Store(&state{item: item, at: now()})
			return e
		})
		c.cache.resize(e, item.size(), true)
	}
}

// isNetwork reports whether a request had no answer.
func isNetwork(err error) bool {
	var request *url.Error
	var network net.Error
	return errors.As(err, &request) || errors.As(err, &network)
}

// noStore is a repository to which there is no way.
type noStore struct{ err error }

func (s noStore) Tags(context.Context, string, func([]string) error) error { return s.err }

func (s noStore) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, s.err
}

func (s noStore) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return ocispec.Descriptor{}, nil, s.err
}

// condition is what the request for a list of tags is to be made with, and what
// became of it. oras-go knows nothing of it, so that it goes by the context.
type condition struct {
	ifNoneMatch string
	etag        string // of the last answer
	unchanged   bool
	nullTags    bool // the last answer has "tags", and null for them
}

type conditionKey struct{}

// Conditional returns a client of a registry by which a [Catalog] need not fetch
// a list of tags again that has not changed, if the registry gives ETags. It is
// for remote.Repository.Client.
func Conditional(client remote.Client) remote.Client { return conditional{client} }

type conditional struct{ next remote.Client }

// Do implements [remote.Client].
func (c conditional) Do(req *http.Request) (*http.Response, error) {
	cond, ok := req.Context().Value(conditionKey{}).(*condition)
	if ok && cond.ifNoneMatch != "" {
		req.Header.Set("If-None-Match", cond.ifNoneMatch)
		cond.ifNoneMatch = "" // it is the first page's
	}
	resp, err := c.next.Do(req)
	if err != nil || !ok {
		return resp, err
	}
	cond.etag = resp.Header.Get("ETag")
	cond.unchanged = resp.StatusCode == http.StatusNotModified
	if len(cond.etag) > maxETag {
		cond.etag = ""
	}
	cond.nullTags = false
	if resp.StatusCode == http.StatusOK {
		begin := bufio.NewReaderSize(resp.Body, maxNullTags)
		data, _ := begin.Peek(maxNullTags)
		cond.nullTags = hasNullTags(data)
		resp.Body = &peeked{begin, resp.Body}
	}
	return resp, nil
}

// maxNullTags is how large a list with null for its tags may be.
const maxNullTags = 4 << 10

// hasNullTags reports whether an answer says that there are no tags as some
// versions of the distribution project's registry do.
func hasNullTags(answer []byte) bool {
	var list map[string]json.RawMessage
	return json.Unmarshal(answer, &list) == nil && string(list["tags"]) == "null" && list["errors"] == nil
}

// peeked is a body of which the beginning was looked at.
type peeked struct {
	io.Reader
	io.Closer
}

// maxETag is how long an ETag may be that is kept.
const maxETag = 256
