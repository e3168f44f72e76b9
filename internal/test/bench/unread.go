package main

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const (
	// unreadStreams is the number of HTTP/2 streams that are not read. They are on four connections.
	unreadStreams = 512
	// allowedUnread is the maximum growth of the gateway's memory by these streams.
	allowedUnread = 96 << 20
	// unreadVersions is the number of versions in the list that is not read.
	unreadVersions = 3000
	// unreadMiB is the size of the package that is not read.
	unreadMiB = 16
)

// unread measures how much memory a gateway needs for responses that clients do not read: downloads of a package from
// the embedded registry, by a protocol of providers and by /v2/, and lists of versions.
func (b *bench) unread() error {
	certFile, keyFile, err := b.certificate()
	if err != nil {
		return err
	}
	data, file, blob, err := b.fillDataFolder()
	if err != nil {
		return err
	}
	embedded, process, err := b.startConfigured(certFile, keyFile, func(string) string { return "" }, "--data", data)
	if err != nil {
		return err
	}
	defer embedded.stop()
	host := strings.TrimSuffix(embedded.url, "/providers")
	if err := b.measureUnread("downloads from the embedded registry", process, embedded.url+file, host+blob); err != nil {
		return err
	}
	distant, err := newDistantRegistry(unreadVersions, 0)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	registry := &http.Server{Handler: distant}
	go registry.Serve(l)
	defer registry.Close()
	gateway, process, err := b.startGateway(certFile, keyFile, l.Addr().String()+"/${hostname}/${namespace}/${type}")
	if err != nil {
		return err
	}
	defer gateway.stop()
	return b.measureUnread(fmt.Sprintf("lists of %d versions", unreadVersions), process, listURL(gateway, summarized))
}

// fillDataFolder pushes a version into a new data folder. It returns the paths of its package, below the gateway's
// mirror and below the gateway's URL.
func (b *bench) fillDataFolder() (data, file, blob string, err error) {
	if data, err = b.subdir("data"); err != nil {
		return "", "", "", err
	}
	const namespace, name, version = "acme", "still", "1.0.0"
	zip := filepath.Join(b.Dir, "still.zip")
	sum, err := release.WriteBigZip(zip, "terraform-provider-still_v"+version, unreadMiB, 1)
	if err != nil {
		return "", "", "", err
	}
	r, err := release.Build(release.Spec{
		Host: world.Host, Namespace: namespace, Type: name, Version: version, Signer: b.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: zip}},
	})
	if err != nil {
		return "", "", "", err
	}
	b.Origin.Add(r)
	repository := "/" + world.Host + "/" + namespace + "/" + name
	_, err = b.ws.Run(b.bridge, "push", "--data", data, repository[1:]+"@"+version)
	return data, repository + "/" + version + "/linux_amd64/" + r.Packages[0].Filename, "/v2" + repository + "/blobs/sha256:" + sum, err
}

// measureUnread adds a row with the growth of a gateway's peak memory, over its memory after one request for each URL.
func (b *bench) measureUnread(what string, process *world.Gateway, urls ...string) error {
	for _, n := range []int{len(urls), unreadStreams} {
		before, err := usage.Of(process.PID())
		if err != nil {
			return err
		}
		end, err := usage.Unread(b.ctx, b.CA.CertPool(), n, urls...)
		if err != nil {
			end()
			return err
		}
		peak, err := highWater(process.PID())
		end()
		if err != nil {
			return err
		}
		if n == len(urls) {
			continue // the process has allocated what it allocates only once
		}
		grown := peak - before.Memory
		b.rows = append(b.rows, row{
			what:   fmt.Sprintf("memory: %d unread %s, over idle", n, what),
			figure: fmt.Sprintf("%d MiB, %d KiB each", grown>>20, grown>>10/int64(n)), ratio: float64(grown) / allowedUnread, than: "96 MiB", wanted: "<= 1.00", reached: grown <= allowedUnread,
		})
	}
	return nil
}
