package pusher_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// moduleSource returns the bench's repository as the source of copies, and gives the bench a new
// registry, which is their destination.
func (b *bench) moduleSource() pusher.Stored {
	from := pusher.Stored{Subject: pushbench.VPC, Repository: ociaddr.Repository{Registry: "source.test", Name: "acme/vpc"}, Store: b.Repo}
	b.NewRegistry()
	return from
}

// copyModule copies a version, and checks that a plan has the same status, tag and digest.
func (b *bench) copyModule(from pusher.Stored, version string) (*pusher.Result, error) {
	b.T.Helper()
	v := provider.MustParseVersion(version)
	p := pusher.New(b.Options)
	planned, perr := p.PlanCopy(b.T.Context(), from, v, nil)
	r, err := p.Copy(b.T.Context(), from, v, nil)
	if (perr == nil) != (err == nil) {
		b.T.Errorf("the plan's error is %v, the copy's %v", perr, err)
	} else if err == nil && (planned.Status != r.Status && r.Status != pusher.Completed || planned.Tag != r.Tag || planned.Digest != r.Digest || planned.Packages[0].Sent != r.Packages[0].Sent) {
		b.T.Errorf("planned %+v, then %+v", planned, r)
	}
	return r, err
}

// TestCopyModule shows that a copy has the same manifest and referrers, that its tag has no v, and
// that another copy sends only what is new.
func TestCopyModule(t *testing.T) {
	b := newBench(t)
	pkg := pushbench.ModulePackage(t, "1.0.0+build", "one")
	pushed := b.MustPushModule(pkg, pusher.Pushed)
	stored := b.StoredModule("1.0.0+build")
	if err := b.Repo.Tag(t.Context(), stored.Index, "v1.0.0_build"); err != nil {
		t.Fatal(err)
	}
	sbom := b.AttachTo(stored.Index, "sbom")
	source := b.Repo
	from := b.moduleSource()
	if versions, err := from.Versions(t.Context()); err != nil || len(versions) != 1 || versions[0] != pkg.Version {
		t.Errorf("versions %v, %v", versions, err)
	}

	first, err := b.copyModule(from, "1.0.0+build")
	if err != nil || first.Status != pusher.Pushed || !first.Packages[0].Sent || first.Digest != pushed.Digest || first.Tag != "1.0.0_build" || first.Referrers != 1 || first.ReferrersSent != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	if m := b.StoredModule("1.0.0+build"); m.Zip().Digest != pkg.Digest || m.Zip().H1 != pkg.H1 {
		t.Errorf("stored %+v", m)
	}
	if ok, err := b.Repo.Exists(t.Context(), sbom); err != nil || !ok {
		t.Errorf("the referrer: %v, %v", ok, err)
	}

	b.Registry.Reset()
	again, err := b.copyModule(from, "1.0.0+build")
	if n := len(b.Registry.Requests(recorder.Writes())); err != nil || again.Status != pusher.Unchanged || again.Packages[0].Sent || n != 0 {
		t.Errorf("%+v, %v, %d writes", again, err, n)
	}
	destination := b.Repo
	b.Repo = source
	b.AttachTo(stored.Index, "signature")
	b.Repo = destination
	later, err := b.copyModule(from, "1.0.0+build")
	if err != nil || later.Status != pusher.Completed || later.Referrers != 2 || later.ReferrersSent != 1 {
		t.Errorf("%+v, %v", later, err)
	}
}

