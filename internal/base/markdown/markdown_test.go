package markdown_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/ocibridge/ocibridge/internal/base/markdown"
)

var options = markdown.Options{Prefix: "readme-", Level: 3, Link: func(to string) string {
	if to == "modules/a" {
		return "?part=modules/a"
	}
	return ""
}}

// TestRender shows what becomes of Markdown and of raw HTML.
func TestRender(t *testing.T) {
	const rel = ` rel="nofollow noreferrer"`
	for _, tt := range []struct{ about, src, want string }{
		{"text", "a *b* **c** `d` ~~e~~", "<p>a <em>b</em> <strong>c</strong> <code>d</code> <del>e</del></p>"},
		{"headings", "# A\n\n### B\n\n## C\n\n# A", `<h3 id="readme-a">A</h3><h4 id="readme-b">B</h4><h4 id="readme-c">C</h4><h3 id="readme-a-1">A</h3>`},
		{"levels end at 6", "# A\n## B\n### C\n#### D\n##### E", `<h3 id="readme-a">A</h3><h4 id="readme-b">B</h4><h5 id="readme-c">C</h5><h6 id="readme-d">D</h6><h6 id="readme-e">E</h6>`},
		{"a table", "|a|b|\n|-|:-:|\n|c|d|", `<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead>` + `<tr><th>a</th><th align="center">b</th></tr></thead><tbody><tr><td>c</td><td align="center">d</td></tr></tbody></table></div>`},
		{"tasks", "- [ ] a\n- [x] b", "<ul><li>☐ a</li><li>☑ b</li></ul>"},
		{"code", "```hcl\na = \"<b>\"\n```", "<pre><code>a = &#34;&lt;b&gt;&#34;</code></pre>"},
		{"links", "[a](https://example.com/?x=1) <b@example.com> [c](#Inputs) [d](modules/a) [e](../e) [f](//example.com) [g](modules/b)",
			`<p><a href="https://example.com/?x=1"` + rel + `>a</a> <a href="mailto:b@example.com"` + rel + `>b@example.com</a> <a href="#readme-inputs"` + rel + `>c</a> <a href="?part=modules/a"` + rel + `>d</a> e f g</p>`},
		{"links that run", "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](vbscript:x) [d](data:text/html,x) [e](file:///etc/passwd) [f](java&#10;script:x)", "<p>a b c d e f</p>"},
		{"images", "![a](https://example.com/a.png) [![b](b.svg)](https://example.com) <img src=x onerror=alert(1)>", `<p>a <a href="https://example.com"` + rel + `>b</a> </p>`},
		{"raw HTML", "<details><summary>a</summary>\n\nb<br>c<kbd>d</kbd>\n\n</details>", "<details><summary>a</summary><p>b<br>c<kbd>d</kbd></p></details>"},
		{"scripts", "a<script>alert(1)</script>b\n\n<style>p{}</style>\n\n<iframe src=x></iframe><object data=x></object><form action=/x><input name=a></form>", "<p>ab</p>"},
		{"attributes", "<p id=main class=top style=color:red onclick=alert(1)>a</p>\n\n<h4 id=main>b</h4>\n\n<h4 id=readme-b>c</h4>\n\n<h1>d</h1>", `<p>a</p><h4>b</h4><h4 id="readme-b">c</h4>d`},
		{"raw links", `<a href="/-/refresh">a</a> <a href="javascript:x">b</a> <a href=" javascript:x">c</a> <a href="?q=x" target=_top>d</a> <a name="x">e</a> <a href="https://u:p@example.com">f</a>`,
			`<p>a b c <a href="?q=x"` + rel + `>d</a> e f</p>`},
		{"comments", "a\n<!-- BEGIN_TF_DOCS -->\nb", "<p>a</p><p>b</p>"},
		{"no UTF-8", "a\xffb", "<p>a\ufffdb</p>"},
		{"nothing", "", ""},
	} {
		got, err := markdown.Render([]byte(tt.src), options)
		if text := strings.ReplaceAll(string(got), "\n", ""); err != nil || text != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.about, err, text, tt.want)
		}
	}
}

// FuzzRender checks that the HTML has only the elements, attributes and URLs that the package documents.
func FuzzRender(f *testing.F) {
	f.Add("# a\n\n<a href=\"java\nscript:x\" onclick=x>b</a> [c](<javascript:x>)")
	f.Add("|a|\n|-|\n|<script>|\n\n- [ ] x\n> ```\n<style>")
	f.Add("[a]: javascript:x\n[a] ![a] <http://x> https://example.com \"<b title='\">")
	elements := regexp.MustCompile(`^(p|br|hr|h[3-6]|ul|ol|li|blockquote|pre|code|em|strong|b|i|del|s|sub|sup|kbd|dl|dt|dd|table|thead|tbody|tr|th|td|details|summary|a|div)$`)
	attributes := regexp.MustCompile(`^(class=scroll|tabindex=0|role=group|aria-label=Table|id=readme-[a-z0-9_-]*|start=[0-9]+|align=(left|center|right)|rel=nofollow noreferrer|href=(https?://[^/]|mailto:|#readme-|\?).*)$`)
	f.Fuzz(func(t *testing.T, src string) {
		out, err := markdown.Render([]byte(src), options)
		if err != nil {
			if !errors.Is(err, markdown.ErrTooLarge) {
				t.Errorf("%q: %v", src, err)
			}
			return
		}
		z := html.NewTokenizer(strings.NewReader(string(out)))
		for z.Next() != html.ErrorToken {
			token := z.Token()
			switch token.Type {
			case html.CommentToken, html.DoctypeToken:
				t.Errorf("%q: %s", src, out)
			case html.StartTagToken, html.SelfClosingTagToken:
				if !elements.MatchString(token.Data) {
					t.Errorf("%q: the element %s: %s", src, token.Data, out)
				}
				for _, a := range token.Attr {
					if !attributes.MatchString(strings.ReplaceAll(a.Key+"="+a.Val, "\n", " ")) {
						t.Errorf("%q: %s=%q: %s", src, a.Key, a.Val, out)
					}
				}
			}
		}
	})
}
