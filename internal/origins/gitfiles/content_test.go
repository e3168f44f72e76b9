package gitfiles

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// rawTree is the entries of a tree, such as "100644 name ID".
func (s *server) rawTree(dir string, entries ...string) string {
	var raw strings.Builder
	for _, e := range entries {
		mode, rest, _ := strings.Cut(e, " ")
		name, id := rest[:len(rest)-41], rest[len(rest)-40:]
		bytes, err := hex.DecodeString(id)
		if err != nil {
			s.tb.Fatal(err)
		}
		raw.WriteString(mode + " " + name + "\x00" + string(bytes))
	}
	return s.must(dir, raw.String(), "hash-object", "-t", "tree", "-w", "--stdin", "--literally")
}

// commit makes a tree the only commit of a branch.
func (s *server) commit(dir, branch, tree string) {
	s.must(dir, "", "update-ref", "refs/heads/"+branch, s.must(dir, "", "commit-tree", "-m", "x", tree))
}

// TestHostileTrees: names and links that leave the folder, or that are not the same for all clients. Those that real Git
// checks out are marked.
func TestHostileTrees(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r", tree{"x": "x"})
	blob := s.must(dir, "x", "hash-object", "-w", "--stdin")
	link := func(target string) string { return s.must(dir, target, "hash-object", "-w", "--stdin") }
	folder := s.rawTree(dir, "100644 f "+blob)
	deep := folder
	for range maxDepth {
		deep = s.rawTree(dir, "40000 d "+deep)
	}
	for i, c := range []struct {
		want    string
		checked bool // by real Git
		entries []string
	}{
		{"would leave", false, []string{"100644 .. " + blob}},
		{"would leave", false, []string{"40000 .. " + folder}},
		{"would leave", false, []string{"40000 . " + folder}},
		{"would leave", true, []string{"100644 a/b " + blob}},
		{"would leave", false, []string{"100644 ../a " + blob}},
		{"would leave", false, []string{"100644 /a " + blob}},
		{"reserves", false, []string{"40000 .git " + folder}},
		{"reserves", false, []string{"100644 .git " + blob}},
		{"reserves", false, []string{"40000 .GIT " + folder}},
		{"reserves", false, []string{"40000 .git. " + folder}},
		{"reserves", false, []string{"40000 .git  " + folder}},
		{"reserves", false, []string{"40000 GIT~1 " + folder}},
		{"reserves", false, []string{"40000 .git::$INDEX_ALLOCATION " + folder}},
		{"reserves", false, []string{"40000 a\\.git " + folder}},
		{"reserves", false, []string{"40000 .git\\hooks " + folder}},
		{"reserves", false, []string{"40000 x " + s.rawTree(dir, "40000 .git "+folder)}},
		{"reserves", false, []string{"160000 .git " + strings.Repeat("1", 40)}},
		{"is a link", true, []string{"120000 .gitattributes " + link("x")}},
		{"is a link", false, []string{"120000 .gitmodules " + link("x")}},
		{"is a link", false, []string{"120000 .GITMODULES " + link("x")}},
		{"is a link", false, []string{"120000 gitmod~1 " + link("x")}},
		{"must be relative", true, []string{"120000 l " + link("/etc/passwd")}},
		{"outside the repository", true, []string{"120000 l " + link("../x")}},
		{"outside the repository", true, []string{"120000 l " + link("a/../../x")}},
		{"outside the repository", true, []string{"40000 d " + s.rawTree(dir, "120000 l "+link("../.."))}},
		{"outside the repository", true, []string{"40000 d " + s.rawTree(dir, "120000 l "+link("x/../../y"), "120000 x "+link("../d2/e")), "40000 d2 " + folder, "120000 l " + link("d/x/../../..")}},
		{"outside the repository", true, []string{"40000 d " + s.rawTree(dir, "120000 here "+link(".."), "120000 l "+link("here/../secret"))}},
		{"no path", true, []string{"120000 l " + link("a\xff")}},
		{"no path", false, []string{"120000 l " + link("")}},
		{"no path", true, []string{"120000 l " + link("a\x00b")}},
		{"more than 1024 bytes", true, []string{"120000 l " + link(strings.Repeat("a", 1025))}},
		{"only in case", true, []string{"100644 A " + blob, "100644 a " + blob}},
		{"only in case", true, []string{"40000 MODULES " + folder, "40000 modules " + folder}},
		{"only in case", true, []string{"100644 Ä " + blob, "100644 ä " + blob}},
		{"only in case", true, []string{"100644 a\u0308 " + blob, "100644 ä " + blob}},
		{"only in case", true, []string{"100644 a " + blob, "100644 a " + blob}},
		{"only in case", true, []string{"120000 a " + link("x"), "40000 a " + folder}},
		{"name of more than 255", false, []string{"100644 " + strings.Repeat("a", 256) + " " + blob}},
		{"more than 1024 bytes", true, []string{"40000 " + strings.Repeat("a", 255) + " " + s.rawTree(dir, "40000 "+strings.Repeat("a", 255)+" "+s.rawTree(dir, "40000 "+strings.Repeat("a", 255)+" "+s.rawTree(dir, "40000 "+strings.Repeat("a", 255)+" "+folder)))}},
		{"more than 100 folders", true, []string{"40000 d " + deep}},
		{"malformed", true, []string{"010644 p " + blob}},
	} {
		branch := fmt.Sprintf("b%d", i)
		s.commit(dir, branch, s.rawTree(dir, append(c.entries, "100644 zz "+blob)...))
		_, _, err := s.fetch("r", branch)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.entries, err, c.want)
		}
		if c.checked != s.checksOut(dir, branch) {
			t.Errorf("%q: checked out by Git: %v", c.entries, !c.checked)
		}
	}
}

