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
	s, err := Open(dir)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// Open returns a server of the repositories in a folder.
func Open(dir string) (*Server, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("git --exec-path: %w", err)
	}
	return &Server{dir, &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  Environment(dir, "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"), Stderr: io.Discard,
	}}, nil
}

// Environment returns an environment in which Git reads no configuration of the system and of the user.
func Environment(home string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_AUTHOR_DATE=1000000000 +0000", "GIT_COMMITTER_DATE=1000000000 +0000"}, more...)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Run runs Git in a folder, and returns its output without the white space at its ends. environment overrides variables of
// [Environment].
func (s *Server) Run(dir string, stdin io.Reader, environment []string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, stdin, Environment(s.root, environment...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// Git runs Git in a repository, and returns its output.
func (s *Server) Git(tb testkit.TB, repository string, args ...string) string {
	tb.Helper()
	out, err := s.Run(s.Dir(repository), nil, nil, args...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return out
}

// Dir returns the folder of a repository.
func (s *Server) Dir(repository string) string { return filepath.Join(s.root, repository) }

// Init creates an empty repository with the default branch main.
func (s *Server) Init(repository string) error {
	_, err := s.Run(s.root, nil, nil, "init", "--quiet", "--bare", "--initial-branch=main", s.Dir(repository))
	return err
}

// Import adds commits in the format of git fast-import to a repository.
func (s *Server) Import(repository string, stream io.Reader) error {
	_, err := s.Run(s.Dir(repository), stream, nil, "fast-import", "--quiet")
	return err
}

// Commit creates a commit with the given files on the branch main of a repository, and returns its ID. It creates the
// repository if necessary.
func (s *Server) Commit(tb testkit.TB, repository string, files Tree) string {
	tb.Helper()
	from := ""
	if _, err := os.Stat(s.Dir(repository)); err != nil {
		if err := s.Init(repository); err != nil {
			tb.Fatalf("%v", err)
		}
	} else if s.Git(tb, repository, "for-each-ref", "refs/heads/main") != "" {
		from = "from refs/heads/main^0\n"
	}
	if err := s.Import(repository, strings.NewReader(Stream(1000000000, from, files))); err != nil {
		tb.Fatalf("%v", err)
	}
	return s.Git(tb, repository, "rev-parse", "main")
}

// Stream returns a commit on the branch main in the format of git fast-import. when is in seconds since 1970. from is the line
// with the parent, or "" if the stream has created it, or if there is none.
func Stream(when int, from string, files Tree) string {
	var in strings.Builder
	fmt.Fprintf(&in, "commit refs/heads/main\ncommitter a <a@example.com> %d +0000\ndata 1\nx\n%sdeleteall\n", when, from)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		content, mode := files[path], "100644"
		if strings.ContainsAny(path, "\t \\\"") {
			path = `"` + strings.NewReplacer("\\", `\\`, "\t", `\t`, `"`, `\"`).Replace(path) + `"`
		}
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
	return in.String()
}
