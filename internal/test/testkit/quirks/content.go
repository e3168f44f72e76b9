package quirks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Content describes which content a registry accepts and serves.
type Content struct {
	// NameParts is the required number of parts in a repository's name; 0 means any number.
	NameParts int
	// MustExist refuses requests for repositories that [Registry.Create] did not create.
	MustExist bool
	// Projects makes the registry refuse absent repositories as Harbor does. The response has status 401, even
	// with a valid login. Its message names the project, which is the first part of the repository's name. For a
	// name without a project, the status is 400.
	Projects bool
	// Proxies are the proxy-cache projects of a Harbor. They refuse pushes. HEAD for a blob returns 404 until a
	// GET request has fetched the blob from the upstream. The content of the upstream is the content that a test
	// pushed to the project before the test set Proxies.
	Proxies []string
	// ReadOnlyMode refuses all writes, as Harbor does while it is in read-only mode.
	ReadOnlyMode bool
	// CosignPolicy refuses reads of manifests but accepts pushes, like a Harbor project that requires cosign
	// signatures. A manifest with a Sigstore bundle is readable, and so is the bundle. The index of a version does
	// not make its platforms readable.
	CosignPolicy bool
	// Allowed lists the accepted artifact types; nil accepts all.
	Allowed []string
	// MediaTypeRequired refuses manifests without a media type.
	MediaTypeRequired bool
	// If Immutable is not 0, tags are immutable. The registry refuses a push that would move a tag to another
	// manifest. Immutable is the status of the refusal, and ImmutableCode is its error code.
	Immutable     int
	ImmutableCode string
	// Mutable selects tags that can still be moved; nil means none.
	Mutable func(tag string) bool
	// ImmutableHolds makes immutable tags behave as in Harbor. The registry then refuses to push or delete the
	// manifest that an immutable tag already names.
	ImmutableHolds bool
	// HidesOnce refuses the first push of each manifest. distribution 2 refuses a manifest in this way while
	// another push stores one of the manifest's blobs.
	HidesOnce bool
	// RedirectBlobs redirects downloads of blobs to an object storage. The object storage refuses requests with
	// a registry credential.
	RedirectBlobs bool
}

// maxManifest is the maximum size in bytes of a manifest.
const maxManifest = 4 << 20

// manifests refuses manifests that cannot be stored, tagged or deleted.
func (q *Registry) manifests(w http.ResponseWriter, r request) bool {
	switch {
	case r.kind != "manifests" && r.kind != "blobs":
		return false
	case r.Method == http.MethodDelete:
		return q.delete(w, r)
	case r.kind == "blobs" || r.Method != http.MethodPut:
		return false
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxManifest+1))
	if err != nil || len(data) > maxManifest {
		refuse(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID", "manifest too large")
		return true
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	var m struct {
		MediaType    string `json:"mediaType"`
		ArtifactType string `json:"artifactType"`
	}
	_ = json.Unmarshal(data, &m) // the real registry refuses invalid manifests
	switch {
	case r.s.MediaTypeRequired && m.MediaType == "":
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "Invalid parameter at 'ImageManifest' failed to satisfy constraint: 'Invalid JSON syntax'")
	case r.s.Allowed != nil && !slices.Contains(r.s.Allowed, m.ArtifactType):
		refuse(w, http.StatusBadRequest, "MANIFEST_INVALID", fmt.Sprintf("unknown media type: %s", m.ArtifactType))
	case r.s.HidesOnce && q.hide(r.name+"@"+digest.FromBytes(data).String()):
		refuse(w, http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN", "blob unknown to registry")
	case r.immutable(r.ref) && r.s.ImmutableHolds && q.digestOf(r, r.ref) != "":
		_, name, _ := strings.Cut(r.name, "/") // without the project
		refuse(w, r.s.Immutable, r.s.ImmutableCode, fmt.Sprintf("Failed to process request due to '%s:%s' configured as immutable.", name, r.ref))
	case r.immutable(r.ref) && q.moves(r, digest.FromBytes(data)):
		refuse(w, r.s.Immutable, r.s.ImmutableCode, fmt.Sprintf("the tag '%s' of '%s' already exists and cannot be overwritten because the tag is immutable", r.ref, r.name))
	default:
		q.mu.Lock()
		q.pushed[r.name+":"+r.ref] = q.requests
		q.mu.Unlock()
		return false
	}
	return true
}

// hide reports whether a manifest is pushed for the first time. The manifest is given as name@digest.
func (q *Registry) hide(manifest string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hidden[manifest] {
		return false
	}
	q.hidden[manifest] = true
	return true
}

// immutable reports whether a reference is an immutable tag.
func (r request) immutable(ref string) bool {
	return r.s.Immutable != 0 && !strings.Contains(ref, ":") && (r.s.Mutable == nil || !r.s.Mutable(ref))
}

// moves reports whether the tag in a push of the manifest d already names another manifest.
func (q *Registry) moves(r request, d digest.Digest) bool {
	now := q.digestOf(r, r.ref)
	return now != "" && now != d.String()
}

// digestOf returns the digest of the manifest that a reference names, or "" if there is none.
func (q *Registry) digestOf(r request, ref string) string {
	r.Request = r.Clone(r.Context())
	r.Header.Set("Accept", "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json")
	return q.ask(r, http.MethodHead, "/v2/"+r.name+"/manifests/"+ref).Header().Get("Docker-Content-Digest")
}

const storagePath = "/storage/"

// redirect redirects downloads of blobs to the object storage.
func (q *Registry) redirect(w http.ResponseWriter, r request) bool {
	if !r.s.RedirectBlobs || r.kind != "blobs" || r.Method != http.MethodGet {
		return false
	}
	if q.ask(r, http.MethodHead, r.URL.Path).Code != http.StatusOK {
		return false
	}
	http.Redirect(w, r.Request, "https://storage."+r.Host+storagePath+r.name+"/"+r.ref+"?X-Signature=secret", http.StatusTemporaryRedirect)
	return true
}

// storage answers requests to the object storage that [Content.RedirectBlobs] redirects to.
func (q *Registry) storage(w http.ResponseWriter, r request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, storagePath)
	i := strings.LastIndexByte(rest, '/')
	switch {
	case !ok || i < 0:
		return false
	case r.Header.Get("Authorization") != "":
		http.Error(w, "<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism allowed</Message></Error>", http.StatusBadRequest)
	case r.URL.Query().Get("X-Signature") != "secret":
		http.Error(w, "<Error><Code>AccessDenied</Code></Error>", http.StatusForbidden)
	default:
		blob := r.Clone(r.Context())
		blob.URL.Path, blob.URL.RawPath = "/v2/"+rest[:i]+"/blobs/"+rest[i+1:], ""
		q.real.ServeHTTP(w, blob)
	}
	return true
}
