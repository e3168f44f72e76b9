#!/usr/bin/env bash
#
# Builds the pinned clients, registries, providers and checkers that the tests,
# the demo and the linters run, into .tools at the root of the project:
#
#   .tools/bin/NAME                                      the tools
#   .tools/providers/terraform-provider-null_OS_ARCH     a real provider
#   .tools/providers/terraform-provider-time_OS_ARCH     another one, for "make bench"
#   .tools/axe/axe.min.js                                checks pages for accessibility
#   .tools/tofu-fixtures/NAME                            OCI layouts of providers in OpenTofu's own tests
#   .tools/tofu-module-fixtures/NAME                     OCI layouts of modules in OpenTofu's own tests
#   .tools/provider-docs                                 the documentation of the time provider
#   .tools/renovate/node_modules                         Renovate's code
#   .tools/gitlab-ci-local/node_modules                  gitlab-ci-local, which runs GitLab jobs
#   .tools/stamps/OUTPUT                                 what each was built from
#
# Each tool is a Go module of its own under tools/, so that its requirements never mix with
# the project's. An output is built again only when its stamp no longer matches. A stamp
# depends on the module's go.mod, go.sum and own source, the Go version, the target and the
# build flags.
#
# Some tools are not built. npm installs the versions of axe, Renovate and gitlab-ci-local
# that tools/axe, tools/renovate and tools/gitlab-ci-local pin. Chromium, systemd, nginx, GnuPG, zip, jq,
# OpenSSL and Node.js must be on PATH. If they are not, the script installs them with apt-get if the user is
# root. .tools/bin has links to them, because tests run only the programs in .tools. The registry of distribution 2.8 is the docker-registry on PATH. If PATH has none,
# the script unpacks it from Debian's package.
#
# Some functions have the name of a program. "command -v" also finds functions. To look for
# a program, use on_path, which ignores functions.
#
# Usage: tools/install.sh [NAME...]     (default: all that tests need)

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/.tools
names="tofu tofu-fixtures tofu-module-fixtures terraform oras cosign crane registry docker-registry staticcheck provider-null provider-docs node axe renovate gitlab-ci-local chromium helm deploycheck systemd nginx gnupg release actionlint pebble promtool terraform-ls terraform-docs"
# These tools are obtained only if an argument names them. tofu-on-path and terraform-on-path
# never build the client. provider-null-host builds the provider only for the host, and
# provider-null-copies also copies it for the other platforms, unless it is built for them.
others="govulncheck provider-time tofu-on-path terraform-on-path provider-null-host provider-null-copies"
browsers="chromium chromium-browser google-chrome" # .tools/bin/chromium is the first that is on PATH

# A go.work file or a vendor setting of the caller must not change what the
# modules under tools/ pin.
export GOWORK=off CGO_ENABLED=0

# All tools and platforms have the same flags. With other flags, Go would compile the
# packages that the tools share again.
flags=(-trimpath)
ldflags='-s -w'

current=0 # the number of outputs that were up to date
temp=     # the file to remove when a step is interrupted
trap '[ -z "$temp" ] || rm -f "$temp"' EXIT

say() { printf 'tools: %s\n' "$*"; }

die() {
	printf 'tools: error: %s\n' "$*" >&2
	exit 1
}

sha256() {
	if on_path sha256sum; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1
}

# lock waits until no other run works on the same folder. The lock ends when the process
# exits.
lock() {
	if ! on_path flock; then
		say "no flock here: do not start two runs at once"
		return
	fi
	exec 9>"$out/lock"
	flock -n 9 && return
	say "waiting for another run to finish"
	flock 9
}

