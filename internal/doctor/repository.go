package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	orasauth "oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Repository is a repository to be examined.
type Repository struct {
	Provider provider.Address
	Address  ociaddr.Repository
	// Template is where the address comes from.
	Template string
	Store    *remote.Repository
	// Candidates are the sources of a credential that were considered, nil for
	// the embedded registry, which needs none.
	Candidates []auth.Candidate
	Embedded   bool
	// Explain adds hints to errors.
	Explain func(error) error
	// Write allows a push, of a tag that is removed again.
	Write bool
	// Now is the time; nil is time.Now.
	Now func() time.Time
}

// Examine examines a repository.
func (x Repository) Examine(ctx context.Context) *Report {
	if x.Now == nil {
		x.Now = time.Now
	}
	r := &Report{Subject: x.Address.String()}
	r.ok("address", "%s is kept in %s, by the template %s", x.Provider, x.Address, x.Template)
	x.credential(r)
	if !x.answers(ctx, r) {
		return r
	}
	versions, there := x.tags(ctx, r)
	if there {
		x.pull(ctx, r, versions)
		x.referrers(ctx, r)
	}
	x.push(ctx, r)
	return r
}

// credential says which source was chosen, and why others were not.
func (x Repository) credential(r *Report) {
	if x.Embedded {
		r.ok("credential", "none needed: the registry is in this process")
		return
	}
	var chosen, others []string
	for _, c := range x.Candidates {
		if c.Chosen {
			chosen = append(chosen, c.Source)
		} else {
			others = append(others, fmt.Sprintf("%s (%s)", c.Source, c.Reason))
		}
	}
	detail := ""
	if len(others) > 0 {
		detail = "; also considered: " + strings.Join(others, ", ")
	}
	if len(chosen) == 0 {
		r.warn("credential", "that is right for a public repository; else run docker login "+string(x.Address.Registry), "none was found%s", detail)
		return
	}
	r.ok("credential", "%s%s", strings.Join(chosen, ", "), detail)
}

// answers asks for the tags, as every use of a repository does first, and
// reports what the answer shows of the connection.
func (x Repository) answers(ctx context.Context, r *Report) bool {
	resp, err := x.get(ctx, "tags/list")
	var answer *errcode.ErrorResponse // of a token server
	switch {
	case errors.Is(err, orasauth.ErrBasicCredentialNotFound), errors.As(err, &answer):
		r.ok("connection", "%s answers", x.Address.Registry)
		r.fail("authentication", x.Explain(err), "check the credential, and its rights in the repository")
		return false
	case err != nil:
		r.fail("connection", x.Explain(err), "check the registry's address, and that it is running")
		return false
	}
	defer resp.Body.Close()
	r.ok("connection", "%s answers", x.Address.Registry)
	if !x.Embedded {
		r.connection(resp, x.Address.Registry.IsLoopback(), x.Now())
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		err := x.Explain(&errcode.ErrorResponse{Method: http.MethodGet, URL: resp.Request.URL, StatusCode: resp.StatusCode})
		r.fail("authentication", err, "check the credential, and its rights in the repository")
		return false
	case http.StatusOK, http.StatusNotFound:
		r.ok("authentication", "accepted")
		return true
	}
	r.fail("authentication", fmt.Errorf("the registry answers %s", resp.Status), "ask again later, or whoever runs it")
	return false
}

// get sends a GET for a path of the repository, with its credential.
func (x Repository) get(ctx context.Context, path string) (*http.Response, error) {
	scheme := "https"
	if x.Store.PlainHTTP {
		scheme = "http"
	}
	ref := x.Store.Reference
	ctx = orasauth.AppendRepositoryScope(ctx, ref, orasauth.ActionPull)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://%s/v2/%s/%s", scheme, ref.Host(), ref.Repository, path), nil)
	if err != nil {
		return nil, err
	}
	return x.Store.Client.Do(req)
}

// tags lists the tags. It returns the versions among them, newest first, and
// whether there is a repository.
func (x Repository) tags(ctx context.Context, r *Report) ([]provider.Version, bool) {
	var versions []provider.Version
	pages, others := 0, 0
	err := x.Store.Tags(ctx, "", func(page []string) error {
		pages++
		for _, t := range page {
			if v, ok := ociaddr.Tag(t).Version(); ok {
				versions = append(versions, v)
			} else {
				others++
			}
		}
		return nil
	})
	var answer *errcode.ErrorResponse
	switch {
	case errors.Is(err, errdef.ErrNotFound), errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		r.warn("tags", "push a provider; Amazon ECR and Google Artifact Registry want the repository to be made first", "there is no such repository yet")
		return nil, false
	case err != nil:
		r.fail("tags", x.Explain(err), "without a list of tags no client finds a version")
		return nil, false
	}
	provider.SortVersions(versions)
	slices.Reverse(versions)
	r.ok("tags", "%d versions and %d other tags, on %d pages", len(versions), others, pages)
	return versions, true
}

