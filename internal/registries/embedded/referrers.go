package embedded

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

const (
	// maxSubjects is the maximum number of manifests whose subjects are cached, for all repositories. Each takes about 170
	// bytes. It is also the maximum number of manifests of a repository for which referrers are listed.
	maxSubjects  = 200_000
	maxReferrers = 1000 // in one list
	// maxReferrersBytes is the maximum size in bytes of one list of referrers. Clients do not read longer lists.
	maxReferrersBytes = 4 << 20
	// maxAnswers is the maximum number of requests that create a list concurrently. To create a list, a request reads
	// manifests of up to 4 MiB.
	maxAnswers = 2
)

// manifestLimits are the limits of a manifest that is decoded. Distribution accepts no manifest over 4 MiB.
var manifestLimits = document.Limits{Bytes: 4 << 20, Values: 100_000, Elements: 10_000}

var (
	errTooManyReferrers = errors.New("too many referrers")
	errNoManifest       = errors.New("no OCI manifest")  // only OCI manifests can have a subject
	errDamaged          = errors.New("damaged manifest") // its bytes do not match its digest
)

// referrers is a handler for the referrers API of the OCI distribution specification, which distribution does not
// implement. It passes all other requests on to next.
//
// For each request, referrers lists the repository's manifests. The response contains the manifests that name the requested
// subject, and those in the subject's fallback tag (sha256-HEX), except manifests that name another subject. The subjects of
// manifests are cached, because a manifest with a given digest always has the same subject.
type referrers struct {
	root    string // the folder of distribution's storage format
	next    http.Handler
	max     int                 // the maximum number of manifests of a repository
	answers *semaphore.Weighted // a request holds one of maxAnswers slots while it creates a list
	turn    *semaphore.Weighted // a request holds the only slot while it searches the manifests of a repository
	// subjects maps the digests of manifests to the digests of their subjects, or to "" for manifests without one.
	subjects *lru.Cache[[sha256.Size]byte, digest.Digest]
}

func newReferrers(dir string, next http.Handler, limit int) *referrers {
	subjects, _ := lru.New[[sha256.Size]byte, digest.Digest](limit) // fails only for sizes below 1
	return &referrers{
		root: storage(dir), next: next, max: limit,
		answers: semaphore.NewWeighted(maxAnswers), turn: semaphore.NewWeighted(1), subjects: subjects,
	}
}

func (r *referrers) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, subject, ok := parsePath(req.URL.Path, "referrers")
	if !ok || req.Method != http.MethodGet && req.Method != http.MethodHead {
		r.next.ServeHTTP(w, req)
		return
	}
	if _, err := reference.WithName(name); err != nil {
		refuse(w, http.StatusBadRequest, "NAME_INVALID", "invalid repository name")
		return
	}
	if err := subject.Validate(); err != nil {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", "the subject is no digest")
		return
	}
	body, err := r.index(req.Context(), name, subject, req.URL.Query().Get("artifactType"))
	switch {
	case errors.Is(err, errTooManyReferrers):
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	case err != nil:
		refuse(w, http.StatusInternalServerError, "UNKNOWN", "the referrers cannot be listed")
		return
	}
	w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if req.URL.Query().Get("artifactType") != "" {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	_, _ = w.Write(body) // an error means that the client has gone
}

// parsePath splits the path /v2/NAME/KIND/DIGEST into the name and the digest, without validating them. It returns false for
// any other path.
func parsePath(of, kind string) (name string, d digest.Digest, ok bool) {
	rest, ok := strings.CutPrefix(of, "/v2/")
	dir, last := path.Split(rest)
	name, isKind := strings.CutSuffix(dir, "/"+kind+"/")
	return name, digest.Digest(last), ok && isKind && name != ""
}

