package serve

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// TestRecordedUse shows that the page gets the times that the embedded registry has recorded for versions of pull-through.
func TestRecordedUse(t *testing.T) {
	r := newReloading(t, withToken(""))
	site := r.live.current.Load()
	pulled, other := provider.MustParseVersion("1.0.0+build.5"), provider.MustParseVersion("1.1.0")
	for _, a := range []subject.Address{provider.MustParseAddress("registry.acme.example/acme/null"), module.MustParseAddress("registry.acme.example/acme/null/aws")} {
		repository, tag, err := site.markOf(a, pulled)
		if err != nil {
			t.Fatal(err)
		}
		if err := site.repositories.Embedded.MarkPulled(repository, tag, "", digest.FromString("index")); err != nil {
			t.Fatal(err)
		}
		if at := site.recordedUse(a, pulled); time.Since(at) > time.Hour {
			t.Errorf("%s %s: last used at %v", a, pulled, at)
		}
		if at := site.recordedUse(a, other); !at.IsZero() {
			t.Errorf("%s %s, which is not stored: last used at %v", a, other, at)
		}
	}
}
