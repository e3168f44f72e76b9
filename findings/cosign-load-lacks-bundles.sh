#!/bin/sh
# Guess: an artifact and its signature, which "cosign save" has written into a folder, reach another registry
# with "cosign load", because the two commands are made for each other.
# Seen: with cosign 3.1.3 and a signature in the format that "cosign sign" writes by default (a bundle in a
# referrer), the folder has all blobs, but load does not upload the layer of the bundle. distribution 3.1.2
# answers MANIFEST_BLOB_UNKNOWN for the manifest of the signature, and load ends with status 1. The artifact
# is then in the registry, and its signature is not. Load succeeds where the signature is stored already,
# and with the former format (--new-bundle-format=false).
# The script fails if that changes. It needs Go and the Go module proxy, and builds for minutes.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
GOBIN="$dir" go install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
cat >main.go <<'GO'
// Two registries in memory, for as long as the command in the arguments runs.
package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
)

func main() {
	command := exec.Command(os.Args[1], os.Args[2:]...)
	command.Env = os.Environ()
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	for _, name := range []string{"FROM", "TO"} {
		config := &configuration.Configuration{}
		config.Log.Level = "panic"
		config.Storage = configuration.Storage{"inmemory": configuration.Parameters{}}
		server := httptest.NewServer(handlers.NewApp(context.Background(), config))
		defer server.Close()
		command.Env = append(command.Env, name+"="+strings.TrimPrefix(server.URL, "http://"))
	}
	if err := command.Run(); err != nil {
		panic(err)
	}
}
GO
cat >steps.sh <<'SH'
set -eu
export COSIGN_PASSWORD=
./cosign generate-key-pair
echo content >file
for format in true false; do
	from=$FROM/acme/widget-$format:1.0.0
	to=$TO/acme/widget-$format:1.0.0
	./cosign upload blob --allow-http-registry -f file "$from"
	./cosign sign --key cosign.key --new-bundle-format=$format --use-signing-config=false --tlog-upload=false --allow-http-registry -y "$from"
	./cosign save --allow-http-registry --dir saved-$format "$from"
	for target in "$to" "$from"; do
		status=0
		./cosign load --allow-http-registry --dir saved-$format "$target" >log 2>&1 || status=$?
		echo "new format $format: load $status $(grep -o 'MANIFEST_BLOB_UNKNOWN' log | head -n 1)" >>seen
	done
	status=0
	./cosign verify --key cosign.pub --new-bundle-format=$format --insecure-ignore-tlog --allow-http-registry "$to" >log 2>&1 || status=$?
	echo "new format $format: verify $status $(grep '^Error' log || true)" >>seen
done
SH
go mod init finding 2>/dev/null
go get github.com/distribution/distribution/v3@v3.1.2 2>/dev/null
go mod tidy 2>/dev/null
go run . sh ./steps.sh >out 2>&1 || cat out
cat seen
[ "$(sed 's/ *$//' seen)" = "new format true: load 1 MANIFEST_BLOB_UNKNOWN
new format true: load 0
new format true: verify 10 Error: no signatures found
new format false: load 0
new format false: load 0
new format false: verify 0" ]
