#!/usr/bin/env bash
#
# Prints the tools that the tests of "make test" have, separated by commas. They may use a
# client only if it is already there: to build OpenTofu takes minutes.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=ocibridge,registry,provider-null
for client in tofu terraform; do
	if [ -x ".tools/bin/$client" ]; then tools+=,$client; fi
done
echo "$tools"
