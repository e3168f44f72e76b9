#!/usr/bin/env bash
#
# Prints the folder for the temporary files of tests. This is TMPDIR if TMPDIR is
# set. Otherwise, it is a folder in memory, if there is enough memory and programs
# can run in this folder. The last choice is /tmp. The registries of tests sync
# their files to disk. On a real disk, this takes several times as long as
# everything else in the tests.

set -euo pipefail

if [ -n "${TMPDIR:-}" ]; then
	echo "$TMPDIR"
	exit
fi
if [ "$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')" -ge 8000 ] 2>/dev/null && dir=$(mktemp -d /dev/shm/tmp.XXXXXX 2>/dev/null); then
	trap 'rm -rf "$dir"' EXIT
	if cp "$(type -P true)" "$dir/true" && "$dir/true" 2>/dev/null; then
		echo /dev/shm
		exit
	fi
fi
echo /tmp