// index returns the JSON of the list of a subject's referrers. If artifactType is not "", the list has only the
// referrers of this type. The same manifests always give the same bytes.
func (r *referrers) index(ctx context.Context, name string, subject digest.Digest, artifactType string) ([]byte, error) {
	candidates, err := r.candidates(ctx, name, subject)
	if err != nil {
		return nil, err
	}
	if err := r.answers.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer r.answers.Release(1)
	out := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	texts := 0 // the total length of the types and annotations in bytes
	for _, d := range candidates {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := r.readManifest(name, d)
		if err != nil && !unusable(err) {
			return nil, err
		}
		if err != nil || m.subject() != "" && m.subject() != subject || artifactType != "" && m.artifactType() != artifactType {
			continue
		}
		texts += len(m.artifactType())
		for k, v := range m.Annotations {
			texts += len(k) + len(v)
		}
		if texts > maxReferrersBytes {
			return nil, fmt.Errorf("%w: their types and annotations have more than %d bytes", errTooManyReferrers, maxReferrersBytes)
		}
		out.Manifests = append(out.Manifests, ocispec.Descriptor{
			MediaType: m.mediaType(), ArtifactType: m.artifactType(), Digest: d, Size: m.size, Annotations: m.Annotations,
		})
	}
	body, err := json.Marshal(out)
	if err == nil && len(body) > maxReferrersBytes {
		err = fmt.Errorf("%w: their list has %d bytes, more than %d", errTooManyReferrers, len(body), maxReferrersBytes)
	}
	return body, err
}

// candidates returns the sorted digests of manifests that might be referrers of the subject. A repository that does not
// exist has none: clients conclude from a 404 that the registry has no referrers API.
func (r *referrers) candidates(ctx context.Context, name string, subject digest.Digest) ([]digest.Digest, error) {
	if err := r.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer r.turn.Release(1)
	out, err := r.withSubject(ctx, name, subject)
	if err != nil {
		return nil, err
	}
	tagged, err := r.tagged(name, subject)
	if err != nil {
		return nil, err
	}
	out = append(out, tagged...)
	slices.Sort(out)
	if out = slices.Compact(out); len(out) > maxReferrers {
		return nil, fmt.Errorf("%w: %d, more than %d", errTooManyReferrers, len(out), maxReferrers)
	}
	return out, nil
}

