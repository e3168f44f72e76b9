package auth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// listReferrers starts a server with the given handler, and requests the referrers of a
// manifest from it. It returns the number of referrers.
func listReferrers(t *testing.T, answer http.HandlerFunc) (found int, err error) {
	t.Helper()
	srv := httptest.NewServer(answer)
	defer srv.Close()
	repo, err := New(Options{}).RepositoryWithReferrers(t.Context(), ociaddr.Repository{Registry: ociaddr.Registry(strings.TrimPrefix(srv.URL, "http://")), Name: "a/x"})
	if err != nil {
		t.Fatal(err)
	}
	subject := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("x"), Size: 1}
	err = repo.Referrers(t.Context(), subject, "", func(page []ocispec.Descriptor) error {
		found += len(page)
		return nil
	})
	return found, err
}

// TestReferrersWithoutTheAPI shows that oras-go reads the fallback tag if a registry has
// no referrers API. The registry's 404 need not contain a registry error.
func TestReferrersWithoutTheAPI(t *testing.T) {
	index := `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageIndex + `","manifests":[{"mediaType":"` + ocispec.MediaTypeImageManifest + `","digest":"` + digest.FromString("y").String() + `","size":1}]}`
	n, err := listReferrers(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/manifests/"+string(ociaddr.ReferrersTag(digest.FromString("x")))) {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		w.Header().Set("Docker-Content-Digest", digest.FromString(index).String())
		fmt.Fprint(w, index)
	})
	if err != nil || n != 1 {
		t.Errorf("%d referrers, %v", n, err)
	}
	// A proxy in front of a registry that is down returns such a 404 for every request.
	// The result must be an error, because the fallback tag may exist.
	if n, err := listReferrers(t, http.NotFound); err == nil || !strings.Contains(err.Error(), "not as an OCI registry does") {
		t.Errorf("%d referrers, %v", n, err)
	}
}

// TestReferrersOfTooManyValues shows that a list of too many referrers is refused,
// whether it comes from the API or from a fallback tag. When decoded, a list of short
// entries takes many times its size in memory.
func TestReferrersOfTooManyValues(t *testing.T) {
	list := cost.Filled(4<<20-100, `{"manifests":[`, `{}`, `]}`)
	for name, api := range map[string]bool{"API": true, "fallback tag": false} {
		t.Run(name, func(t *testing.T) {
			cost.Check(t, len(list), true, func() error {
				_, err := listReferrers(t, func(w http.ResponseWriter, r *http.Request) {
					if !api && strings.Contains(r.URL.Path, "/referrers/") {
						http.NotFound(w, r)
						return
					}
					w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
					w.Header().Set("Docker-Content-Digest", digest.FromBytes(list).String())
					_, _ = w.Write(list)
				})
				return err
			})
		})
	}
}

// TestPagesOfReferrersEnd shows that reading a list of referrers fails after
// maxReferrerPages if the list has an endless chain of empty pages.
func TestPagesOfReferrersEnd(t *testing.T) {
	pages := 0
	_, err := listReferrers(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/referrers/") {
			return
		}
		pages++
		if pages > 2*maxReferrerPages {
			http.Error(w, "enough", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		w.Header().Set("Link", "<"+r.URL.Path+`?n=1>; rel="next"`)
		fmt.Fprint(w, `{"manifests":[]}`)
	})
	if err == nil || !strings.Contains(err.Error(), errdef.ErrTooManyPages.Error()) || pages != maxReferrerPages {
		t.Errorf("%d pages, %v", pages, err)
	}
}
