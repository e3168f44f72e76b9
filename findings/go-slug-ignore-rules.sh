#!/bin/sh
# Guess: the same .terraformignore keeps the same files with go-slug 0.11.1 and 0.16.8, because a
# fix release of the library that Terraform and OpenTofu pack folders with changes no rule.
# Seen: with the rule "docs/*", 0.11.1 packs docs/sub/b.md, and 0.16.8 does not: since then a
# folder that a rule matches is skipped whole. With 0.11.1, a state file in the folder is left
# out without a rule; 0.16.8 packs it.
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
mkdir -p "$dir/module/docs/sub"
cd "$dir/module"
echo 'docs/*' >.terraformignore
touch main.tf docs/a.md docs/sub/b.md terraform.tfstate

files() { # VERSION: the files that this version packs
	mkdir "$dir/$1"
	cd "$dir/$1"
	cat >main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/hashicorp/go-slug"
)

func main() {
	packer, err := slug.NewPacker(slug.ApplyTerraformIgnore())
	if err != nil {
		panic(err)
	}
	meta, err := packer.Pack(os.Args[1], io.Discard)
	if err != nil {
		panic(err)
	}
	var files []string
	for _, name := range meta.Files {
		if !strings.HasSuffix(name, "/") {
			files = append(files, name)
		}
	}
	sort.Strings(files)
	fmt.Println(strings.Join(files, " "))
}
GO
	export GOFLAGS=-mod=mod GOWORK=off
	go mod init finding 2>/dev/null
	go get "github.com/hashicorp/go-slug@$1" 2>/dev/null
	go run . "$dir/module"
}

old=$(files v0.11.1)
new=$(files v0.16.8)
echo "0.11.1: $old"
echo "0.16.8: $new"
[ "$old" = ".terraformignore docs/sub/b.md main.tf" ]
[ "$new" = ".terraformignore main.tf terraform.tfstate" ]
