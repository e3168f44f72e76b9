package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

func TestIndexListsTheTagsThatAreVersions(t *testing.T) {
	b := newBench(t)
	for _, v := range []string{"1.0.0", "1.10.0", "2.0.0-rc.1", "1.0.0+build.5"} {
		b.publish(widget, v, map[provider.Platform][]byte{linux: zip(t, linux)})
	}
	v := b.publish(widget, "0.1.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	manifest, err := artifact.FetchManifest(t.Context(), b.repo, v.Packages[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"latest", "v1.2.3", "1.2", "01.2.3", "1.2.3.4", "sha256-0123", "ocibridge-part.3.0.0.linux_amd64", "9223372036854775808.0.0"} {
		b.tag(b.repo, artifact.Blob{Descriptor: v.Packages[0].Manifest, Data: manifest}, other)
	}
	b.registry.Reset()
	a := b.serve().get(prefix + "index.json")
	const want = `{"versions":{"0.1.0":{},"1.0.0":{},"1.0.0+build.5":{},"1.10.0":{},"2.0.0-rc.1":{}}}`
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" || a.body != want {
		t.Errorf("%d %s\n%s", a.status, a.header, a.body)
	}
	if n := b.registry.Count(); n != 1 {
		t.Errorf("%d requests: %v", n, b.registry.Requests())
	}
}

func TestIndexOfManyPages(t *testing.T) {
	b := newBench(t)
	b.lie("/tags/list", func(w http.ResponseWriter, r *http.Request) {
		page := len(r.URL.Query().Get("page"))
		w.Header().Set("Content-Type", "text/plain") // some registries send this
		if page < 4 {
			w.Header().Set("Link", fmt.Sprintf(`<%s?page=%s>; rel="next"`, r.URL.Path, strings.Repeat("x", page+1)))
		}
		fmt.Fprintf(w, `{"tags":["1.0.%d"]}`, page)
	})
	if a := b.serve().get(prefix + "index.json"); a.body != `{"versions":{"1.0.0":{},"1.0.1":{},"1.0.2":{},"1.0.3":{},"1.0.4":{}}}` {
		t.Errorf("%+v", a)
	}
}

func TestVersionHasEveryPlatformAndHash(t *testing.T) {
	b := newBench(t)
	v := b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux), darwin: withoutH1(t)})
	a := b.serve().get(prefix + "1.0.0.json")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%+v", a)
	}
	want := map[string]any{}
	for _, p := range v.Packages {
		hashes := []any{"zh:" + p.Digest.Encoded()}
		if p.Platform == linux {
			hashes = append(hashes, p.H1.String())
		}
		want[p.Platform.String()] = map[string]any{
			"url": "1.0.0/" + p.Platform.String() + "/terraform-provider-widget_1.0.0_" + p.Platform.String() + ".zip", "hashes": hashes,
		}
	}
	if got := decode(t, a.body); !reflect.DeepEqual(got, map[string]any{"archives": want}) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if n := b.registry.Count(); n != 1 {
		t.Errorf("%d requests, want the one for the index: %v", n, b.registry.Requests())
	}
}

func decode(t *testing.T, body string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return v
}

// pushByRecipe stores a version in the way of other tools: its index has no annotations.
func (b *bench) pushByRecipe(version string) artifact.Version {
	b.t.Helper()
	v := b.publish(widget, version, map[provider.Platform][]byte{linux: zip(b.t, linux), darwin: zip(b.t, darwin)})
	index := ocispec.Index{Versioned: specs2, MediaType: ocispec.MediaTypeImageIndex, ArtifactType: artifact.TypeProvider}
	for _, p := range v.Packages {
		entry := p.Manifest
		entry.ArtifactType = artifact.TypeTarget
		entry.Platform = &ocispec.Platform{OS: p.Platform.OS, Architecture: p.Platform.Arch}
		index.Manifests = append(index.Manifests, entry)
	}
	b.tagIndex(index, version)
	return v
}

