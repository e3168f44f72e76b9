package gitfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

func TestMain(m *testing.M) {
	cost.InChild(fetchAndPack)
	leaks.Main(m)
}

// fetchAndPack fetches a repository from the URL in the first argument, with the certificate authority in the second, into the
// folder in the third. It packs the folder, and reads what its files call.
func fetchAndPack(args []string) error {
	pem, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	if _, err := Fetch(context.Background(), Options{HTTP: client, Check: anySubmodule}, Request{URL: args[0]}, args[2]); err != nil {
		return err
	}
	z, err := modulezip.PackFetched(context.Background(), args[2])
	if err != nil {
		return err
	}
	defer z.Close()
	files, err := z.FS()
	if err != nil {
		return err
	}
	_, err = closure.Read(context.Background(), files, "")
	return err
}

// server is a real Git server over TLS.
type server struct {
	*gitserver.Server
	tb      testing.TB
	url     string
	root    string // the folder of the repositories
	ca      string // a file
	options Options

	mutex    sync.Mutex
	requests []*http.Request
	before   func(http.ResponseWriter, *http.Request) bool // answers a request in place of Git
}

func newServer(tb testing.TB) *server {
	tb.Helper()
	s := &server{tb: tb, root: tb.TempDir()}
	s.Server = gitserver.New(tb, s.root)
	ca := tlsca.For(tb)
	config, err := ca.ServerConfig()
	if err != nil {
		tb.Fatal(err)
	}
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mutex.Lock()
		s.requests = append(s.requests, r)
		s.mutex.Unlock()
		if s.before == nil || !s.before(w, r) {
			s.Server.ServeHTTP(w, r)
		}
	}))
	listener.TLS = config
	listener.StartTLS()
	tb.Cleanup(listener.Close)
	client := ca.HTTPClient()
	tb.Cleanup(client.CloseIdleConnections)
	s.url, s.options = listener.URL, Options{HTTP: client, Check: anySubmodule}
	if s.ca, err = ca.WriteFile(tb.TempDir()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// anySubmodule allows all submodules.
func anySubmodule(_, _ *url.URL) error { return nil }

// git runs Git without a configuration, and returns its output.
func (s *server) git(dir, stdin string, args ...string) (string, error) {
	return s.Run(dir, strings.NewReader(stdin), []string{"GIT_SSL_CAINFO=" + s.ca}, args...)
}

func (s *server) must(dir, stdin string, args ...string) string {
	s.tb.Helper()
	out, err := s.git(dir, stdin, args...)
	if err != nil {
		s.tb.Fatal(err)
	}
	return out
}

type tree = gitserver.Tree

// repository creates a repository on the server, with a commit for each tree, and returns its folder. The branch is main.
func (s *server) repository(name string, commits ...tree) string {
	s.tb.Helper()
	dir := s.Dir(name)
	if err := s.Init(name); err != nil {
		s.tb.Fatal(err)
	}
	config, err := os.OpenFile(filepath.Join(dir, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = config.WriteString("[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n")
		err = errors.Join(err, config.Close())
	}
	if err != nil {
		s.tb.Fatal(err)
	}
	var in strings.Builder
	for i, files := range commits {
		in.WriteString(gitserver.Stream(1000000000+i, "", files))
	}
	if err := s.Import(name, strings.NewReader(in.String())); err != nil {
		s.tb.Fatal(err)
	}
	return dir
}

// clone returns the files that clients get, or their error. The commands are those of OpenTofu 1.12.
func (s *server) clone(name, ref string) (tree, error) {
	dir := filepath.Join(s.tb.TempDir(), "clone")
	if _, err := s.git(s.root, "", "clone", "--", s.url+"/"+name, dir); err != nil {
		return nil, err
	}
	if ref != "" {
		if _, err := s.git(dir, "", "checkout", s.commitIn(dir, ref)); err != nil {
			return nil, err
		}
	}
	if files, err := s.git(dir, "", "ls-files", "--stage"); err != nil || !strings.Contains("\n"+files, "\n160000 ") {
		return read(s.tb, dir), err // the command for submodules takes longest, and does nothing
	}
	if _, err := s.git(dir, "", "submodule", "update", "--init", "--recursive"); err != nil {
		return nil, err
	}
	return read(s.tb, dir), nil
}

// commitIn returns the commit that OpenTofu 1.12 checks out in a clone, or "".
func (s *server) commitIn(clone, ref string) string {
	for _, candidate := range []string{ref, "refs/remotes/origin/" + ref, "refs/tags/" + ref} {
		if id, err := s.git(clone, "", "rev-parse", "--verify", "--quiet", "--end-of-options", candidate+"^{commit}"); err == nil {
			return id
		}
	}
	return ""
}

// read returns the files of a folder, without .git. Executable files have a note.
func read(tb testing.TB, dir string) tree {
	tb.Helper()
	out := tree{}
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, at)
		name = filepath.ToSlash(name)
		switch {
		case d.Name() == ".git":
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			out[name] = "-> " + target
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(at)
		out[name] = string(content)
		if info.Mode().Perm()&0o100 != 0 {
			out[name] += " (executable)"
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// fetch returns the files that Fetch writes.
func (s *server) fetch(name, ref string) (tree, Commit, error) {
	return s.fetchWith(s.options, standard, Request{URL: s.url + "/" + name, Ref: ref})
}

func (s *server) fetchWith(o Options, l limits, r Request) (tree, Commit, error) {
	dir := filepath.Join(s.tb.TempDir(), "new")
	commit, err := fetch(s.tb.Context(), o, l, r, dir)
	if err != nil {
		return nil, commit, err
	}
	return read(s.tb, dir), commit, nil
}

// compare fails the test if Fetch and a client do not get the same files.
func (s *server) compare(name, ref string) Commit {
	s.tb.Helper()
	want, err := s.clone(name, ref)
	if err != nil {
		s.tb.Fatalf("clone of %s: %v", ref, err)
	}
	got, commit, err := s.fetch(name, ref)
	if err != nil {
		s.tb.Fatalf("fetch of %s: %v", ref, err)
	}
	differences(s.tb, ref, got, want)
	return commit
}

func differences(tb testing.TB, what string, got, want tree) {
	tb.Helper()
	for path := range want {
		if g, ok := got[path]; !ok || g != want[path] {
			tb.Errorf("%s: %s is %.200q (there: %v), and %.200q in a clone", what, path, g, ok, want[path])
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			tb.Errorf("%s: %s is in no clone", what, path)
		}
	}
}
