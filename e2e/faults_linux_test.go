package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestFaults injects some faults of internal/test/faults into the built program. It shows that the gateway serves
// cached answers during a fault, and returns errors with Retry-After to new requests. After the fault, a client
// can install, and nothing has leaked.
//
//testrun:scene
func TestFaults(t *testing.T) {
	t.Parallel()
	all := newScene(t)
	reg := registry.For(t, registry.Options{})
	handler, err := reg.Handler()
	clients.Must(t, err)
	all.pushTo(reg, world.Null+"@"+nullVersion)
	for name, begin := range map[string]func(*testing.T, *faultproxy.Server) func(){
		"refused": func(t *testing.T, proxy *faultproxy.Server) func() {
			proxy.Refuse()
			return func() { clients.Must(t, proxy.Accept()) }
		},
		"silence": during(faultproxy.Stall()),
		"503":     during(faultproxy.Status(503, "")),
		"page":    during(faultproxy.HTML()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time, the clients and the gateways wait
			s := *all
			s.t = t
			proxy := faultproxy.For(t, handler, nil)
			at := strings.Replace(template(reg), reg.Host, proxy.Addr, 1)
			known := s.serve("--template", at, s.config("gateway {\n  tag_ttl = \"0s\"\n}\n"))
			fresh := s.serve("--template", at, "--no-cache")
			index, pkg := world.Null+"/index.json", world.Null+"/"+archive(s.null, hostPackage(t, s.null).OS, hostPackage(t, s.null).Arch)
			get := func(gateway *world.Gateway, path string) (int, string, []byte) {
				resp, err := s.CA.HTTPClient().Get(gateway.URL + path)
				clients.Must(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				clients.Must(t, err)
				return resp.StatusCode, resp.Header.Get("Retry-After"), body
			}
			for _, path := range []string{index, pkg} {
				if status, _, _ := get(known, path); status != http.StatusOK {
					t.Fatalf("%s: %d", path, status)
				}
			}
			before, err := usage.Of(fresh.PID())
			clients.Must(t, err)
			end := begin(t, proxy)
			if status, _, body := get(known, index); status != http.StatusOK || !bytes.Contains(body, []byte(nullVersion)) {
				t.Errorf("a known answer: %d %s", status, body)
			}
			for _, path := range []string{index, pkg} {
				if status, after, body := get(fresh, path); status < 502 || status > 504 || after == "" {
					t.Errorf("a new request: %d, Retry-After %q: %.100q", status, after, body)
				}
			}
			end()
			ws := s.user(fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n}\n", fresh.URL), nullVersion)
			for try := 0; ; try++ {
				out, err := ws.Run(clients.Tofu(t), "init", "-no-color")
				if err == nil {
					break
				}
				if try == 20 {
					t.Fatalf("when it is over: %v\n%s", err, out)
				}
				time.Sleep(time.Second) // the gateway pauses after a failure of the registry
			}
			if status, _, body := get(fresh, pkg); status != http.StatusOK || !bytes.Equal(body, hostPackage(t, s.null).Data) {
				t.Errorf("%d with %d bytes", status, len(body))
			}
			after, err := usage.Of(fresh.PID())
			clients.Must(t, err)
			if after.Files > before.Files+20 {
				t.Errorf("%d open files before, %d after", before.Files, after.Files)
			}
			clients.Must(t, known.Stop())
			clients.Must(t, fresh.Stop())
		})
	}
}

// during returns a function that begins a fault of all requests, and returns what ends it.
func during(f faultproxy.Fault) func(*testing.T, *faultproxy.Server) func() {
	return func(_ *testing.T, proxy *faultproxy.Server) func() { return proxy.Begin(faultproxy.Rule{Fault: f}) }
}
