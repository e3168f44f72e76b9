package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

// TestReplacedIndexIsPruned pushes a version again, and prunes the old evidence. It shows that the gateway then
// revalidates the tag immediately, although the cached index has not expired.
func TestReplacedIndexIsPruned(t *testing.T) {
	p := newPublisher(newBench(t))
	p.catalog(catalog.Options{TagTTL: time.Hour})
	p.push(widget, "1.0.0")
	c := p.serve()
	if a := c.get(prefix + "1.0.0.json"); a.status != http.StatusOK {
		t.Fatalf("%+v", a)
	}
	before, err := artifact.Read(t.Context(), p.repo, widget, provider.MustParseVersion("1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.repo.Delete(t.Context(), before.Index); err != nil {
		t.Fatal(err)
	}
	if err := p.repo.Delete(t.Context(), *before.Evidence); err != nil {
		t.Fatal(err)
	}
	p.signer = pgp.For(t, "Acme, with another key") // makes the new evidence differ from the old evidence
	p.push(widget, "1.0.0")
	a := c.get(hostsPrefix + "1.0.0/download/linux/amd64")
	if a.status != http.StatusOK || !strings.Contains(a.body, p.signer.KeyID()) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := p.registry.Count(recorder.PathSuffix("/manifests/1.0.0")); n > 2 {
		t.Errorf("%d requests for the tag, want HEAD and GET", n)
	}

	// If the tag has not moved, the gateway does not fetch the index again.
	after, err := artifact.Read(t.Context(), p.repo, widget, provider.MustParseVersion("1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.repo.Delete(t.Context(), *after.Evidence); err != nil {
		t.Fatal(err)
	}
	p.catalog(catalog.Options{TagTTL: time.Hour})
	c = p.serve()
	p.registry.Reset()
	if a := c.get(hostsPrefix + "1.0.0/download/linux/amd64"); a.status != http.StatusBadGateway {
		t.Errorf("without evidence: %d %s", a.status, a.body)
	}
	if n := p.registry.Count(recorder.PathSuffix("/manifests/1.0.0")); n > 2 {
		t.Errorf("without evidence: %d requests for the tag, want GET and HEAD", n)
	}
}
