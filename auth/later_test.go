package auth_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// TestAskedToWait shows that the error of a refused read says until when the registry
// asks to wait. The error also contains the registry's own message.
func TestAskedToWait(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		after  string
		later  bool
	}{
		"429":            {429, "3600", true},
		"503":            {503, "3600", true},
		"429, no time":   {429, "", false},
		"502, with time": {502, "3600", false},
		"404, with time": {404, "3600", false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.after != "" {
					w.Header().Set("Retry-After", tc.after)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				io.WriteString(w, `{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}`)
			}))
			defer srv.Close()
			c := auth.New(auth.Options{Login: login.Options{Defaults: &login.Defaults{}}, Wire: wire.Options{Transport: srv.Client().Transport, RetryDelay: time.Millisecond}})
			repo, err := c.Repository(t.Context(), ociaddr.Repository{Registry: ociaddr.Registry(strings.TrimPrefix(srv.URL, "http://")), Name: "acme/null"})
			if err != nil {
				t.Fatal(err)
			}
			blob := ocispec.Descriptor{MediaType: "archive/zip", Digest: digest.FromString("x"), Size: 1}
			for what, ask := range map[string]func() error{
				"list":  func() error { return repo.Tags(t.Context(), "", func([]string) error { return nil }) },
				"HEAD":  func() error { _, err := repo.Resolve(t.Context(), "1.0.0"); return err },
				"blob":  func() error { _, err := repo.Blobs().Fetch(t.Context(), blob); return err },
				"write": func() error { return repo.Push(t.Context(), blob, strings.NewReader("x")) },
			} {
				err := ask()
				var answer *errcode.ErrorResponse
				var later *outgoing.LaterError
				if errors.As(err, &later) != (tc.later && what != "write") || later != nil && time.Until(later.Until) < 30*time.Minute {
					t.Errorf("%s: %v, %+v", what, err, later)
				}
				if tc.status == http.StatusNotFound {
					continue // oras-go returns other errors for a HEAD
				}
				if !errors.As(err, &answer) || answer.StatusCode != tc.status || what == "list" && (len(answer.Errors) != 1 || answer.Errors[0].Message != "slow down") {
					t.Errorf("%s: %v, %+v", what, err, answer)
				}
				if strings.Count(err.Error(), srv.URL) != 1 {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