func (b *bench) tagIndex(index ocispec.Index, tag string) {
	b.t.Helper()
	data, err := json.Marshal(index)
	if err != nil {
		b.t.Fatal(err)
	}
	b.tag(b.repo, blobOf(ocispec.MediaTypeImageIndex, data), tag)
	b.registry.Reset()
}

func TestVersionThatOtherToolsPushed(t *testing.T) {
	b := newBench(t)
	v := b.pushByRecipe("1.0.0")
	c := b.serve()
	a := c.get(prefix + "1.0.0.json")
	for _, p := range v.Packages {
		if !strings.Contains(a.body, `"zh:`+p.Digest.Encoded()+`"`) {
			t.Errorf("%s lacks %s", a.body, p.Digest)
		}
	}
	if n := b.registry.Count(recorder.PathContains("/manifests/")); n != 3 || b.registry.Count() != 3 {
		t.Errorf("requests %v", b.registry.Requests())
	}
	if a := c.get(archivePath("1.0.0", linux)); a.status != http.StatusOK || a.body != string(zip(t, linux)) {
		t.Errorf("archive: %d, %d bytes", a.status, len(a.body))
	}
}

// TestURLsLeadToArchives resolves the URLs in a version's document relative to the document's URL, like a
// client. It shows that they lead to the version's archives.
func TestURLsLeadToArchives(t *testing.T) {
	unicode := provider.MustParseAddress("испытание.com/acme/widget")
	for _, a := range []provider.Address{widget, unicode} {
		for _, version := range []string{"1.0.0", "1.0.0-rc.1+build.5"} {
			b := newBench(t)
			b.publish(a, version, map[provider.Platform][]byte{linux: zip(t, linux)})
			c := b.serve()
			document, err := url.Parse(c.s.URL + "/providers/" + a.Path() + "/" + version + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var out struct {
				Archives map[string]struct{ URL string }
			}
			if err := json.Unmarshal([]byte(c.get(document.Path).body), &out); err != nil {
				t.Fatal(err)
			}
			archive, err := document.Parse(out.Archives["linux_amd64"].URL)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{archive.EscapedPath(), strings.ReplaceAll(archive.EscapedPath(), "+", "%2B")} {
				if got := c.get(path); got.status != http.StatusOK || got.body != string(zip(t, linux)) {
					t.Errorf("%s %s: %s is answered %d", a, version, path, got.status)
				}
			}
		}
	}
}

const noArchives = `{"archives":{}}`

// TestAbsence checks the responses to requests for absent providers, versions and files.
func TestAbsence(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	gadget := provider.MustParseAddress(host + "/acme/gadget")
	b.publish(gadget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	if err := b.retag(gadget, "1.0.0", "latest"); err != nil {
		t.Fatal(err)
	}
	c := b.serve()
	at := func(provider, rest string) string { return "/providers/" + provider + "/" + rest }
	for name, tc := range map[string]struct {
		path   string
		status int
		body   string
	}{
		"versions of a repository that is not there":     {at(host+"/acme/nothing", "index.json"), 404, ""},
		"versions of a repository without any":           {at(host+"/acme/gadget", "index.json"), 404, ""},
		"versions of a provider out of scope":            {at("elsewhere.example/acme/widget", "index.json"), 404, ""},
		"version that is not there":                      {at(host+"/acme/widget", "1.0.1.json"), 200, noArchives},
		"version that differs in its build":              {at(host+"/acme/widget", "1.0.0+b.json"), 200, noArchives},
		"version of a repository that is not there":      {at(host+"/acme/nothing", "1.0.0.json"), 200, noArchives},
		"version of a repository without any":            {at(host+"/acme/gadget", "1.0.0.json"), 200, noArchives},
		"version of a provider out of scope":             {at("elsewhere.example/acme/widget", "1.0.0.json"), 200, noArchives},
		"archive of a version that is not there":         {archivePath("1.0.1", linux), 404, ""},
		"archive for a platform that is not there":       {archivePath("1.0.0", darwin), 404, ""},
		"archive of another name":                        {prefix + "1.0.0/linux_amd64/terraform-provider-widget.zip", 404, ""},
		"archive of another platform's name":             {prefix + "1.0.0/linux_amd64/terraform-provider-widget_1.0.0_darwin_arm64.zip", 404, ""},
		"archive of a repository that is not there":      {at(host+"/acme/nothing", "1.0.0/linux_amd64/x.zip"), 404, ""},
		"archive of a provider that is out of scope":     {at("elsewhere.example/acme/widget", "1.0.0/linux_amd64/x.zip"), 404, ""},
		"version that is none, which no client asks":     {prefix + "latest.json", 404, ""},
		"platform that is none":                          {prefix + "1.0.0/linux/x.zip", 404, ""},
		"file name that is none":                         {prefix + "1.0.0/linux_amd64/.zip", 404, ""},
		"documents that the protocol does not have":      {prefix + "1.0.0.yaml", 404, ""},
		"the provider's folder":                          {prefix, 404, ""},
		"index.json with a slash, as of a folder":        {prefix + "index.json/", 404, ""},
		"the registry, where none is served beside":      {"/v2/", 404, ""},
		"index.json below a version":                     {prefix + "1.0.0/index.json", 404, ""},
		"a provider address of two parts":                {"/providers/acme/widget/index.json", 404, ""},
		"index.json with a query, which changes nothing": {prefix + "index.json?x=/../", 200, `{"versions":{"1.0.0":{}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.get(tc.path)
			if a.status != tc.status || tc.body != "" && a.body != tc.body {
				t.Errorf("%d %q, want %d %q", a.status, a.body, tc.status, tc.body)
			}
			if a.status == http.StatusOK && a.header.Get("Content-Type") != "application/json" {
				t.Errorf("Content-Type %q", a.header.Get("Content-Type"))
			}
		})
	}
}

// retag renames a tag.
func (b *bench) retag(a provider.Address, from, to string) error {
	repo := b.repository(a)
	desc, err := repo.Resolve(b.t.Context(), from)
	if err != nil {
		return err
	}
	data, err := artifact.FetchManifest(b.t.Context(), repo, desc)
	if err != nil {
		return err
	}
	if err := repo.Delete(b.t.Context(), desc); err != nil {
		return err
	}
	b.tag(repo, artifact.Blob{Descriptor: desc, Data: data}, to)
	return nil
}

// TestUnknownRepositoryIsListedEmpty shows that a provider is absent if the registry answers with an empty
// list of tags. Some registries give this response for unknown repositories.
func TestUnknownRepositoryIsListedEmpty(t *testing.T) {
	b := newBench(t)
	b.lie("/tags/list", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"name":"acme/widget","tags":[]}`)
	})
	c := b.serve()
	if a := c.get(prefix + "index.json"); a.status != http.StatusNotFound {
		t.Errorf("index: %+v", a)
	}
	if a := c.get(prefix + "1.0.0.json"); a.body != noArchives {
		t.Errorf("version: %+v", a)
	}
}

// TestUnusableArtifacts shows that a version whose artifact is invalid stays listed, so that clients do not
// silently install an older version. Requests for that version get 502 with Retry-After. Only the log says
// why.
func TestUnusableArtifacts(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(b *bench, v artifact.Version)
		says  string
	}{
		"a container image": {func(b *bench, v artifact.Version) {
			b.tagIndex(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Versioned: specs2, Manifests: []ocispec.Descriptor{v.Packages[0].Manifest}}, "1.0.0")
		}, "artifact type"},
		"a platform's manifest": {func(b *bench, v artifact.Version) {
			data, err := artifact.FetchManifest(b.t.Context(), b.repo, v.Packages[0].Manifest)
			if err != nil {
				b.t.Fatal(err)
			}
			b.tag(b.repo, artifact.Blob{Descriptor: v.Packages[0].Manifest, Data: data}, "1.0.0")
		}, "media type"},
		"two packages for a platform": {func(b *bench, v artifact.Version) {
			entry := v.Packages[0].Manifest
			entry.ArtifactType = artifact.TypeTarget
			entry.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
			b.tagIndex(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, ArtifactType: artifact.TypeProvider, Versioned: specs2, Manifests: []ocispec.Descriptor{entry, entry}}, "1.0.0")
		}, "ambiguous"},
		"another provider's": {func(b *bench, v artifact.Version) {
			v.Owner = provider.MustParseAddress(host + "/ac/me-widget")
			b.tagVersion(v)
		}, "belongs to another provider"},
		"another version": {func(b *bench, v artifact.Version) {
			v.Version = provider.MustParseVersion("1.0.1")
			b.tagVersion(v)
		}, "belongs to another version"},
		"too large": {func(b *bench, _ artifact.Version) {
			b.lie("/manifests/1.0.0", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
				w.Header().Set("Content-Length", fmt.Sprint(artifact.MaxManifestBytes+1))
				w.Write([]byte(strings.Repeat(" ", artifact.MaxManifestBytes+1)))
			})
		}, "too large"},
		"not what its digest says": {func(b *bench, _ artifact.Version) {
			b.lie("/manifests/1.0.0", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
				w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
				w.Write([]byte("{}"))
			})
		}, "damaged"},
		"an index whose manifests were cleaned away": {func(b *bench, _ artifact.Version) {
			v := b.pushByRecipe("1.0.0")
			for _, p := range v.Packages {
				if err := b.repo.Delete(b.t.Context(), p.Manifest); err != nil {
					b.t.Fatal(err)
				}
			}
		}, "lacks content that it refers to"},
		"a tag that is listed and not there": {func(b *bench, _ artifact.Version) {
			b.lie("/manifests/", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`)
			})
		}, "lists the version"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			v := b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
			tc.spoil(b, v)
			c := b.serve()
			if a := c.get(prefix + "index.json"); a.body != `{"versions":{"1.0.0":{}}}` {
				t.Errorf("index.json: %+v", a)
			}
			for _, path := range []string{prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
				a := c.get(path)
				if a.status != http.StatusBadGateway || a.header.Get("Retry-After") == "" {
					t.Errorf("%s: %+v", path, a)
				}
				b.checkSilence(a)
			}
			if !strings.Contains(b.log.String(), tc.says) {
				t.Errorf("the log does not say %q:\n%s", tc.says, b.log)
			}
		})
	}
}

// specs2 is the schema version of every index and manifest.
var specs2 = specs.Versioned{SchemaVersion: 2}

func (b *bench) tagVersion(v artifact.Version) {
	b.t.Helper()
	b.tagVersionIn(b.repo, v)
}

func (b *bench) tagVersionIn(repo *remote.Repository, v artifact.Version) {
	b.t.Helper()
	index, err := artifact.EncodeIndex(v)
	if err != nil {
		b.t.Fatal(err)
	}
	b.tag(repo, index, "1.0.0")
}

// checkSilence checks that a response does not name the registry, a repository or a digest.
func (b *bench) checkSilence(a answer) {
	b.t.Helper()
	for _, secret := range []string{strings.TrimPrefix(b.registry.Server.URL, "http://"), "sha256", "acme", "manifests"} {
		if strings.Contains(a.body, secret) {
			b.t.Errorf("%q says %s", a.body, secret)
		}
	}
}

func TestVersionWithoutPlatformsOfOurs(t *testing.T) {
	b := newBench(t)
	v := b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	entry := v.Packages[0].Manifest
	entry.ArtifactType = artifact.TypeTarget
	entry.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64", OSVersion: "6.1"}
	b.tagIndex(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, ArtifactType: artifact.TypeProvider, Versioned: specs2, Manifests: []ocispec.Descriptor{entry}}, "1.0.0")
	if a := b.serve().get(prefix + "1.0.0.json"); a.body != noArchives {
		t.Errorf("%+v", a)
	}
}

func TestRequestsAreLogged(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(3 * gateway.CopyBuffer)})
	c := b.serve()
	c.get(prefix + "index.json?token=secret")
	if log := b.log.String(); !strings.Contains(log, "path="+prefix+"index.json status=200 bytes=25") || strings.Contains(log, "secret") {
		t.Errorf("log:\n%s", log)
	}
}
