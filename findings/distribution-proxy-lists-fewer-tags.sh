#!/bin/sh
# Guess: if its upstream registry is unavailable, a distribution registry that proxies it answers a list of
# tags with an error, or with the last list that it had, and a tag that it has never seen with an error that
# says so (a 5xx status).
# Seen: distribution 3.1.2 answers 200 with only those tags that someone has pulled through it, also where it
# had passed on the whole list before, and 404 MANIFEST_UNKNOWN for each other tag. So a client that looks
# for the newest version finds an older one, and no error. It makes no difference whether the upstream
# answers 503 or cannot be reached. If no tag of the repository was pulled, the list is 404 NAME_UNKNOWN.
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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
)

func registry(upstream string) http.Handler {
	config := &configuration.Configuration{}
	config.Log.Level = "panic"
	config.Storage = configuration.Storage{"inmemory": configuration.Parameters{}}
	config.Proxy.RemoteURL = upstream
	return handlers.NewApp(context.Background(), config)
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

func do(method, url, contentType, body string) (status int, header http.Header, content string) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", manifestType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func push(registry, repository, tag string) {
	const config = "{}"
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(config)))
	_, header, _ := do("POST", registry+"/v2/"+repository+"/blobs/uploads/", "", "")
	do("PUT", header.Get("Location")+"&digest="+digest, "application/octet-stream", config)
	blob := fmt.Sprintf(`{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2}`, digest)
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s],"annotations":{"version":%q}}`, manifestType, blob, blob, tag)
	if status, _, body := do("PUT", registry+"/v2/"+repository+"/manifests/"+tag, manifestType, manifest); status != http.StatusCreated {
		panic(body)
	}
}

func main() {
	var down atomic.Bool
	stored := registry("")
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
			return
		}
		stored.ServeHTTP(w, r)
	}))
	for _, tag := range []string{"1.0.0", "1.1.0", "2.0.0"} {
		push(upstream.URL, "acme/widget", tag)
		push(upstream.URL, "acme/gadget", tag)
	}
	proxy := httptest.NewServer(registry(upstream.URL))
	defer proxy.Close()

	show := func(paths ...string) {
		for _, path := range paths {
			status, _, body := do("GET", proxy.URL+"/v2/acme/"+path, "", "")
			var seen struct {
				Tags   []string
				Errors []struct{ Code string }
			}
			if err := json.Unmarshal([]byte(body), &seen); err != nil {
				panic(err)
			}
			fmt.Println(path, status, seen.Tags, seen.Errors)
		}
	}
	show("widget/manifests/1.0.0", "widget/tags/list", "gadget/tags/list")
	down.Store(true)
	fmt.Println("upstream answers 503")
	show("widget/manifests/1.0.0", "widget/tags/list", "widget/manifests/2.0.0", "gadget/tags/list")
	upstream.Close()
	fmt.Println("upstream does not answer")
	show("widget/manifests/1.0.0", "widget/tags/list", "widget/manifests/2.0.0", "gadget/tags/list")
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go mod init finding 2>/dev/null
go get github.com/distribution/distribution/v3@v3.1.2 2>/dev/null
go mod tidy 2>/dev/null
got=$(go run . 2>/dev/null)
echo "$got"
[ "$got" = "widget/manifests/1.0.0 200 [] []
widget/tags/list 200 [1.0.0 1.1.0 2.0.0] []
gadget/tags/list 200 [1.0.0 1.1.0 2.0.0] []
upstream answers 503
widget/manifests/1.0.0 200 [] []
widget/tags/list 200 [1.0.0] []
widget/manifests/2.0.0 404 [] [{MANIFEST_UNKNOWN}]
gadget/tags/list 404 [] [{NAME_UNKNOWN}]
upstream does not answer
widget/manifests/1.0.0 200 [] []
widget/tags/list 200 [1.0.0] []
widget/manifests/2.0.0 404 [] [{MANIFEST_UNKNOWN}]
gadget/tags/list 404 [] [{NAME_UNKNOWN}]" ]
