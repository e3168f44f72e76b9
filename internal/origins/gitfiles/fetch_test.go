package gitfiles

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// texts are contents that attributes treat differently.
var texts = map[string]string{
	"empty": "", "lf": "a\nb\n", "crlf": "a\r\nb\r\n", "mixed": "a\nb\r\nc\n", "cr": "a\rb\nc\n", "end": "a\nb", "crs": "a\r\r\nb\n",
	"nul": "a\x00b\nc\n", "binary": "\x01\x02\x03\x04\nabc\n", "dos": strings.Repeat("text\n", 100) + "\x1a", "control": strings.Repeat("x", 200) + "\n\x01",
	"utf8": "äöü€\n𝄞\n", "bom": "\xef\xbb\xbfa\n", "latin": "\xe4\xf6\n",
	"id": "$Id$\n$Id: x $ $Id:x$\n$Id:$\n$Id: x y $\n$Id: a\n$ $Id$ $Idx$ $Id", "ids": "$Id$", "noid": "$I$ $ Id$\n$Id:\n", "halfid": "$Id$ $Id: no end\n",
}

// TestAttributes compares each attribute with real Git, for each of the texts. Each line is the .gitattributes of a folder.
func TestAttributes(t *testing.T) {
	s, files := newServer(t), tree{}
	for i, line := range []string{
		"", "* text", "* -text", "* !text", "* text=auto", "* text=input", "* text=other", "* crlf", "* -crlf", "* crlf=input", "* text=other -crlf eol=crlf",
		"* eol=crlf", "* eol=lf", "* eol=cr", "* text eol=crlf", "* text=auto eol=crlf", "* text=auto eol=lf", "* -text eol=crlf", "* text=input eol=crlf",
		"* crlf=auto eol=crlf", "* !text eol=crlf", "* text=auto\n* eol=crlf\nlf -text", "* binary eol=crlf", "* -binary eol=crlf", "* eol=crlf\nlf !eol",
		"* ident", "* -ident", "* ident=x", "* ident eol=crlf", "* ident text=auto eol=crlf",
		"lf working-tree-encoding=UTF-16", "utf8 working-tree-encoding=UTF-16", "utf8 working-tree-encoding=utf-16le", "utf8 working-tree-encoding=UTF-16BE",
		"utf8 working-tree-encoding=UTF-16LE-BOM", "utf8 working-tree-encoding=UTF-16BE-BOM", "utf8 working-tree-encoding=UTF-32", "utf8 working-tree-encoding=UTF-32LE",
		"utf8 working-tree-encoding=UTF-32BE", "utf8 working-tree-encoding=UTF-8", "utf8 working-tree-encoding=utf8", "latin working-tree-encoding=utf8",
		"utf8 working-tree-encoding=", "utf8 !working-tree-encoding", "lf working-tree-encoding=iso-8859-1", "lf working-tree-encoding=UTF16", "lf working-tree-encoding=UTF16LE", "lf working-tree-encoding=UTF16BE-BOM", "lf working-tree-encoding=UTF32",
		"bom working-tree-encoding=UTF-16", "bom working-tree-encoding=UTF-16LE", "bom text eol=crlf working-tree-encoding=UTF-16LE-BOM", "empty working-tree-encoding=UTF-16",
		"id ident eol=crlf working-tree-encoding=UTF-16", "* filter=lfs diff=lfs merge=lfs -text", "* filter=unknown eol=crlf",
	} {
		files[fmt.Sprintf("%s/.gitattributes", folder(i))] = line + "\n"
		for name, text := range texts {
			files[folder(i)+"/"+name] = text
		}
	}
	s.repository("r", files)
	s.compare("r", "")
}

// folder returns the folder of a case of a table, which has its own .gitattributes.
func folder(i int) string { return fmt.Sprintf("case%02d", i) }

