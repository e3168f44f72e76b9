package gitfiles

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TestSubmodules compares submodules with real Git.
func TestSubmodules(t *testing.T) {
	s := newServer(t)
	leaf := s.repository("group/leaf", tree{"leaf.tf": "1", "x.ps1": "a\n", ".gitattributes": "*.ps1 eol=crlf\n"}, tree{"leaf.tf": "2", "up": "-> ../../main.tf"})
	old := s.must(leaf, "", "rev-parse", "main~1")
	middle := s.repository("group/middle", tree{
		"middle.tf": "x", "deep/er/leaf": "commit " + old, "link": "-> deep/er/leaf/leaf.tf", "y.ps1": "a\n",
		".gitmodules": "[submodule \"a/b\"]\n\tpath = deep/er/leaf\n\turl = ../leaf\n",
	})
	id := s.must(middle, "", "rev-parse", "main")
	s.repository("top/a", tree{
		"main.tf": "x", "modules/middle": "commit " + id, "only/submodule": "commit " + s.must(leaf, "", "rev-parse", "main"), "leaf": "commit " + old, "skipped": "commit " + old, ".gitattributes": "*.ps1 eol=crlf\n* ident\n",
		".gitmodules": fmt.Sprintf(`# comment
[core]
	bare = true
[submodule "middle"]
	path = modules/middle
	url = %q ; comment
	branch = other
	shallow = true
[submodule "only"]
	path = only/submodule
	url = ../../group/leaf
[submodule "leaf"]
	url = ./../../group/leaf/
	PATH = leaf
	update = rebase
[submodule "skipped"]
	path = skipped
	url = ssh://example.com/x
	update = none
[submodule "nowhere"]
	path = nowhere
	url = git@example.com:x
`, s.url+"/group/middle"),
	})
	s.compare("top/a", "")
}

// TestRefusedSubmodules: for each of them, clients fail, or run another program than the HTTPS client.
func TestRefusedSubmodules(t *testing.T) {
	s := newServer(t)
	id := s.must(s.repository("leaf", tree{"leaf.tf": "x"}), "", "rev-parse", "main")
	section := func(name, path, url, more string) string {
		return fmt.Sprintf("[submodule %q]\n\tpath = %s\n\turl = %s\n%s", name, path, url, more)
	}
	for i, c := range []struct{ modules, want string }{
		{"", "no URL"},
		{section("a", "other", "../leaf", ""), "no URL"},
		{section("../a", "sub", "../leaf", ""), "no URL"},
		{section("a", "sub", "-u./x", ""), "no URL"},
		{section("a", "sub", "", ""), "no URL"},
		{section("a", "sub", "../leaf", "\tupdate = !touch /tmp/x\n"), "update="},
		{section("a", "sub", "../leaf", "") + section("b", "sub", "../other", ""), "two submodules"},
		{section("a", "sub", "../leaf", "\turl = ../other\n"), "two settings"},
		{section("a", "sub", "http://127.0.0.1/leaf", ""), "not an https URL"},
		{section("a", "sub", "ssh://git@127.0.0.1/leaf", ""), "not an https URL"},
		{section("a", "sub", "git@127.0.0.1:leaf", ""), "not an https URL"},
		{section("a", "sub", "git://127.0.0.1/leaf", ""), "not an https URL"},
		{section("a", "sub", "file://"+s.root+"/leaf", ""), "not an https URL"},
		{section("a", "sub", s.root+"/leaf", ""), "not an https URL"},
		{section("a", "sub", "ext::sh -c true", ""), "not an https URL"},
		{section("a", "sub", "../../../../../../leaf", ""), "https"},
		{section("a", "sub", "../leaf?x=y", ""), "no query"},
		{section("a", "sub", "../none", ""), "404"},
		{"[submodule", "cannot be read"},
		{section("a", "sub", "../leaf", "") + strings.Repeat("# comment\n", 20_000), "bytes"},
	} {
		name := fmt.Sprintf("r%d", i)
		s.repository(name, tree{"sub": "commit " + id, ".gitmodules": c.modules})
		_, _, err := s.fetch(name, "")
		if err == nil || !strings.Contains(err.Error()+hint.Of(err), c.want) || !errors.Is(err, ErrRefused) && c.want != "404" || errors.Is(err, ErrNoRepository) {
			t.Errorf("%s: %v (%s), want %s", c.modules[:min(len(c.modules), 200)], err, hint.Of(err), c.want)
		}
	}
	s.repository("gone", tree{"sub": "commit " + strings.Repeat("1", 40), ".gitmodules": section("a", "sub", "../leaf", "")})
	if _, _, err := s.fetch("gone", ""); !errors.Is(err, ErrRefused) || errors.Is(err, ErrNoRef) || !strings.Contains(err.Error(), "submodule sub") || hint.Of(err) == "" {
		t.Errorf("a missing commit: %v", err)
	}
	s.repository("linked", tree{"sub": "commit " + id, ".gitmodules": "-> x", "x": section("a", "sub", "../leaf", "")})
	if _, _, err := s.fetch("linked", ""); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("a link: %v", err)
	}
}

