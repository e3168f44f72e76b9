package markdown_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/markdown"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestCost shows that texts of other parties cost at most 64 MiB of resident memory and 1 s of CPU time.
func TestCost(t *testing.T) {
	testkit.LeaveToAll(t)
	render := func(src string) cost.Child {
		file := filepath.Join(t.TempDir(), "README.md")
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		return cost.OfChild(t, file)
	}
	small := render("# A\n")
	type row struct {
		src     string
		refused bool
	}
	lines := func(part string) row {
		return row{strings.Repeat(part, min(14_000/max(1, strings.Count(part, "\n")), markdown.MaxBytes/len(part))), false}
	}
	paragraphs := func(part string) row {
		marks := 0
		for _, c := range part {
			if strings.ContainsRune("*_~[]", c) {
				marks++
			}
		}
		one := strings.Repeat(part, 3_900/marks)
		return row{strings.Repeat(one+"\n\n", min(12, markdown.MaxBytes/(len(one)+2))), false}
	}
	fill := func(part string) row { return row{strings.Repeat(part, markdown.MaxBytes/len(part)), false} }
	for about, tt := range map[string]row{
		"a page of a site":  {strings.Repeat("<div onclick=a()><script>a()</script><img src=b.png onerror=a()>\n\n[c](javascript:a()) ![d](https://e.example/f.png)\n\n|g|h|\n|-|-|\n|i|j|\n\n</div>\n\n", 1_400), false},
		"5 MB":              {strings.Repeat("Lorem ipsum dolor sit amet.\n", 180_000), true},
		"lines":             {strings.Repeat("a\n", 30_000), true},
		"text":              fill("Lorem ipsum dolor sit amet, consetetur.\n"),
		"paragraphs":        lines("a\n\n"),
		"short lines":       lines("a\n"),
		"one long line":     fill("a"),
		"emphasis":          paragraphs("*a "),
		"closed emphasis":   paragraphs("*a* "),
		"two kinds":         paragraphs("*a _b "),
		"too many marks":    {strings.Repeat("*a ", 5_000), true},
		"code":              {strings.Repeat("`a` ", 24_000), false},
		"too much code":     {strings.Repeat("`a` ", 26_000), true},
		"open links":        paragraphs("[a]("),
		"links":             paragraphs("[a](b) "),
		"definitions":       {strings.Repeat("[a]: b\n\n[a]\n", 4_000), false},
		"long destinations": {"[a]: https://example.com/" + strings.Repeat("x", 3_000) + "\n\n" + strings.Repeat("[a] ", 1_900), true},
		"images":            paragraphs("![a](b) "),
		"HTML":              fill("<b>a</b>"),
		"open HTML":         fill("<a "),
		"quotes":            lines("> a\n"),
		"quotes in quotes":  {strings.Repeat(strings.Repeat("> ", 10)+"a\n", 3_000), false},
		"too deep":          {strings.Repeat(">", 40), true},
		"items":             lines("- a\n"),
		"items in items":    {strings.Repeat(strings.Repeat("- ", 10)+"a\n", 3_000), false},
		"headings":          lines("# a\n"),
		"underlined":        lines("a\n=\n"),
		"rows":              {"|a|b|\n|-|-|\n" + strings.Repeat("|a|b|\n", 14_000), false},
		"a huge table":      {"|a|b|\n|-|-|\n" + strings.Repeat("|a|b|\n", 60_000), true},
		"columns":           {strings.Repeat("a|", 40_000) + "\n" + strings.Repeat("-|", 40_000) + "\n", true},
		"missing cells":     {"|a\n|" + strings.Repeat("-|", 1_000) + "\n" + strings.Repeat("|\n", 110), true},
		"addresses":         fill("a@b.example "),
		"URLs":              fill("http://a.example "),
		"tasks":             {strings.Repeat("- [ ] a\n", 12_000), false},
		"zero bytes":        fill("\x00"),
	} {
		c := render(tt.src)
		c.CheckDocument(t, about, small)
		if refused := strings.Contains(c.Said, markdown.ErrTooLarge.Error()); refused != tt.refused || !refused && c.Said != "" {
			t.Errorf("%s: error %q, want one: %t", about, c.Said, tt.refused)
		}
	}
}
