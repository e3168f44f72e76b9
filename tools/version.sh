#!/usr/bin/env bash
#
# Prints the version of this checkout, as git describe does: its tag, or the last
# tag with the commits since then. Before the first tag, it prints the version of
# the newest section in CHANGELOG.md with the commit, such as v0.1.0-g0123abcd.
# This is a pre-release of that version. A shallow clone may lack the tags: there,
# it prints the commit.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

described=$(git describe --tags --always --dirty --match 'v[0-9]*')
if [[ $described != v* && $(git rev-parse --is-shallow-repository) == false ]]; then
	newest=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
	described=${newest:+v$newest-g}$described
fi
echo "$described"