// TestCopyModuleOfOtherTool shows that a copy keeps a manifest that does not name its module, and
// writes the tag without the v.
func TestCopyModuleOfOtherTool(t *testing.T) {
	b := newBench(t)
	b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "one"), pusher.Pushed)
	stored := b.StoredModule("1.0.0")
	layer := stored.Zip().Layer()
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeModule,
		Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer},
	})
	if err != nil {
		t.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, manifest)
	if err := b.Repo.PushReference(t.Context(), desc, bytes.NewReader(manifest), "v2.0.0"); err != nil {
		t.Fatal(err)
	}
	r, err := b.copyModule(b.moduleSource(), "2.0.0")
	if err != nil || r.Digest != desc.Digest.String() || r.Tag != "2.0.0" || r.Status != pusher.Pushed {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCopySameModuleOfOtherTool shows that a copy is unchanged if the destination has the same files in another zip, and
// a conflict if it has others. The source or both have no h1: hash.
func TestCopySameModuleOfOtherTool(t *testing.T) {
	folders := zippedBy(t, "empty/", "main.tf")
	for name, tc := range map[string]struct {
		content string // of the destination
		change  func(*pushbench.Module)
		want    error
	}{
		"a push":      {content: "one"},
		"no hash":     {content: "one", change: zippedBy(t, "main.tf")},
		"other files": {content: "two", want: pusher.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pkg := pushbench.ModulePackage(t, "1.0.0", "one")
			folders(&pkg)
			b.MustPushModule(pkg, pusher.Pushed)
			from := b.moduleSource()
			stored := pushbench.ModulePackage(t, "1.0.0", tc.content)
			if tc.change != nil {
				tc.change(&stored)
			}
			before := b.MustPushModule(stored, pusher.Pushed)
			r, err := b.copyModule(from, "1.0.0")
			if !errors.Is(err, tc.want) || err == nil && (r.Status != pusher.Unchanged || r.Digest != before.Digest) {
				t.Errorf("%+v, %v, want %v", r, err, tc.want)
			}
		})
	}
}

// TestCopyModuleRefuses shows the errors of a copy, and that it then writes no tag.
func TestCopyModuleRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		version string
		prepare func(b *bench) // of the source
		then    func(b *bench) // of the destination
		want    error
	}{
		"an absent version": {version: "3.0.0", want: origin.ErrVersionNotFound},
		"other content":     {then: func(b *bench) { b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "other"), pusher.Pushed) }, want: pusher.ErrConflict},
		"a damaged zip": {prepare: func(b *bench) {
			m := b.StoredModule("1.0.0")
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/blobs/"+m.Zip().Digest.String()) || r.Method != http.MethodGet {
					return false
				}
				w.Write(bytes.Repeat([]byte("x"), int(m.Zip().Size)))
				return true
			})
		}, want: artifact.ErrDamaged},
		"a wrong 404 for the exact tag": {prepare: func(b *bench) { b.hideExactTag("two") }, want: artifact.ErrMissing},
		"a manifest with a subject": {prepare: func(b *bench) {
			m := b.StoredModule("1.0.0")
			manifest, err := json.Marshal(ocispec.Manifest{
				Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeModule,
				Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{m.Zip().Layer()}, Subject: &m.Index,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Repo.PushReference(t.Context(), content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, manifest), bytes.NewReader(manifest), "1.0.0"); err != nil {
				t.Fatal(err)
			}
		}, want: artifact.ErrNotModule},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "one"), pusher.Pushed)
			if tc.prepare != nil {
				tc.prepare(b)
			}
			from := b.moduleSource()
			if tc.then != nil {
				tc.then(b)
			}
			v := provider.MustParseVersion("1.0.0")
			if tc.version != "" {
				v = provider.MustParseVersion(tc.version)
			}
			b.Registry.Reset()
			_, err := pusher.New(b.Options).Copy(t.Context(), from, v, nil)
			if !errors.Is(err, tc.want) || (tc.want != artifact.ErrDamaged && hint.Of(err) == "") {
				t.Errorf("%v, hint %q, want %v", err, hint.Of(err), tc.want)
			}
			for _, r := range b.Registry.Requests(recorder.Writes()) {
				if strings.Contains(r.Path, "/manifests/") {
					t.Errorf("%s %s", r.Method, r.Path)
				}
			}
		})
	}
}
