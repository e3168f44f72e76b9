package auth_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// behindFaults returns a client of a repository, and the fault proxy in front of the
// repository's registry. The repository has the tag 1.0.0 and no blobs. The client and
// the proxy speak HTTP/2.
func behindFaults(t *testing.T) (*remote.Repository, *faultproxy.Server) {
	t.Helper()
	ca := tlsca.For(t)
	config, err := ca.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultproxy.For(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/tags/list"):
			io.WriteString(w, `{"name":"acme/null","tags":["1.0.0"]}`)
		case r.Method == http.MethodPost:
			w.Header().Set("Location", "/v2/acme/null/blobs/uploads/1?state=s3cret-state")
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}), config)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.CertPool()}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	c := auth.New(auth.Options{Wire: wire.Options{Transport: transport, RetryDelay: time.Millisecond}})
	repo, err := c.Repository(t.Context(), ociaddr.Repository{Registry: ociaddr.Registry(proxy.Addr), Name: "acme/null"})
	if err != nil {
		t.Fatal(err)
	}
	return repo, proxy
}

// TestBrokenAnswersAreRepeated shows that a request is sent again and succeeds if its
// first two responses break. It tries several ways in which a connection breaks.
func TestBrokenAnswersAreRepeated(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{
		"connection reset before the answer": faultproxy.Cut(),
		"connection reset in the answer":     faultproxy.CutAt(10),
		"request ended by the server":        func(*faultproxy.Exchange) { panic(http.ErrAbortHandler) },
		"shorter than announced":             faultproxy.Length(10),
	} {
		t.Run(name, func(t *testing.T) {
			repo, proxy := behindFaults(t)
			defer proxy.Begin(faultproxy.Rule{Fault: fault, Times: 2})()
			var got []string
			err := repo.Tags(t.Context(), "", func(tags []string) error {
				got = append(got, tags...)
				return nil
			})
			if err != nil || strings.Join(got, " ") != "1.0.0" || proxy.Hits() != 2 {
				t.Errorf("%v, %v after %d hits", got, err, proxy.Hits())
			}
		})
	}
}

// TestPageIsNoBlob shows that an HTML page does not confirm that a blob exists.
func TestPageIsNoBlob(t *testing.T) {
	repo, proxy := behindFaults(t)
	blob := ocispec.Descriptor{Digest: digest.FromString("x"), Size: 1}
	if there, err := repo.Exists(t.Context(), blob); there || err != nil {
		t.Errorf("%v, %v", there, err)
	}
	defer proxy.Begin(faultproxy.Rule{Fault: faultproxy.HTML()})()
	var page *wire.ForeignError
	if there, err := repo.Exists(t.Context(), blob); there || !errors.As(err, &page) || !page.HTML {
		t.Errorf("%v, %v", there, err)
	}
}

// TestStateOfUploadsIsInNoError shows that an upload's errors do not contain the
// upload's state: neither the error for a lost connection nor the error for a refusal.
func TestStateOfUploadsIsInNoError(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{"no answer": faultproxy.Cut(), "refusal": faultproxy.Status(500, "")} {
		repo, proxy := behindFaults(t)
		defer proxy.Begin(faultproxy.Rule{Fault: fault, Match: func(r *http.Request) bool { return r.Method == http.MethodPut }})()
		err := repo.Push(t.Context(), ocispec.Descriptor{Digest: digest.FromString("x"), Size: 1}, strings.NewReader("x"))
		if err == nil || strings.Contains(err.Error(), "s3cret-state") || !strings.Contains(err.Error(), "/v2/acme/null/blobs/uploads/1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