// pull reads the newest version as the gateway does.
func (x Repository) pull(ctx context.Context, r *Report, versions []provider.Version) {
	if len(versions) == 0 {
		r.warn("pull", "push a version", "there is no version to read")
		return
	}
	v, err := artifact.Read(ctx, x.Store, x.Provider, versions[0])
	if err != nil {
		r.fail("pull", x.Explain(fmt.Errorf("version %s: %w", versions[0], err)), "push this version anew; ocibridge push --force replaces what the tag names")
		return
	}
	var platforms []string
	for _, p := range v.Packages {
		platforms = append(platforms, p.Platform.String())
		for _, part := range []ocispec.Descriptor{p.Manifest, p.Layer()} {
			exists, err := x.Store.Exists(ctx, part)
			if err == nil && !exists {
				err = fmt.Errorf("version %s lacks %s, of the package for %s", versions[0], part.Digest, p.Platform)
			}
			if err != nil {
				r.fail("pull", x.Explain(err), "a clean-up job may have deleted what an index still names; ocibridge push --force sends it again")
				return
			}
		}
	}
	r.ok("pull", "version %s is complete for %s", versions[0], strings.Join(platforms, ", "))
}

// referrers reports on an API that some tools want, and ocibridge does not.
func (x Repository) referrers(ctx context.Context, r *Report) {
	const none = "the registry has no referrers API, which ocibridge does not need"
	resp, err := x.get(ctx, "referrers/"+string(ocispec.DescriptorEmptyJSON.Digest))
	var foreign *auth.ForeignError // a path that a registry does not know
	if errors.As(err, &foreign) {
		r.ok("referrers", none)
		return
	}
	if err != nil {
		r.fail("referrers", x.Explain(err), "the connection broke: try again")
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		r.ok("referrers", "the registry has the referrers API; ocibridge does not need it")
		return
	}
	r.ok("referrers", none)
}

// push stores one artifact of each kind under a throw-away tag.
func (x Repository) push(ctx context.Context, r *Report) {
	if !x.Write {
		r.ok("push", "not tried: --write allows it")
		return
	}
	tag := "ocibridge-doctor." + strings.ToLower(rand.Text()[:10])
	if err := x.Store.Push(ctx, ocispec.DescriptorEmptyJSON, strings.NewReader("{}")); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		r.fail("push", x.Explain(err), "the credential may lack the right to write")
		return
	}
	r.ok("push", "blobs are accepted")
	x.pushKind(ctx, r, "packages", artifact.TypeTarget, tag)
	x.pushKind(ctx, r, "evidence", artifact.TypeEvidence, tag)
}

// pushKind stores an empty artifact of a type, and removes it.
func (x Repository) pushKind(ctx context.Context, r *Report, name, artifactType, tag string) {
	empty := ocispec.Descriptor{MediaType: ocispec.DescriptorEmptyJSON.MediaType, Digest: ocispec.DescriptorEmptyJSON.Digest, Size: ocispec.DescriptorEmptyJSON.Size}
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType,
		Config: empty, Layers: []ocispec.Descriptor{empty}, Annotations: map[string]string{"io.github.ocibridge.doctor": tag},
	})
	if err != nil {
		r.fail(name, err, "this is a flaw of ocibridge: report it")
		return
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(data), Size: int64(len(data))}
	err = x.Store.PushReference(ctx, desc, bytes.NewReader(data), tag)
	switch {
	case err != nil && artifactType == artifact.TypeEvidence:
		r.warn(name, "ask whoever runs the registry to allow the artifact type "+artifactType+"; providers work without it, signatures cannot be checked again later", "not accepted: %v", err)
		return
	case err != nil:
		r.fail(name, x.Explain(err), "ask whoever runs the registry to allow the artifact type "+artifactType)
		return
	}
	if err := x.Store.Delete(ctx, desc); err != nil {
		r.warn(name, "delete the tag "+tag+" by hand; without deletes, the registry keeps every version", "accepted, but not removed again: %v", err)
		return
	}
	r.ok(name, "accepted, and removed again")
}

// drain lets a connection be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	body.Close()
}
