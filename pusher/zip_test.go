package pusher_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// TestPushModule shows the order of a push's requests, and what it stores. The next push of the
// module sends nothing.
func TestPushModule(t *testing.T) {
	b := newBench(t)
	pkg := pushbench.ModulePackage(t, "1.0.0+build", "one")
	pkg.Revision = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
	first := b.MustPushModule(pkg, pusher.Pushed)
	var writes []string
	for _, r := range b.Registry.Requests(recorder.Writes()) {
		writes = append(writes, r.Method+" "+r.Path)
	}
	if last := writes[len(writes)-1]; len(writes) != 5 || last != "PUT /v2/acme/widget/manifests/1.0.0_build" {
		t.Errorf("requests %q", writes)
	}
	m := b.StoredModule("1.0.0+build")
	if m.Owner != pushbench.VPC || m.Zip().H1 != pkg.H1 || m.Zip().Digest != pkg.Digest || m.Revision != pkg.Revision || m.Tag != "1.0.0_build" || m.Index.Digest.String() != first.Digest {
		t.Errorf("stored %+v, result %+v", m, first)
	}
	body, err := b.Repo.Fetch(t.Context(), m.Zip().Layer())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if data, err := io.ReadAll(body); err != nil || digest.FromBytes(data) != pkg.Digest {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if !first.Packages[0].Sent || first.Tag != "1.0.0_build" || first.Revision != pkg.Revision {
		t.Errorf("result %+v", first)
	}
	b.Registry.Reset()
	second := b.MustPushModule(pkg, pusher.Unchanged)
	if n := b.Registry.Count(); n != 2 || b.Registry.Count(recorder.Writes()) != 0 || second.Digest != first.Digest || second.Packages[0].Sent { // of the plan and of the push
		t.Errorf("%d requests: %v, result %+v", n, b.Registry.Requests(), second)
	}
}

// TestModuleConflict shows that other content under a version is a conflict that names both, and
// that --force replaces it.
func TestModuleConflict(t *testing.T) {
	b := newBench(t)
	one, two := pushbench.ModulePackage(t, "1.0.0", "one"), pushbench.ModulePackage(t, "1.0.0", "two")
	b.MustPushModule(one, pusher.Pushed)
	b.Registry.Reset()
	_, err := b.PushModule(two)
	if !errors.Is(err, pusher.ErrConflict) || !strings.Contains(err.Error(), one.H1.String()) || !strings.Contains(err.Error(), two.H1.String()) || hint.Of(err) == "" {
		t.Errorf("%v (%s)", err, hint.Of(err))
	}
	if _, err := pusher.New(b.Options).PlanZip(t.Context(), b.ModuleDestination(), two.Stored(), two.Open); !errors.Is(err, pusher.ErrConflict) {
		t.Errorf("plan: %v", err)
	}
	if n := b.Registry.Count(recorder.Writes()); n != 0 {
		t.Errorf("%d requests that write", n)
	}
	b.Options.Force = true
	b.MustPushModule(two, pusher.Replaced)
	b.MustPushModule(two, pusher.Unchanged)
	if got := b.StoredModule("1.0.0").Zip().H1; got != two.H1 {
		t.Errorf("stored %s, want %s", got, two.H1)
	}
}

// TestSameModuleInAnotherZip shows that a push is unchanged if the stored zip has other bytes but
// the same files, also if the stored module has no h1: hash.
func TestSameModuleInAnotherZip(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*pushbench.Module)
	}{
		{"another zip", func(p *pushbench.Module) {
			data := []byte("the same files, compressed")
			p.Digest, p.Size, p.Open = digest.FromBytes(data), int64(len(data)), func() io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }
		}},
		{"no h1: hash", func(p *pushbench.Module) { p.H1 = provider.Hash{} }},
		{"another zip without an h1: hash", zippedBy(t, "main.tf")},
		{"a zip with entries for folders", zippedBy(t, "./", "empty/", "main.tf")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			other := pushbench.ModulePackage(t, "1.0.0", "one")
			tt.change(&other)
			first := b.MustPushModule(other, pusher.Pushed)
			if r := b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "one"), pusher.Unchanged); r.Digest != first.Digest || r.Packages[0].Digest != first.Packages[0].Digest {
				t.Errorf("%+v, want %+v", r, first)
			}
			if _, err := b.PushModule(pushbench.ModulePackage(t, "1.0.0", "two")); !errors.Is(err, pusher.ErrConflict) {
				t.Errorf("other content: %v", err)
			}
		})
	}
}

