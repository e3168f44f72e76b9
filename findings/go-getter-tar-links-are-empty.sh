#!/bin/sh
# Guess: go-getter, with which Terraform and OpenTofu download modules, unpacks the links in a tar.gz
# as tar does, or refuses them.
# Seen: go-getter 1.8.6 writes an empty file for each link, without an error: a symbolic link becomes
# an empty file of mode 0777, and a hard link an empty file of the linked file's mode. GNU tar stores
# the second of two names of one file as a hard link, so a module that is packed from a folder with
# hard links (as some build tools make them) loses the content of a file: here, of main.tf.
# The script fails if that changes. It needs Go, GNU tar and the Go module proxy, and takes a minute.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.test/unpack

go 1.24

require github.com/hashicorp/go-getter v1.8.6
MOD
cat >main.go <<'GO'
package main

import (
	"log"

	"github.com/hashicorp/go-getter"
)

func main() {
	if err := getter.Decompressors["tar.gz"].Decompress("unpacked", "module.tar.gz", true, 0); err != nil {
		log.Fatal(err)
	}
}
GO
mkdir module
echo 'variable "name" {}' >module/first.tf
ln module/first.tf module/main.tf
ln -s first.tf module/link.tf
tar -C module -czf module.tar.gz first.tf main.tf link.tf
tar -tvzf module.tar.gz
GOFLAGS=-mod=mod go run .
seen=$(cd unpacked && stat -c '%n %a %s' first.tf link.tf main.tf)
echo "$seen"
[ "$seen" = "first.tf 644 19
link.tf 777 0
main.tf 644 0" ]
