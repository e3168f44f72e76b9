#!/bin/sh
# Guess: crane and regctl read the OCI layout that ORAS writes for an index with a referrer: "crane push" pushes
# the index, and "regctl image copy --referrers" copies it with its referrer.
# Seen: neither, with ORAS 1.3.6, crane 0.22.1 and regctl 0.11.7. ORAS lists every manifest of the layout in
# index.json. "crane push" refuses that ("layout contains 4 entries, consider --index"). With --index it ends
# with status 0, and the tag names a copy of index.json, so an index around the index, with another digest.
# ORAS finds a referrer by its entry in index.json; regctl looks for an entry with the name of the fallback
# tag, which ORAS does not write, so it lists no referrer, and copies none, with status 0. The other way
# round works: ORAS finds the referrers in a layout of regctl's.
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap '[ ! -e server ] || kill "$(cat server)"; chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
GOBIN="$dir" go install github.com/google/go-containerregistry/cmd/crane@v0.22.1
GOBIN="$dir" go install github.com/regclient/regclient/cmd/regctl@v0.11.7
go mod init finding 2>/dev/null
go get -tool oras.land/oras/cmd/oras@v1.3.6 2>/dev/null
go build -o oras oras.land/oras/cmd/oras
export HOME="$dir"

entries=
for arch in amd64 arm64; do
	echo "$arch" >"$arch.txt"
	./oras push --oci-layout --artifact-type application/vnd.example.widget "made:$arch" "$arch.txt" >/dev/null
	entry=$(./oras manifest fetch --oci-layout --descriptor "made:$arch")
	entries="$entries${entries:+,}${entry%\}},\"platform\":{\"os\":\"linux\",\"architecture\":\"$arch\"}}"
done
echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[$entries]}" >index.json
./oras manifest push --oci-layout made:1.0.0 index.json >/dev/null
echo sbom >sbom.txt
./oras attach --oci-layout --artifact-type application/vnd.example.sbom made:1.0.0 sbom.txt >/dev/null
./oras cp -r --from-oci-layout --to-oci-layout made:1.0.0 layout:1.0.0 >/dev/null
index=$(./oras resolve --oci-layout layout:1.0.0)

: >serve.log
./crane registry serve --address 127.0.0.1:0 2>>serve.log &
echo $! >server
until port=$(grep -o 'port [0-9]*' serve.log); do sleep 0.1; done
registry=127.0.0.1:${port#port }

status=0
./crane push layout "$registry/widget:plain" >log 2>&1 || status=$?
echo "crane push: status $status, $(tail -n 1 log)" | tee seen
./crane push --index layout "$registry/widget:wrapped" >log 2>&1
[ "$(./crane digest "$registry/widget:wrapped")" = "$index" ] || echo "crane push --index: another digest" | tee -a seen
echo "index inside: $(./crane manifest "$registry/widget:wrapped" | grep -c "$index")" | tee -a seen

count() { # LAYOUT: the referrers that ORAS and regctl find in it
	echo "$1: ORAS finds $(./oras discover --oci-layout --format json "$1:1.0.0" | grep -c '"artifactType": "application/vnd.example.sbom"')," \
		"regctl finds $(./regctl artifact list --format '{{len .Descriptors}}' "ocidir://$1:1.0.0")"
}
count layout | tee -a seen
./regctl image copy --referrers ocidir://layout:1.0.0 ocidir://copied:1.0.0 >/dev/null
count copied | tee -a seen
./oras cp -r --from-oci-layout --to-plain-http layout:1.0.0 "$registry/widget:1.0.0" >/dev/null
./regctl registry set --tls disabled "$registry"
./regctl image copy --referrers "$registry/widget:1.0.0" ocidir://fetched:1.0.0 >/dev/null
count fetched | tee -a seen
[ "$(cat seen)" = "crane push: status 1, Error: layout contains 4 entries, consider --index
crane push --index: another digest
index inside: 1
layout: ORAS finds 1, regctl finds 0
copied: ORAS finds 0, regctl finds 0
fetched: ORAS finds 1, regctl finds 1" ]
