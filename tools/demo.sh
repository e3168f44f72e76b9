#!/usr/bin/env bash
#
# Builds ocibridge, the null provider and the demo, and runs the demo. A build prints a line
# of progress every 15 seconds. The demo uses the tofu and the terraform on PATH or in
# .tools/bin, and builds neither.
#
# Usage: tools/demo.sh [-keep]     (-keep: the gateway runs until an interrupt)

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
make=${MAKE:-make}
ticker=
trap '[ -z "$ticker" ] || kill "$ticker"' EXIT

# step WHAT SECONDS COMMAND...: runs a command, and says every 15 seconds that it still runs.
# SECONDS is about how long it takes on two cores with empty caches.
step() {
	local what=$1 start=$SECONDS
	printf 'demo: building %s (about %d s on two cores when nothing is cached)\n' "$what" "$2"
	shift 2
	while sleep "${OCIBRIDGE_DEMO_TICK:-15}" >/dev/null 2>&1; do
		printf 'demo: still building %s, for %d s\n' "$what" $((SECONDS - start))
	done &
	ticker=$!
	"$@" </dev/null
	kill "$ticker"
	wait "$ticker" 2>/dev/null || true
	ticker=
}

demo() { CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/demo ./internal/test/demo; }

step "ocibridge" 100 "$make" --no-print-directory build
step "the demo" 10 demo
step "the null provider" 70 tools/install.sh terraform-on-path provider-null-host
exec bin/demo "$@"
