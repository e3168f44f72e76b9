package pusher_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// referrers lists the referrers of a manifest in a repository.
func (b *bench) referrers(repo *remote.Repository, subject digest.Digest) []digest.Digest {
	b.T.Helper()
	var out []digest.Digest
	err := repo.Referrers(b.T.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: subject, Size: 1}, "", func(page []ocispec.Descriptor) error {
		for _, d := range page {
			out = append(out, d.Digest)
		}
		return nil
	})
	if err != nil {
		b.T.Fatal(err)
	}
	return out
}

// mustCopy copies a stored version. It fails the test unless the copy succeeds with the given warnings.
func (b *bench) mustCopy(from pusher.Stored, warnings ...string) *pusher.Result {
	b.T.Helper()
	r, err := b.CopyWith(from)
	if err != nil {
		b.T.Fatal(err)
	}
	if len(r.Warnings) != len(warnings) {
		b.T.Errorf("warnings %q, want %q", r.Warnings, warnings)
		return r
	}
	for i, w := range warnings {
		if !strings.Contains(r.Warnings[i], w) {
			b.T.Errorf("warning %q, want %q", r.Warnings[i], w)
		}
	}
	return r
}

// fresh returns the repository with a new client, which does not know yet whether the registry has the referrers API.
func fresh(from pusher.Stored) pusher.Stored {
	known := from.Store.(*remote.Repository)
	from.Store = &remote.Repository{Client: known.Client, Reference: known.Reference, PlainHTTP: known.PlainHTTP}
	return from
}

// TestCopyReferrers shows that a copy copies the referrers of an index, a platform's manifest, evidence and a referrer,
// whether or not source and destination have the referrers API.
func TestCopyReferrers(t *testing.T) {
	for name, api := range map[string]struct{ source, destination bool }{
		"API": {true, true}, "fallback tags": {false, false}, "from API to fallback tags": {true, false}, "from fallback tags to API": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if !api.source {
				pushbench.WithoutAPI(b.Registry.Recorder)
			}
			pushed := b.MustPush()
			v := b.Tagged()
			index := b.Store(b.Repo, "signature", v.Index.Digest, "")
			second := b.Store(b.Repo, "another signature", v.Index.Digest, "")
			platform := b.Store(b.Repo, "sbom", v.Packages[1].Manifest.Digest, "")
			ofPlatform := b.Store(b.Repo, "signature of the sbom", platform.Digest, "")
			evidence := b.Store(b.Repo, "of the evidence", v.Evidence.Digest, "")
			tag := string(ociaddr.CosignTags(v.Index.Digest)[0])
			cosign := b.Store(b.Repo, "cosign", "", tag)
			b.Store(b.Repo, "unrelated", "", "notes")
			b.Store(b.Repo, "of something else", digest.FromString("else"), "")

			from, _ := b.Source()
			from = fresh(from)
			if !api.destination {
				pushbench.WithoutAPI(b.Registry.Recorder)
			}
			r := b.mustCopy(from)
			if r.Digest != pushed.Digest || r.Status != pusher.Pushed || r.Referrers != 6 || r.ReferrersSent != 6 {
				t.Errorf("copied %+v", r)
			}
			for subject, want := range map[digest.Digest][]digest.Digest{
				v.Index.Digest: {index.Digest, second.Digest}, v.Packages[1].Manifest.Digest: {platform.Digest}, platform.Digest: {ofPlatform.Digest},
				v.Evidence.Digest: {evidence.Digest}, digest.FromString("else"): nil,
			} {
				got := b.referrers(b.Repo, subject)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("of %s: %v, want %v", subject, got, want)
				}
			}
			if desc, err := artifact.Resolve(t.Context(), b.Repo, tag); err != nil || desc.Digest != cosign.Digest {
				t.Errorf("%s: %v, %v", tag, desc.Digest, err)
			}
			if _, err := artifact.Resolve(t.Context(), b.Repo, "notes"); err == nil {
				t.Error("a tag that is not attached was copied")
			}
			_, err := artifact.Resolve(t.Context(), b.Repo, string(ociaddr.ReferrersTag(v.Index.Digest)))
			if (err == nil) == api.destination {
				t.Errorf("fallback tag: %v", err)
			}
			if list, err := from.Versions(t.Context()); err != nil || !slices.Equal(list, []provider.Version{pushbench.One}) {
				t.Errorf("versions %v, %v", list, err)
			}

			// A second copy sends nothing. If there is one more referrer, a copy sends only this referrer.
			b.Registry.Reset()
			if r := b.mustCopy(from); r.Status != pusher.Unchanged || r.Referrers != 6 || r.ReferrersSent != 0 || b.Registry.Count(recorder.Writes()) != 0 {
				t.Errorf("again: %+v, %d writes", r, b.Registry.Count(recorder.Writes()))
			}
			b.Store(from.Store.(*remote.Repository), "later", ofPlatform.Digest, "")
			if r := b.mustCopy(from); r.Status != pusher.Completed || r.Referrers != 7 || r.ReferrersSent != 1 {
				t.Errorf("with one more: %+v", r)
			}
			b.NewRegistry()
			b.Options.WithoutReferrers = true
			if r := b.mustCopy(from); r.Digest != pushed.Digest || r.Referrers != 0 || len(b.referrers(b.Repo, v.Index.Digest)) != 0 {
				t.Errorf("without referrers: %+v", r)
			}
		})
	}
}

