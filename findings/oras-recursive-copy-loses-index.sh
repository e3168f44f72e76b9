#!/bin/sh
# Guess: "oras cp -r" copies an index, everything that it lists, and everything that refers to one of them.
# Seen: with ORAS 1.2.3, if the manifest of a platform has a referrer (an SBOM, a signature) and the index has
# none, the referrer and this one platform arrive, and the index and the other platform do not. With a tag
# as the target, the command ends with "not found" and status 1. Without a tag, it prints "Copied" and the
# digest of the index, and ends with status 0. Once the index has a referrer of its own, all arrive.
# ORAS 1.3.6 copies everything in each case.
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
for version in 1.2.3 1.3.6; do
	mkdir "build-$version"
	cd "build-$version"
	go mod init finding 2>/dev/null
	go get -tool "oras.land/oras/cmd/oras@v$version" 2>/dev/null
	go build -o "../oras-$version" oras.land/oras/cmd/oras
	cd ..
done
export HOME="$dir"
ln -s oras-1.3.6 oras

entries=
for arch in amd64 arm64; do
	echo "$arch" >"$arch.txt"
	./oras push --oci-layout --artifact-type application/vnd.example.widget "from:$arch" "$arch.txt" >/dev/null
	entry=$(./oras manifest fetch --oci-layout --descriptor "from:$arch")
	entries="$entries${entries:+,}${entry%\}},\"platform\":{\"os\":\"linux\",\"architecture\":\"$arch\"}}"
done
echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[$entries]}" >index.json
./oras manifest push --oci-layout from:1.0.0 index.json >/dev/null
index=$(./oras resolve --oci-layout from:1.0.0)

copy() { # VERSION TARGET: copies the index, and prints the status and whether the index and both manifests arrived
	status=0
	"./oras-$1" cp -r --from-oci-layout --to-oci-layout from:1.0.0 "$2" >log 2>&1 || status=$?
	seen="status $status"
	if grep -q ': not found' log; then seen="$seen, not found"; fi
	if grep -q "^Digest: $index" log; then seen="$seen, digest of the index"; fi
	for digest in "$index" $(grep -o 'sha256:[0-9a-f]*' index.json); do
		if [ -e "${2%:*}/blobs/sha256/${digest#sha256:}" ]; then seen="$seen, yes"; else seen="$seen, no"; fi
	done
	echo "$1: $seen" | tee -a seen
}

echo sbom >sbom.txt
./oras attach --oci-layout --artifact-type application/vnd.example.sbom from:amd64 sbom.txt >/dev/null
for version in 1.2.3 1.3.6; do
	copy $version "tagged-$version:1.0.0"
	copy $version "untagged-$version"
done
./oras attach --oci-layout --artifact-type application/vnd.example.sbom from:1.0.0 sbom.txt >/dev/null
copy 1.2.3 both:1.0.0
[ "$(cat seen)" = "1.2.3: status 1, not found, no, yes, no
1.2.3: status 0, digest of the index, no, yes, no
1.3.6: status 0, digest of the index, yes, yes, yes
1.3.6: status 0, digest of the index, yes, yes, yes
1.2.3: status 0, digest of the index, yes, yes, yes" ]
