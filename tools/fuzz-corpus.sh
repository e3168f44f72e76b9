#!/usr/bin/env bash
#
# Takes a handful of what the fuzz tests found into the packages' testdata/fuzz, so
# that every go test runs them: each input reached code that no other one had reached
# before it. What is there stays. Of each target it takes up to 6 inputs of up to
# 3,000 bytes, small and large ones alike, from the build cache, where `make fuzz`
# leaves them, and leaves out what does not pass.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

most=6
cache=$(go env GOCACHE)/fuzz/$(go list -m)

grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file _ func; do
	dir=$(dirname "$file")
	dir=${dir#./}
	target=${func#func }
	to=$dir/testdata/fuzz/$target
	mkdir -p "$to"
	have=$(find "$to" -type f | wc -l)
	[ "$have" -lt "$most" ] && [ -d "$cache/$dir/$target" ] || continue
	# By size, and then evenly out of all of them.
	find "$cache/$dir/$target" -type f -size -3000c -printf '%s %f\n' | sort -n |
		awk -v want=$((most - have)) '{ name[NR] = $2 } END { n = NR < want ? NR : want; for (i = 1; i <= n; i++) print name[int(i * NR / n)] }' |
		while read -r name; do cp -n "$cache/$dir/$target/$name" "$to/$name"; done
	if ! out=$(go test -run "^$target\$" "./$dir" </dev/null 2>&1); then
		for name in $(grep -oE "FAIL: $target/[0-9a-f]{16}" <<<"$out" | cut -d/ -f2); do rm -f "$to/$name"; done
		go test -run "^$target\$" "./$dir" </dev/null >/dev/null || { echo "$dir: $target fails: look at $to"; exit 1; }
	fi
	echo "$dir $target: $(find "$to" -type f | wc -l)"
done
find . -path '*/testdata/fuzz*' -type d -empty -delete
