package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// originCommand is the argument with which this program runs as an origin registry.
const originCommand = "origin"

// originIdle is how long the origin keeps an idle connection open.
const originIdle = 500 * time.Millisecond

// serveOrigin serves the providers of all runs. Their packages are in a folder. serveOrigin prints its address,
// and exits when its standard input ends.
func serveOrigin(args []string) error {
	certFile, keyFile := args[0], args[1]
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	signer, err := pgp.NewSigner("Acme Providers")
	if err != nil {
		return err
	}
	o := origin.New(origin.Options{})
	for i := range n {
		for _, p := range pulledPackages {
			rel, err := release.Build(release.Spec{Host: world.Host, Namespace: "acme", Type: p.provider(i), Version: "1.0.0", Signer: signer,
				Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: p.zip(args[3])}}})
			if err != nil {
				return err
			}
			o.Add(rel)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server := &http.Server{Handler: o, IdleTimeout: originIdle}
	return server.ServeTLS(l, certFile, keyFile)
}

// startOrigin starts this program as an origin registry. The packages are in dir.
func (b *bench) startOrigin(dir, certFile, keyFile string) (*server, error) {
	return b.startSelf("origin", originCommand, certFile, keyFile, strconv.Itoa(pullRuns), dir)
}

// startSelf starts this program as a server. The server prints its address.
func (b *bench) startSelf(name string, args ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(b.ctx, self, args...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() { stdin.Close(); cmd.Wait() }
	var addr string
	if _, err := fmt.Fscanln(stdout, &addr); err != nil {
		stop()
		return nil, fmt.Errorf("the %s server does not start: %w", name, err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		stop()
		return nil, err
	}
	return &server{name, "https://localhost:" + port, stop}, nil
}

// awaitStored waits until the registry has the manifest at url. The manifest belongs to a version that was
// pulled through.
func awaitStored(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", "application/vnd.oci.image.index.v1+json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not stored", url), err)
		}
	}
}
