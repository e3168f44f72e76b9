#!/bin/sh
# Guess: "regctl index create --ref INDEX --platform linux/amd64" takes the index's entry for this platform
# into the new index as it is.
# Seen: regctl 0.11.7 finds the entry by its platform, and writes it without platform and artifactType: it takes
# the platform from the config of a container image, which an artifact does not have, and never sets an
# artifactType. So OpenTofu finds no package in such an index of a provider, and regctl itself says "platform
# not found: linux/amd64". "index add" does the same. --desc-platform sets the platform, and nothing sets the
# artifactType. "index delete", which takes the other platforms out of the index, keeps both.
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
GOBIN="$dir" go install github.com/regclient/regclient/cmd/regctl@v0.11.7
export HOME="$dir"

provider=application/vnd.opentofu.provider
manifest=application/vnd.oci.image.manifest.v1+json
entries=
for arch in amd64 arm64; do
	echo "$arch" >"$arch.zip"
	./regctl artifact put --artifact-type $provider-target --file-media-type archive/zip -f "$arch.zip" "ocidir://widget:$arch" >/dev/null
	digest=$(./regctl manifest head "ocidir://widget:$arch")
	size=$(./regctl manifest get --format raw-body "ocidir://widget:$arch" | wc -c)
	entries="$entries${entries:+,}{\"mediaType\":\"$manifest\",\"artifactType\":\"$provider-target\",\"digest\":\"$digest\",\"size\":$size,\"platform\":{\"os\":\"linux\",\"architecture\":\"$arch\"}}"
done
echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"artifactType\":\"$provider\",\"manifests\":[$entries]}" |
	./regctl manifest put --content-type application/vnd.oci.image.index.v1+json ocidir://widget:1.0.0

create() { # TAG [FLAG...]
	tag=$1
	shift
	./regctl index create --artifact-type $provider "$@" "ocidir://widget:$tag"
}
create created --ref ocidir://widget:1.0.0 --platform linux/amd64
create described --ref ocidir://widget:1.0.0 --platform linux/amd64 --desc-platform linux/amd64
create added
./regctl index add --ref ocidir://widget:1.0.0 --platform linux/amd64 ocidir://widget:added
./regctl image copy ocidir://widget:1.0.0 ocidir://widget:deleted
./regctl index delete --platform linux/arm64 ocidir://widget:deleted

for tag in created described added deleted; do
	./regctl manifest get --format raw-body "ocidir://widget:$tag" >index.json
	grep -q "$(./regctl manifest head ocidir://widget:amd64)" index.json
	grep -o '"manifests":.*' index.json
	seen=
	if grep -q '"architecture":"amd64"' index.json; then seen="platform"; fi
	if grep -q "\"artifactType\":\"$provider-target\"" index.json; then seen="$seen artifactType"; fi
	echo "$tag: $seen" >>seen
done
status=0
./regctl manifest head --platform linux/amd64 ocidir://widget:created >log 2>&1 || status=$?
echo "created, --platform linux/amd64: status $status, $(cat log)" >>seen
cat seen
[ "$(sed 's/ *$//' seen)" = "created:
described: platform
added:
deleted: platform artifactType
created, --platform linux/amd64: status 1, platform not found: linux/amd64" ]
