package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTopics(t *testing.T) {
	var names []string
	for _, topic := range Topics() {
		names = append(names, topic.Name)
		if topic.Title == "" || strings.HasPrefix(topic.Title, "#") || strings.HasPrefix(topic.Title, "<") || len(topic.Title) > 64 {
			t.Errorf("%s: title %q", topic.Name, topic.Title)
		}
		text := topic.Text()
		if !strings.HasPrefix(text, "# "+topic.Title+"\n") || !strings.HasSuffix(text, "\n") {
			t.Errorf("%s begins %.40q, and does not end in a line", topic.Name, text)
		}
		if found, ok := Find(topic.Name); !ok || found != topic {
			t.Errorf("Find(%s) = %v, %t", topic.Name, found, ok)
		}
	}
	if !slices.Contains(names, "trust") || !slices.Contains(names, "ocibridge.hcl") || slices.Contains(names, "fuzzing") || len(names) < 15 {
		t.Errorf("topics %q", names)
	}
	if _, ok := Find("fuzzing"); ok {
		t.Error("a page for developers is a topic")
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			t.Errorf("two pages have the name %s, on different shelves", name)
		}
	}
}

// TestLinksOfTopics checks that the text of a topic has no links: they are commands or URLs.
func TestLinksOfTopics(t *testing.T) {
	for _, topic := range Topics() {
		for _, m := range anyLink.FindAllStringSubmatch(topic.Text(), -1) {
			t.Errorf("%s: the text has the link %s", topic.Name, m[0])
		}
	}
	serving, _ := Find("serving")
	if want := "origins, see `ocibridge help pull-through`.\n"; !strings.Contains(serving.Text(), want) {
		t.Errorf("the topic serving lacks %q", want)
	}
	for name, want := range map[string]string{
		"threat-model": "SECURITY.md (https://github.com/ocibridge/ocibridge/blob/main/SECURITY.md)",
		"output":       "output.schema.json (https://github.com/ocibridge/ocibridge/blob/main/docs/reference/output.schema.json)",
		"deployment":   "values.yaml (https://github.com/ocibridge/ocibridge/blob/main/deploy/helm/ocibridge/values.yaml)",
		"operations":   "ocibridge.json (https://github.com/ocibridge/ocibridge/blob/main/deploy/grafana/ocibridge.json)",
	} {
		if topic, _ := Find(name); !strings.Contains(topic.Text(), want) {
			t.Errorf("the topic %s lacks %q", name, want)
		}
	}
	pull, _ := Find("pull-through")
	if want := "use sync (`ocibridge help syncing`) instead"; !strings.Contains(strings.Join(strings.Fields(pull.Text()), " "), want) {
		t.Errorf("the topic pull-through lacks %q", want)
	}
}

// TestLinksOfPages checks that every link in the documentation names an existing file, and an
// existing section of a page.
func TestLinksOfPages(t *testing.T) {
	links := 0
	for _, page := range pages(t, "*.md", "*/*.md", "../*.md") {
		for _, m := range anyLink.FindAllStringSubmatch(read(t, page), -1) {
			links++
			file, anchor := page, m[2]
			if m[1] != "" {
				file = path.Join(path.Dir(page), m[1])
			}
			if _, err := os.Stat(filepath.FromSlash(file)); err != nil {
				t.Errorf("%s: the link %s: %v", page, m[0], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: the link %s: %s has no such section", page, m[0], file)
			}
		}
	}
	if links < 120 {
		t.Errorf("%d links", links)
	}
}

// TestIndex checks that the index links to every page and example, and README.md to the index.
func TestIndex(t *testing.T) {
	index := read(t, "README.md")
	for _, page := range pages(t, "*/*.md", "*/*.hcl", "*/*.json") {
		if !strings.Contains(index, "]("+page+")") {
			t.Errorf("README.md does not link to %s", page)
		}
	}
	if !strings.Contains(read(t, "../README.md"), "](docs/README.md)") {
		t.Error("the project's README.md does not link to the index")
	}
}

// pages returns the files that the patterns match.
func pages(t *testing.T, patterns ...string) (out []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range found {
			out = append(out, filepath.ToSlash(name))
		}
	}
	return out
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// anchors returns the anchors of a page's headings, as GitHub forms them.
func anchors(page string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		out = append(out, "#"+strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return out
}

var (
	anyLink     = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	punctuation = regexp.MustCompile(`[^\pL\pN_ -]`)
)
