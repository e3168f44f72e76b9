package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestHarborHowTo runs docs/howto/harbor.md. The registry imitates Harbor, and the part of
// Harbor's REST API that the page uses.
func TestHarborHowTo(t *testing.T) {
	testkit.LeaveToAll(t)
	h := newHarbor(t)
	out := howto.Run{
		Page:    "harbor",
		Replace: []string{"harbor.example.com", h.host},
		Before:  extras, After: lastExtra,
		Dir: h.home, Env: h.environment(),
	}.Do(t)
	for _, refusal := range []string{"action: push", "action: delete", "4.0.3' configured as immutable"} {
		if !strings.Contains(out.All, refusal) {
			t.Errorf("nothing was refused with %q:\n%s", refusal, out.All)
		}
	}
	h.check()
}

const (
	adminPassword = "admin-pass"
	howToProvider = "registry.opentofu.org/hashicorp/random"
)

// extras are commands that run before blocks.
var extras = map[string]string{
	// The robot for reading is not allowed to push, and the robot for pushing is not allowed
	// to prune.
	"'robot$providers+prune'": "docker login harbor.example.com -u 'robot$providers+serve'\n" +
		"refused ocibridge push " + howToProvider + "@4.0.0\n" +
		"docker login harbor.example.com -u 'robot$providers+push'\n" +
		"refused ocibridge sync --prune --config prune.hcl\n",
	// The push of 4.0.0 in two steps leaves an index without a tag. It also leaves an
	// ocibridge-state that is newer than 4.0.1. The versions 4.1 are as many as the retention
	// keeps together with these two.
	"harbor POST /retentions '": "ocibridge push " + howToProvider + "@4.0.1\n" +
		"ocibridge push " + howToProvider + "@4.0.0 --platform linux_amd64\n" +
		"ocibridge push " + howToProvider + "@4.0.0\n" +
		"ocibridge sync --config minor.hcl\n",
}

// lastExtra are commands that run after the last block. They push while the immutability rule
// applies.
var lastExtra = "ocibridge push " + howToProvider + "@4.0.2\n" +
	"ocibridge push " + howToProvider + "@4.0.2\n" +
	"ocibridge push " + howToProvider + "@4.0.3 --platform linux_amd64\n" +
	"refused ocibridge push " + howToProvider + "@4.0.3\n"

// harbor imitates Harbor with its REST API. It also has a home folder for the user who follows
// the page.
type harbor struct {
	t          *testing.T
	registry   *quirks.Registry
	home, host string
	origin     string // URL
	ca         string // file

	mu         sync.Mutex
	robots     map[string][]string // rights by name
	projects   map[string]harborProject
	retention  *harborRetention
	retained   []string // tags that the retention has left
	replicated int
	query      url.Values // the query of the request that a route is handling
}

func newHarbor(t *testing.T) *harbor {
	i := slices.IndexFunc(quirks.Profiles(), func(p quirks.Profile) bool { return p.Name == "harbor" })
	s := quirks.Profiles()[i].Settings
	s.User, s.Password = "admin", adminPassword
	h := &harbor{t: t, registry: quirks.For(t, s), home: t.TempDir(), robots: map[string][]string{}, projects: map[string]harborProject{}}
	ca := tlsca.For(t)
	config, err := ca.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	if h.ca, err = ca.WriteFile(h.home); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	h.routes(mux)
	mux.Handle("/", h.registry)
	start := func(handler http.Handler) *httptest.Server {
		server := httptest.NewUnstartedServer(handler)
		server.TLS = config
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	h.host = start(mux).Listener.Addr().String()
	signer := pgp.For(t, "Acme")
	var releases []*release.Release
	for _, v := range []string{"3.6.0", "3.7.1", "3.7.2", "4.0.0", "4.0.1", "4.0.2", "4.0.3", "4.1.0", "4.1.1", "4.1.2", "4.1.3", "4.1.4", "4.1.5", "4.1.6", "4.1.7"} {
		spec := release.Spec{Host: "registry.opentofu.org", Namespace: "hashicorp", Type: "random", Version: v, Signer: signer}
		for _, os := range []string{"linux", "darwin"} {
			spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: "amd64", Files: map[string][]byte{"terraform-provider-random_v" + v: []byte(os)}})
		}
		releases = append(releases, release.For(t, spec))
	}
	h.origin = start(testorigin.New(testorigin.Options{}, releases...)).URL
	for name, versions := range map[string]string{"prune.hcl": "~> 3.7", "minor.hcl": "~> 4.1"} {
		h.write(name, fmt.Sprintf("oci_mirror {\n  repository_template = \"%s/providers/${hostname}/${namespace}/${type}\"\n}\nprovider %q {\n  versions = %q\n}\n", h.host, howToProvider, versions))
	}
	h.write("cli.tfrc", fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", "registry.opentofu.org", h.origin+testorigin.ServicePath))
	return h
}

func (h *harbor) write(name, text string) {
	if err := os.WriteFile(filepath.Join(h.home, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harbor) environment() []string {
	return []string{
		"SSL_CERT_FILE=" + h.ca, "TF_CLI_CONFIG_FILE=" + filepath.Join(h.home, "cli.tfrc"),
		"HARBOR_PASSWORD=" + adminPassword, "OTHER_SECRET=other",
	}
}

// check checks the robots, tags and projects that the page's requests have created.
func (h *harbor) check() {
	want := map[string][]string{
		"robot$providers+push": {"pull", "push"}, "robot$providers+serve": {"pull"}, "robot$providers+prune": {"pull", "push", "delete"}, "robot$list": {"pull"},
	}
	if !maps.EqualFunc(h.robots, want, slices.Equal) {
		h.t.Errorf("robots %v, want %v", h.robots, want)
	}
	if want := []string{"4.0.0", "4.0.1", "4.1.0", "4.1.1", "4.1.2", "4.1.3", "4.1.4", "4.1.5", "4.1.6", "4.1.7", "ocibridge-state"}; !slices.Equal(h.retained, want) {
		h.t.Errorf("the retention leaves %v, want %v", h.retained, want)
	}
	if h.projects["cache"].Registry == 0 || h.replicated != 1 {
		h.t.Errorf("projects %v, %d replications", h.projects, h.replicated)
	}
}
