package upload_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/registries/upload"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
)

// start runs an embedded registry behind a recorder of requests. It returns a
// repository of the registry, and the recorder.
func start(t *testing.T) (*remote.Repository, *recorder.Recorder) {
	r := loopback.For(t)
	return r.Repository("acme/widget"), r.Recorder
}

func TestSend(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	blob := content.NewDescriptorFromBytes("archive/zip", data)
	for name, tc := range map[string]struct {
		chunk    int64
		minChunk string // the minimum size of a chunk in the header OCI-Chunk-Min-Length
		patches  int
	}{
		"whole":                         {0, "", 0},
		"whole, whatever is announced":  {0, "1000", 0},
		"in chunks":                     {3000, "", 4},
		"in one chunk":                  {1 << 20, "", 1},
		"in chunks that fit":            {5000, "", 2},
		"in chunks as large as it must": {3000, "6000", 2},
		"in chunks, nonsense announced": {3000, "many", 4},
		"in chunks, 2^63 announced":     {3000, "9223372036854775808", 4},
	} {
		t.Run(name, func(t *testing.T) {
			repo, rec := start(t)
			rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if tc.minChunk != "" && r.Method == http.MethodPost {
					w.Header().Set("OCI-Chunk-Min-Length", tc.minChunk)
				}
				return false
			})
			s, _, err := upload.Begin(t.Context(), repo, blob, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(t.Context(), bytes.NewReader(data), tc.chunk); err != nil {
				t.Fatal(err)
			}
			if n := rec.Count(recorder.Method(http.MethodPatch)); n != tc.patches {
				t.Errorf("%d chunks", n)
			}
			body, err := repo.Blobs().Fetch(t.Context(), blob)
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, data) {
				t.Errorf("stored %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestIncomplete shows that a failed upload creates no blob.
func TestIncomplete(t *testing.T) {
	data := []byte("content")
	blob := content.NewDescriptorFromBytes("archive/zip", data)
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		body  io.Reader
		chunk int64
	}{
		"too short":           {strings.NewReader("cont"), 0},
		"too short, in parts": {strings.NewReader("cont"), 2},
		"broken":              {io.MultiReader(strings.NewReader("cont"), errReader{broken}), 0},
		"other bytes":         {strings.NewReader("CONTENT"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			repo, _ := start(t)
			s, _, err := upload.Begin(t.Context(), repo, blob, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(t.Context(), tc.body, tc.chunk); err == nil {
				t.Error("no error")
			}
			if exists, err := repo.Blobs().Exists(t.Context(), blob); err != nil || exists {
				t.Errorf("the blob exists: %v, %v", exists, err)
			}
		})
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func TestCancel(t *testing.T) {
	repo, rec := start(t)
	blob := content.NewDescriptorFromBytes("archive/zip", []byte("content"))
	s, _, err := upload.Begin(t.Context(), repo, blob, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), strings.NewReader("content"), 0); err == nil {
		t.Error("sent after it was cancelled")
	}
	if n := rec.Count(recorder.Method(http.MethodDelete), recorder.Status(http.StatusNoContent)); n != 1 {
		t.Errorf("cancelled %d times", n)
	}
}

// TestLocation shows which URLs in the Location header an upload accepts.
func TestLocation(t *testing.T) {
	blob := content.NewDescriptorFromBytes("archive/zip", []byte("content"))
	for location, ok := range map[string]bool{
		"/v2/acme/widget/blobs/uploads/1": true,
		"1?state=x":                       true,
		"":                                false,
		"http://elsewhere.example/v2/x":   false,
		"//elsewhere.example/v2/x":        false,
		"https://SELF/v2/acme/widget/blobs/uploads/1": false, // another scheme
		"http://SELF/v2/acme/widget/blobs/uploads/1":  true,
		"http://[": false,
	} {
		t.Run(location, func(t *testing.T) {
			repo, rec := start(t)
			rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPut {
					w.WriteHeader(http.StatusCreated)
					return true
				}
				w.Header().Set("Location", strings.ReplaceAll(location, "SELF", r.Host))
				w.WriteHeader(http.StatusAccepted)
				return true
			})
			s, _, err := upload.Begin(t.Context(), repo, blob, "")
			if (err == nil) != ok {
				t.Fatalf("error %v", err)
			}
			if ok {
				if err := s.Send(t.Context(), strings.NewReader("content"), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	repo, rec := start(t)
	rec.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, `{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}`)
		return true
	})
	blob := content.NewDescriptorFromBytes("archive/zip", []byte("content"))
	_, _, mount := upload.Begin(t.Context(), repo, blob, "acme/other")
	_, _, begin := upload.Begin(t.Context(), repo, blob, "")
	for _, err := range []error{mount, begin} {
		var later *outgoing.LaterError
		var answer *errcode.ErrorResponse
		if !errors.As(err, &later) || time.Until(later.Until).Round(time.Second) != 7*time.Second || !errors.As(err, &answer) || answer.StatusCode != http.StatusTooManyRequests ||
			!strings.Contains(err.Error(), "slow down") {
			t.Errorf("error %v", err)
		}
	}
	// No request was retried.
	var queries []string
	for _, r := range rec.Requests() {
		queries = append(queries, r.Query)
	}
	if len(queries) != 2 || !strings.Contains(queries[0], "from=acme%2Fother") || queries[1] != "" {
		t.Errorf("asked %q", queries)
	}
}
