package artifact_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

func platforms(names ...string) (out []provider.Platform) {
	for _, name := range names {
		out = append(out, provider.MustParsePlatform(name))
	}
	provider.SortPlatforms(out)
	return out
}

func summarized(text string, verdict trust.Verdict, protocols []string, names ...string) artifact.VersionSummary {
	return artifact.VersionSummary{Index: digest.FromString(text), Platforms: platforms(names...), Protocols: protocols, Verdict: verdict}
}

// TestSummary shows that a state keeps the summary of its versions.
func TestSummary(t *testing.T) {
	v := provider.MustParseVersion
	want := artifact.Summary{
		v("1.0.0"):       summarized("a", trust.Signed, []string{"5.0"}, "linux_amd64", "darwin_arm64"),
		v("1.1.0"):       summarized("b", trust.Signed, []string{"5.0"}, "linux_amd64", "darwin_arm64"),
		v("1.2.0-rc1+x"): summarized("c", trust.ChecksumOnly, nil, "linux_amd64"),
		v("2.0.0"):       summarized("d", artifact.NoEvidence, nil),
	}
	blob, err := artifact.EncodeState(artifact.State{Owner: widget, Summary: want})
	if err != nil {
		t.Fatal(err)
	}
	got, desc, err := artifact.ReadSummary(t.Context(), oneTag(blob.Data), widget)
	if err != nil || !reflect.DeepEqual(got, want) || desc.Digest != blob.Descriptor.Digest || desc.MediaType != ocispec.MediaTypeImageManifest {
		t.Errorf("%s has the summary %+v of %+v, %v", blob.Data, got, desc, err)
	}
	if n := strings.Count(string(blob.Data), "darwin_arm64"); n != 1 {
		t.Errorf("the platforms of two versions are written %d times:\n%s", n, blob.Data)
	}
	state, _, err := artifact.ReadState(t.Context(), oneTag(blob.Data), widget)
	if err != nil || !reflect.DeepEqual(state.Summary, want) {
		t.Errorf("the state has the summary %+v, %v", state.Summary, err)
	}
	newer := summarized("e", trust.Signed, nil, "linux_arm64")
	state.Merge(artifact.State{Summary: artifact.Summary{v("1.0.0"): newer}})
	if want[v("1.0.0")] = newer; !reflect.DeepEqual(state.Summary, want) {
		t.Errorf("merged with a newer index: %+v", state.Summary)
	}
}

// TestSummaryBounds shows that a summary of thousands of versions stays small, and that a larger one keeps the newest
// versions.
func TestSummaryBounds(t *testing.T) {
	testkit.LeaveToAll(t) // it encodes very many versions in one goroutine
	var all []string
	for _, os := range []string{"darwin", "freebsd", "linux", "openbsd", "windows"} {
		for _, arch := range []string{"386", "amd64", "arm64"} {
			all = append(all, os+"_"+arch)
		}
	}
	for _, tc := range []struct {
		name            string
		versions, kinds int
		kept, bytes     int
	}{
		{"3,000 versions with 15 platforms", 3_000, 1, 3_000, 300 << 10},
		{"3,000 versions with 15 platforms, no two alike", 3_000, 3_000, 3_000, 2 << 20},
		{"10,000 versions", 10_000, 2, 10_000, 1 << 20},
		{"more versions than a summary has", 10_001, 2, 10_000, 1 << 20},
		{"more bytes than a summary has", 8_000, 8_000, 4_000, 2 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := artifact.Summary{}
			for i := range tc.versions {
				protocols := []string{fmt.Sprintf("5.%d", i%tc.kinds)}
				s[provider.MustParseVersion(fmt.Sprintf("5.%d.0", i))] = summarized(fmt.Sprint(i), trust.Signed, protocols, all...)
			}
			blob, err := artifact.EncodeState(artifact.State{Owner: widget, Summary: s})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := artifact.ReadSummary(t.Context(), oneTag(blob.Data), widget)
			if err != nil || len(got) != tc.kept || len(blob.Data) > tc.bytes {
				t.Fatalf("%d versions in %d bytes, want %d in at most %d: %v", len(got), len(blob.Data), tc.kept, tc.bytes, err)
			}
			if _, ok := got[provider.MustParseVersion(fmt.Sprintf("5.%d.0", tc.versions-1))]; !ok {
				t.Error("the newest version is missing")
			}
		})
	}
}

// TestSummaryInFullState shows that a state without room for its summary is written without it.
func TestSummaryInFullState(t *testing.T) {
	testkit.WithoutRace(t)
	s := artifact.State{Owner: widget, Seen: map[provider.Version]time.Time{}, Summary: artifact.Summary{}}
	for i := range artifact.MaxSeen {
		s.Seen[provider.MustParseVersion(fmt.Sprintf("1.0.%d-%s", i, strings.Repeat("a", 110)))] = time.Unix(int64(i), 0)
	}
	for i := range 5_000 {
		s.Summary[provider.MustParseVersion(fmt.Sprintf("1.0.%d-%s", i, strings.Repeat("a", 110)))] = summarized(fmt.Sprint(i), trust.Signed, []string{fmt.Sprint(i)}, "linux_amd64")
	}
	blob, err := artifact.EncodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := artifact.ReadState(t.Context(), oneTag(blob.Data), widget)
	if err != nil || len(got.Seen) != artifact.MaxSeen || got.Summary != nil {
		t.Errorf("%d versions seen, %d summarized, %v", len(got.Seen), len(got.Summary), err)
	}
}