# cold_seconds MODULE PLATFORM: prints about how many seconds a build or an installation by
# npm takes on two cores with empty caches.
cold_seconds() {
	case $1 in
	tofu) echo 290 ;;
	terraform) echo 202 ;;
	registry) echo 60 ;;
	oras) echo 39 ;;
	cosign) echo 180 ;;
	crane) echo 25 ;;
	staticcheck) echo 40 ;;
	helm) echo 60 ;;
	deploycheck) echo 45 ;;
	actionlint) echo 10 ;;
	release) echo 5 ;;
	govulncheck) echo 15 ;;
	pebble) echo 25 ;;
	promtool) echo 50 ;;
	terraform-ls) echo 10 ;;
	terraform-docs) echo 45 ;;
	renovate) echo 22 ;;
	gitlab-ci-local) echo 6 ;;
	provider-null) if [ "$2" = "$host" ]; then echo 70; else echo 44; fi ;;
	provider-time) echo 70 ;;
	esac
}

# ldflags_of MODULE: prints the linker flags. Without its flag, OpenTofu would warn on every
# run that it is a development build.
ldflags_of() {
	case $1 in
	tofu) echo "$ldflags -X github.com/opentofu/opentofu/version.dev=no" ;;
	*) echo "$ldflags" ;;
	esac
}

# tags_of MODULE: prints the build tags. promtool is built without the clients of Prometheus'
# service discoveries, which would take most of the build time.
tags_of() {
	case $1 in
	promtool) echo remove_all_sd ;;
	esac
}

# key_of MODULE PLATFORM: prints a checksum of everything that an output depends on.
key_of() {
	local dir=$root/tools/$1
	{
		cat "$dir/go.mod" "$dir/go.sum"
		find "$dir" -name '*.go' ! -name '*_test.go' -print0 | LC_ALL=C sort -z | xargs -0r cat
		(cd "$dir" && go version)
		printf '%s\n' "$2" "${flags[*]}" "$(ldflags_of "$1")"
		tags_of "$1"
	} | sha256
}

