#!/bin/sh
# Guess: cosign 3.1.3 accepts with verify-blob what it has signed with sign-blob, for each key that
# import-key-pair takes, because the bundle names the hash algorithm.
# Seen: true for P-256. With a P-384 or a P-521 key, sign-blob signs a SHA-384 or SHA-512 digest,
# and the bundle says so. verify-blob then checks with SHA-256: "invalid signature when validating
# ASN.1 encoded signature", although nothing has changed. It has no option for the algorithm.
# The script fails if that changes. It needs Go and the Go module proxy, and builds for minutes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
GOFLAGS=-mod=mod GOBIN="$dir" go install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
cat >keys.go <<'GO'
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
)

func main() {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			panic(err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		if err := os.WriteFile(curve.Params().Name+".pem", text, 0o600); err != nil {
			panic(err)
		}
	}
}
GO
go run keys.go
echo content >blob
export COSIGN_PASSWORD=
for curve in P-256 P-384 P-521; do
	./cosign import-key-pair --key $curve.pem --output-key-prefix $curve -y 2>/dev/null
	./cosign sign-blob --key $curve.key --use-signing-config=false --tlog-upload=false --bundle $curve.json -y blob >/dev/null 2>&1
	status=0
	./cosign verify-blob --key $curve.pub --bundle $curve.json --insecure-ignore-tlog blob >$curve.log 2>&1 || status=$?
	echo "$curve: signed as $(grep -o 'SHA2_[0-9]*' $curve.json | head -n 1); verify-blob: status $status, $(tail -n 1 $curve.log)"
	case $curve in
	P-256)
		[ $status = 0 ]
		grep -q '"SHA2_256"' $curve.json
		;;
	P-384)
		[ $status != 0 ]
		grep -q '"SHA2_384"' $curve.json
		;;
	P-521)
		[ $status != 0 ]
		grep -q '"SHA2_512"' $curve.json
		;;
	esac
done
