package gitfiles

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// TestClients compares the files with those that real clients get: for a tag, a branch, a commit, a depth, and submodules.
func TestClients(t *testing.T) {
	testkit.LeaveToAll(t)
	for _, program := range []string{"tofu", "terraform"} {
		t.Run(program, func(t *testing.T) {
			client := clients.Program(t, program)
			s := newServer(t)
			leaf := s.repository("leaf", tree{"leaf.tf": "# a\n"})
			files := func(text string) tree {
				return tree{
					"main.tf": text, "run.sh": "#!/bin/sh\n", "link.tf": "-> main.tf", "win.ps1": "a\nb\n", "id": "$Id$\n", "utf16.txt": "ä\n", "sub/leaf": "commit " + s.must(leaf, "", "rev-parse", "main"), "docs/x.md": "x",
					".gitattributes": "*.ps1 text eol=crlf\nid ident\nutf16.txt text working-tree-encoding=UTF-16LE-BOM eol=CRLF\ndocs export-ignore\n*.md export-subst\n",
					".gitmodules":    "[submodule \"leaf\"]\n\tpath = sub/leaf\n\turl = ../leaf\n",
				}
			}
			dir := s.repository("r", files("# 1\n"), files("# 2\n"), files("# 3\n"))
			ids := strings.Fields(s.must(dir, "", "rev-list", "main"))
			s.must(dir, "", "config", "uploadpack.allowAnySHA1InWant", "true")
			s.must(dir, "", "tag", "-a", "-m", "x", "v1.0.0", ids[1])
			s.must(dir, "", "branch", "dev", ids[2])
			requests := []Request{{}, {Ref: "v1.0.0"}, {Ref: "dev"}, {Ref: ids[2]}, {Ref: ids[1][:10]}, {Ref: "v1.0.0", Depth: 1}, {Ref: "dev", Depth: 2}, {Depth: 1}}
			ws := clients.For(t)
			var config strings.Builder
			for i := range requests {
				r := &requests[i]
				r.URL = s.url + "/r"
				query := ""
				if r.Ref != "" {
					query = "?ref=" + r.Ref
				}
				if r.Depth > 0 {
					query += fmt.Sprintf("%cdepth=%d", "?&"[min(len(query), 1)], r.Depth)
				}
				fmt.Fprintf(&config, "module \"m%d\" {\n  source = \"git::%s%s\"\n}\n", i, r.URL, query)
			}
			if err := ws.WriteConfig(config.String()); err != nil {
				t.Fatal(err)
			}
			ws.Env["GIT_SSL_CAINFO"], ws.Env["GIT_CONFIG_NOSYSTEM"] = s.ca, "1"
			ws.MustRun(t, client, "get")
			for i, r := range requests {
				got, _, err := s.fetchWith(s.options, standard, r)
				if err != nil {
					t.Fatalf("%v: %v", r, err)
				}
				differences(t, fmt.Sprint(r), got, read(t, filepath.Join(ws.Dir, ".terraform/modules", fmt.Sprintf("m%d", i))))
			}
		})
	}
}
