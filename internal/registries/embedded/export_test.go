package embedded

import "net/http"

// SetBeforeFile sets the function that a garbage collection calls before each file operation.
func (r *Registry) SetBeforeFile(f func(operation, name string)) { r.beforeFile = f }

// Distribution returns the handler of distribution, without the blobs that are served from their files.
func (r *Registry) Distribution() http.Handler { return r.app.(*referrers).next.(*blobs).next }
