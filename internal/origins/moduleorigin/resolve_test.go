package moduleorigin_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/origin"
)

// TestCheckSystem checks that only Windows, which loses the executable bit, cannot fetch.
func TestCheckSystem(t *testing.T) {
	for goos, ok := range map[string]bool{"linux": true, "darwin": true, "freebsd": true, "windows": false} {
		if err := moduleorigin.CheckSystem(goos); (err == nil) != ok || !ok && !strings.Contains(hint.Of(err), "WSL") {
			t.Errorf("%s: %v (%s)", goos, err, hint.Of(err))
		}
	}
}

// TestTwins checks that the twin of a tag is found in each form in which a location can name the tag.
func TestTwins(t *testing.T) {
	git := gitserver.New(t, t.TempDir())
	host, o := serve(t, git)
	git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 1\n"})
	for _, tag := range []string{"1.0.0", "2.0.0", "v2.0.0"} {
		git.Git(t, "vpc", "tag", tag, "main")
	}
	git.Commit(t, "vpc", gitserver.Tree{"main.tf": "# 2\n"})
	git.Git(t, "vpc", "tag", "v1.0.0", "main")
	for _, before := range []string{"", "tags/", "refs/tags/"} {
		for name, twins := range map[string]bool{"1.0.0": true, "v1.0.0": true, "2.0.0": false, "v2.0.0": false} {
			l, err := moduleorigin.ParseLocation("git::https://" + host + "/vpc?ref=" + before + name)
			if err != nil {
				t.Fatal(err)
			}
			if c, err := o.Resolve(t.Context(), l); errors.Is(err, moduleorigin.ErrTwins) != twins || !twins && c.Commit == "" {
				t.Errorf("%s%s: %+v, %v", before, name, c, err)
			}
		}
	}
}

// TestSubmodulesInside checks that neither a registry nor a repository on another machine can lead to this machine with the URL
// of a submodule.
func TestSubmodulesInside(t *testing.T) {
	git := gitserver.New(t, t.TempDir())
	ca := tlsca.For(t)
	var location string
	host := serveTLS(t, ca, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/download"):
			w.Header().Set("X-Terraform-Get", location)
			w.WriteHeader(http.StatusNoContent)
		default:
			git.ServeHTTP(w, r)
		}
	}))
	var reached atomic.Int64
	inside := serveTLS(t, ca, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		http.NotFound(w, r)
	}))
	git.Commit(t, "sub", gitserver.Tree{
		"main.tf": "# 1\n", "sub": "commit " + strings.Repeat("1", 40),
		".gitmodules": "[submodule \"sub\"]\n\tpath = sub\n\turl = https://" + inside + "/vpc\n",
	})
	location = "git::https://" + host + "/sub"
	services := disco.New()
	services.ForceHostServices(vpc.ServiceHost(), map[string]any{"modules.v1": "https://" + host + "/v1/modules/"})
	transport := ca.HTTPClient().Transport.(*http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	guard := origin.NewLenientGuard(func(name, port string) bool { return net.JoinHostPort(name, port) == host })
	o := &moduleorigin.Origin{Registry: origin.NewRegistry(origin.RegistryOptions{
		Transport: guard.Transport(transport), Guard: guard,
		Services: services,
	})}
	l, err := o.Locate(t.Context(), vpc, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Fetch(t.Context(), l, t.TempDir()); err == nil || !strings.Contains(err.Error(), "an origin on another machine refers to it") || !strings.Contains(hint.Of(err), "modules.v1") {
		t.Errorf("%v (%s)", err, hint.Of(err))
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests to the server inside", n)
	}
}

// trickle sends a list of references byte by byte, one each second, until the request ends.
type trickle struct {
	request *http.Request
	begin   io.Reader
}

func (trickle) RoundTrip(req *http.Request) (*http.Response, error) {
	body := trickle{req, strings.NewReader("001e# service=git-upload-pack\n0000fff0")}
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: req, Header: http.Header{"Content-Type": {"application/x-git-upload-pack-advertisement"}}}, nil
}

func (b trickle) Read(p []byte) (int, error) {
	if n, _ := b.begin.Read(p); n > 0 {
		return n, nil
	}
	select {
	case <-b.request.Context().Done():
		return 0, b.request.Context().Err()
	case <-time.After(time.Second):
		p[0] = 'x'
		return 1, nil
	}
}

func (trickle) Close() error { return nil }

// TestSlowReferences checks that a server cannot make a push wait forever for its list of references.
func TestSlowReferences(t *testing.T) {
	l, err := moduleorigin.ParseLocation("git::https://git.acme.example/vpc?ref=v1")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		o := &moduleorigin.Origin{Registry: origin.NewRegistry(origin.RegistryOptions{Transport: trickle{}})}
		start := time.Now()
		_, err := o.Resolve(t.Context(), l)
		if took := time.Since(start); took != time.Minute || err == nil || !strings.Contains(err.Error(), "takes too long") || hint.Of(err) == "" {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// redirecting redirects every request for a host below acme.example, and counts the other requests.
type redirecting struct {
	to      string
	reached int
}

func (r *redirecting) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Host, ".acme.example") {
		r.reached++
	}
	return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {r.to}}, Body: http.NoBody, Request: req}, nil
}

// TestRedirectsInside checks that neither a Git server nor the host of an archive can lead to this machine or next to it with a
// redirect, and that no error shows the query of a location.
func TestRedirectsInside(t *testing.T) {
	for _, to := range []string{"https://127.0.0.1/r", "https://localhost:8443/r", "https://169.254.169.254/r", "https://[::1]/r", "https://0x7f000001/r"} {
		for _, location := range []string{"git::https://git.acme.example/vpc?ref=v1", "https://files.acme.example/vpc.zip?token=secret"} {
			l, err := moduleorigin.ParseLocation(location)
			if err != nil {
				t.Fatal(err)
			}
			transport := &redirecting{to: to}
			o := &moduleorigin.Origin{Registry: origin.NewRegistry(origin.RegistryOptions{Transport: transport})}
			_, err = o.Fetch(t.Context(), l, t.TempDir())
			if err == nil || transport.reached > 0 || hint.Of(err) == "" || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s to %s: %v, after %d requests to it", location, to, err, transport.reached)
			}
		}
	}
}
