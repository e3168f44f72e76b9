package quirks

import (
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"
)

// Uploads describes which uploads of blobs a registry accepts.
type Uploads struct {
	// Monolithic refuses chunks. The PUT request that completes an upload must then contain the whole blob.
	Monolithic bool
	// MaxChunk is the maximum size of a chunk. MaxBody is the maximum size of the body of any request, such as
	// a PUT of a whole blob. Both sizes are in bytes; 0 means no limit. With a limit, a chunk without a
	// Content-Length is refused.
	MaxChunk, MaxBody int64
	// If Full is not 0, the registry refuses every blob with this status, as if the quota were exhausted.
	Full int
	// Quota is the maximum total size in bytes of a Harbor project's blobs and manifests; 0 means no limit.
	// Deletions do not lower the total, because in Harbor only a garbage collection lowers it.
	Quota int64
	// NoEmpty refuses empty blobs.
	NoEmpty bool
	// NoMount makes the registry start a normal upload instead of mounting a blob.
	NoMount bool
}

// uploads refuses unacceptable uploads.
func (q *Registry) uploads(w http.ResponseWriter, r request) bool {
	if r.kind != "uploads" {
		return false
	}
	limit := r.s.MaxBody
	if chunk := r.s.MaxChunk; r.Method == http.MethodPatch && chunk > 0 && (limit == 0 || chunk < limit) {
		limit = chunk
	}
	switch {
	case r.s.Full != 0 && r.Method == http.MethodPut:
		refuse(w, r.s.Full, "DENIED", "adding 5.7 MiB of storage resource, which when updated to current usage of 7.0 MiB will exceed the configured upper limit of 12.0 MiB.")
	case r.Method == http.MethodPatch && r.s.Monolithic:
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "chunked uploads are not supported")
	case limit > 0 && (r.ContentLength > limit || r.ContentLength < 0 && r.Method == http.MethodPatch):
		refuse(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID", fmt.Sprintf("%d bytes in one request, more than %d", r.ContentLength, limit))
	case r.s.NoEmpty && r.Method == http.MethodPut && r.URL.Query().Get("digest") == digest.FromString("").String():
		refuse(w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID", "the layer is empty")
	default:
		if query := r.URL.Query(); r.Method == http.MethodPost && r.s.NoMount && query.Has("mount") {
			query.Del("mount")
			query.Del("from")
			r.URL.RawQuery = query.Encode()
		}
		return false
	}
	return true
}
