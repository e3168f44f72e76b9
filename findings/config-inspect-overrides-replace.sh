#!/bin/sh
# Guess: terraform-config-inspect (75d64de68c31, September 2026) merges override files as Terraform
# and OpenTofu do: an attribute of the override replaces this attribute of the block, and the others stay.
# Seen: the variable block of an override file replaces the whole variable. With only a new default
# in it, type and description are gone. A version constraint of required_providers is added to the
# one that it overrides instead of replacing it. An ephemeral block names no provider.
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
GOBIN="$dir" go install github.com/hashicorp/terraform-config-inspect@v0.0.0-20260904064934-75d64de68c31
mkdir module
cat >module/main.tf <<'TF'
variable "size" {
  type        = string
  description = "The size of the disk."
}
terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}
ephemeral "random_password" "admin" {
  length = 20
}
TF
cat >module/main_override.tf <<'TF'
variable "size" {
  default = "small"
}
terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }
}
TF
./terraform-config-inspect --json module >seen
cat seen
if grep -qE '"type": "string"|The size of the disk|random' seen; then exit 1; fi
grep -q '"default": "small"' seen
tr -d ' \n' <seen | grep -q '"version_constraints":\["\\u003e=5.0","\\u003e=6.0"\]'
