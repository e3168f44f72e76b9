package docs

import (
	"os"
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
}

// TestLinksOfTopics checks that topics link only to other topics, and to no file that
// only the sources contain. Every link must name an existing file.
func TestLinksOfTopics(t *testing.T) {
	links := 0
	for _, topic := range Topics() {
		for _, m := range anyLink.FindAllStringSubmatch(content(topic.file), -1) {
			links++
			if _, err := os.Stat(filepath.FromSlash(m[1])); m[1] != "" && err != nil {
				t.Errorf("%s: the link %s: %v", topic.file, m[0], err)
			}
		}
		for _, m := range anyLink.FindAllStringSubmatch(topic.Text(), -1) {
			t.Errorf("%s: the text has the link %s", topic.Name, m[0])
		}
	}
	if links < 20 {
		t.Errorf("%d links", links)
	}
	serving, _ := Find("serving")
	if want := "origins, see `ocibridge help pull-through`.\n"; !strings.Contains(serving.Text(), want) {
		t.Errorf("the topic serving lacks %q", want)
	}
	for name, want := range map[string]string{
		"threat-model": "SECURITY.md (https://github.com/ocibridge/ocibridge/blob/main/SECURITY.md)",
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

var anyLink = regexp.MustCompile(`\]\(([^)#:]*)(?:#[^)]*)?\)`)
