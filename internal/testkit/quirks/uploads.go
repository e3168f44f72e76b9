package quirks

import (
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"
)

// Uploads is how a registry takes blobs.
type Uploads struct {
	// Monolithic refuses chunks: a blob comes in the one PUT that ends its upload.
	Monolithic bool
	// MaxChunk bounds the bytes of a chunk, and MaxBody those of any request, the
	// whole blob in one PUT as well; 0 is no bound. A chunk that does not say how
	// many it has is refused.
	MaxChunk, MaxBody int64
	// Full is the status of every blob that is sent, as where a quota is reached; 0 lets
	// them pass.
	Full int
	// Quota is how many bytes a project of Harbor may have, in blobs and manifests; 0 is no
	// bound. Nothing lowers what counts, which only Harbor's garbage collection would.
	Quota int64
	// NoEmpty refuses blobs without a byte.
	NoEmpty bool
	// NoMount makes a mount an upload like any other.
	NoMount bool
}

// uploads answers for what is not taken.
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
