package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// TestFaults injects some faults of internal/faults into the built program. It shows that the gateway serves
// cached answers during a fault, and returns errors with Retry-After to new requests. After the fault, a client
// can install, and nothing has leaked.
//
//testrun:scene
func TestFaults(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	reg := registry.For(t, registry.Options{})
	handler, err := reg.Handler()
	clients.Must(t, err)
	proxy := faultproxy.For(t, handler, nil)
	at := proxy.Addr + "/${hostname}/${namespace}/${type}"
	s.ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion, "--template", at)
	for name, begin := range map[string]func() func(){
		"refused": func() func() {
			proxy.Refuse()
			return func() { clients.Must(t, proxy.Accept()) }
		},
		"silence": func() func() { return proxy.Begin(faultproxy.Rule{Fault: faultproxy.Stall()}) },
		"503":     func() func() { return proxy.Begin(faultproxy.Rule{Fault: faultproxy.Status(503, "")}) },
		"page":    func() func() { return proxy.Begin(faultproxy.Rule{Fault: faultproxy.HTML()}) },
	} {
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
				t.Fatalf("%s: %s: %d", name, path, status)
			}
		}
		before, err := usage.Of(fresh.PID())
		clients.Must(t, err)
		end := begin()
		if status, _, body := get(known, index); status != http.StatusOK || !bytes.Contains(body, []byte(nullVersion)) {
			t.Errorf("%s: a known answer: %d %s", name, status, body)
		}
		for _, path := range []string{index, pkg} {
			if status, after, body := get(fresh, path); status < 502 || status > 504 || after == "" {
				t.Errorf("%s: a new request: %d, Retry-After %q: %.100q", name, status, after, body)
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
				t.Fatalf("%s: when it is over: %v\n%s", name, err, out)
			}
			time.Sleep(time.Second) // the gateway pauses after a failure of the registry
		}
		if status, _, body := get(fresh, pkg); status != http.StatusOK || !bytes.Equal(body, hostPackage(t, s.null).Data) {
			t.Errorf("%s: %d with %d bytes", name, status, len(body))
		}
		after, err := usage.Of(fresh.PID())
		clients.Must(t, err)
		if after.Files > before.Files+20 {
			t.Errorf("%s: %d open files before, %d after", name, before.Files, after.Files)
		}
		clients.Must(t, known.Stop())
		clients.Must(t, fresh.Stop())
	}
}
