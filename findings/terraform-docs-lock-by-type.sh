#!/bin/sh
# Guess: terraform-docs 0.24.0 prints, for each provider of a module, the version that the lock file has for
# the provider's source address.
# Seen: it looks up the provider's local name among the types of the locked providers, whatever their
# namespace and host, and the last of several wins. With hashicorp/google at 5.9.0 and zeta/google at 1.4.0,
# "google" (hashicorp/google, "~> 5.0") gets 1.4.0. "metrics", the local name of zeta/google, gets no
# locked version, but its constraint.
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
terraform {
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 5.0"
    }
    metrics = {
      source  = "zeta/google"
      version = "~> 1.0"
    }
  }
}
resource "google_storage_bucket" "bucket" {}
resource "google_metric" "metric" {
  provider = metrics
}
TF
lock() { # ADDRESS VERSION CONSTRAINT
	cat >>module/.terraform.lock.hcl <<HCL
provider "registry.terraform.io/$1" {
  version     = "$2"
  constraints = "$3"
  hashes = [
    "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
  ]
}

HCL
}
lock hashicorp/google 5.9.0 "~> 5.0"
lock zeta/google 1.4.0 "~> 1.0"
./terraform-docs markdown table --show providers --anchor=false module | tee seen
grep -q '^| google | 1\.4\.0 |$' seen
grep -q '^| metrics | ~> 1\.0 |$' seen
