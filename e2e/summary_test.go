package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"oras.land/oras-go/v2"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// summarized checks which versions the summary of a provider's repository has, with the digests of their tags.
func (g *tagged) summarized(r *registry.Registry, when string, want ...string) {
	g.t.Helper()
	repo := repository(g.t, r, g.provider)
	_, data, err := oras.FetchBytes(g.t.Context(), repo, "ocibridge-state", oras.DefaultFetchBytesOptions)
	clients.Must(g.t, err)
	var got []string
	for tag, index := range g.contents().Tags {
		if strings.Contains(string(data), fmt.Sprintf(`\"%s\":\"%s\"`, tag, index)) {
			got = append(got, tag)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) || strings.Count(string(data), `.0\":\"sha256:`) != len(want) {
		g.t.Errorf("%s: the summary has %q, want %q: %s", when, got, want, data)
	}
}

// TestSummary shows that every operation that stores versions keeps up the summary in the registry. A new gateway then
// lists the versions without reading any of their manifests.
func TestSummary(t *testing.T) {
	t.Parallel()
	g := newTagged(t, registry.Distribution3, "1.0.0", "1.1.0", "1.2.0", "1.3.0")
	g.ws.MustRun(t, g.bridge, "push", "--template", template(g.registry), "--platform", "linux_amd64", g.provider+"@1.0.0")
	g.summarized(g.registry, "a push of one platform", "1.0.0")
	g.ws.MustRun(t, g.bridge, "push", "--template", template(g.registry), g.provider+"@1.0.0")
	g.summarized(g.registry, "a push of the others", "1.0.0")
	g.sync(`versions = "1.1.0"`)
	g.summarized(g.registry, "a sync", "1.0.0", "1.1.0")
	g.pull("1.2.0")
	g.summarized(g.registry, "pull-through", "1.0.0", "1.1.0", "1.2.0")
	rec, host := g.observed(registry.Options{})
	g.ws.MustRun(t, g.bridge, "copy", "--from", template(g.registry), "--to", host+"/providers/${hostname}/${namespace}/${type}", g.provider)

	gateway := g.serve(g.config(mirror(host)), "--no-pull-through")
	rec.Reset()
	url := strings.TrimSuffix(gateway.URL, "providers/") + "hosts/" + strings.Replace(g.provider, "/", "/v1/providers/", 1) + "/versions"
	body := string(g.wait(url))
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		if !strings.Contains(body, fmt.Sprintf(`{"version":%q,"platforms":[{`, v)) && !strings.Contains(body, fmt.Sprintf(`{"version":%q,"protocols":`, v)) {
			t.Errorf("%s is not described: %s", v, body)
		}
	}
	beside := rec.Count(recorder.PathContains("/manifests/"))
	if state := rec.Count(recorder.PathSuffix("/manifests/ocibridge-state")); state != 1 || beside != 1 {
		t.Errorf("the list reads %d manifests: %v", beside, rec.Requests())
	}

	g.sync(`versions = "1.1.0"`, "--prune")
	g.summarized(g.registry, "a prune", "1.1.0")
}
