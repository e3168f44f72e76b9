#!/bin/sh
# Guess: where a request for a blob has an If-Match that does not hold, distribution answers 412
# with a length of 0, or with the length of an error document.
# Seen: distribution 3.1.2 answers 412 with the Content-Length of the whole blob, and sends no
# body. A client that reads the body gets "unexpected EOF", and cannot use the connection again.
# The script fails if that changes. It needs Go and the Go module proxy.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
)

func main() {
	config := &configuration.Configuration{}
	config.Log.Level = "fatal"
	config.Storage = configuration.Storage{"inmemory": configuration.Parameters{}}
	server := httptest.NewServer(handlers.NewApp(context.Background(), config))
	defer server.Close()
	blob := strings.Repeat("x", 1000)
	do := func(method, url, body string, header ...string) *http.Response {
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			panic(err)
		}
		return resp
	}
	at := do("POST", server.URL+"/v2/acme/widget/blobs/uploads/", "").Header.Get("Location")
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(blob)))
	stored := do("PUT", at+"&digest="+digest, blob, "Content-Type", "application/octet-stream")
	if stored.StatusCode != http.StatusCreated {
		panic(stored.Status)
	}
	resp := do("GET", server.URL+"/v2/acme/widget/blobs/"+digest, "", "If-Match", `"another"`)
	body, err := io.ReadAll(resp.Body)
	fmt.Printf("%d, Content-Length %d, %d bytes, %v\n", resp.StatusCode, resp.ContentLength, len(body), err)
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go mod init finding 2>/dev/null
go get github.com/distribution/distribution/v3@v3.1.2 2>/dev/null
go mod tidy 2>/dev/null
got=$(go run . 2>/dev/null)
echo "$got"
[ "$got" = "412, Content-Length 1000, 0 bytes, unexpected EOF" ]
