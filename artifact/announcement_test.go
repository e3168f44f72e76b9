package artifact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// anAnnouncement returns an announcement of two platforms and evidence.
func anAnnouncement(t testing.TB) artifact.Announcement {
	return artifact.Announcement{Version: encode(t, linux, darwin).version, ID: "abcdefghij234567", At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
}

func TestAnnouncement(t *testing.T) {
	digests := map[string]bool{}
	for name, change := range map[string]func(*artifact.Announcement){
		"open":             func(*artifact.Announcement) {},
		"done":             func(a *artifact.Announcement) { a.Done = true },
		"without evidence": func(a *artifact.Announcement) { a.Evidence = nil },
		"another ID":       func(a *artifact.Announcement) { a.ID = "abcdefghij234566" },
		"a second later":   func(a *artifact.Announcement) { a.At = a.At.Add(time.Second) },
	} {
		want := anAnnouncement(t)
		change(&want)
		blob, err := artifact.EncodeAnnouncement(want)
		if err != nil {
			t.Fatal(err)
		}
		if digests[blob.Descriptor.Digest.String()] {
			t.Errorf("%s: two announcements are the same", name)
		}
		digests[blob.Descriptor.Digest.String()] = true
		got, err := artifact.ReadAnnouncement(t.Context(), oneTag(blob.Data), "tag", widget, v100)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != want.ID || !got.At.Equal(want.At) || got.Done != want.Done || !samePackages(got.Packages, want.Packages) || (got.Evidence == nil) != (want.Evidence == nil) {
			t.Errorf("%s: %+v reads back as %+v", name, want, got)
		}
		// A client that reads the announcement as a version finds only packages that exist.
		if v, err := artifact.Read(t.Context(), oneTag(blob.Data), widget, v100); err != nil || !samePackages(v.Packages, want.Packages) {
			t.Errorf("%s: as a version: %+v, %v", name, v, err)
		}
	}
}

func samePackages(a, b []artifact.Package) bool {
	byPlatform := func(list []artifact.Package) map[provider.Platform]artifact.Package {
		out := map[provider.Platform]artifact.Package{}
		for _, p := range list {
			out[p.Platform] = p
		}
		return out
	}
	return reflect.DeepEqual(byPlatform(a), byPlatform(b))
}

// TestNoAnnouncement shows that ReadAnnouncement refuses an index that lacks a part of an
// announcement, or that belongs to another version.
func TestNoAnnouncement(t *testing.T) {
	blob, err := artifact.EncodeAnnouncement(anAnnouncement(t))
	if err != nil {
		t.Fatal(err)
	}
	annotation := func(key, value string) func(*ocispec.Index) {
		return func(i *ocispec.Index) {
			if i.Annotations["io.github.ocibridge."+key] = value; value == "" {
				delete(i.Annotations, "io.github.ocibridge."+key)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*ocispec.Index)
		err    error
	}{
		"no ID":             {annotation("announcement", ""), artifact.ErrNotProvider},
		"no time":           {annotation("at", ""), artifact.ErrNotProvider},
		"not a time":        {annotation("at", "yesterday"), artifact.ErrNotProvider},
		"a time elsewhere":  {annotation("at", "2026-11-21T13:00:00+01:00"), artifact.ErrNotProvider},
		"no provider":       {annotation("provider", ""), artifact.ErrNotProvider},
		"no version":        {annotation("version", ""), artifact.ErrNotProvider},
		"another provider":  {annotation("provider", "registry.acme.example/other/widget"), artifact.ErrForeign},
		"another version":   {annotation("version", "2.0.0"), artifact.ErrForeign},
		"no package digest": {func(i *ocispec.Index) { delete(i.Manifests[0].Annotations, artifact.AnnotationDigest) }, artifact.ErrNotProvider},
	} {
		var index ocispec.Index
		if err := json.Unmarshal(blob.Data, &index); err != nil {
			t.Fatal(err)
		}
		tc.change(&index)
		data, err := json.Marshal(index)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := artifact.ReadAnnouncement(t.Context(), oneTag(data), "tag", widget, v100); !errors.Is(err, tc.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "[]", "{}", string(blob.Data[:len(blob.Data)-1])} {
		if got, err := artifact.ReadAnnouncement(t.Context(), oneTag(bad), "tag", widget, v100); !errors.Is(err, artifact.ErrNotProvider) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
	if _, err := artifact.ReadAnnouncement(t.Context(), oneTag(strings.Repeat(" ", artifact.MaxManifestBytes+1)), "tag", widget, v100); !errors.Is(err, artifact.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// TestPlaceholder shows that placeholders with different IDs differ, and that no
// placeholder is read as a version or as an announcement.
func TestPlaceholder(t *testing.T) {
	a, err := artifact.Placeholder("")
	if err != nil {
		t.Fatal(err)
	}
	b, err := artifact.Placeholder("abcdefghij234567")
	if err != nil {
		t.Fatal(err)
	}
	if a.Descriptor.Digest == b.Descriptor.Digest || bytes.Equal(a.Data, b.Data) {
		t.Error("placeholders with different IDs are the same")
	}
	for _, p := range []artifact.Blob{a, b} {
		if _, err := artifact.Read(t.Context(), oneTag(p.Data), widget, v100); !errors.Is(err, artifact.ErrNotProvider) {
			t.Errorf("as a version: %v", err)
		}
		if _, err := artifact.ReadAnnouncement(t.Context(), oneTag(p.Data), "tag", widget, v100); !errors.Is(err, artifact.ErrNotProvider) {
			t.Errorf("as an announcement: %v", err)
		}
	}
}

// FuzzAnnouncement shows that every announcement that can be read belongs to the requested
// version, describes each of its packages, and stays the same if it is encoded and read
// again.
func FuzzAnnouncement(f *testing.F) {
	addGolden(f, "index.json")
	a := anAnnouncement(f)
	for _, done := range []bool{false, true} {
		a.Done = done
		blob, err := artifact.EncodeAnnouncement(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(blob.Data)
		for _, at := range []string{"2026-11-21T13:00:00.5+01:00", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59"} {
			f.Add(bytes.Replace(blob.Data, []byte("2026-11-21T12:00:00Z"), []byte(at), 1))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := artifact.ReadAnnouncement(t.Context(), oneTag(data), "tag", widget, v100)
		if err != nil {
			return
		}
		if got.Owner != widget || got.Version.Version != v100 || got.ID == "" {
			t.Errorf("%+v", got)
		}
		for _, p := range got.Packages {
			checkManifest(t, p.Manifest)
			if p.Digest.Validate() != nil || p.Size <= 0 {
				t.Errorf("package %+v", p)
			}
		}
		if len(got.Packages) == 0 {
			return // an announcement without packages cannot be encoded
		}
		blob, err := artifact.EncodeAnnouncement(*got)
		if err != nil {
			t.Fatalf("read, but does not encode: %v", err)
		}
		again, err := artifact.ReadAnnouncement(t.Context(), oneTag(blob.Data), "tag", widget, v100)
		if err != nil || again.ID != got.ID || !again.At.Equal(got.At.Truncate(time.Second)) || again.Done != got.Done || !samePackages(again.Packages, got.Packages) {
			t.Errorf("%s reads as %+v, then as %+v, %v", data, got, again, err)
		}
	})
}
