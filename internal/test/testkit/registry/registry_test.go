package registry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// push pushes a file as an artifact with the ORAS CLI.
func push(t *testing.T, w *clients.Workspace, reference string, flags ...string) {
	t.Helper()
	clients.Must(t, os.WriteFile(filepath.Join(w.Dir, "file"), []byte("content"), 0o644))
	args := append([]string{"push", "--artifact-type", "application/vnd.test"}, flags...)
	w.MustRun(t, clients.ORAS(t), append(args, reference, "file:application/octet-stream")...)
}

func TestPlain(t *testing.T) {
	reg := registry.For(t, registry.Options{})
	w := clients.For(t)
	push(t, w, reg.Host+"/a/b:1.0.0", "--plain-http")
	if got := w.MustRun(t, clients.ORAS(t), "repo", "tags", "--plain-http", reg.Host+"/a/b"); strings.TrimSpace(got) != "1.0.0" {
		t.Errorf("tags %q", got)
	}
	if _, err := os.Stat(filepath.Join(reg.Dir, "docker/registry/v2/repositories/a/b")); err != nil {
		t.Error(err)
	}
}

func TestTLSAndUsers(t *testing.T) {
	ca := tlsca.For(t)
	cert, err := ca.Issue()
	clients.Must(t, err)
	certFile, keyFile, err := cert.WriteFiles(t.TempDir())
	clients.Must(t, err)
	caFile, err := ca.WriteFile(t.TempDir())
	clients.Must(t, err)
	reg := registry.For(t, registry.Options{
		CertFile: certFile, KeyFile: keyFile,
		Users: map[string]string{"robot": "secret"},
	})
	w := clients.For(t)
	w.TrustCA(caFile)
	// Without the flag, ORAS uses plain HTTP for localhost.
	output := w.MustFail(t, clients.ORAS(t), "repo", "ls", "--plain-http=false", reg.Host)
	if !strings.Contains(output, "401") && !strings.Contains(output, "credential") {
		t.Errorf("refused for a reason other than missing credentials:\n%s", output)
	}
	push(t, w, reg.Host+"/a/b:1.0.0", "--plain-http=false", "-u", "robot", "-p", "secret")
}

func TestHandlerBehindARecorder(t *testing.T) {
	reg := registry.For(t, registry.Options{})
	handler, err := reg.Handler()
	clients.Must(t, err)
	rec := recorder.New(handler)
	srv := httptest.NewServer(rec)
	defer srv.Close()

	host := strings.TrimPrefix(srv.URL, "http://")
	push(t, clients.For(t), host+"/a/b:1.0.0", "--plain-http")
	uploads := rec.Count(recorder.Method(http.MethodPut), recorder.PathContains("/blobs/uploads/"), recorder.Status(http.StatusCreated))
	if uploads == 0 {
		t.Errorf("no upload went through the recorder: %+v", rec.Requests())
	}
	if n := rec.Count(recorder.Method(http.MethodPut), recorder.Path("/v2/a/b/manifests/1.0.0")); n != 1 {
		t.Errorf("%d manifests put by tag, want 1", n)
	}
}

func TestDataOutlivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	first := registry.For(t, registry.Options{Dir: dir})
	w := clients.For(t)
	push(t, w, first.Host+"/a/b:1.0.0", "--plain-http")
	first.Stop()
	if _, err := http.Get(first.URL + "/v2/"); err == nil {
		t.Error("a stopped registry answers")
	}
	second := registry.For(t, registry.Options{Dir: dir})
	w.MustRun(t, clients.ORAS(t), "manifest", "fetch", "--plain-http", second.Host+"/a/b:1.0.0")
}

func TestStartFailsWithTheLog(t *testing.T) {
	clients.Registry(t)
	file := filepath.Join(t.TempDir(), "bad.pem")
	clients.Must(t, os.WriteFile(file, tlsca.For(t).CertPEM(), 0o644))
	_, err := registry.Start(context.Background(), registry.Options{CertFile: file, KeyFile: file})
	if err == nil || !strings.Contains(err.Error(), "private key") {
		t.Errorf("got %v, want the registry's message about the private key", err)
	}
}
