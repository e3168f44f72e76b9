package quirks

import (
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"
)

// Uploads decides how a registry accepts blobs.
type Uploads struct {
	// Monolithic refuses chunks: a blob must come in the single PUT that completes its upload.
	Monolithic bool
	// MaxChunk bounds the bytes of a chunk, and MaxBody those of any request, including a whole blob in one
	// PUT; 0 means no bound. A chunk without a length is refused.
	MaxChunk, MaxBody int64
	// Full is the status for every blob, as with an exhausted quota; 0 accepts them.
	Full int
	// Quota is the number of bytes that a Harbor project may have, in blobs and manifests; 0 means no bound.
	// The count never decreases, because only Harbor's garbage collection would lower it.
	Quota int64
	// NoEmpty refuses empty blobs.
	NoEmpty bool
	// NoMount treats a mount as a normal upload.
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