// TestPatterns compares the precedence and the patterns of .gitattributes with real Git: a file that a pattern matches has
// line ends of CR LF.
func TestPatterns(t *testing.T) {
	s, files := newServer(t), tree{}
	paths := []string{"a", "b.tf", "a.b.tf", "x/a", "x/b.tf", "x/y/a", "x/y/z/b.tf", "y/x/a", "ab", "a-b", "a]b", "a b", "tab\tb", "-a", "!a", "#a", "ä", "[attr]a", "x/[a]", "a\\b", "B", "foo/bar/baz", "foo/baz", "foobar/baz", "x/.hidden"}
	for i, text := range []string{
		"a eol=crlf", "*.tf eol=crlf", "/a eol=crlf", "x/a eol=crlf", "x/* eol=crlf", "x/** eol=crlf", "**/a eol=crlf", "x/**/a eol=crlf", "x/**/b.tf eol=crlf", "** eol=crlf",
		"/** eol=crlf", "x/ eol=crlf", "x eol=crlf", "*/a eol=crlf", "*/*/a eol=crlf", "?b eol=crlf", "a?b eol=crlf", "[a-b] eol=crlf", "[!a] eol=crlf", "[^a] eol=crlf", "a[]-]b eol=crlf",
		"a[[:punct:]]b eol=crlf", "a[[:nothing:]]b eol=crlf", "[[:upper:]] eol=crlf", "a[[:space:]]b eol=crlf", "\"a b\" eol=crlf", "\"tab\\tb\" eol=crlf", "\"\\303\\244\" eol=crlf", "\"a eol=crlf",
		"\\a eol=crlf", "\\!a eol=crlf", "!a eol=crlf", "\\#a eol=crlf", "#a eol=crlf", "[attr]a eol=crlf\nb.tf a", "\\[attr]a eol=crlf", "[attr]win text eol=crlf\n*.tf win\nx/*.tf -win", "[attr]w eol=crlf\n[attr]v w\na v",
		"[attr]binary eol=crlf\na binary", "  a\teol=crlf\r", "a eol=crlf -b! c", "a =x eol=crlf", "a eol=crlf eol=lf", "a eol=lf eol=crlf", "* eol=crlf\n*.tf eol=lf\nx/** !eol", "*a*b* eol=crlf", "**a eol=crlf", "f**/baz eol=crlf",
		"foo**baz eol=crlf", "foo/**/baz eol=crlf", "foo/**/**/baz eol=crlf", "foo*/baz eol=crlf", "foo** eol=crlf", "/foo*/** eol=crlf", "x/\\[a] eol=crlf", "x/.* eol=crlf", "x/[.]hidden eol=crlf", "a\\\\b eol=crlf", "* eol=crlf " + strings.Repeat("x", 2100),
		"\xef\xbb\xbfa eol=crlf\nab eol=crlf", "a\x00 eol=crlf\nab eol=crlf", "a eol=crlf\n\x00ab eol=crlf", "[attr]-x eol=crlf\na eol=crlf", "*/ eol=crlf", "/ eol=crlf", "[z-a] eol=crlf", "[a eol=crlf", "[a\\-z] eol=crlf", "[[:alpha:]-z] eol=crlf", "[\\ eol=crlf", "\\ eol=crlf",
	} {
		if strings.Contains(text, "[attr]") { // only the repository's own folder can define macros
			own := tree{".gitattributes": text}
			for _, path := range paths {
				own[path] = "a\nb\n"
			}
			s.repository(folder(i), own)
			s.compare(folder(i), "")
			continue
		}
		files[folder(i)+"/.gitattributes"] = text
		for _, path := range paths {
			files[folder(i)+"/"+path] = "a\nb\n"
		}
	}
	s.repository("r", files)
	s.compare("r", "")
	s.repository("nested", tree{
		".gitattributes": "* text=auto\n*.tf eol=crlf\n[attr]dos eol=crlf\n", "x/.gitattributes": "*.tf eol=lf\na dos\n[attr]unix eol=lf\n/y/b eol=crlf\n", "x/y/.gitattributes": "* !eol\na unix\n*.ps1 dos text\n",
		"a.tf": "a\n", "x/a.tf": "a\n", "x/a": "a\n", "x/y/a.tf": "a\n", "x/y/a": "a\n", "x/y/b": "b\n", "x/y/c.ps1": "b\n", "x/z/a.tf": "b\n", "xy/a": "a\n", "z/.gitattributes": "", "z/a.tf": "a\n",
	})
	s.compare("nested", "")
}

