// Package docs holds the documentation in this folder, so that the program can print
// the text that was written for its own version. A topic is a page for users; pages
// for developers are not topics.
package docs

import (
	"embed"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.md *.hcl
var files embed.FS

const pageSuffix = ".md"

// sources is the URL of the folder that contains the project's sources.
const sources = "https://github.com/ocibridge/ocibridge/blob/main/"

// forDevelopers are the pages that are not topics.
var forDevelopers = []string{"coverage", "fuzzing"}

// Topic is a page of the documentation.
type Topic struct {
	Name  string // the file's name, without .md
	Title string
	file  string
}

// Topics returns all topics, sorted by name.
func Topics() []Topic {
	var out []Topic
	entries, _ := files.ReadDir(".") // reading an embedded folder cannot fail
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), pageSuffix)
		if slices.Contains(forDevelopers, name) {
			continue
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(content(e.Name()), "# "), "\n")
		out = append(out, Topic{Name: name, Title: title, file: e.Name()})
	}
	return out
}

// Find returns the topic with the given name.
func Find(name string) (Topic, bool) {
	topics := Topics()
	i := slices.IndexFunc(topics, func(t Topic) bool { return t.Name == name })
	if i < 0 {
		return Topic{}, false
	}
	return topics[i], true
}

// Text returns the page as Markdown, or the example of a configuration file as HCL. It
// replaces links to other topics with the commands that print them, and links to files of
// the sources with URLs.
func (t Topic) Text() string {
	return link.ReplaceAllStringFunc(content(t.file), func(s string) string {
		m := link.FindStringSubmatch(s)
		label, file, anchor := m[1], m[2], m[3]
		to, ok := Find(strings.TrimSuffix(file, pageSuffix))
		switch {
		case file == "" && anchor != "":
			return label // a section of this page
		case strings.HasPrefix(file, "../"):
			return label + " (" + sources + strings.TrimPrefix(file, "../") + ")"
		case !ok:
			return s
		case label == file:
			return "`ocibridge help " + to.Name + "`"
		}
		return label + " (`ocibridge help " + to.Name + "`)"
	})
}

// link matches [label](file#anchor).
var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)#:]*)(#[^)]*)?\)`)

// content returns a page, beginning with its title: a comment for developers might
// precede the title.
func content(file string) string {
	text, _ := fs.ReadFile(files, file)
	if comment, page, ok := strings.Cut(string(text), "-->\n\n"); ok && strings.HasPrefix(comment, "<!--") {
		return page
	}
	return string(text)
}