// TestCheckedSubmodules: the caller decides about each submodule before a request for it is sent.
func TestCheckedSubmodules(t *testing.T) {
	s := newServer(t)
	leaf := s.repository("leaf", tree{"leaf.tf": "x"})
	middle := s.repository("middle", tree{"sub": "commit " + s.must(leaf, "", "rev-parse", "main"), ".gitmodules": "[submodule \"b\"]\n\tpath = sub\n\turl = ../leaf\n"})
	s.repository("top", tree{"sub": "commit " + s.must(middle, "", "rev-parse", "main"), ".gitmodules": "[submodule \"a\"]\n\tpath = sub\n\turl = ../middle\n"})
	var asked []string
	reason := hint.New("private", "do this")
	o := s.options
	o.Check = func(from, to *url.URL) error {
		asked = append(asked, from.String()+" "+to.String())
		if to.Path == "/leaf" {
			return reason
		}
		return nil
	}
	_, _, err := s.fetchWith(o, standard, Request{URL: strings.Replace(s.url, "//", "//me:secret@", 1) + "/top"})
	if !errors.Is(err, reason) || hint.Of(err) != "do this" || !strings.Contains(err.Error(), "submodule sub") {
		t.Errorf("%v (%s)", err, hint.Of(err))
	}
	if want := []string{s.url + "/top " + s.url + "/middle", s.url + "/middle " + s.url + "/leaf"}; !slices.Equal(asked, want) {
		t.Errorf("checked %q, want %q", asked, want)
	}
	for _, r := range s.requests {
		if strings.HasPrefix(r.URL.Path, "/leaf") {
			t.Errorf("a request to %s", r.URL)
		}
	}
	o.Check = nil
	s.requests = nil
	if _, _, err := s.fetchWith(o, standard, Request{URL: s.url + "/leaf"}); err == nil || len(s.requests) > 0 {
		t.Errorf("without a check: %v, %d requests", err, len(s.requests))
	}
}

// TestManySubmodules: the number and the nesting of submodules are limited.
func TestManySubmodules(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r0", tree{"x.tf": "x"})
	for i := 1; i <= maxSubmodules+1; i++ {
		files := tree{"sub": "commit " + s.must(dir, "", "rev-parse", "main"), ".gitmodules": fmt.Sprintf("[submodule \"a\"]\n\tpath = sub\n\turl = ../r%d\n", i-1)}
		dir = s.repository(fmt.Sprintf("r%d", i), files)
	}
	if files, _, err := s.fetch(fmt.Sprintf("r%d", maxSubmodules), ""); err != nil || files[strings.Repeat("sub/", maxSubmodules)+"x.tf"] != "x" {
		t.Errorf("%d submodules: %v", maxSubmodules, err)
	}
	if _, _, err := s.fetch(fmt.Sprintf("r%d", maxSubmodules+1), ""); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "contain each other") {
		t.Errorf("%d submodules: %v", maxSubmodules+1, err)
	}
	l := standard
	l.submodules = 3
	if _, _, err := s.fetchWith(s.options, l, Request{URL: s.url + "/r5"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "more than 3 submodules") {
		t.Errorf("4 submodules: %v", err)
	}
}

// TestListsOfReferences: the lists of all submodules count together, and are not held while the submodules are written.
func TestListsOfReferences(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r0", tree{"x.tf": "x"})
	for i := 1; i <= 4; i++ {
		dir = s.repository(fmt.Sprintf("r%d", i), tree{"sub": "commit " + s.must(dir, "", "rev-parse", "main"), ".gitmodules": fmt.Sprintf("[submodule \"a\"]\n\tpath = sub\n\turl = ../r%d\n", i-1)})
	}
	r, err := connect(t.Context(), s.options, standard.refs, s.url+"/r4")
	if err != nil || r.listed < 100 || r.listed > 1000 {
		t.Fatalf("%v: %d bytes", err, r.listed)
	}
	l := standard
	l.refs = 5 * r.listed
	if _, _, err := s.fetchWith(s.options, l, Request{URL: s.url + "/r4"}); err != nil {
		t.Error(err)
	}
	l.refs--
	if _, _, err := s.fetchWith(s.options, l, Request{URL: s.url + "/r4"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "too many bytes") {
		t.Errorf("more than the limit: %v", err)
	}
	l = standard
	l.constWork = 4 * listWork * r.listed
	if _, _, err := s.fetchWith(s.options, l, Request{URL: s.url + "/r0"}); err != nil {
		t.Error(err)
	}
	l.constWork = listWork*r.listed - 1
	if _, _, err := s.fetchWith(s.options, l, Request{URL: s.url + "/r0"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "too much work") {
		t.Errorf("expensive lists: %v", err)
	}
	f := &fetcher{options: s.options, limits: standard, budget: &budget{work: 1 << 30}}
	for _, ref := range []string{"main", r.refs.head.String(), r.refs.head.String()[:10]} {
		if r, err = connect(t.Context(), s.options, standard.refs, s.url+"/r4"); err != nil {
			t.Fatal(err)
		}
		w, err := r.refs.choose(ref, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := f.objects(t.Context(), r, w)
		if err != nil || r.refs != nil {
			t.Errorf("%s: %v, references %v", ref, err, r.refs)
		}
		p.close()
	}
}

// FuzzSubmodules: a .gitmodules file of any content is an error, or gives each submodule that is not skipped a URL.
func FuzzSubmodules(f *testing.F) {
	f.Add("[submodule \"a\"]\n\tpath = sub\n\turl = ../leaf ; comment\n\tupdate = none\n")
	f.Fuzz(func(t *testing.T, text string) {
		found, err := submodules([]entry{{name: "sub"}}, []byte(text))
		for _, s := range found {
			if s.url == "" || s.path != "sub" || err != nil {
				t.Errorf("%v %v", s, err)
			}
			if u, err := parseURL(resolve("https://example.com/a/b", s.url)); err == nil && u.Scheme != "https" {
				t.Errorf("%s", u)
			}
		}
	})
}