// zippedBy returns a change of a package: the zip becomes one of another tool, without h1: hash. It has the given
// entries. Names that end in a slash are folders, and the content of a file is "one".
func zippedBy(t *testing.T, names ...string) func(*pushbench.Module) {
	t.Helper()
	var data bytes.Buffer
	w := zip.NewWriter(&data)
	for _, name := range names {
		f, err := w.Create(name) // compressed, unlike the zip of a push
		if err == nil && !strings.HasSuffix(name, "/") {
			_, err = io.WriteString(f, "one")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return func(p *pushbench.Module) {
		p.H1, p.Digest, p.Size = provider.Hash{}, digest.FromBytes(data.Bytes()), int64(data.Len())
		p.Open = func() io.ReadCloser { return io.NopCloser(bytes.NewReader(data.Bytes())) }
	}
}

// TestModuleTagWithV shows that a version whose tag begins with a v is unchanged or a conflict,
// and that a forced push writes the exact tag.
func TestModuleTagWithV(t *testing.T) {
	b := newBench(t)
	one, two := pushbench.ModulePackage(t, "1.0.0", "one"), pushbench.ModulePackage(t, "1.0.0", "two")
	manifest, err := artifact.EncodeZip(*one.Stored())
	if err != nil {
		t.Fatal(err)
	}
	body, config := one.Open(), artifact.Config()
	if err := errors.Join(b.Repo.Push(t.Context(), one.Layer(), body), b.Repo.Push(t.Context(), config.Descriptor, bytes.NewReader(config.Data))); err != nil {
		t.Fatal(err)
	}
	b.PushManifest(manifest.Descriptor.MediaType, manifest.Data, "v1.0.0")
	if r := b.MustPushModule(one, pusher.Unchanged); r.Tag != "v1.0.0" {
		t.Errorf("result %+v", r)
	}
	if _, err := b.PushModule(two); !errors.Is(err, pusher.ErrConflict) || !strings.Contains(err.Error(), ":v1.0.0 has "+one.H1.String()) {
		t.Error(err)
	}
	b.Options.Force = true
	if r := b.MustPushModule(two, pusher.Replaced); r.Tag != "1.0.0" || b.StoredModule("1.0.0").Zip().H1 != two.H1 {
		t.Errorf("result %+v", r)
	}
}

// hideExactTag stores other content under the tag v1.0.0 of the module. From then on, the
// registry says that the tag 1.0.0 does not exist, but still lists it.
func (b *bench) hideExactTag(content string) {
	b.T.Helper()
	pkg := pushbench.ModulePackage(b.T, "1.0.0", content)
	manifest, err := artifact.EncodeZip(*pkg.Stored())
	if err != nil {
		b.T.Fatal(err)
	}
	if err := b.Repo.Push(b.T.Context(), pkg.Layer(), pkg.Open()); err != nil {
		b.T.Fatal(err)
	}
	b.PushManifest(manifest.Descriptor.MediaType, manifest.Data, "v1.0.0")
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		hidden := r.Method != http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/1.0.0")
		if hidden {
			w.WriteHeader(http.StatusNotFound)
		}
		return hidden
	})
}

// TestWrongNotFoundOfModule shows that a push writes nothing if the registry lists the tag of the
// version and says that it does not exist. The tag with a leading v does not take its place.
// Only a forced push writes the tag.
func TestWrongNotFoundOfModule(t *testing.T) {
	b := newBench(t)
	b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "one"), pusher.Pushed)
	two := pushbench.ModulePackage(t, "1.0.0", "two")
	b.hideExactTag("two")
	b.Registry.Reset()
	if _, err := b.PushModule(two); !errors.Is(err, artifact.ErrMissing) || !strings.Contains(hint.Of(err), "--force") || b.Registry.Count(recorder.Writes()) != 0 {
		t.Errorf("%v, hint %q, %v", err, hint.Of(err), b.Registry.Requests(recorder.Writes()))
	}
	b.Options.Force = true
	if r, err := b.PushModule(two); err != nil || r.Tag != "1.0.0" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestModuleInForeignRepository shows that a push refuses a repository of another module or of a
