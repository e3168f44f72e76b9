#!/bin/sh
# Guess: if a version constraint changes, and the locked version still satisfies it, the next init
# writes the new constraint into the lock file, at the latest if it installs the provider again.
# Seen: Terraform 1.5.7 leaves the old constraint in the lock file as long as the version and the
# hashes of the provider stay the same: after init, after init without installed providers, after
# init -upgrade, and if the configuration has no constraint any more. -lockfile=readonly does not
# complain. So a lock file says what was required when an entry was last written, and not what is
# required. OpenTofu 1.12.6 and Terraform 1.11.4 do the same.
# The script fails if that changes. It needs Go and the Go module proxy, and takes minutes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir/bin go install github.com/hashicorp/terraform@v1.5.7

package=$dir/mirror/registry.example/acme/null/1.2.0/$(go env GOOS)_$(go env GOARCH)
mkdir -p "$package" "$dir/work"
echo '#!/bin/sh' >"$package/terraform-provider-null_v1.2.0"
chmod +x "$package/terraform-provider-null_v1.2.0"
cat >"$dir/cli.tfrc" <<HCL
provider_installation {
  filesystem_mirror {
    path = "$dir/mirror"
  }
}
HCL
export TF_CLI_CONFIG_FILE="$dir/cli.tfrc" CHECKPOINT_DISABLE=1
cd "$dir/work"

require() { # [CONSTRAINT]
	constraint=
	[ $# -eq 0 ] || constraint="version = \"$1\""
	cat >main.tf <<HCL
terraform {
  required_providers {
    null = {
      source = "registry.example/acme/null"
      $constraint
    }
  }
}
HCL
}

status=0
init() { # WHAT [FLAG...]: prints the constraint in the lock file afterwards
	what=$1
	shift
	"$dir/bin/terraform" init -no-color "$@" >out || cat out
	seen=$(sed -n 's/^ *constraints *= *//p' .terraform.lock.hcl)
	printf '%s: %s\n' "$what" "$seen"
	[ "$seen" = '"1.2.0"' ] || status=1
}

require 1.2.0
init "first init, requires 1.2.0"
require '>= 1.0.0'
init "requires >= 1.0.0"
rm -r .terraform
init "requires >= 1.0.0, installs again"
init "requires >= 1.0.0, -upgrade" -upgrade
init "requires >= 1.0.0, -lockfile=readonly" -lockfile=readonly
require
init "requires no version"
exit $status
