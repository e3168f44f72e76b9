package artifact_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

func replaced(text, version string) artifact.Replaced {
	r := artifact.Replaced{Manifest: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(text), Size: int64(len(text))}}
	if version != "" {
		r.Manifest.MediaType, r.Version = ocispec.MediaTypeImageIndex, provider.MustParseVersion(version)
	}
	return r
}

func TestState(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 5, time.FixedZone("", 3600))
	v := provider.MustParseVersion
	for _, want := range []artifact.State{
		{Owner: widget},
		{Owner: widget, Cooldown: true, Seen: map[provider.Version]time.Time{v("1.0.0"): {}, v("1.1.0-rc1+b"): at}},
		{Owner: widget, Replaced: []artifact.Replaced{replaced("state", ""), replaced("b", "1.0.0"), replaced("a", "1.0.0"), replaced("state", "")}},
	} {
		blob, err := artifact.EncodeState(want)
		if err != nil {
			t.Fatal(err)
		}
		got, desc, err := artifact.ReadState(t.Context(), oneTag(blob.Data), widget)
		if err != nil || desc.Digest != blob.Descriptor.Digest || desc.MediaType != ocispec.MediaTypeImageManifest || desc.Size != blob.Descriptor.Size {
			t.Fatalf("%s reads as %+v of %+v, %v", blob.Data, got, desc, err)
		}
		if got.Owner != widget || got.Cooldown != want.Cooldown || len(got.Seen) != len(want.Seen) {
			t.Errorf("%+v reads back as %+v", want, got)
		}
		for ver, since := range want.Seen {
			if back, ok := got.Seen[ver]; !ok || !back.Equal(since.Truncate(time.Second)) || back.IsZero() != since.IsZero() {
				t.Errorf("%s: %s reads back as %s", ver, since, back)
			}
		}
		if len(want.Replaced) > 0 && (len(got.Replaced) != 3 || !reflect.DeepEqual(got.Replaced[2], replaced("state", ""))) {
			t.Errorf("replaced manifests read back as %+v", got.Replaced)
		}
		if again, err := artifact.EncodeState(*got); err != nil || !bytes.Equal(again.Data, blob.Data) {
			t.Errorf("encoded anew: %s, %v", again.Data, err)
		}
	}
}

// TestStateOfModule checks that the state of a module is read by its module alone.
func TestStateOfModule(t *testing.T) {
	vpc := module.MustParseAddress("registry.acme.example/Platform/vpc/aws")
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	blob, err := artifact.EncodeState(artifact.State{Owner: vpc, Seen: map[provider.Version]time.Time{provider.MustParseVersion("1.0.0"): at}})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := artifact.ReadState(t.Context(), oneTag(blob.Data), vpc)
	if err != nil || got.Owner != vpc || !got.Seen[provider.MustParseVersion("1.0.0")].Equal(at) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, other := range []subject.Address{widget, module.MustParseAddress("registry.acme.example/platform/vpc/aws")} {
		if _, _, err := artifact.ReadState(t.Context(), oneTag(blob.Data), other); !errors.Is(err, artifact.ErrForeign) {
			t.Errorf("as the state of %s: %v", other, err)
		}
	}
}

