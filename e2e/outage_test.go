package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// The versions of the outage. Before the registry stops, clients install the first version. They request only the metadata
// of the second version. The last version is only listed.
const (
	outageKept      = "3.2.2"
	outageDescribed = "3.2.3"
	outageUnknown   = nullVersion
)

// outage is a gateway whose registry is stopped during the test.
type outage struct {
	*scene
	registry *registry.Registry
	cache    string
	required bool
}

func newOutage(t *testing.T, required bool) *outage {
	s := newScene(t)
	o := &outage{s, s.tlsRegistry(), filepath.Join(t.TempDir(), "cache"), required}
	for _, v := range []string{outageKept, outageDescribed} {
		s.offer(v)
		s.pushTo(o.registry, world.Null+"@"+v)
	}
	return o
}

// serve starts the gateway. The gateway must revalidate all answers, so each lookup needs the registry.
func (o *outage) serve(staleIfError string) *world.Gateway {
	o.t.Helper()
	config := mirror(o.registry.Host)
	verify := "off"
	if o.required {
		verify = "required"
		config += fmt.Sprintf("trust %q {\n  keys = [%q]\n}\n", world.Host+"/acme/*", o.Signer.Fingerprint())
	}
	config += fmt.Sprintf("gateway {\n  verify = %q\n  tag_ttl = \"0s\"\n  stale_if_error = %q\n  cache {\n    directory = %q\n  }\n}\n", verify, staleIfError, o.cache)
	return o.scene.serve(o.config(config))
}

// byMirror creates a workspace that uses the gateway as a network mirror. The workspace's next installation
// method is the origin, behind the recorder that byMirror returns.
func (o *outage) byMirror(gateway *world.Gateway, version string) (*clients.Workspace, *recorder.Recorder) {
	o.t.Helper()
	seen, host := o.seenOrigin()
	ws := o.user("", version)
	clients.Must(o.t, ws.WriteCLIConfig(host+fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n  direct {}\n}\n", gateway.URL)))
	return ws, seen
}

// byHost creates a workspace that uses the gateway through a host block.
func (o *outage) byHost(gateway *world.Gateway, version string) *clients.Workspace {
	o.t.Helper()
	ws := o.user("", version)
	clients.Must(o.t, ws.WriteCLIConfig(hostBlock(world.Host, strings.TrimSuffix(gateway.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/")))
	return ws
}

// installs checks that both clients install the cached version, through the mirror and through a host block.
func (o *outage) installs(gateway *world.Gateway, when string) {
	o.t.Helper()
	for _, client := range installs(o.t) {
		ws, seen := o.byMirror(gateway, outageKept)
		if out, err := ws.Run(client, "init", "-no-color"); err != nil {
			o.t.Errorf("%s: %s by the mirror: %v\n%s", when, client.Name, err, out)
		}
		noDownload(o.t, client, seen)
		ws = o.byHost(gateway, outageKept)
		if out, err := ws.Run(client, "init", "-no-color"); err != nil || !strings.Contains(out, signedBy(client, o.scene)) {
			o.t.Errorf("%s: %s by the host block: %v\n%s", when, client.Name, err, out)
		}
	}
}

// fails checks that both clients fail to install the given versions, although the origin offers these versions.
// The clients must send the origin no request. They run concurrently, because they mostly wait.
func (o *outage) fails(gateway *world.Gateway, versions ...string) {
	o.t.Helper()
	var all sync.WaitGroup
	for _, v := range versions {
		for _, client := range installs(o.t) {
			ws, seen := o.byMirror(gateway, v)
			other := o.byHost(gateway, v)
			all.Go(func() {
				if out, err := ws.Run(client, "init", "-no-color"); err == nil {
					o.t.Errorf("%s installs %s by the mirror:\n%s", client.Name, v, out)
				}
				noDownload(o.t, client, seen)
			})
			all.Go(func() {
				if out, err := other.Run(client, "init", "-no-color"); err == nil {
					o.t.Errorf("%s installs %s by the host block:\n%s", client.Name, v, out)
				}
			})
		}
	}
	all.Wait()
}

func noDownload(t *testing.T, client clients.Client, origin *recorder.Recorder) {
	t.Helper()
	if n := origin.Count(recorder.PathContains("/download/")); n != 0 {
		t.Errorf("%s: the origin got requests for packages: %v", client.Name, origin.Requests())
	}
}

// status returns the HTTP status of a path of the null provider in the network mirror.
func (o *outage) status(gateway *world.Gateway, path string) int {
	o.t.Helper()
	resp, err := o.CA.HTTPClient().Get(gateway.URL + world.Null + "/" + path)
	clients.Must(o.t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestRegistryStopped shows that clients install a cached version while the registry is stopped. They do so
// before and after a restart of the gateway, until stale_if_error has passed. For other versions, the gateway
// returns errors, and clients try no other installation method.
//
//testrun:scene
func TestRegistryStopped(t *testing.T) {
	t.Parallel()
	for name, required := range map[string]bool{"verify off": false, "verify required": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t, required)
			gateway := o.serve("24h")
			o.installs(gateway, "the registry runs")
			o.pushTo(o.registry, world.Null+"@"+outageUnknown)
			for _, document := range []string{outageDescribed + ".json", "index.json"} {
				if got := o.status(gateway, document); got != http.StatusOK {
					t.Fatalf("%s: status %d", document, got)
				}
			}
			o.registry.Stop()
			for _, when := range []string{"the registry is stopped", "the gateway is restarted"} {
				o.installs(gateway, when)
				// The gateway knows that the version exists, but not its content.
				if got := o.status(gateway, outageUnknown+".json"); got != http.StatusBadGateway {
					t.Errorf("%s: %s: status %d", when, outageUnknown, got)
				}
				o.fails(gateway, outageDescribed, outageUnknown)
				clients.Must(t, gateway.Stop())
				gateway = o.serve("24h")
			}
			if hashes := servedHashesOf(t, o.scene, gateway.URL, outageKept); len(hashes["h1:"]) == 0 {
				t.Errorf("served %v", hashes)
			}
			clients.Must(t, gateway.Stop())
			gateway = o.serve("1ms")
			for _, document := range []string{"index.json", outageKept + ".json"} {
				if got := o.status(gateway, document); got != http.StatusBadGateway {
					t.Errorf("%s after its time: status %d", document, got)
				}
			}
			o.fails(gateway, outageKept)
		})
	}
}
