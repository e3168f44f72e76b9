package catalog_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// summarize stores a state whose summary describes 1.0.0, 1.1.0 and 1.2.0 as signed, and 1.3.0 as unsigned.
func (b *bench) summarize() {
	b.t.Helper()
	s := artifact.Summary{}
	for i := range 4 {
		v := provider.MustParseVersion(fmt.Sprintf("1.%d.0", i))
		b.publish(b.t, widget, v, "content")
		s[v] = artifact.VersionSummary{Index: digest.FromString(v.String()), Platforms: []provider.Platform{provider.MustParsePlatform("linux_amd64")}, Verdict: trust.Signed}
		if i == 3 {
			s[v] = artifact.VersionSummary{Index: digest.FromString(v.String()), Verdict: trust.ChecksumOnly}
		}
	}
	state, err := artifact.EncodeState(artifact.State{Owner: widget, Summary: s})
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tags[widget][string(ociaddr.StateTag)] = state
}

// described returns the descriptions of a list's versions, oldest first.
func (b *bench) described(v catalog.View) string {
	b.t.Helper()
	list, err := v.Versions(b.t.Context(), widget)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for version, e := range v.Summary(b.t.Context(), list) {
		out = append(out, fmt.Sprint(version, e.Platforms))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// TestSummaryOfTheUnion shows that a description has the platforms of the registry and of the origin. A version is left
// out if the origin's platforms are unknown, or if the origin may have a signature for an unsigned version.
func TestSummaryOfTheUnion(t *testing.T) {
	both := []provider.Platform{provider.MustParsePlatform("darwin_arm64"), provider.MustParsePlatform("linux_amd64")}
	offered(t, nil, func(b *bench, o *offering) {
		b.summarize()
		o.offers = []catalog.Offer{
			{Version: provider.MustParseVersion("1.1.0"), Platforms: both}, {Version: provider.MustParseVersion("1.2.0")},
			{Version: provider.MustParseVersion("1.3.0"), Platforms: both}, {Version: provider.MustParseVersion("1.4.0"), Platforms: both},
		}
		b.expect("union", b.described(b.Catalog.Union()), "[1.0.0 [linux_amd64] 1.1.0 [darwin_arm64 linux_amd64]]")
		b.expect("registry", b.described(b.Catalog.Registry()), "[1.0.0 [linux_amd64] 1.1.0 [linux_amd64] 1.2.0 [linux_amd64] 1.3.0 []]")
		b.expect("requests", b.requests(), "[1 get 1 list]")

		// A version that was read is left out, because its own answer is more reliable.
		b.found(v110)
		b.expect("once a version was read", b.described(b.Catalog.Registry()), "[1.0.0 [linux_amd64] 1.2.0 [linux_amd64] 1.3.0 []]")
	})
}

// TestSummaryTakesMemory shows that a summary counts towards the memory of the catalog.
func TestSummaryTakesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.summarize()
		list, err := b.Versions(t.Context(), widget)
		if err != nil {
			t.Fatal(err)
		}
		before := b.Size().Bytes
		if b.Registry().Summary(t.Context(), list); b.Size().Bytes < before+4*300 {
			t.Errorf("%d bytes, then %d", before, b.Size().Bytes)
		}
	})
}