// provider, whether the version exists there or not, and even with --force.
func TestModuleInForeignRepository(t *testing.T) {
	for name, prepare := range map[string]func(*bench){
		"a provider": func(b *bench) { b.MustPush() },
		"another module": func(b *bench) {
			other := pushbench.ModulePackage(b.T, "1.0.0", "one")
			other.Address = module.MustParseAddress(pushbench.Host + "/platform/vpc/azure")
			b.MustPushModule(other, pusher.Pushed)
		},
		"a provider, and something else": func(b *bench) {
			b.MustPush()
			b.pushImage("3.0.0")
		},
	} {
		for _, version := range []string{"1.0.0", "2.0.0"} {
			for _, force := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s force %t", name, version, force), func(t *testing.T) {
					b := newBench(t)
					prepare(b)
					b.Registry.Reset()
					b.Options.Force = force
					_, err := b.PushModule(pushbench.ModulePackage(t, version, "one"))
					if !errors.Is(err, repo.ErrOccupied) || hint.Of(err) == "" || strings.Contains(hint.Of(err), "--force") || b.Registry.Count(recorder.Writes()) != 0 {
						t.Errorf("%v (%s)", err, hint.Of(err))
					}
				})
			}
		}
	}
}

// pushImage stores an artifact under a tag that is neither a provider nor a module.
func (b *bench) pushImage(tag string) {
	b.T.Helper()
	b.PushManifest(ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`), tag)
}

// TestModuleBesideOtherContent shows when a push accepts a repository with tags that are neither
// providers nor modules. Only --force replaces such a tag.
func TestModuleBesideOtherContent(t *testing.T) {
	for name, tc := range map[string]struct {
		images  []string // the tags of other content
		modules []string // the stored versions of the module
		version string
		force   bool
		want    pusher.Status // "": the push is refused
		hint    string
	}{
		"the tag of the version":              {images: []string{"1.0.0"}, version: "1.0.0", hint: "--force replaces what it names"},
		"the tag of the version, forced":      {images: []string{"1.0.0"}, version: "1.0.0", force: true, want: pusher.Pushed},
		"the tag with a v, forced":            {images: []string{"v1.0.0"}, version: "1.0.0", force: true, want: pusher.Pushed},
		"nothing else":                        {images: []string{"2.0.0"}, version: "1.1.0", hint: "delete that tag"},
		"nothing else, forced":                {images: []string{"2.0.0"}, version: "1.1.0", force: true, hint: "delete that tag"},
		"beside a version":                    {images: []string{"2.0.0"}, modules: []string{"1.0.0"}, version: "1.1.0", want: pusher.Pushed},
		"many beside a version":               {images: []string{"2.0.0", "v2.1.0", "2.2.0", "2.3.0"}, modules: []string{"1.0.0"}, version: "1.1.0", want: pusher.Pushed},
		"beside a version, forced":            {images: []string{"2.0.0"}, modules: []string{"1.0.0"}, version: "1.1.0", force: true, want: pusher.Pushed},
		"two, of which one is replaced":       {images: []string{"1.0.0", "2.0.0"}, version: "1.0.0", force: true, hint: "delete that tag"},
		"two beside a version, one is forced": {images: []string{"2.0.0", "3.0.0"}, modules: []string{"1.0.0"}, version: "2.0.0", force: true, want: pusher.Pushed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for _, v := range tc.modules {
				b.MustPushModule(pushbench.ModulePackage(t, v, "one"), pusher.Pushed)
			}
			for _, tag := range tc.images {
				b.pushImage(tag)
			}
			b.Registry.Reset()
			b.Options.Force = tc.force
			pkg := pushbench.ModulePackage(t, tc.version, "one")
			if tc.want != "" {
				b.MustPushModule(pkg, tc.want)
				if m := b.StoredModule(tc.version); m.Zip().H1 != pkg.H1 {
					t.Errorf("stored %+v", m)
				}
				return
			}
			_, err := b.PushModule(pkg)
			if !errors.Is(err, repo.ErrOccupied) || !strings.Contains(hint.Of(err), tc.hint) || b.Registry.Count(recorder.Writes()) != 0 {
				t.Errorf("%v (%s)", err, hint.Of(err))
			}
		})
	}
}

// TestProviderInRepositoryOfModule shows that the push of a provider refuses a repository of a
// module, whether the version exists there or not. The manifest of the module may name the module
// or not.
func TestProviderInRepositoryOfModule(t *testing.T) {
	for name, annotations := range map[string]bool{"annotated": true, "of another tool": false} {
		for _, version := range []string{"1.0.0", "2.0.0"} {
			t.Run(name+" "+version, func(t *testing.T) {
				b := newBench(t)
				pkg := pushbench.ModulePackage(t, version, "one")
				b.MustPushModule(pkg, pusher.Pushed)
				if !annotations {
					layer, err := json.Marshal(pkg.Layer())
					if err != nil {
						t.Fatal(err)
					}
					b.PushManifest(ocispec.MediaTypeImageManifest, fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2},"layers":[%s]}`,
						ocispec.MediaTypeImageManifest, artifact.TypeModule, artifact.Config().Descriptor.Digest, layer), version)
				}
				before := b.StoredModule(version)
				b.Registry.Reset()
				for _, force := range []bool{false, true} {
					b.Options.Force = force
					_, err := b.Push()
					if !errors.Is(err, repo.ErrOccupied) || hint.Of(err) == "" || b.Registry.Count(recorder.Writes()) != 0 {
						t.Errorf("force %t: %v (%s)", force, err, hint.Of(err))
					}
				}
				if after := b.StoredModule(version); after.Index.Digest != before.Index.Digest {
					t.Errorf("the module is now %+v", after)
				}
			})
		}
	}
}