// TestSummaryRefused shows that an invalid summary is refused as a whole, and does not affect the state.
func TestSummaryRefused(t *testing.T) {
	sum := digest.FromString("x").String()
	manifest := func(owner, text string) string {
		return fmt.Sprintf(`{"artifactType":%q,"annotations":{%q:%q,%q:%q,%q:%q}}`, artifact.TypeState,
			artifact.AnnotationProvider, owner, artifact.AnnotationState, `{"cooldown":true}`, artifact.AnnotationVersions, text)
	}
	group := func(more, version, sum string) string {
		return fmt.Sprintf(`{"format":1,"groups":[{%s,"versions":{%q:%q}}]}`, more, version, sum)
	}
	const signed = `"verdict":"signed","platforms":["linux_amd64"]`
	if s, _, err := artifact.ReadSummary(t.Context(), oneTag(manifest(widget.Path(), group(signed, "1.0.0", sum))), widget); err != nil || len(s) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"no JSON":                 {"signed", artifact.ErrNotProvider},
		"an older format":         {`{"groups":[]}`, artifact.ErrNotProvider},
		"a newer format":          {strings.Replace(group(signed, "1.0.0", sum), `:1,`, `:2,`, 1), artifact.ErrNotProvider},
		"a version that is none":  {group(signed, "1.0", sum), artifact.ErrNotProvider},
		"a digest that is none":   {group(signed, "1.0.0", "sha256:00"), artifact.ErrNotProvider},
		"no verdict":              {group(`"platforms":[]`, "1.0.0", sum), artifact.ErrNotProvider},
		"an unknown verdict":      {group(`"verdict":"trusted"`, "1.0.0", sum), artifact.ErrNotProvider},
		"a platform that is none": {group(`"verdict":"signed","platforms":["linux"]`, "1.0.0", sum), artifact.ErrNotProvider},
		"a platform without name": {group(`"verdict":"signed","platforms":[null]`, "1.0.0", sum), artifact.ErrNotProvider},
		"a platform twice":        {group(`"verdict":"signed","platforms":["linux_amd64","linux_amd64"]`, "1.0.0", sum), artifact.ErrAmbiguous},
		"a version twice":         {`{"format":1,"groups":[` + strings.Repeat(`{"verdict":"signed","versions":{"1.0.0":"`+sum+`"}},`, 2) + `{"verdict":"none"}]}`, artifact.ErrAmbiguous},
		"too many protocols":      {group(`"verdict":"signed","protocols":["`+strings.Repeat("5", 300)+`"]`, "1.0.0", sum), artifact.ErrTooLarge},
		"too many bytes":          {strings.Repeat(" ", artifact.MaxSummaryBytes+1), artifact.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			store := oneTag(manifest(widget.Path(), tc.text))
			s, desc, err := artifact.ReadSummary(t.Context(), store, widget)
			if !errors.Is(err, tc.want) || s != nil || desc.Digest == "" {
				t.Errorf("%+v of %s, %v", s, desc.Digest, err)
			}
			if state, _, err := artifact.ReadState(t.Context(), store, widget); err != nil || !state.Cooldown || state.Summary != nil {
				t.Errorf("the state is %+v, %v", state, err)
			}
		})
	}
	if s, _, err := artifact.ReadSummary(t.Context(), oneTag(manifest("registry.acme.example/acme/gadget", group(signed, "1.0.0", sum))), widget); !errors.Is(err, artifact.ErrForeign) {
		t.Errorf("the summary of another provider: %+v, %v", s, err)
	}
}

// TestVersionSummary shows that a version is summarized only if its index says everything that a list needs.
func TestVersionSummary(t *testing.T) {
	index := ocispec.Descriptor{Digest: digest.FromString("index")}
	evidence := ocispec.Descriptor{Digest: digest.FromString("evidence")}
	signed := artifact.DescribeEvidence(evidence, trust.Signed)
	pkg := artifact.Package{Platform: provider.MustParsePlatform("linux_amd64")}
	for name, tc := range map[string]struct {
		version artifact.Version
		want    trust.Verdict
	}{
		"signed":                     {artifact.Version{Index: index, Evidence: &signed, Packages: []artifact.Package{pkg}}, trust.Signed},
		"without evidence":           {artifact.Version{Index: index, Packages: []artifact.Package{pkg}}, artifact.NoEvidence},
		"evidence without verdict":   {artifact.Version{Index: index, Evidence: &evidence, Packages: []artifact.Package{pkg}}, ""},
		"a missing package":          {artifact.Version{Index: index, Evidence: &signed, Missing: []artifact.MissingPackage{{Platform: pkg.Platform}}}, ""},
		"a version that is no index": {artifact.Version{Evidence: &signed, Packages: []artifact.Package{pkg}}, ""},
	} {
		got, ok := tc.version.Summary()
		if ok != (tc.want != "") || ok && (got.Verdict != tc.want || got.Index != index.Digest || !reflect.DeepEqual(got.Platforms, platforms("linux_amd64"))) {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
}

// TestStateWithoutSummary shows that a state of an earlier release is read as a state without a summary.
func TestStateWithoutSummary(t *testing.T) {
	blob, err := artifact.EncodeState(artifact.State{Owner: widget, Cooldown: true})
	if err != nil {
		t.Fatal(err)
	}
	if s, desc, err := artifact.ReadSummary(t.Context(), oneTag(blob.Data), widget); s != nil || err != nil || desc.Digest != blob.Descriptor.Digest {
		t.Errorf("%+v of %s, %v", s, desc.Digest, err)
	}
}
