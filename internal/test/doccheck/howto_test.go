package doccheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/docs"
	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
)

// TestEveryHowToRuns shows that a test runs the blocks of every page in docs/howto, or that a table of package
// howto names the page.
func TestEveryHowToRuns(t *testing.T) {
	run := pagesRun(t)
	pages := map[string]string{}
	for _, topic := range docs.Topics() {
		if topic.Shelf.Name != "howto" {
			continue
		}
		other, runBy := howto.RunBy[topic.Name]
		if run[topic.Name] == runBy {
			t.Errorf("%s: run by a howto.Run: %t, in RunBy: %t; it must be exactly one of these", topic.Name, run[topic.Name], runBy)
		}
		for _, test := range other.Tests {
			if dir, name, ok := strings.Cut(test, "."); !ok || !parsePackage(filepath.Join(root, dir)).has(name, "") {
				t.Errorf("%s: there is no test %s", topic.Name, test)
			}
		}
		pages[topic.Name] = topic.Text()
	}
	for _, problem := range howto.CheckBlocks(pages, howto.Exempt) {
		t.Error(problem)
	}
	var listed []string
	for page := range howto.RunBy {
		listed = append(listed, page)
	}
	for page := range run {
		listed = append(listed, page)
	}
	for _, page := range listed {
		if topic, ok := docs.Find(page); !ok || topic.Shelf.Name != "howto" {
			t.Errorf("there is no how-to %s", page)
		}
	}
	if len(run) == 0 {
		t.Error("no page is run")
	}
}

// pagesRun returns the pages that tests run with a howto.Run.
func pagesRun(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && name != root && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(name)
		for _, m := range howToRun.FindAllStringSubmatch(string(src), -1) {
			out[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// howToRun matches a howto.Run whose first field is Page.
var howToRun = regexp.MustCompile(`howto\.Run\{\s*Page:\s*"([^"]+)"`)
