package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
)

const content = "the content of a blob"

var blob = ocispec.Descriptor{MediaType: "archive/zip", Digest: digest.FromString(content), Size: int64(len(content))}

// open starts a registry whose handler is h. It returns a repository of this registry,
// and a recorder of the requests that the registry gets.
func open(t *testing.T, h http.HandlerFunc) (*recorder.Recorder, *remote.Repository) {
	t.Helper()
	rec := recorder.New(h)
	srv := httptest.NewServer(rec)
	t.Cleanup(srv.Close)
	repo, err := remote.NewRepository(strings.TrimPrefix(srv.URL, "http://") + "/acme/widget")
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP, repo.Client = true, srv.Client() // the default client waits and retries
	return rec, repo
}

// status returns a handler that sends the given status and no body.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// whole is a handler that ignores the Range header and sends the whole blob.
func whole(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	fmt.Fprint(w, content)
}

// shorter is a handler that sends other content, which is shorter than the blob.
func shorter(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, content[:3]) }

// part returns a handler that sends the first byte of the blob with status 206. size is
// the size of the whole blob in the Content-Range header.
func part(size string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 0-0/"+size)
		w.WriteHeader(http.StatusPartialContent)
		fmt.Fprint(w, content[:1])
	}
}

// broken is a handler that sends the header of a response, and then closes the
// connection before the first byte of the body.
func broken(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// TestSourceWhereHEADLies shows whether Exists finds a blob, for each kind of response
// to the HEAD and to the GET.
func TestSourceWhereHEADLies(t *testing.T) {
	isAnswer := func(code int) func(error) bool {
		return func(err error) bool {
			var answer *errcode.ErrorResponse
			return errors.As(err, &answer) && answer.StatusCode == code && answer.Method == http.MethodGet && !errors.Is(err, errdef.ErrNotFound)
		}
	}
	isNetwork := func(err error) bool {
		var network net.Error
		return errors.As(err, &network) && !errors.Is(err, errdef.ErrNotFound)
	}
	for name, tc := range map[string]struct {
		head, get http.HandlerFunc
		found     bool
		err       func(error) bool // nil means no error
		requests  int
	}{
		"HEAD finds it":                   {head: whole, found: true, requests: 1},
		"GET answers with the first byte": {head: status(404), get: part(fmt.Sprint(len(content))), found: true, requests: 2},
		"GET names no size":               {head: status(404), get: part("*"), found: true, requests: 2},
		"GET names a size below zero":     {head: status(404), get: part("-5"), found: true, requests: 2},
		"GET names another size":          {head: status(404), get: part("3"), err: isNetwork, requests: 2},
		"GET ignores Range":               {head: status(404), get: whole, found: true, requests: 2},
		"GET answers with something else": {head: status(404), get: shorter, err: isNetwork, requests: 2},
		"gone":                            {head: status(404), get: status(404), requests: 2},
		"GET fails":                       {head: status(404), get: status(502), err: isAnswer(502), requests: 2},
		"GET is forbidden":                {head: status(404), get: status(403), err: isAnswer(403), requests: 2},
		"GET breaks off":                  {head: status(404), get: broken, err: isNetwork, requests: 2},
		"HEAD fails": {head: status(502), requests: 1, err: func(err error) bool {
			var answer *errcode.ErrorResponse
			return errors.As(err, &answer) && answer.StatusCode == 502
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rec, repo := open(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					tc.head(w, r)
				} else {
					tc.get(w, r)
				}
			})
			source := registry.ReadOnly{Repository: repo}
			found, err := source.Exists(t.Context(), blob)
			if found != tc.found || (err != nil) != (tc.err != nil) || err != nil && !tc.err(err) {
				t.Errorf("found %v, %v", found, err)
			}
			requests := rec.Requests()
			if len(requests) != tc.requests || len(requests) == 2 && (requests[1].Method != http.MethodGet || requests[1].Range != "bytes=0-0") {
				t.Errorf("%+v", requests)
			}
		})
	}
}

// TestSourceReadsOneByte shows that Exists does not read the whole body if a registry
// sends an endless blob.
func TestSourceReadsOneByte(t *testing.T) {
	ended := make(chan struct{})
	_, repo := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		defer close(ended)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	if found, err := (registry.ReadOnly{Repository: repo}).Exists(t.Context(), blob); !found || err != nil {
		t.Fatalf("%v, %v", found, err)
	}
	<-ended
}

// TestSourceEndsWithItsContext shows that Exists returns when its context is cancelled
// while the registry is still sending its response to the GET.
func TestSourceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, repo := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	})
	if found, err := (registry.ReadOnly{Repository: repo}).Exists(ctx, blob); found || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", found, err)
	}
}

// TestSourceOfManifests shows that Exists sends only a HEAD for a manifest. Harbor's
// proxy-cache projects respond correctly to that HEAD.
func TestSourceOfManifests(t *testing.T) {
	for _, mediaType := range []string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex} {
		rec, repo := open(t, status(http.StatusNotFound))
		manifest := blob
		manifest.MediaType = mediaType
		if found, err := (registry.ReadOnly{Repository: repo}).Exists(t.Context(), manifest); found || err != nil {
			t.Errorf("%s: %v, %v", mediaType, found, err)
		}
		paths := []string{}
		for _, r := range rec.Requests() {
			paths = append(paths, r.Method+" "+r.Path)
		}
		if want := []string{"HEAD /v2/acme/widget/manifests/" + blob.Digest.String()}; !slices.Equal(paths, want) {
			t.Errorf("%s: %q, want %q", mediaType, paths, want)
		}
	}
}
