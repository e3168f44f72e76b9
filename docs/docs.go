// Package docs holds the documentation in this folder, so that the program can print
// the text that was written for its own version. A topic is a page for users, on one of
// three shelves: how-tos, reference, explanation. Pages in developers are not topics.
//
// Only ocibridge itself imports this package: it can change at any time.
package docs

import (
	"embed"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed howto/*.md reference/*.md reference/*.hcl explanation/*.md
var files embed.FS

const pageSuffix = ".md"

// sources is the URL of the folder that contains the project's sources.
const sources = "https://github.com/ocibridge/ocibridge/blob/main/"

// Shelf is a folder of topics.
type Shelf struct {
	Name  string // the folder's name
	Title string
}

// Shelves returns all shelves, in the order in which people need them.
func Shelves() []Shelf {
	return []Shelf{{"howto", "How-tos"}, {"reference", "Reference"}, {"explanation", "Explanation"}}
}

// Topic is a page of the documentation.
type Topic struct {
	Name  string // the file's name, without .md
	Title string
	Shelf Shelf
	file  string // the path in this folder
}

// Topics returns all topics, in the order of their shelves, and sorted by name on each shelf.
func Topics() []Topic {
	var out []Topic
	for _, shelf := range Shelves() {
		entries, _ := files.ReadDir(shelf.Name) // reading an embedded folder cannot fail
		for _, e := range entries {
			file := path.Join(shelf.Name, e.Name())
			title, _, _ := strings.Cut(strings.TrimPrefix(content(file), "# "), "\n")
			out = append(out, Topic{Name: strings.TrimSuffix(e.Name(), pageSuffix), Title: title, Shelf: shelf, file: file})
		}
	}
	return out
}

// Find returns the topic with the given name.
func Find(name string) (Topic, bool) {
	return find(func(t Topic) bool { return t.Name == name })
}

func find(match func(Topic) bool) (Topic, bool) {
	topics := Topics()
	i := slices.IndexFunc(topics, match)
	if i < 0 {
		return Topic{}, false
	}
	return topics[i], true
}

// IsMarkdown reports whether the topic is a page, and not the example of a configuration file.
func (t Topic) IsMarkdown() bool { return path.Ext(t.file) == pageSuffix }

// Text returns the page as Markdown, or the example of a configuration file as HCL. It
// replaces links to other topics with the commands that print them, and links to files of
// the sources with URLs.
func (t Topic) Text() string {
	return link.ReplaceAllStringFunc(content(t.file), func(s string) string {
		m := link.FindStringSubmatch(s)
		label, target := m[1], m[2]
		file := path.Join("docs", t.Shelf.Name, target)
		to, ok := find(func(t Topic) bool { return path.Join("docs", t.file) == file })
		switch {
		case target == "":
			return label // a section of this page
		case ok && label == path.Base(target):
			return "`ocibridge help " + to.Name + "`"
		case ok:
			return label + " (`ocibridge help " + to.Name + "`)"
		}
		return label + " (" + sources + file + ")"
	})
}

// link matches [label](file#anchor).
var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)#:]*)(?:#[^)]*)?\)`)

// content returns a page, beginning with its title: a comment for developers might
// precede the title.
func content(file string) string {
	text, _ := fs.ReadFile(files, file)
	if comment, page, ok := strings.Cut(string(text), "-->\n\n"); ok && strings.HasPrefix(comment, "<!--") {
		return page
	}
	return string(text)
}
