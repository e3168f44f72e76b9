package doccheck

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/docs"
)

const module = "github.com/ocibridge/ocibridge"

// TestMessagesNameNoFilesOfTheSources shows that the program's texts do not refer to pages in docs, because
// users of the program do not have them. The texts refer to help topics instead.
func TestMessagesNameNoFilesOfTheSources(t *testing.T) {
	texts := 0
	for _, file := range programFiles(t) {
		for _, text := range textsIn(t, file) {
			texts++
			if found := fileOfSources.FindString(text); found != "" {
				t.Errorf("%s: the text %.80q names %s: name a topic of ocibridge help", file, text, found)
			}
		}
	}
	if texts < 5_000 {
		t.Errorf("%d texts were checked", texts)
	}
}

// TestNamedTopicsExist shows that every topic in an "ocibridge help TOPIC" exists. It checks the program's
// texts, the comments that become documentation, and the pages.
func TestNamedTopicsExist(t *testing.T) {
	files := programFiles(t)
	for _, pattern := range []string{"docs/*.md", "docs/*/*.*", "README.md", "CONTRIBUTING.md", "internal/app/config/reference/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		files = append(files, pages...)
	}
	named := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range topicsIn(string(data)) {
			named++
			if _, ok := docs.Find(topic); !ok {
				t.Errorf("%s names the topic %q, which does not exist", file, topic)
			}
		}
	}
	if named < 5 {
		t.Errorf("%d topics are named", named)
	}
}

// TestTopicsInTexts shows which topics and file names the tests in this file find in a text.
func TestTopicsInTexts(t *testing.T) {
	for text, want := range map[string]string{
		`"x: ocibridge help syncing shows how"`: "syncing", "`ocibridge help lock-files` has": "lock-files", "ocibridge help\nconfiguration lists": "configuration",
		"// `ocibridge help ocibridge.hcl` is": "ocibridge.hcl", "ocibridge help trust.": "trust", "ocibridge help lists the topics": "", "ocibridge help TOPIC": "",
		"`ocibridge help` lists": "", "  ocibridge help push": "",
	} {
		if got := strings.Join(topicsIn(text), " "); got != want {
			t.Errorf("%q: topics %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"docs/sync.md shows how": true, "see README": true, "trust.md says": true, "the docs folder": false, "ocibridge help trust": false, "github.com/x/docs/y.md": true, ".mdx": false,
	} {
		if got := fileOfSources.MatchString(text); got != want {
			t.Errorf("%q: names a file: %t, want %t", text, got, want)
		}
	}
}

// fileOfSources matches the name of a documentation file in the source tree.
var fileOfSources = regexp.MustCompile(`\bdocs/|\bREADME\b|\bCONTRIBUTING\b|\bCHANGELOG\b|[A-Za-z0-9_-]\.md\b`)

// helpTopic matches the word after "ocibridge help".
var helpTopic = regexp.MustCompile(`ocibridge\s+help\s+(?://\s*)?([a-z]+(?:[.-][a-z]+)*)`)

// topicsIn returns the topics in a text. It omits "push", because "ocibridge help push" names a command. It
// omits "lists", because that is a verb in a sentence such as "ocibridge help lists ...".
func topicsIn(text string) (topics []string) {
	for _, m := range helpTopic.FindAllStringSubmatch(text, -1) {
		if m[1] != "lists" && m[1] != "push" {
			topics = append(topics, m[1])
		}
	}
	return topics
}

// programFiles returns the files from which the program is built: Go files, and the embedded files of the web
// page.
func programFiles(t *testing.T) (files []string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,GoFiles,EmbedFiles", "./cmd/ocibridge")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			ImportPath          string
			GoFiles, EmbedFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		dir, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		if dir == "docs" {
			p.EmbedFiles = nil // the documentation itself
		}
		for _, name := range append(p.GoFiles, p.EmbedFiles...) {
			files = append(files, filepath.Join(root, filepath.FromSlash(dir), name))
		}
	}
}

// textsIn returns the string literals of a Go file. For any other file, it returns the whole content as one
// text.
func textsIn(t *testing.T, name string) (texts []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(name) != ".go" {
		return []string{string(data)}
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				texts = append(texts, s)
			}
		}
		return true
	})
	return texts
}