# is_current OUTPUT KEY: succeeds if the output exists and was made from KEY.
is_current() {
	[ -x "$out/$1" ] && [ "$(cat "$out/stamps/${1##*/}" 2>/dev/null)" = "$2" ]
}

# build MODULE PLATFORM OUTPUT: builds the one tool that the module names.
build() {
	local module=$1 platform=$2 output=$3 key package start=$SECONDS
	key=$(key_of "$module" "$platform")
	if is_current "$output" "$key"; then
		current=$((current + 1))
		return
	fi
	package=$(awk '$1 == "tool" { print $2 }' "$root/tools/$module/go.mod")
	say "building ${output##*/} (about $(cold_seconds "$module" "$platform") s on two cores when nothing is cached)"
	temp=$out/${output%/*}/.new.${output##*/}
	(
		cd "$root/tools/$module"
		GOOS=${platform%_*} GOARCH=${platform#*_} go build "${flags[@]}" \
			-tags "$(tags_of "$module")" -ldflags "$(ldflags_of "$module")" -o "$temp" "$package" </dev/null 9>&-
	) || die "$module did not build"
	install_output "$output" "$key"
	say "${output##*/} is ready after $((SECONDS - start)) s"
}

# install_output OUTPUT KEY: moves $temp to OUTPUT. It removes the old stamp first and
# writes the new stamp last. After an interruption, no stamp exists for a file of another
# build.
install_output() {
	rm -f "$out/stamps/${1##*/}"
	mv -f "$temp" "$out/$1"
	temp=
	echo "$2" >"$out/stamps/${1##*/}"
}

# is_new_enough CLIENT MAJOR MINOR: succeeds if the tests run with this version of a client.
# For OpenTofu, they need oci_mirror. For Terraform, they run with the version that
# tools/terraform pins.
is_new_enough() {
	local least
	case $1 in
	tofu) least=10 ;;
	terraform) least=5 ;;
	esac
	[ "$2" -gt 1 ] || { [ "$2" -eq 1 ] && [ "$3" -ge "$least" ]; }
}

# client_on_path CLIENT: prints the path of a client on PATH that is outside of .tools and new
# enough. It must run with the few variables that tests set. The shims of version managers
# often do not.
client_on_path() {
	local path text
	while read -r path; do
		case $path in "$out"/*) continue ;; esac
		text=$(env -i PATH="$PATH" HOME="$out" CHECKPOINT_DISABLE=1 "$path" version 2>/dev/null </dev/null) || text=
		if [[ $text =~ \ v([0-9]+)\.([0-9]+)\. ]] && is_new_enough "$1" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"; then
			echo "$path"
			return
		fi
		say "$path is not used: it is too old for the tests, or does not run without the variables of the shell" >&2
	done < <(type -aP "$1" || true)
}

# has_built CLIENT: succeeds if .tools has a client that was built.
has_built() { [ -x "$out/bin/$1" ] && [[ $(cat "$out/stamps/$1" 2>/dev/null) != "link "* ]]; }

# link_client CLIENT PATH: links to the client at PATH. Without a path, it keeps a client that
# was built, and removes a link to one that is no longer on PATH.
link_client() {
	if [ -n "$2" ]; then
		link_to "$1" "$2"
	elif has_built "$1"; then
		current=$((current + 1))
	else
		rm -f "$out/bin/$1" "$out/stamps/$1"
		say "no $1 is on PATH, and none is built"
	fi
}

# terraform NAME: links to the terraform on PATH. If there is none, it builds the last
# version under an open-source licence. For the name terraform-on-path, it then builds
# nothing.
terraform() {
	local path
	path=$(client_on_path terraform)
	if [ -z "$path" ] && [ "$1" = terraform ]; then
		build terraform "$host" bin/terraform
	else
		link_client terraform "$path"
	fi
}

# tofu_on_path links to the tofu on PATH, unless .tools has one that was built.
tofu_on_path() {
	local path=
	has_built tofu || path=$(client_on_path tofu)
	link_client tofu "$path"
}

# null_platforms prints the platforms of the provider beside the host.
null_platforms() {
	case $host in
	darwin_arm64) echo linux_amd64 windows_amd64 ;;
	windows_amd64) echo darwin_arm64 linux_amd64 ;;
	*) echo darwin_arm64 windows_amd64 ;;
	esac
}

# provider_null builds the provider for the host and two more platforms. Releases of this
# provider then have several real packages.
provider_null() {
	local platform
	for platform in "$host" $(null_platforms); do provider_null_for "$platform"; done
}

# provider_null_copies builds the provider for the host. For the other platforms, on which no
# test runs it, the program is a copy with the platform's name at its end: different packages,
# without the minutes of two more builds.
provider_null_copies() {
	local platform output key
	provider_null_for "$host"
	for platform in $(null_platforms); do
		output=providers/terraform-provider-null_$platform
		key="copy of $(key_of provider-null "$host")"
		if is_current "$output" "$key" || is_current "$output" "$(key_of provider-null "$platform")"; then
			current=$((current + 1))
			continue
		fi
		temp=$out/providers/.new.null_$platform
		cp "$out/providers/terraform-provider-null_$host" "$temp"
		printf '%s' "$platform" >>"$temp"
		install_output "$output" "$key"
	done
}

# provider_null_for PLATFORM: builds the provider for one platform.
provider_null_for() { build provider-null "$1" "providers/terraform-provider-null_$1"; }

# tofu_fixtures NAME TESTDATA: copies the OCI layouts of one of OpenTofu's own tests from the
# module that tools/tofu pins. If tofu is already built, the module can be missing in Go's cache.
tofu_fixtures() {
	local module=github.com/opentofu/opentofu fixtures=$out/$1 dir key
	key=$(cat "$root/tools/tofu/go.mod" "$root/tools/tofu/go.sum" | sha256)
	if [ -d "$fixtures" ] && [ "$(cat "$out/stamps/$1" 2>/dev/null)" = "$key" ]; then
		current=$((current + 1))
		return
	fi
	dir=$(cd "$root/tools/tofu" && go mod download "$module" </dev/null 9>&- && go list -m -f '{{.Dir}}' "$module") || die "no module $module"
	rm -rf "$out/stamps/$1" "$fixtures"
	cp -R "$dir/internal/command/e2etest/testdata/$2/fake-registry" "$fixtures"
	chmod -R u+w "$fixtures" # Go's cache is read-only
	echo "$key" >"$out/stamps/$1"
	say "$1 are ready"
}

# provider_docs copies the documentation of the provider that tools/provider-time pins.
provider_docs() {
	local module=github.com/hashicorp/terraform-provider-time docs=$out/provider-docs dir key
	key=$(cat "$root/tools/provider-time/go.mod" "$root/tools/provider-time/go.sum" | sha256)
	if [ -d "$docs" ] && [ "$(cat "$out/stamps/provider-docs" 2>/dev/null)" = "$key" ]; then
		current=$((current + 1))
		return
	fi
	dir=$(cd "$root/tools/provider-time" && go mod download "$module" </dev/null 9>&- && go list -m -f '{{.Dir}}' "$module") || die "no module $module"
	rm -rf "$out/stamps/provider-docs" "$docs"
	cp -R "$dir/docs" "$docs"
	chmod -R u+w "$docs" # Go's cache is read-only
	echo "$key" >"$out/stamps/provider-docs"
	say "provider-docs are ready"
}

# npm_key NAME: prints a checksum of the files that pin the packages of tools/NAME.
npm_key() { cat "$root/tools/$1/package.json" "$root/tools/$1/package-lock.json" | sha256; }

# npm_install NAME: installs the packages that tools/NAME/package-lock.json pins into
# .tools/NAME/node_modules. It does not run the scripts of the packages.
npm_install() {
	local dir=$out/$1
	nodejs
	rm -rf "$dir"
	mkdir -p "$dir"
	cp "$root/tools/$1/package.json" "$root/tools/$1/package-lock.json" "$dir"
	(cd "$dir" && npm ci --ignore-scripts --omit=dev --omit=optional --no-audit --no-fund --loglevel=error </dev/null 9>&-) ||
		die "npm could not install $1"
}

# axe installs one file of the package axe-core.
axe() {
	local key
	key=$(npm_key axe)
	if [ -f "$out/axe/axe.min.js" ] && [ "$(cat "$out/stamps/axe.min.js" 2>/dev/null)" = "$key" ]; then
		current=$((current + 1))
		return
	fi
	npm_install axe
	temp=$out/axe/.new.axe
	cp "$out/axe/node_modules/axe-core/axe.min.js" "$temp"
	install_output axe/axe.min.js "$key"
	say "axe is ready"
}

# npm_tool NAME: installs a tool without development and optional dependencies.
npm_tool() {
	local key start=$SECONDS
	key=$(npm_key "$1")
	if is_current "$1" "$key"; then
		current=$((current + 1))
		return
	fi
	say "installing $1 (about $(cold_seconds "$1") s when nothing is cached)"
	rm -f "$out/stamps/$1"
	npm_install "$1"
	echo "$key" >"$out/stamps/$1"
	say "$1 is ready after $((SECONDS - start)) s"
}

# nodejs installs node and npm if they are not on PATH.
nodejs() {
	if ! on_path node || ! on_path npm; then
		may_install || die "axe, renovate and gitlab-ci-local come by npm, and PATH lacks node or npm. Install Node.js 18 or later (on Debian, as root: apt-get install nodejs npm)"
		apt_install nodejs nodejs npm
		on_path node && on_path npm || die "apt-get installed nodejs and npm, and still PATH lacks one of them. See $out/nodejs.log"
	fi
	link node node
}

# path_of PROGRAM: prints the path of a program on PATH that is outside of .tools.
path_of() {
	local path
	while read -r path; do
		case $path in "$out"/*) continue ;; esac
		echo "$path"
		return
	done < <(type -aP "$1" || true)
}

# on_path PROGRAM...: succeeds if PATH has one of the programs.
on_path() {
	local program
	for program in "$@"; do
		if [ -n "$(path_of "$program")" ]; then return; fi
	done
	return 1
}

# link NAME PROGRAM...: links .tools/bin/NAME to the first of the programs that is on PATH.
link() {
	local name=$1
	shift
	while [ -z "$(path_of "$1")" ]; do shift; done
	link_to "$name" "$(path_of "$1")"
}

# link_to NAME PATH: links .tools/bin/NAME to a program on PATH.
link_to() {
	if is_current "bin/$1" "link $2"; then
		current=$((current + 1))
		return
	fi
	temp=$out/bin/.new.$1
	ln -sfn "$2" "$temp"
	install_output "bin/$1" "link $2"
	say "$1 is the one on PATH: $2"
}

# may_install: succeeds if apt-get exists and the user is allowed to install packages.
may_install() { [ "$(id -u)" = 0 ] && on_path apt-get; }

# apt_install NAME PACKAGE...: installs Debian packages, and stores the output of apt-get in
# NAME.log.
apt_install() {
	local log=$out/$1.log
	say "installing $1 by apt-get"
	{
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${@:2}"
	} </dev/null >"$log" 2>&1 9>&- || die "apt-get could not install $1: see $log"
}

# chromium installs a browser for the tests of the page if PATH has none.
chromium() {
	if ! on_path $browsers; then
		may_install || die "the tests of the page need a browser, and PATH has none of: $browsers. Install Chromium or Google Chrome (on Debian, as root: apt-get install chromium)"
		apt_install chromium chromium fonts-dejavu-core
		on_path $browsers || die "apt-get installed chromium, and still PATH has none of: $browsers. See $out/chromium.log"
	fi
	link chromium $browsers
}

# systemd installs systemd-analyze, which checks systemd units, if it is not on PATH.
systemd() {
	[ "$(uname -s)" = Linux ] || return 0
	if ! on_path systemd-analyze; then
		may_install || die "the tests of the systemd units need systemd-analyze, and PATH has none. Install systemd (on Debian, as root: apt-get install systemd)"
		apt_install systemd systemd
		on_path systemd-analyze || die "apt-get installed systemd, and still PATH has no systemd-analyze. See $out/systemd.log"
	fi
	link systemd-analyze systemd-analyze
}

# nginx installs nginx, which a test runs in front of two gateways, if it is not on PATH. Debian's nginx-light also
# starts a service on port 80 if the machine runs services.
nginx() {
	if ! on_path nginx; then
		may_install || die "the test of two gateways needs nginx, and PATH has none. Install nginx (on Debian, as root: apt-get install nginx-light; it is in /usr/sbin)"
		apt_install nginx nginx-light
		on_path nginx || die "apt-get installed nginx-light, and still PATH has no nginx. See $out/nginx.log"
	fi
	link nginx nginx
}

# gnupg installs gpg and zip, with which the how-tos make and sign releases, jq, with which they read lists, and openssl, with
# which they make keys, if one of them is not on PATH.
gnupg() {
	if ! on_path gpg || ! on_path zip || ! on_path jq || ! on_path openssl; then
		may_install || die "the tests of the how-tos sign releases, read lists and make keys, and PATH lacks gpg, zip, jq or openssl. Install GnuPG, zip, jq and OpenSSL (on Debian, as root: apt-get install gnupg zip jq openssl)"
		apt_install gnupg gnupg zip jq openssl
		on_path gpg && on_path zip && on_path jq && on_path openssl || die "apt-get installed gnupg, zip, jq and openssl, and still PATH lacks one of them. See $out/gnupg.log"
	fi
	link gpg gpg
	link zip zip
	link jq jq
	link openssl openssl
}

# is_distribution_28 PATH: succeeds if the program is the registry of distribution 2.8 and
# runs on this machine.
is_distribution_28() { [[ $("$1" --version 2>/dev/null </dev/null) =~ distribution\ v?2\.8\. ]]; }

# installed_docker_registry prints the path of a docker-registry 2.8 on PATH that is outside
# of .tools.
installed_docker_registry() {
	local path
	while read -r path; do
		case $path in "$out"/*) continue ;; esac
		if is_distribution_28 "$path"; then
			echo "$path"
			return
		fi
	done < <(type -aP docker-registry || true)
}

# docker_registry links to the registry of distribution 2.8 on PATH. If there is none, it
# unpacks the registry from Debian's package. It does not install the package, because an
# installed package would start a service on a fixed port. Any user is allowed to unpack it.
docker_registry() {
	local path key
	path=$(installed_docker_registry)
	key="Debian's package"
	[ -z "$path" ] || key="link $path"
	if is_current bin/docker-registry "$key"; then
		current=$((current + 1))
		return
	fi
	temp=$out/bin/.new.docker-registry
	if [ -n "$path" ]; then
		ln -sfn "$path" "$temp"
	else
		unpack_docker_registry "$temp"
	fi
	install_output bin/docker-registry "$key"
	say "docker-registry is ready: $key"
}

# unpack_docker_registry FILE: extracts the program from Debian's package into FILE.
unpack_docker_registry() {
	local dir=$out/docker-registry log=$out/docker-registry.log
	local other="Build cmd/registry of github.com/distribution/distribution at v2.8.3, and put it on PATH under the name docker-registry"
	on_path apt-get && on_path dpkg || die "tests run the registry of distribution 2.8, and PATH has no docker-registry of that version. $other (on Debian, this script downloads it)"
	say "downloading docker-registry by apt-get (5 MB)"
	rm -rf "$dir"
	mkdir -p "$dir"
	(
		if may_install; then apt-get update -qq || exit; fi # other users cannot update apt's package lists, and use the existing lists
		cd "$dir" && apt-get download -qq docker-registry && dpkg -x docker-registry_*.deb . && mv usr/bin/docker-registry "$1"
	) </dev/null >"$log" 2>&1 9>&- || die "apt-get could not download the package docker-registry: see $log. $other"
	rm -rf "$dir"
	is_distribution_28 "$1" || die "Debian's package docker-registry is not distribution 2.8, or does not run here. $other"
}

install() {
	case $1 in
	terraform | terraform-on-path) terraform "$1" ;;
	tofu-on-path) tofu_on_path ;;
	provider-null) provider_null ;;
	provider-null-host) provider_null_for "$host" ;;
	provider-null-copies) provider_null_copies ;;
	provider-time) build provider-time "$host" "providers/terraform-provider-time_$host" ;;
	tofu-fixtures) tofu_fixtures "$1" oci-provider-mirror ;;
	tofu-module-fixtures) tofu_fixtures "$1" oci-module-source ;;
	provider-docs) provider_docs ;;
	axe) axe ;;
	renovate | gitlab-ci-local) npm_tool "$1" ;;
	node) nodejs ;;
	chromium) chromium ;;
	systemd) systemd ;;
	nginx) nginx ;;
	gnupg) gnupg ;;
	docker-registry) docker_registry ;;
	tofu | oras | cosign | crane | registry | staticcheck | helm | deploycheck | actionlint | release | pebble | promtool | terraform-ls | terraform-docs | govulncheck) build "$1" "$host" "bin/$1" ;;
	esac
}

main() {
	local name
	on_path go || die "no go on PATH: install Go first"
	for name in "$@"; do
		case " $names $others " in
		*" $name "*) ;;
		*) die "no tool named \"$name\"; there are: $names $others" ;;
		esac
	done
	[ $# -gt 0 ] || set -- $names
	host=$(go env GOHOSTOS)_$(go env GOHOSTARCH)
	mkdir -p "$out/bin" "$out/providers" "$out/stamps"
	lock
	for name in "$@"; do install "$name"; done
	[ "$current" -eq 0 ] || say "$current up to date in .tools"
}

main "$@"
