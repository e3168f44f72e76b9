#!/bin/sh
#
# Installs a release of ocibridge, and prints the folder of the program. Without a version,
# it prints the folder of the ocibridge on PATH. ../gitlab/ocibridge.yml contains the same
# script.
#
#   VERSION    the release, such as 1.2.3 or v1.2.3
#   SHA256     the SHA-256 of the release's SHA256SUMS
#   BASE_URL   the folder of releases, with the files of a release in v$VERSION
set -eu

fail() {
	printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
	exit 1
}

# fetch NAME: downloads a file of the release into $dir.
fetch() {
	url=$BASE_URL/v$VERSION/$1
	if command -v curl >/dev/null; then
		curl -fsSL --retry 3 -o "$dir/$1" "$url"
	else
		wget -q -O "$dir/$1" "$url"
	fi || fail "cannot download $url" "check version and base-url, and whether this machine reaches the URL"
}

# verify NAME SHA256 HINT: checks a file in $dir.
verify() {
	if command -v sha256sum >/dev/null; then
		sum=$(sha256sum "$dir/$1")
	else
		sum=$(shasum -a 256 "$dir/$1")
	fi
	[ "${sum%% *}" = "$2" ] || fail "$1 of ocibridge $VERSION has SHA-256 ${sum%% *}, want $2" "$3"
}

platform() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) fail "this step installs no release on $(uname -s)" "put ocibridge on PATH before this step, and leave version empty" ;;
	esac
	case $(uname -m) in
	x86_64) echo "${os}_amd64" ;;
	aarch64 | arm64) echo "${os}_arm64" ;;
	*) fail "there is no release for $(uname -m)" "put ocibridge on PATH before this step, and leave version empty" ;;
	esac
}

install_release() {
	[ -n "$SHA256" ] || fail "no checksum for ocibridge $VERSION" "set sha256 to the SHA-256 of $BASE_URL/v$VERSION/SHA256SUMS"
	name=ocibridge_${VERSION}_$(platform)
	dir=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/ocibridge.XXXXXX")
	fetch SHA256SUMS
	verify SHA256SUMS "$SHA256" "set sha256 to the SHA-256 of the SHA256SUMS of this version"
	fetch "$name.tar.gz"
	verify "$name.tar.gz" "$(awk -v name="$name.tar.gz" '$2 == name { print $1 }' "$dir/SHA256SUMS")" \
		"check base-url: its archive is not the one of the release"
	tar -xzf "$dir/$name.tar.gz" -C "$dir"
	rm "$dir/$name.tar.gz"
	PATH=$dir/$name:$PATH
}

VERSION=${VERSION#v}
[ -z "$VERSION" ] || install_release
program=$(command -v ocibridge) || fail "PATH has no ocibridge" "set version and sha256"
"$program" version >&2
dirname "$program"