// TestRefs compares the names of commits with real Git.
func TestRefs(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r", tree{"main.tf": "1"}, tree{"main.tf": "2"}, tree{"main.tf": "3"}, tree{"main.tf": "4"})
	id := strings.Fields(s.must(dir, "", "rev-list", "--reverse", "main"))
	for _, args := range [][]string{
		{"tag", "light", id[0]}, {"tag", "-a", "-m", "x", "annotated", id[1]}, {"tag", "-a", "-m", "x", "nested", "annotated"}, {"branch", "dev", id[1]}, {"branch", "feature/x", id[0]},
		{"tag", "dev2", id[0]}, {"branch", "dev2", id[2]}, {"branch", "deadbeef", id[2]}, {"branch", "2024", id[1]}, {"tag", "cafe", id[2]}, {"tag", "refs/tags/odd", id[1]}, {"tag", "origin/dev", id[3]},
		{"branch", id[0][:8], id[3]}, {"update-ref", "refs/pull/1/head", id[1]},
	} {
		s.must(dir, "", args...)
	}
	clone, other := filepath.Join(t.TempDir(), "tofu"), filepath.Join(t.TempDir(), "terraform")
	for _, dir := range []string{clone, other} {
		s.must(s.root, "", "clone", "--quiet", "--", s.url+"/r", dir)
	}
	for _, ref := range []string{
		"", "main", "HEAD", "light", "annotated", "nested", "dev", "feature/x", "dev2", "deadbeef", "2024", "cafe", "refs/tags/light", "tags/light", "refs/heads/main", "heads/main", "origin/main", "origin/dev",
		"remotes/origin/dev", "refs/remotes/origin/dev", "origin", "refs/tags/odd", id[0], id[2], strings.ToUpper(id[1]), id[0][:7], id[0][:8], id[1][:12], strings.ToUpper(id[1][:10]), s.must(dir, "", "rev-parse", "annotated"),
	} {
		files, commit, err := s.fetch("r", ref)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		if want := s.commitIn(clone, cmp.Or(ref, "HEAD")); commit.Commit != want || files["main.tf"] != s.must(dir, "", "show", want+":main.tf") {
			t.Errorf("%s: commit %s, want %s", ref, commit.Commit, want)
		}
		if tree := s.must(dir, "", "rev-parse", commit.Commit+"^{tree}"); tree != commit.Tree {
			t.Errorf("%s: tree %s, want %s", ref, commit.Tree, tree)
		}
		wantTag := ""
		if ref == "annotated" || ref == "nested" || len(ref) == 40 && strings.EqualFold(ref, s.must(dir, "", "rev-parse", "annotated")) {
			wantTag = s.must(dir, "", "rev-parse", ref)
		}
		if commit.TagObject != wantTag {
			t.Errorf("%s: tag object %q, want %q", ref, commit.TagObject, wantTag)
		}
		if ref != "" { // Terraform 1.5 gives the name to another command
			s.must(other, "", "checkout", "--quiet", "main")
			s.must(other, "", "checkout", "--quiet", ref)
			if got := s.must(other, "", "rev-parse", "HEAD"); got != commit.Commit {
				t.Errorf("%s: commit %s, and %s for Terraform", ref, commit.Commit, got)
			}
		}
		resolved, err := Resolve(t.Context(), s.options, Request{URL: s.url + "/r", Ref: ref})
		if isShort := abbreviatedCommit.MatchString(ref) && ref != "cafe"; isShort != (err != nil) {
			t.Errorf("%s is resolved as %v, %v", ref, resolved, err)
		} else if resolved.Tree = commit.Tree; !isShort && resolved != commit {
			t.Errorf("%s is resolved as %v, want %v", ref, resolved, commit)
		}
	}
	for _, ref := range []string{"none", "refs/heads/dev", "-h", "--upload-pack=x", "pull/1/head", "refs/pull/1/head", "main~1", "main^{tree}", ":/x", "a b", "1234567", strings.Repeat("1", 40), "a\nb", "annotated^{}x"} {
		_, _, err := s.fetch("r", ref)
		if !errors.Is(err, ErrNoRef) || hint.Of(err) == "" {
			t.Errorf("%s: %v (%s)", ref, err, hint.Of(err))
		}
		if id := s.commitIn(clone, ref); id != "" && ref != "main~1" && ref != ":/x" { // these two are not supported
			t.Errorf("%s: a client gets %s", ref, id)
		}
	}
	// A name of a tag and of the default branch is a different commit for each client.
	s.must(dir, "", "tag", "main", id[0])
	if _, _, err := s.fetch("r", "main"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), id[0]) || !strings.Contains(err.Error(), id[3]) {
		t.Errorf("a tag with the name of the default branch: %v", err)
	}
	s.must(dir, "", "tag", "-f", "main", id[3])
	if _, _, err := s.fetch("r", "main"); err != nil {
		t.Errorf("a tag with the name and the commit of the default branch: %v", err)
	}
}