// TestInterruptedModulePush shows that a push that fails leaves no tag, and that the next push
// completes it. Without the tag, nothing is sent twice.
func TestInterruptedModulePush(t *testing.T) {
	for _, step := range []struct{ method, path string }{{"POST", "/blobs/uploads/"}, {"PUT", "/blobs/uploads/"}, {"PUT", "/manifests/1.0.0"}} {
		t.Run(step.method+step.path, func(t *testing.T) {
			b := newBench(t)
			pkg := pushbench.ModulePackage(t, "1.0.0", "one")
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != step.method || !strings.Contains(r.URL.Path, step.path) {
					return false
				}
				w.WriteHeader(http.StatusForbidden)
				return true
			})
			var failure *repo.RegistryError
			if _, err := b.PushModule(pkg); !errors.As(err, &failure) {
				t.Error(err)
			}
			if _, err := artifact.ReadZip(t.Context(), b.Repo, pushbench.VPC, pkg.Version); err == nil {
				t.Error("the version is there")
			}
			b.Registry.Intercept(nil)
			b.Registry.Reset()
			b.MustPushModule(pkg, pusher.Pushed)
		})
	}
}

// TestModuleOfConcurrentPush shows that a push compares its content again after the upload.
func TestModuleOfConcurrentPush(t *testing.T) {
	for content, want := range map[string]error{"one": nil, "two": pusher.ErrConflict} {
		t.Run(content, func(t *testing.T) {
			b := newBench(t)
			other := pushbench.ModulePackage(t, "1.0.0", content)
			o := b.Options
			o.OnEvent = func(e pusher.Event) {
				if e.Subject != pushbench.VPC || e.Stage != pusher.StageDone {
					return
				}
				b.MustPushModule(other, pusher.Pushed)
			}
			pkg := pushbench.ModulePackage(t, "1.0.0", "one")
			r, err := pusher.New(o).PushZip(context.WithoutCancel(t.Context()), b.ModuleDestination(), pkg.Stored(), pkg.Open)
			if !errors.Is(err, want) || err == nil && r.Status != pusher.Unchanged || b.StoredModule("1.0.0").Zip().H1 != other.H1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
