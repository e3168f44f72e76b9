#!/bin/sh
# Guess: terraform-config-inspect (75d64de68c31, September 2026) and terraform-docs 0.24.0 print the default of
# a variable that is a number exactly, as Terraform and OpenTofu do, whose numbers have 512 bits.
# Seen: both round it to a float64, also inside objects. 9007199254740993 becomes 9007199254740992, and
# 123456789012345678901234567890 becomes 1.2345678901234568e+29. "terraform-docs tfvars hcl" prints a file of
# variables with these values, so a configuration that uses the file no longer has the module's defaults.
# "terraform console" (1.5.7) and "tofu console" (1.12.6) print both numbers as they are written.
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
GOBIN="$dir" go install github.com/hashicorp/terraform-config-inspect@v0.0.0-20260904064934-75d64de68c31
cat >go.mod <<'MOD'
module example.test/docs

go 1.26

require github.com/terraform-docs/terraform-docs v0.24.0
MOD
GOFLAGS=-mod=mod GOWORK=off go build -o terraform-docs github.com/terraform-docs/terraform-docs
mkdir module
cat >module/main.tf <<'TF'
variable "id" {
  default = 9007199254740993
}
variable "key" {
  default = 123456789012345678901234567890
}
variable "set" {
  default = { id = 9007199254740993 }
}
TF
./terraform-config-inspect --json module >inspect
grep -E '"default"|"id": [0-9]' inspect
./terraform-docs tfvars hcl module | tee docs
[ "$(grep -c '9007199254740992' inspect)" = 2 ]
[ "$(grep -c '1\.2345678901234568e+29' inspect)" = 1 ]
[ "$(grep -c '9007199254740992' docs)" = 2 ]
[ "$(grep -c '1\.2345678901234568e+29' docs)" = 1 ]
