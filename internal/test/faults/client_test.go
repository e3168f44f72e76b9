package faults_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
)

// behaviour is a way in which a client misbehaves while it receives a response.
type behaviour struct {
	name string
	act  func(c net.Conn)
}

var behaviours = []behaviour{
	{"goes away at once", func(c net.Conn) { c.Close() }},
	{"goes away at byte 1000", func(c net.Conn) {
		io.CopyN(io.Discard, c, 1000)
		c.Close()
	}},
	{"resets at byte 1000", func(c net.Conn) {
		io.CopyN(io.Discard, c, 1000)
		c.(interface{ Reset() }).Reset()
	}},
	{"stops reading for ever", func(c net.Conn) {
		time.Sleep(30 * time.Minute) // the gateway gives up earlier
		c.Close()
	}},
	{"stops reading at byte 1000", func(c net.Conn) {
		io.CopyN(io.Discard, c, 1000)
		time.Sleep(30 * time.Minute)
		c.Close()
	}},
	{"closes its half", func(c net.Conn) {
		c.(interface{ CloseWrite() error }).CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	}},
}

// TestClientGateway makes clients misbehave in every way during responses, and while the gateway waits for the
// registry. It shows that other clients with the same requests get responses, both concurrently and later. The
// failed requests leak nothing.
func TestClientGateway(t *testing.T) {
	for _, b := range behaviours {
		for i, d := range documents(shared.large) {
			for _, registry := range []string{"answers", "stalls", "is slow"} {
				if !long() && (i%2 == 1 || registry == "is slow") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/the registry %s", b.name, d.path[strings.LastIndex(d.path, "/")+1:], registry), func(t *testing.T) {
					t.Parallel()
					inRig(t, func(r *rig) { clientFails(r, b, d, registry) })
				})
			}
		}
	}
}

func clientFails(r *rig, b behaviour, d document, registry string) {
	if err := r.push(r.t.Context(), large); err != nil {
		r.t.Fatal(err)
	}
	r.serve(r.t.TempDir())
	end := func() {}
	switch registry {
	case "stalls":
		end = r.registry.Begin(faultproxy.Rule{Fault: faultproxy.Stall()})
	case "is slow":
		end = r.registry.Begin(faultproxy.Rule{Fault: faultproxy.Late(300 * time.Millisecond)})
	}
	var all sync.WaitGroup
	for range 3 {
		conn, err := r.net.Dial(r.t.Context(), "tcp", gatewayHost+":80")
		if err != nil {
			r.t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", d.path, gatewayHost)
		all.Go(func() { b.act(conn) })
	}
	if registry != "stalls" {
		r.wantPackage(d.path)
	}
	time.Sleep(time.Second)
	end()
	if registry == "stalls" {
		time.Sleep(time.Minute) // the gateway waits before it sends another request to an unavailable registry
	}
	r.wantPackage(d.path)
	all.Wait()
	time.Sleep(5 * time.Minute) // the maximum time that a download without clients continues
	r.wantPackage(d.path)
}

// wantPackage downloads a package as a well-behaved client does.
func (r *rig) wantPackage(path string) {
	r.t.Helper()
	a := r.get(path)
	if a.status != http.StatusOK || a.err != nil {
		r.t.Errorf("%s: %d, %v after %s\n%s", path, a.status, a.err, a.took, r.log)
	}
	if strings.HasSuffix(path, ".zip") && !bytes.Equal(a.body, shared.large.Packages[0].Data) {
		r.t.Errorf("%s: %d bytes", path, len(a.body))
	}
}

// TestSlowClient shows that a slow client that needs a minute for a package receives the whole package.
func TestSlowClient(t *testing.T) {
	inRig(t, func(r *rig) {
		if err := r.push(r.t.Context(), large); err != nil {
			r.t.Fatal(err)
		}
		r.serve(r.t.TempDir())
		conn, err := r.net.Dial(r.t.Context(), "tcp", gatewayHost+":80")
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		d := documents(shared.large)[4]
		for _, piece := range []string{"GET " + d.path, " HTTP/1.1\r\n", "Host: " + gatewayHost, "\r\nConnection: close\r\n\r\n"} {
			io.WriteString(conn, piece)
			time.Sleep(time.Second)
		}
		resp, err := http.ReadResponse(bufio.NewReader(slow{conn}), nil)
		if err != nil {
			r.t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(body, shared.large.Packages[0].Data) {
			r.t.Errorf("%d bytes, %v", len(body), err)
		}
	})
}

type slow struct{ io.Reader }

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return s.Reader.Read(p)
}
