package gitfiles

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// gitEnvironment has no configuration of the system and of the user.
func gitEnvironment(home string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}, more...)
}

// server is a real Git server over TLS.
type server struct {
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
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		tb.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  gitEnvironment(s.root, "GIT_PROJECT_ROOT="+s.root, "GIT_HTTP_EXPORT_ALL=1"), Stderr: io.Discard,
	}
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
			backend.ServeHTTP(w, r)
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
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = gitEnvironment(s.root, "GIT_SSL_CAINFO="+s.ca)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

func (s *server) must(dir, stdin string, args ...string) string {
	s.tb.Helper()
	out, err := s.git(dir, stdin, args...)
	if err != nil {
		s.tb.Fatal(err)
	}
	return out
}

// tree has the contents of files by path. The content of a link begins with "->", that of an executable file with "#!", and
// that of a submodule is "commit " and an ID.
type tree map[string]string

// repository creates a repository on the server, with a commit for each tree, and returns its folder. The branch is main.
func (s *server) repository(name string, commits ...tree) string {
	s.tb.Helper()
	dir := filepath.Join(s.root, name)
	s.must(s.root, "", "init", "--quiet", "--bare", "--initial-branch=main", dir)
	for _, key := range []string{"uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"} {
		s.must(dir, "", "config", key, "true")
	}
	var in strings.Builder
	for i, files := range commits {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter a <a@example.com> %d +0000\ndata 1\nx\ndeleteall\n", 1000000000+i)
		for _, path := range slices.Sorted(maps.Keys(files)) {
			content, mode := files[path], "100644"
			if id, submodule := strings.CutPrefix(content, "commit "); submodule {
				fmt.Fprintf(&in, "M 160000 %s %q\n", id, path)
				continue
			}
			if target, link := strings.CutPrefix(content, "->"); link {
				content, mode = target, "120000"
			} else if strings.HasPrefix(content, "#!") {
				mode = "100755"
			}
			fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, path, len(content), content)
		}
	}
	s.must(dir, in.String(), "fast-import", "--quiet")
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
			out[name] = "->" + target
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

// quoted returns the files with paths that are quoted for fast-import, if necessary.
func (files tree) quoted() tree {
	out := tree{}
	for path, content := range files {
		if strings.ContainsAny(path, "\t \\\"") {
			path = `"` + strings.NewReplacer("\\", `\\`, "\t", `\t`, `"`, `\"`).Replace(path) + `"`
		}
		out[path] = content
	}
	return out
}
