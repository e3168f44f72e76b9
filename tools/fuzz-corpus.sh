#!/usr/bin/env bash
#
# Copies some inputs that the fuzz tests have found to the packages' testdata/fuzz,
# so that every go test runs these inputs. Each input reached code that no earlier
# input had reached. The script copies the inputs from the build cache, where `make
# fuzz` has stored them. For each target, it copies small and large inputs until
# there are 6. It copies only inputs of up to 3,000 bytes. It keeps the existing
# inputs, and removes new inputs that fail.

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
	# Sorts the inputs by size, and selects inputs at even intervals.
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
