package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManPages shows that each command that help lists has a manual page with its flags, and that no text is taken for a
// request to the formatter.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	root := newRootCommand()
	if err := writeManPages(root, dir); err != nil {
		t.Fatal(err)
	}
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && !strings.Contains(page("ocibridge"), `\fBocibridge\-`+c.Name()+`\fR(1)`) {
			t.Errorf("the page of ocibridge does not name %s", c.Name())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ocibridge-man.1")); err == nil {
		t.Error("the hidden command has a page")
	}
	push := page("ocibridge-push")
	for _, part := range []string{
		".TH \"OCIBRIDGE-PUSH\" 1", "ocibridge\\-push \\- Verify", ".SH SYNOPSIS\nocibridge push ", ".SH DESCRIPTION\npush takes",
		".SH EXAMPLES\n.nf\n", `\-\-allow\-unsigned`, ".SH SEE ALSO\n\\fBocibridge\\fR(1)\n",
	} {
		if !strings.Contains(push, part) {
			t.Errorf("%q is not in\n%s", part, push)
		}
	}
	if client := page("ocibridge-config-client"); !strings.Contains(client, ".nf\n  terraform     the gateway as network mirror") {
		t.Errorf("the table is not kept in\n%s", client)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.1"))
	for _, file := range files {
		for line := range strings.SplitSeq(page(strings.TrimSuffix(filepath.Base(file), ".1")), "\n") {
			if request := regexp.MustCompile(`^[.'](\S*)`).FindString(line); request != "" && !strings.Contains(" .TH .SH .sp .nf .fi ", " "+request+" ") {
				t.Errorf("%s: the request %q", file, line)
			}
		}
	}
	if got := manText(".x\n'y\n\\z - --a"); got != "\\&.x\n\\&'y\n\\ez \\- \\-\\-a" {
		t.Errorf("%q", got)
	}
}
