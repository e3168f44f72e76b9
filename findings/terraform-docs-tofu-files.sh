#!/bin/sh
# Guess: terraform-docs 0.24.0, which reads .tofu files, reads a module as OpenTofu does.
# Seen: it differs in three ways, and says nothing about the first two. It does not read .tofu.json files, so
# their inputs are missing. It reads main.tf although main.tofu is in the same folder, which OpenTofu does not,
# so it lists inputs that the module does not have for OpenTofu. And "provider = null.by[each.key]",
# the provider for_each of OpenTofu 1.9, ends in "Invalid provider reference" with no output at all.
# For OpenTofu 1.12.6 this module has the inputs "regions" and "zone", and no "region".
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.test/docs

go 1.26

require github.com/terraform-docs/terraform-docs v0.24.0
MOD
GOFLAGS=-mod=mod GOWORK=off go build -o terraform-docs github.com/terraform-docs/terraform-docs
mkdir module
cat >module/main.tf <<'TF'
variable "region" {
  type = string
}
TF
cat >module/main.tofu <<'TF'
variable "regions" {
  type = set(string)
}
TF
cat >module/zone.tofu.json <<'TF'
{"variable": {"zone": {"type": "string"}}}
TF
inputs=$(./terraform-docs tfvars hcl module)
echo "$inputs"
[ "$(echo "$inputs" | sed 's/ *=.*//' | tr '\n' ' ')" = "region regions " ]

cat >module/main.tofu <<'TF'
variable "regions" {
  type = set(string)
}
terraform {
  required_providers {
    null = {
      source = "hashicorp/null"
    }
  }
}
provider "null" {
  alias    = "by"
  for_each = toset(["north", "south"])
}
resource "null_resource" "each" {
  for_each = var.regions
  provider = null.by[each.key]
}
TF
status=0
./terraform-docs tfvars hcl module >out 2>log || status=$?
echo "status $status, $(wc -c <out) bytes: $(cat log)"
[ $status = 1 ]
[ ! -s out ]
grep -q 'Invalid provider reference' log