// brokenStore is a source whose first response for a blob sends wrong bytes and then breaks off.
type brokenStore struct {
	repo.Reader
	blob    digest.Digest
	fetched int
}

func (s *brokenStore) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if desc.Digest == s.blob {
		if s.fetched++; s.fetched == 1 {
			return io.NopCloser(io.MultiReader(strings.NewReader("wrong"), iotest.ErrReader(syscall.ECONNRESET))), nil
		}
	}
	return s.Reader.Fetch(ctx, desc)
}

// TestCopyReferrersReadsAgain shows that a copy reads an attachment again if the first response of the source breaks
// off.
func TestCopyReferrersReadsAgain(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	signature := b.Store(b.Repo, "signature", b.Tagged().Index.Digest, "")
	from, _ := b.Source()
	broken := &brokenStore{Reader: from.Store, blob: digest.FromString("signature")}
	from.Store = broken
	if r := b.mustCopy(from); r.ReferrersSent != 1 || broken.fetched != 2 {
		t.Errorf("%+v, %d reads of the attachment", r, broken.fetched)
	}
	if _, err := artifact.Resolve(t.Context(), b.Repo, signature.Digest.String()); err != nil {
		t.Error(err)
	}
}

// TestCopyReferrersListsTagsOnce shows that all copies of one Pusher list the tags of a source only once. If that
// fails, the next copy lists the tags again.
func TestCopyReferrersListsTagsOnce(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	from, source := b.Source()
	source.Reset()
	p := pusher.New(b.Options)
	source.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/tags/list") {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	if _, err := p.Copy(t.Context(), from, pushbench.One, nil); err == nil {
		t.Error("copied without a list of tags")
	}
	source.Intercept(nil)
	for range 2 {
		if _, err := p.Copy(t.Context(), from, pushbench.One, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := source.Count(recorder.PathContains("/tags/list")); n != 2 {
		t.Errorf("%d lists of tags, want the one that failed and one more", n)
	}
}

// TestCopyReferrersWhereTheAPIIsRefused shows that, if the registry refuses the referrers API with another status than
// 404, a copy reads the fallback tags. Without fallback tags, a warning names the refusal.
func TestCopyReferrersWhereTheAPIIsRefused(t *testing.T) {
	refused := func(answer func(w http.ResponseWriter), tags bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, "/referrers/") || tags && strings.Contains(req.URL.Path, "/manifests/sha256-") {
				answer(w)
				return true
			}
			return false
		}
	}
	basic := func(w http.ResponseWriter) {
		w.Header().Set("WWW-Authenticate", `Basic realm="source"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	answers := map[string]func(http.ResponseWriter){"Basic": basic}
	for _, status := range []int{400, 401, 403, 405, 415, 422} {
		answers[fmt.Sprintf("status code %d", status)] = func(w http.ResponseWriter) { w.WriteHeader(status) }
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pushbench.WithoutAPI(b.Registry.Recorder)
			b.MustPush()
			v := b.Tagged()
			subjects := []digest.Digest{v.Index.Digest, v.Evidence.Digest}
			for _, p := range v.Packages {
				subjects = append(subjects, p.Manifest.Digest)
			}
			for _, subject := range subjects[1:] {
				nothing := b.Store(b.Repo, "of "+string(subject), subject, "")
				subjects = append(subjects, nothing.Digest)
			}
			from, registry := b.Source()
			from = fresh(from)

			// Some manifests have no fallback tag. The copy warns of the refusal, and copies the referrers of the other
			// manifests.
			registry.Intercept(refused(answer, false))
			if name == "Basic" {
				from.Store.(*remote.Repository).Client = &auth.Client{Client: from.Store.(*remote.Repository).Client.(*http.Client)}
			}
			if r := b.mustCopy(from, "source.test/acme/widget refuses to list referrers (GET "); r.Referrers != len(v.Packages)+1 || r.Status != pusher.Pushed {
				t.Errorf("copied %+v", r)
			}

			// If the registry also refuses the fallback tags, the copy fails without a login, and otherwise copies no
			// referrers.
			b.NewRegistry()
			registry.Intercept(refused(answer, true))
			r, err := b.CopyWith(from)
			if name == "Basic" || name == "status code 401" {
				if err == nil || !strings.Contains(err.Error(), "list referrers in source.test/acme/widget") {
					t.Errorf("no login: %+v, %v", r, err)
				}
			} else if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], name) || r.Referrers != 0 {
				t.Errorf("refused: %+v, %v", r, err)
			}
		})
	}
}

// TestCopyReferrersOfPlatforms shows that a copy of one of several platforms copies the platform's referrers, but not
// the index's, because the new index differs from the index of the source.
func TestCopyReferrersOfPlatforms(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	v := b.Tagged()
	b.Store(b.Repo, "of the index", v.Index.Digest, "")
	b.Store(b.Repo, "of another platform", v.Packages[0].Manifest.Digest, "")
	platform := b.Store(b.Repo, "of the platform", v.Packages[1].Manifest.Digest, "")
	from, _ := b.Source()
	r, err := b.CopyWith(from, v.Packages[1].Platform.String())
	if err != nil || r.Referrers != 1 || r.ReferrersSent != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := b.referrers(b.Repo, v.Packages[1].Manifest.Digest); !slices.Equal(got, []digest.Digest{platform.Digest}) || len(b.referrers(b.Repo, v.Index.Digest)) != 0 {
		t.Errorf("%v", got)
	}
}