// withSubject returns the digests of the manifests in a repository that name the given subject. Some may have been deleted.
func (r *referrers) withSubject(ctx context.Context, name string, subject digest.Digest) (out []digest.Digest, err error) {
	dir, err := os.Open(r.inRepository(name, "revisions", "sha256"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(r.max + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > r.max {
		return nil, fmt.Errorf("%w: the repository has more than %d manifests", errTooManyReferrers, r.max)
	}
	for _, encoded := range names {
		found, err := r.subjectOf(ctx, name, encoded)
		if err != nil {
			return nil, err
		}
		if found == subject {
			out = append(out, digest.NewDigestFromEncoded(digest.SHA256, encoded))
		}
	}
	return out, nil
}

// subjectOf returns the subject of the manifest whose digest has the given hexadecimal form, or "", and caches it. It does
// not cache the result for a manifest that was deleted, is damaged, or has no link yet, because a push may add or
// repair the manifest.
func (r *referrers) subjectOf(ctx context.Context, name, encoded string) (digest.Digest, error) {
	var key [sha256.Size]byte
	if len(encoded) != hex.EncodedLen(len(key)) {
		return "", nil // no folder that distribution created
	}
	if _, err := hex.Decode(key[:], []byte(encoded)); err != nil {
		return "", nil
	}
	if subject, ok := r.subjects.Get(key); ok {
		return subject, nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m, err := r.readManifest(name, digest.NewDigestFromEncoded(digest.SHA256, encoded))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errDamaged):
		return "", nil
	case errors.Is(err, errNoManifest):
		m = &storedManifest{}
	case err != nil:
		return "", err
	}
	r.subjects.Add(key, m.subject())
	return m.subject(), nil
}

// tagged returns the digests of the manifests in the index under the subject's fallback tag, if there is a usable one.
func (r *referrers) tagged(name string, subject digest.Digest) ([]digest.Digest, error) {
	tag := string(subject.Algorithm()) + "-" + subject.Encoded()
	link, err := os.ReadFile(r.inRepository(name, "tags", tag, "current", "link"))
	var m *storedManifest
	if err == nil {
		m, err = r.readManifest(name, digest.Digest(strings.TrimSpace(string(link))))
	}
	if unusable(err) || err == nil && m.mediaType() != ocispec.MediaTypeImageIndex {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []digest.Digest
	for _, entry := range m.Manifests {
		if d := entry.Digest; d != subject {
			out = append(out, d)
		}
	}
	return out, nil
}

// storedManifest contains the fields of a manifest or index that the referrers API needs.
type storedManifest struct {
	MediaType    string `json:"mediaType"`
	ArtifactType string `json:"artifactType"`
	Config       *struct {
		MediaType string `json:"mediaType"`
	} `json:"config"`
	Manifests []struct {
		Digest digest.Digest `json:"digest"`
	} `json:"manifests"`
	Subject *struct {
		Digest digest.Digest `json:"digest"`
	} `json:"subject"`
	Annotations map[string]string `json:"annotations"`
	size        int64
}

// subject returns the digest of the manifest's subject, or "" if the manifest has no valid subject.
func (m *storedManifest) subject() digest.Digest {
	if m.Subject == nil || m.Subject.Digest.Validate() != nil {
		return ""
	}
	return m.Subject.Digest
}

// mediaType returns the media type of the manifest. If the field is empty, the other fields decide between an index
// and an image manifest.
func (m *storedManifest) mediaType() string {
	if m.MediaType == "" && m.Manifests != nil {
		return ocispec.MediaTypeImageIndex
	}
	return cmp.Or(m.MediaType, ocispec.MediaTypeImageManifest)
}

// artifactType returns the manifest's artifact type. An image manifest without one has the media type of its config.
func (m *storedManifest) artifactType() string {
	if m.ArtifactType == "" && m.mediaType() == ocispec.MediaTypeImageManifest && m.Config != nil {
		return m.Config.MediaType
	}
	return m.ArtifactType
}

// unusable reports whether err, an error of readManifest, means that the list has to omit the manifest.
func unusable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoManifest) || errors.Is(err, errDamaged)
}

// readManifest reads and verifies a manifest of a repository. The error wraps [fs.ErrNotExist], errNoManifest or errDamaged
// if the manifest cannot be used.
func (r *referrers) readManifest(name string, d digest.Digest) (*storedManifest, error) {
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("%w: %.80q is no SHA-256 digest", errNoManifest, d)
	}
	if _, err := os.Stat(r.inRepository(name, "revisions", "sha256", d.Encoded(), "link")); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(r.root, "blobs", "sha256", d.Encoded()[:2], d.Encoded(), "data"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, manifestLimits.Bytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > manifestLimits.Bytes {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", errNoManifest, d, manifestLimits.Bytes)
	}
	if digest.FromBytes(data) != d {
		return nil, fmt.Errorf("%w: %s", errDamaged, d)
	}
	m := &storedManifest{size: int64(len(data))}
	if err := manifestLimits.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errNoManifest, d, err)
	}
	if t := m.mediaType(); t != ocispec.MediaTypeImageManifest && t != ocispec.MediaTypeImageIndex {
		return nil, fmt.Errorf("%w: %s has the media type %.80q", errNoManifest, d, t)
	}
	return m, nil
}

// inRepository returns the path of a file in the folder where distribution stores a repository's revisions and tags.
func (r *referrers) inRepository(name string, elem ...string) string {
	return filepath.Join(append([]string{r.root, "repositories", filepath.FromSlash(name), "_manifests"}, elem...)...)
}
