// Package gitserver serves real Git repositories over HTTP, by the program git http-backend.
package gitserver

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// Server serves the repositories in a folder. Its paths begin with the names of the repositories.
type Server struct {
	root    string
	handler http.Handler
}

// Tree has the contents of files by path. The content of a link begins with "-> ", that of an executable file with "#!", and
// that of a submodule is "commit " and an ID.
type Tree map[string]string

// New returns a server without repositories.
func New(tb testkit.TB, dir string) *Server {
	tb.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		tb.Fatalf("git --exec-path: %v", err)
	}
	return &Server{dir, &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  Environment(dir, "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"), Stderr: io.Discard,
	}}
}

// Environment returns an environment in which Git reads no configuration of the system and of the user.
func Environment(home string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_AUTHOR_DATE=1000000000 +0000", "GIT_COMMITTER_DATE=1000000000 +0000"}, more...)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Git runs Git in a repository, and returns its output.
func (s *Server) Git(tb testkit.TB, repository string, args ...string) string {
	tb.Helper()
	return s.run(tb, repository, "", args...)
}

func (s *Server) run(tb testkit.TB, repository, stdin string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin, cmd.Env = filepath.Join(s.root, repository), strings.NewReader(stdin), Environment(s.root)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// Commit creates a commit with the given files on the branch main of a repository, and returns its ID. It creates the
// repository if necessary.
func (s *Server) Commit(tb testkit.TB, repository string, files Tree) string {
	tb.Helper()
	dir := filepath.Join(s.root, repository)
	if _, err := os.Stat(dir); err != nil {
		s.run(tb, "", "", "init", "--quiet", "--bare", "--initial-branch=main", dir)
	}
	var in strings.Builder
	in.WriteString("commit refs/heads/main\ncommitter a <a@example.com> 1000000000 +0000\ndata 1\nx\n")
	if s.run(tb, repository, "", "for-each-ref", "refs/heads/main") != "" {
		in.WriteString("from refs/heads/main^0\n")
	}
	in.WriteString("deleteall\n")
	for _, path := range slices.Sorted(maps.Keys(files)) {
		content, mode := files[path], "100644"
		if id, submodule := strings.CutPrefix(content, "commit "); submodule {
			fmt.Fprintf(&in, "M 160000 %s %s\n", id, path)
			continue
		}
		if strings.HasPrefix(content, "#!") {
			mode = "100755"
		} else if target, link := strings.CutPrefix(content, "-> "); link {
			content, mode = target, "120000"
		}
		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, path, len(content), content)
	}
	s.run(tb, repository, in.String(), "fast-import", "--quiet")
	return s.Git(tb, repository, "rev-parse", "main")
}
