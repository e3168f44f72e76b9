package gitfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TestLogins: each login goes to its own host only, also after redirects, and is in no error.
func TestLogins(t *testing.T) {
	first, second := newServer(t), newServer(t)
	host := func(s *server) string { return strings.TrimPrefix(s.url, "https://") }
	sub := second.repository("sub", tree{"s.tf": "x"})
	files := tree{"sub": "commit " + second.must(sub, "", "rev-parse", "main"), ".gitmodules": fmt.Sprintf("[submodule \"a\"]\n\tpath = sub\n\turl = %s/sub\n", second.url)}
	first.repository("r", files)
	second.repository("moved", tree{"m.tf": "x"})
	logins := map[string]string{host(first): "user1:secret1", host(second): "user2:secret2"}
	for _, s := range []*server{first, second} {
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			user, password, _ := r.BasicAuth()
			switch {
			case strings.HasPrefix(r.URL.Path, "/moved") && s == first:
				http.Redirect(w, r, second.url+r.URL.String(), http.StatusFound)
			case user+":"+password != logins[host(s)]:
				w.WriteHeader(http.StatusUnauthorized)
			default:
				return false
			}
			return true
		}
	}
	o := Options{HTTP: &http.Client{Transport: both{first, second}}, Check: anySubmodule, Login: func(at string) (string, string) {
		user, password, _ := strings.Cut(logins[at], ":")
		return user, password
	}}
	for _, name := range []string{"r", "moved"} {
		if files, _, err := first.fetchWith(o, standard, Request{URL: first.url + "/" + name}); err != nil || len(files) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A login in the URL is for its host.
	o.Login = nil
	inURL := strings.Replace(first.url, "https://", "https://user1:secret1@", 1)
	for _, name := range []string{"r", "moved"} {
		_, _, err := first.fetchWith(o, standard, Request{URL: inURL + "/" + name})
		if errors.Is(err, ErrDenied) != (name == "moved") || err == nil || strings.Contains(err.Error()+hint.Of(err), "secret1") || !strings.Contains(hint.Of(err), host(second)) {
			t.Errorf("%s: %v (%s)", name, err, hint.Of(err))
		}
	}
	for _, r := range first.requests {
		if user, _, ok := r.BasicAuth(); ok && user != "user1" {
			t.Errorf("%s got the login of %s", r.URL, user)
		}
	}
	for _, r := range second.requests {
		if user, _, ok := r.BasicAuth(); ok && user != "user2" {
			t.Errorf("%s got the login of %s", r.URL, user)
		}
	}
}

// both is the transport of two servers, which have different authorities.
type both struct{ first, second *server }

func (b both) RoundTrip(r *http.Request) (*http.Response, error) {
	if "https://"+r.URL.Host == b.first.url {
		return b.first.options.HTTP.Transport.RoundTrip(r)
	}
	return b.second.options.HTTP.Transport.RoundTrip(r)
}

