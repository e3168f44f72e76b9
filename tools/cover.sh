#!/usr/bin/env bash
#
# Prints the percentage of statements of each package that the tests of a cover
# profile run. A statement also counts if a test of another package runs it.
#
#	tools/cover.sh coverage.out            the table
#	tools/cover.sh coverage.out gateway    what no test runs of one package

set -euo pipefail
profile=$1

awk -v only="${2:-}" '
	NR > 1 {
		statements[$1] = $2
		if ($3 > 0) run[$1] = 1
	}
	END {
		for (block in statements) {
			file = block
			sub(/:[^:]*$/, "", file)
			sub(/^github.com\/ocibridge\/ocibridge\//, "", file)
			package = file
			sub(/\/[^\/]*$/, "", package)
			if (only != "") {
				if (package == only && !(block in run)) {
					at = block
					sub(/^.*:/, "", at)
					print file ":" at
				}
				continue
			}
			total[package] += statements[block]
			if (block in run) covered[package] += statements[block]
		}
		if (only != "") exit
		for (package in total)
			printf "%-24s %6.1f %%  %5d of %d\n", package, 100 * covered[package] / total[package], covered[package], total[package]
	}
' "$profile" | sort -V