// TestIgnoredCharacters: names that file systems can take for .git, because they ignore some characters, are refused.
func TestIgnoredCharacters(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r", tree{"x": "x"})
	folder := s.rawTree(dir, "100644 f "+s.must(dir, "x", "hash-object", "-w", "--stdin"))
	for _, name := range []string{".g\u200cit", "\ufeff.GIT"} {
		s.commit(dir, "main", s.rawTree(dir, "40000 "+name+" "+folder))
		if _, _, err := s.fetch("r", ""); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "reserves") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// checksOut reports whether real Git writes the files of a branch of a local repository.
func (s *server) checksOut(dir, branch string) bool {
	_, err := s.git(dir, "", "clone", "--quiet", "--shared", "--branch", branch, dir, filepath.Join(s.tb.TempDir(), "clone"))
	return err == nil
}

// TestLinks: links that lead through others are limited, in whatever order they are followed. Those in circles are allowed.
func TestLinks(t *testing.T) {
	chain := func(n int, name, target string) map[string]string {
		links := map[string]string{}
		for i := range n {
			links[fmt.Sprintf(name, i)] = strings.ReplaceAll(target, "%d", fmt.Sprint(i+1))
		}
		return links
	}
	upwards := map[string]string{}
	for i := range maxHops + 1 {
		upwards[fmt.Sprintf("%03d", i+1)] = fmt.Sprintf("%03d", i)
	}
	long := chain(20_000, "d/%d", "../long")
	long["long"] = strings.Repeat("a/", 510)
	few := chain(10_000, "d/%d", "../long")
	few["long"] = long["long"]
	for name, c := range map[string]struct {
		links map[string]string
		want  string
	}{
		"a chain":           {chain(maxHops, "%d", "./%d"), ""},
		"a long chain":      {chain(maxHops+1, "%d", "%d"), "through more than 40 links"},
		"from the end":      {upwards, "through more than 40 links"},
		"a very long chain": {chain(100_000, "%d", "%d"), "through more than 40 links"},
		"links twice":       {chain(5, "%d", "%d/../%d"), ""},
		"links often":       {chain(6, "%d", "%d/../%d"), "through more than 40 links"},
		"circles":           {map[string]string{"a": "b/x", "b": "c", "c": "a", "self": "self", "up": "../up/x", "d/up": "../d/up/../.."}, "outside"},
		"a circle":          {map[string]string{"a": "b/x", "b": "c", "c": "a", "self": "self", "d/e": "../a/../f"}, ""},
		"long results":      {long, "paths of more than 16 MiB"},
		"some long results": {few, ""},
		"a long path":       {map[string]string{"a": strings.Repeat("b", 1000), "c": "a/" + strings.Repeat("d", 23)}, ""},
		"too long a path":   {map[string]string{"a": "b", "b": strings.Repeat("e", 1000), "c": "a/" + strings.Repeat("d", 24)}, "path of more than 1024 bytes"},
	} {
		err := checkLinks(c.links, &budget{work: standard.constWork})
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || hint.Of(err) == "") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestTolerated: what is odd, but the same for all clients.
func TestTolerated(t *testing.T) {
	s := newServer(t)
	dir := s.repository("r", tree{"x": "x"})
	blob := s.must(dir, "x", "hash-object", "-w", "--stdin")
	empty := s.must(dir, "", "mktree")
	for i, entries := range [][]string{
		{"100664 group " + blob, "100755 run " + blob, "100775 run2 " + blob},
		{"040000 padded " + s.rawTree(dir, "100644 f "+blob)},
		{"100644 b " + blob, "100644 a " + blob},
		{"40000 empty " + empty, "40000 outer " + s.rawTree(dir, "40000 inner "+empty), "100644 a " + blob},
		{"100644 -a " + blob, "100644 ... " + blob, "100644 .gitx " + blob, "100644 git " + blob, "100644 .gitignore " + blob, "100644 git~2 " + blob, "100644 " + strings.Repeat("n", 255) + " " + blob},
		{"40000 .gitattributes " + s.rawTree(dir, "100644 f "+blob)},
		{"100644 back\\slash " + blob, "100644 new\nline " + blob, "100644 bytes\xff " + blob},
	} {
		branch := fmt.Sprintf("b%d", i)
		s.commit(dir, branch, s.rawTree(dir, entries...))
		s.compare("r", branch)
	}
}

// TestPointers: pointers of Git LFS are refused, unless they are allowed, as for clients without git-lfs.
func TestPointers(t *testing.T) {
	s := newServer(t)
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 3\n"
	s.repository("r", tree{".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "a/x.bin": pointer})
	if _, _, err := s.fetch("r", ""); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "a/x.bin has the attribute filter=lfs") || !strings.Contains(hint.Of(err), "--allow-lfs-pointers") {
		t.Errorf("a pointer: %v", err)
	}
	allow := s.options
	allow.AllowLFSPointers = true
	files, _, err := s.fetchWith(allow, standard, Request{URL: s.url + "/r"})
	if err != nil || files["a/x.bin"] != pointer {
		t.Errorf("an allowed pointer: %v %v", files, err)
	}
	s.repository("none", tree{".gitattributes": "*.bin filter=lfs -text\n", "x.bin": "no pointer", "pointer": pointer, "large.bin": pointer + strings.Repeat("x", maxPointer)})
	s.compare("none", "")
}

// TestRefusedAttributes: what real Git refuses, leaves with an error, or does in a way that is not supported.
func TestRefusedAttributes(t *testing.T) {
	s := newServer(t)
	large := strings.Repeat("line\n", maxConverted/5+1)
	for i, c := range []struct{ line, content, want string }{
		{"f working-tree-encoding", "x", "f has the attribute working-tree-encoding without"},
		{"f -working-tree-encoding", "x", "f has the attribute working-tree-encoding without"},
		{"f working-tree-encoding=SHIFT-JIS", "x", `f has the attribute working-tree-encoding="shift-jis"`},
		{"f working-tree-encoding=UTF-8-BOM", "x", "not supported"},
		{"f working-tree-encoding=nonsense", "x", "not supported"},
		{"f working-tree-encoding=UTF-16", "\xff", "f cannot be written in the encoding utf-16"},
		{"f working-tree-encoding=ISO-8859-1", "€", "f cannot be written in the encoding iso-8859-1"},
		{"f ident", large, "f has 2097155 bytes, and the attribute ident"},
		{"f text=auto eol=crlf", large, "the attribute eol=crlf"},
		{"f working-tree-encoding=UTF-16", large, "the attribute working-tree-encoding"},
		{strings.Repeat("# comment\n", 110_000), "x", "bytes"},
	} {
		name := fmt.Sprintf("r%d", i)
		s.repository(name, tree{".gitattributes": c.line, "f": c.content})
		if _, _, err := s.fetch(name, ""); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || hint.Of(err) == "" {
			t.Errorf("%.100s: %v, want %s", c.line, err, c.want)
		}
	}
	// Conversions that do not change a large file need no memory.
	s.repository("large", tree{".gitattributes": "* text=auto eol=crlf\nlf -text\n", "lf": large, "crlf": strings.ReplaceAll(large, "\n", "\r\n"), "binary": large + "\x00"})
	s.compare("large", "")
}

// TestHeldAttributes: the memory for the .gitattributes files of nested folders is limited, and is freed.
func TestHeldAttributes(t *testing.T) {
	var a attributes
	if err := a.enter("", []byte("[attr]m -text\n"+strings.Repeat("* diff=x merge export-ignore\n", 30_000)+"*.x m diff\n")); err != nil || len(a.files[0].rules) != 1 || len(a.files[0].rules[0].settings) != 1 {
		t.Fatalf("settings that do not matter: %v, %d rules", err, len(a.files[0].rules))
	}
	folders := []string{""}
	text := bytes.Repeat([]byte("a text\n"), maxAttributes/7)
	var err error
	for err == nil && len(folders) < maxDepth {
		folders = append(folders, fmt.Sprintf("d%d", len(folders)))
		err = a.enter(folders[len(folders)-1], text)
	}
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "16 MiB") || hint.Of(err) == "" {
		t.Errorf("%d folders: %v", len(folders), err)
	}
	for _, folder := range slices.Backward(folders[:len(folders)-1]) {
		a.leave(folder)
	}
	if len(a.files) != 0 || a.macros != nil {
		t.Errorf("%d files after all folders", len(a.files))
	}
	var macros strings.Builder
	for i := range maxMacros {
		fmt.Fprintf(&macros, "[attr]m%d text\n", i)
	}
	if err := a.enter("", []byte(macros.String())); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "macros") {
		t.Errorf("many macros: %v", err)
	}
	// A setting costs more than a step of a pattern.
	b := &budget{rules: 1000}
	a = attributes{}
	if err := a.enter("", []byte("* "+strings.Repeat("text ", 200))); err != nil {
		t.Fatal(err)
	}
	if _, err := a.of("f", b); !errors.Is(err, ErrRefused) {
		t.Errorf("200 settings: %v", err)
	}
}

// TestLimits: what is large is refused, and names what is large.
func TestLimits(t *testing.T) {
	s := newServer(t)
	files := tree{}
	for i := range 50 {
		files[fmt.Sprintf("f%d", i)] = fmt.Sprint(strings.Repeat("x", 1000), i)
	}
	s.repository("r", files)
	for want, change := range map[string]func(*limits){
		"more than 20 files":   func(l *limits) { l.entries = 20 },
		"files have more than": func(l *limits) { l.bytes = 40_000 },
		"more than 0 MiB":      func(l *limits) { l.pack = 500 },
		"more than 10":         func(l *limits) { l.objects = 10 },
		"too many bytes":       func(l *limits) { l.refs = 100 },
		"too much work":        func(l *limits) { l.constWork, l.packWork = 1_000_000, 1 },
	} {
		l := standard
		change(&l)
		if _, _, err := s.fetchWith(s.options, l, Request{URL: s.url + "/r"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) || hint.Of(err) == "" {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s.repository("patterns", tree{".gitattributes": strings.Repeat("*a*a*a[b] eol=crlf\n", 100), strings.Repeat("a", 200): "x"})
	l := standard
	l.rules = 10_000
	if _, _, err := s.fetchWith(s.options, l, Request{URL: s.url + "/patterns"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "patterns") {
		t.Errorf("expensive patterns: %v", err)
	}
}