// TestAnswers: each wrong answer is an error that says what is wrong, without the query and the login of the URL.
func TestAnswers(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r", tree{"x": "x"})
	s.must(s.root, "", "init", "--quiet", "--bare", "empty")
	sha256 := filepath.Join(s.root, "sha256")
	s.must(s.root, "", "init", "--quiet", "--bare", "--object-format=sha256", sha256)
	s.must(sha256, "", "update-ref", "HEAD", s.must(sha256, "", "commit-tree", "-m", "x", s.must(sha256, "", "mktree")))
	id := s.must(dir, "", "rev-parse", "main")
	answer := func(status int, header, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if name, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(name, value)
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
			return true
		}
	}
	bodies := &openBodies{next: s.options.HTTP.Transport}
	s.options.HTTP = &http.Client{Transport: bodies, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if r.URL.Host == "private.example" {
			return hint.Wrap(errPrivate, "allow it")
		}
		return nil
	}}
	for name, c := range map[string]struct {
		get, post func(http.ResponseWriter, *http.Request) bool
		is        error
		want      string
	}{
		"no repository":     {get: answer(404, "", "secret words"), is: ErrNoRepository, want: "404"},
		"gone":              {get: answer(410, "", ""), is: ErrNoRepository},
		"login":             {get: answer(401, "", ""), is: ErrDenied, want: "needs a login for 127.0.0.1"},
		"forbidden":         {get: answer(403, "", ""), is: ErrDenied},
		"broken":            {get: answer(500, "", strings.Repeat("x", 10<<20)), want: "500"},
		"later":             {get: answer(503, "Retry-After: 7", ""), want: "503"},
		"not found later":   {post: answer(404, "", ""), want: "404"},
		"broken later":      {post: answer(502, "", ""), want: "502"},
		"page":              {get: answer(200, "", "<html>"), want: "unexpected answer"},
		"nothing":           {get: answer(200, "", ""), want: "unexpected answer"},
		"redirect to http":  {get: answer(302, "Location: http://127.0.0.1/r/info/refs", ""), is: ErrRefused, want: "http"},
		"redirect to file":  {get: answer(302, "Location: file:///etc/passwd", ""), is: ErrRefused, want: "file"},
		"redirect to words": {get: answer(302, "Location: https://me:secret@%zz/?token=secret", ""), is: ErrRefused, want: "not a URL"},
		"redirect nowhere":  {get: answer(302, "", ""), is: ErrRefused, want: "not a URL"},
		"refused redirect":  {get: answer(302, "Location: https://me:secret@private.example/r/info/refs?token=secret", ""), is: errPrivate, want: "allow it"},
		"endless redirects": {get: answer(302, "Location: "+strings.Replace(s.url, "//", "//me:secret@", 1)+"/r/info/refs?token=secret", ""), want: "too many redirects"},
		"choices":           {get: answer(300, "Location: https://me:secret@127.0.0.1/?token=secret", ""), want: "300"},
		"unchanged":         {post: answer(304, "", ""), want: "304"},
		"late redirect":     {post: answer(307, "Location: /other?token=secret", ""), is: ErrRefused, want: "redirected"},
		"error":             {post: answer(200, "", "000fERR \x1b[1mno\n"), want: "no"},
		"no such commit":    {post: answer(200, "", fmt.Sprintf("%04xERR upload-pack: not our ref %s", 4+28+40, id)), is: ErrNoRef},
		"no pack":           {post: answer(200, "", ""), want: "unexpected answer"},
		"empty pack":        {post: answer(200, "", "00000008NAK\n0000"), want: "pack"},
		"no pack at all":    {post: answer(200, "", "00000008NAK\n000a\x01PACX\n"), want: "pack"},
		"long line":         {get: answer(200, "", "ffff"+strings.Repeat("x", 1<<20)), want: "unexpected answer"},
		"endless shallows":  {post: endless(fmt.Sprintf("0034shallow %s", id)), want: "too many bytes"},
		"endless list":      {get: endless(fmt.Sprintf("003f%s refs/heads/12345678\n", id)), want: "pkt-line"},
		"endless pack":      {post: endless("0000", "0008NAK\n", "fff0\x01"+strings.Repeat("x", 0xffeb)), want: "more than 1 MiB"},
		"endless progress":  {post: endless("0000", "0008NAK\n", "fff0\x02"+strings.Repeat("x", 0xffeb)), want: "too many bytes"},
		"endless branches":  {get: endless(fmt.Sprintf("001e# service=git-upload-pack\n0000003b%s HEAD\x00  shallow", id), fmt.Sprintf("0041%s refs/heads/%%08d\n", id)), want: "too many bytes"},
		"error in the pack": {post: answer(200, "", "00000008NAK\n0009\x03fail"), want: "fail"},
	} {
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			f := c.get
			if r.Method == http.MethodPost {
				f = c.post
			}
			return f != nil && f(w, r)
		}
		l := standard
		l.pack, l.refs = 1<<20, 1<<20
		_, _, err := s.fetchWith(s.options, l, Request{URL: strings.Replace(s.url, "//", "//me:secret@", 1) + "/r"})
		text := fmt.Sprint(err, hint.Of(err))
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(text, c.want) || strings.Contains(text, "secret") || strings.ContainsAny(text, "\x1b\n") || len(text) > 3000 {
			t.Errorf("%s: %v (%s), want %s", name, err, hint.Of(err), c.want)
		}
		if n := bodies.open.Load(); n != 0 {
			t.Errorf("%s: %d open bodies", name, n)
		}
		if errors.Is(err, ErrNoRepository) != errors.Is(c.is, ErrNoRepository) || errors.Is(err, ErrNoRef) != errors.Is(c.is, ErrNoRef) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.before = nil
	if _, _, err := s.fetch("empty", ""); !errors.Is(err, ErrNoRef) {
		t.Errorf("an empty repository: %v", err)
	}
	if _, _, err := s.fetch("sha256", ""); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("a repository with SHA-256: %v", err)
	}
	for _, url := range []string{"http://127.0.0.1/r", "ssh://git:secret@127.0.0.1/r", "git:secret@127.0.0.1:r", "/etc", "https://", "https://me:secret@127.0.0.1/r?token=secret", "https://127.0.0.1/r#secret", "https://[secret", ":secret"} {
		_, _, err := s.fetchWith(s.options, standard, Request{URL: url})
		if !errors.Is(err, ErrRefused) || hint.Of(err) == "" || strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "=secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

var errPrivate = errors.New("private address")

// openBodies is a transport that counts the bodies of responses that are not closed.
type openBodies struct {
	next http.RoundTripper
	open atomic.Int64
}

func (o *openBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil {
		o.open.Add(1)
		resp.Body = countedBody{resp.Body, &o.open}
	}
	return resp, err
}

// countedBody counts each call of Close, so that two calls are an error as well.
type countedBody struct {
	io.ReadCloser
	open *atomic.Int64
}

func (c countedBody) Close() error {
	c.open.Add(-1)
	return c.ReadCloser.Close()
}

// TestTemporary: an error of a temporary file has a hint.
func TestTemporary(t *testing.T) {
	s := newServer(t)
	s.repository("r", tree{"x": "x"})
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TMP", filepath.Join(t.TempDir(), "none"))
	if _, err := Fetch(t.Context(), s.options, Request{URL: s.url + "/r"}, filepath.Join(s.root, "new")); err == nil || !strings.Contains(err.Error(), "temporary file") || !strings.Contains(hint.Of(err), "TMPDIR") {
		t.Errorf("%v (%s)", err, hint.Of(err))
	}
	h := &heap{}
	if err := h.allocate(maxInMemory + 1).err; !strings.Contains(hint.Of(err), "TMPDIR") {
		t.Errorf("%v (%s)", err, hint.Of(err))
	}
}

// endless returns a handler that writes a beginning, and repeats the last text.
func endless(texts ...string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		last := len(texts) - 1
		fmt.Fprint(w, strings.Join(texts[:last], ""))
		for i := 0; ; i++ {
			text := texts[last]
			if strings.Contains(text, "%08d") {
				text = fmt.Sprintf(text, i)
			}
			if _, err := fmt.Fprint(w, text); err != nil {
				return true
			}
		}
	}
}