// TestFreshCheckout: a file whose attributes differ in the default branch is written as in a fresh checkout of the commit.
func TestFreshCheckout(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r", tree{"x.ps1": "a\n", ".gitattributes": "*.ps1 eol=crlf\n"}, tree{"x.ps1": "a\n"})
	s.must(dir, "", "tag", "v1", "main~1")
	fresh := filepath.Join(t.TempDir(), "fresh")
	s.must(s.root, "", "clone", "--quiet", "--branch", "v1", s.url+"/r", fresh)
	got, _, err := s.fetch("r", "v1")
	if err != nil || got["x.ps1"] != "a\r\n" {
		t.Errorf("%v: %q", err, got)
	}
	differences(t, "a fresh checkout", got, read(t, fresh))
	if later, err := s.clone("r", "v1"); err != nil || later["x.ps1"] != "a\n" {
		t.Errorf("a checkout after that of the default branch: %v: %q", err, later)
	}
}

// TestDepth compares the names that ?depth= allows with real Git.
func TestDepth(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r", tree{"main.tf": "1"}, tree{"main.tf": "2"})
	id := strings.Fields(s.must(dir, "", "rev-list", "main"))
	s.must(dir, "", "tag", "both", id[1])
	s.must(dir, "", "branch", "both", id[0])
	s.must(dir, "", "tag", "v1", id[1])
	for _, ref := range []string{"main", "both", "v1", "none", id[0], id[1][:8], "origin/main", "refs/tags/v1"} {
		clone := filepath.Join(t.TempDir(), "clone")
		_, cloneErr := s.git(s.root, "", "clone", "--depth", "1", "--branch", ref, "--", s.url+"/r", clone)
		files, _, err := s.fetchWith(s.options, standard, Request{URL: s.url + "/r", Ref: ref, Depth: 1})
		if (cloneErr == nil) != (err == nil) || err != nil && !errors.Is(err, ErrNoRef) {
			t.Errorf("%s: %v; a client: %v", ref, err, cloneErr)
		} else if err == nil {
			differences(t, ref, files, read(t, clone))
		}
	}
}

// TestPlainServers fetches from servers that give only what references name, and only whole histories.
func TestPlainServers(t *testing.T) {
	s := newServer(t)
	var commits []tree
	for i := range 60 {
		commits = append(commits, tree{"main.tf": strings.Repeat("line\n", 1000) + strings.Repeat("x", i), "x/y": strings.Repeat("z\n", i)})
	}
	dir := s.repository("r", commits...)
	s.must(dir, "", "repack", "-adfq", "--depth=50")
	ids := strings.Fields(s.must(dir, "", "rev-list", "main"))
	for _, config := range []string{"uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant", "repack.useDeltaBaseOffset"} {
		s.must(dir, "", "config", config, "false")
		s.must(dir, "", "repack", "-adfq", "--depth=50")
		for _, ref := range []string{"", ids[30], ids[59], ids[10][:10]} {
			s.compare("r", ref)
		}
	}
	if _, _, err := s.fetch("r", strings.Repeat("1", 40)); !errors.Is(err, ErrNoRef) {
		t.Errorf("a missing commit: %v", err)
	}
}

// TestFiles compares kinds of files, and the modes that Fetch writes.
func TestFiles(t *testing.T) {
	s := newServer(t)
	big := strings.Repeat("0123456789abcdef\n", 600_000)
	s.repository("r", tree{
		"main.tf": "x", "run.sh": "#!/bin/sh\n", "a/b/c/d": "deep", "link": "-> main.tf", "a/up": "-> ../run.sh", "a/dir": "-> b", "dangling": "-> nowhere", "a/b/c/loop": "-> loop", "a/via": "-> dir/c/d",
		"space name": "x", ".terraformignore": "x", "sub/.gitignore": "*\n", "sub/ignored": "x", "big": big, "big2": big + "end", "big3": "begin" + big, "exported": "x", ".gitattributes": "exported export-ignore\nmain.tf export-subst\n",
	})
	s.must(filepath.Join(s.root, "r"), "", "repack", "-adfq")
	commit := s.compare("r", "")
	dir := filepath.Join(t.TempDir(), "new")
	again, err := Fetch(t.Context(), s.options, Request{URL: s.url + "/r"}, dir)
	if err != nil || again != commit {
		t.Fatal(again, err)
	}
	for name, want := range map[string]os.FileMode{"main.tf": 0o644, "run.sh": 0o755, "a": os.ModeDir | 0o755, "link": os.ModeSymlink | 0o777} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}