// TestStateRefused shows that decoding refuses an invalid state and the state of another
// provider, and that encoding refuses an invalid state.
func TestStateRefused(t *testing.T) {
	manifest := func(artifactType, owner, text string) string {
		return fmt.Sprintf(`{"artifactType":%q,"annotations":{%q:%q,%q:%q}}`, artifactType, artifact.AnnotationProvider, owner, artifact.AnnotationState, text)
	}
	state := func(text string) string { return manifest(artifact.TypeState, widget.Path(), text) }
	entry := func(mediaType, digest string, size int, version string) string {
		return state(fmt.Sprintf(`{"replaced":[{"mediaType":%q,"digest":%q,"size":%d,"version":%q}]}`, mediaType, digest, size, version))
	}
	sum := digest.FromString("x").String()
	if _, _, err := artifact.ReadState(t.Context(), oneTag(entry(ocispec.MediaTypeImageIndex, sum, 1, "1.0.0")), widget); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		manifest string
		want     error
	}{
		"nothing":                  {"", artifact.ErrNotProvider},
		"another type":             {manifest(artifact.TypeProvider, widget.Path(), "{}"), artifact.ErrNotProvider},
		"no provider":              {manifest(artifact.TypeState, "", "{}"), artifact.ErrNotProvider},
		"another provider":         {manifest(artifact.TypeState, "registry.acme.example/acme/gadget", "{}"), artifact.ErrForeign},
		"no text":                  {state(""), artifact.ErrNotProvider},
		"a time that is none":      {state(`{"seen":{"1.0.0":"yesterday"}}`), artifact.ErrNotProvider},
		"no time":                  {state(`{"seen":{"1.0.0":""}}`), artifact.ErrNotProvider},
		"a version that is none":   {state(`{"seen":{"1.0":"first sync"}}`), artifact.ErrNotProvider},
		"a blob that was replaced": {entry("application/zip", sum, 1, "1.0.0"), artifact.ErrNotProvider},
		"a digest that is none":    {entry(ocispec.MediaTypeImageIndex, "sha256:00", 1, "1.0.0"), artifact.ErrNotProvider},
		"no size":                  {entry(ocispec.MediaTypeImageIndex, sum, 0, "1.0.0"), artifact.ErrNotProvider},
		"replaced by no version":   {entry(ocispec.MediaTypeImageIndex, sum, 1, "latest"), artifact.ErrNotProvider},
		"too large":                {strings.Repeat(" ", artifact.MaxManifestBytes+1), artifact.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _, err := artifact.ReadState(t.Context(), oneTag(tc.manifest), widget); !errors.Is(err, tc.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	if _, err := artifact.EncodeState(artifact.State{}); err == nil {
		t.Error("a state without a provider is encoded")
	}
	if _, err := artifact.EncodeState(artifact.State{Owner: widget, Seen: map[provider.Version]time.Time{{}: {}}}); err == nil {
		t.Error("a state with a zero version is encoded")
	}
	many := artifact.State{Owner: widget, Seen: map[provider.Version]time.Time{}}
	for i := range artifact.MaxSeen + 1 {
		many.Seen[provider.MustParseVersion(fmt.Sprintf("1.0.%d", i))] = time.Time{}
	}
	if _, err := artifact.EncodeState(many); !errors.Is(err, artifact.ErrTooLarge) {
		t.Errorf("a state of too many versions is encoded: %v", err)
	}
}

// TestStateMerge shows that states can be merged in any order with the same result.
func TestStateMerge(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	v := provider.MustParseVersion
	a := artifact.State{
		Owner:    widget,
		Seen:     map[provider.Version]time.Time{v("1.0.0"): at, v("1.1.0"): at, v("1.2.0"): {}},
		Replaced: []artifact.Replaced{replaced("a", "1.0.0"), replaced("x", "")},
	}
	b := artifact.State{
		Owner: widget, Cooldown: true,
		Seen:     map[provider.Version]time.Time{v("1.1.0"): at.Add(-time.Hour), v("1.2.0"): at, v("1.3.0"): at},
		Replaced: []artifact.Replaced{replaced("a", "1.0.0"), replaced("x", "1.1.0"), replaced("b", "")},
	}
	merged := func(states ...artifact.State) (out artifact.State) {
		out.Owner = widget
		for _, s := range states {
			out.Merge(s)
		}
		return out
	}
	want := map[provider.Version]time.Time{v("1.0.0"): at, v("1.1.0"): at.Add(-time.Hour), v("1.2.0"): {}, v("1.3.0"): at}
	for _, got := range []artifact.State{merged(a, b), merged(b, a), merged(a, b, a)} {
		if !got.Cooldown || !reflect.DeepEqual(got.Seen, want) || len(got.Replaced) != 3 || !reflect.DeepEqual(got.Replaced[2], replaced("b", "")) {
			t.Errorf("%+v", got)
		}
		if !reflect.DeepEqual(got, merged(a, b)) {
			t.Errorf("%+v, and in another order %+v", got, merged(a, b))
		}
	}

	// If there are more manifests than the maximum, Merge drops older states first.
	var many artifact.State
	for i := range artifact.MaxReplaced - 1 {
		many.Replaced = append(many.Replaced, replaced(fmt.Sprint(i), "1.0.0"))
	}
	full := merged(many, artifact.State{Replaced: []artifact.Replaced{replaced("one state", ""), replaced("another state", ""), replaced("an index", "1.0.0")}})
	if n := len(full.Replaced); n != artifact.MaxReplaced || full.Replaced[n-1].Version.IsZero() {
		t.Errorf("%d manifests, the last one %+v", n, full.Replaced[n-1])
	}
	again := merged(full, full)
	if !reflect.DeepEqual(again, full) {
		t.Error("merging a full state with itself changes it")
	}
}

// oneTag is a store that returns the same manifest for every tag.
type oneTag []byte

func (o oneTag) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return ocispec.Descriptor{Digest: digest.FromBytes(o), Size: int64(len(o))}, io.NopCloser(bytes.NewReader(o)), nil
}

func (o oneTag) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(o)), nil
}