// TestEnds: Fetch ends with its context, whatever a slow server does.
func TestEnds(t *testing.T) {
	s := newServer(t)
	s.repository("r", tree{"x": "x"})
	for method, begins := range map[string][]string{
		http.MethodGet: {"", "001e# service=git-upload-pack\n"}, http.MethodPost: {"", "0000", "00000008NAK\n0009\x01PACK"},
	} {
		for _, begin := range begins {
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := errors.New("enough")
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != method {
					return false
				}
				if begin != "" {
					fmt.Fprint(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client is gone
				cancel(reason)
				<-r.Context().Done()
				return true
			}
			if _, err := Fetch(ctx, s.options, Request{URL: s.url + "/r"}, t.TempDir()); !errors.Is(err, reason) {
				t.Errorf("%s after %q: %v", method, begin, err)
			}
			if method == http.MethodGet {
				if _, err := List(ctx, s.options, s.url+"/r"); !errors.Is(err, reason) {
					t.Errorf("list after %q: %v", begin, err)
				}
			}
		}
	}
}

// TestCapabilities: the request has multi_ack, without which Azure DevOps sends nothing.
func TestCapabilities(t *testing.T) {
	s := newServer(t)
	s.repository("r", tree{"x": "x"})
	asked := ""
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			r.Body, asked = io.NopCloser(bytes.NewReader(body)), string(body)
		}
		return false
	}
	if _, _, err := s.fetch("r", ""); err != nil || !strings.Contains(asked, " multi_ack") || !strings.Contains(asked, "deepen 1") {
		t.Errorf("%v: %q", err, asked)
	}
}

// silent is a server that sends the beginning of a pack, and then nothing.
type silent struct{}

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{}}
	if r.Method == http.MethodGet {
		line := strings.Repeat("1", 40) + " HEAD\x00agent=x\n"
		resp.Header.Set("Content-Type", "application/x-git-upload-pack-advertisement")
		resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf("001e# service=git-upload-pack\n0000%04x%s0000", 4+len(line), line)))
		return resp, nil
	}
	resp.Body = &silence{strings.NewReader("0008NAK\nPACK"), r.Context().Done()}
	return resp, nil
}

type silence struct {
	begin io.Reader
	end   <-chan struct{}
}

func (s *silence) Read(p []byte) (int, error) {
	if n, _ := s.begin.Read(p); n > 0 {
		return n, nil
	}
	<-s.end
	return 0, context.Canceled
}

func (*silence) Close() error { return nil }

// TestSilence: a server that stops in the middle of a pack keeps Fetch waiting for a minute.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_, err := Fetch(ctx, Options{HTTP: &http.Client{Transport: silent{}}, Check: anySubmodule}, Request{URL: "https://git.acme.example/r"}, t.TempDir())
		if took := time.Since(start); took != maxSilence || !errors.Is(err, errSilent) || hint.Of(err) == "" {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
