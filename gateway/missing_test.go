package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// lose deletes a manifest from the registry, and returns a function that restores it.
func (b *bench) lose(manifest ocispec.Descriptor) (putBack func()) {
	b.t.Helper()
	body, err := artifact.FetchManifest(b.t.Context(), b.repo, manifest)
	if err == nil {
		err = b.repo.Delete(b.t.Context(), manifest)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.registry.Reset()
	return func() {
		b.t.Helper()
		if err := b.repo.Push(b.t.Context(), manifest, bytes.NewReader(body)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestMissingManifest shows what happens if the registry lacks the manifest of one platform. Another tool
// has pushed the version. Clients can install the other platform. The broken platform stays listed, and
// requests for its archive get 502, so that clients do not look elsewhere.
func TestMissingManifest(t *testing.T) {
	b := newBench(t)
	v := b.pushByRecipe("1.0.0")
	putBack := b.lose(manifestOf(t, v, linux))
	b.options.Catalog = b.catalog(catalog.Options{TagTTL: -1})
	c := b.serve()

	for range 2 { // the second answer comes from the cache
		archives := c.stated("1.0.0")
		if got := archives[darwin.String()]; len(got.Hashes) == 0 {
			t.Errorf("%s: %+v", darwin, got)
		}
		if got, ok := archives[linux.String()]; !ok || got.URL == "" || got.Hashes != nil {
			t.Errorf("%s: listed %t, %+v", linux, ok, got)
		}
	}
	if a := c.get(archivePath("1.0.0", darwin)); a.status != http.StatusOK || a.body != string(zip(t, darwin)) {
		t.Errorf("%s: status %d", darwin, a.status)
	}
	for _, path := range []string{prefix + c.stated("1.0.0")[linux.String()].URL, prefix + "1.0.0/linux_amd64/other.zip"} {
		for _, method := range []string{http.MethodHead, http.MethodGet} {
			a := c.do(method, path)
			if a.status != http.StatusBadGateway || a.header.Get("Retry-After") == "" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: %+v", method, path, a)
			}
			b.checkSilence(a)
		}
	}
	for _, want := range []string{"the registry lacks manifests that an index names", "linux_amd64: not a provider index: the registry lacks content that it refers to: the manifest " + manifestOf(t, v, linux).Digest.String()} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, b.log)
		}
	}
	if n := strings.Count(b.log.String(), "the registry lacks manifests"); n != 1 {
		t.Errorf("logged %d times", n)
	}

	putBack()
	if got := c.stated("1.0.0")[linux.String()]; len(got.Hashes) == 0 {
		t.Errorf("%s is not served though its manifest is back: %+v", linux, got)
	}
	if a := c.get(archivePath("1.0.0", linux)); a.status != http.StatusOK {
		t.Errorf("%s: status %d", linux, a.status)
	}
}

// TestMissingManifestBehindAccess shows that, with access control, the link to a missing package has a
// capability. The link leads to the same error as without access control.
func TestMissingManifestBehindAccess(t *testing.T) {
	b := newBench(t)
	v := b.pushByRecipe("1.0.0")
	b.lose(manifestOf(t, v, linux))
	b.controlled()
	anybody := b.serve()
	acme := anybody.as("acme-token")
	if a := anybody.get(acme.archiveURL("1.0.0", linux)); a.status != http.StatusBadGateway {
		t.Errorf("%s: status %d", linux, a.status)
	}
	if a := anybody.get(acme.archiveURL("1.0.0", darwin)); a.status != http.StatusOK {
		t.Errorf("%s: status %d", darwin, a.status)
	}
	if a := anybody.get(archivePath("1.0.0", linux)); a.status != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", a.status)
	}
}

// TestMissingManifestInTrouble shows that a manifest does not count as missing if the registry fails to
// serve the manifest. Instead, requests for the whole version fail.
func TestMissingManifestInTrouble(t *testing.T) {
	b := newBench(t)
	v := b.pushByRecipe("1.0.0")
	b.lie("/manifests/"+manifestOf(t, v, linux).Digest.String(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	c := b.serve()
	for _, path := range []string{prefix + "1.0.0.json", archivePath("1.0.0", darwin)} {
		if a := c.get(path); a.status != http.StatusBadGateway {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

// TestMissingManifestInRegistryProtocol shows that the registry protocol lists a platform whose manifest is
// missing, like the network mirror. Requests for the platform's package get 502. The version is signed, but
// another tool has replaced its index with an index without annotations.
func TestMissingManifestInRegistryProtocol(t *testing.T) {
	for name, required := range map[string]bool{"verify off": false, "verify required": true} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			r := p.push(widget, "1.0.0")
			v := p.withoutAnnotations("1.0.0")
			putBack := p.lose(manifestOf(t, *v, linux))
			o := catalog.Options{TagTTL: -1}
			if required {
				checker := verify.New(verify.Options{Policy: func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{p.signer.Fingerprint()}} }})
				o.Check = func(ctx context.Context, s artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
					return checker.Check(ctx, s, a, v, found)
				}
			}
			p.options.Catalog = p.bench.catalog(o)
			c := p.serve()

			wantListed := func() {
				t.Helper()
				if a := c.get(hostsPrefix + "versions"); !strings.Contains(a.body, `"platforms":[{"os":"darwin","arch":"arm64"},{"os":"linux","arch":"amd64"}]`) {
					t.Errorf("versions: %+v", a)
				}
			}
			wantListed()
			if a := c.get(hostsPrefix + "1.0.0/download/linux/amd64"); a.status != http.StatusBadGateway {
				t.Errorf("%s: %+v", linux, a)
			}
			if got := c.packages(darwin); len(got) != 1 || len(got[darwin.String()].Hashes) == 0 {
				t.Errorf("packages of %s: %+v", darwin, got)
			}
			if a := c.get(hostsPrefix + "1.0.0/linux_amd64/" + r.Package("linux", "amd64").Filename); a.status != http.StatusBadGateway {
				t.Errorf("package of %s: status %d", linux, a.status)
			}

			putBack()
			wantListed()
			for _, platform := range []provider.Platform{linux, darwin} {
				if got := c.packages(platform); len(got) != 2 {
					t.Errorf("packages of %s: %+v", platform, got)
				}
			}
			if a := c.get(hostsPrefix + "1.0.0/linux_amd64/" + r.Package("linux", "amd64").Filename); a.status != http.StatusOK {
				t.Errorf("package of %s: status %d", linux, a.status)
			}
		})
	}
}

// manifestOf returns the descriptor of a platform's manifest.
func manifestOf(t *testing.T, v artifact.Version, platform provider.Platform) ocispec.Descriptor {
	t.Helper()
	for _, p := range v.Packages {
		if p.Platform == platform {
			return p.Manifest
		}
	}
	t.Fatalf("no %s", platform)
	return ocispec.Descriptor{}
}

type archiveOf struct {
	URL    string
	Hashes []string
}

// stated returns the archives in VERSION.json. The keys are platforms.
func (c *client) stated(version string) map[string]archiveOf {
	c.t.Helper()
	a := c.get(prefix + version + ".json")
	var doc struct{ Archives map[string]archiveOf }
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != http.StatusOK {
		c.t.Fatalf("%v: %+v", err, a)
	}
	return doc.Archives
}

// packages returns the packages in the download document of widget 1.0.0 for the given platform. The keys
// are platforms.
func (c *client) packages(platform provider.Platform) map[string]archiveOf {
	c.t.Helper()
	a := c.get(fmt.Sprintf("%s1.0.0/download/%s/%s", hostsPrefix, platform.OS, platform.Arch))
	var doc struct{ Packages map[string]archiveOf }
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != http.StatusOK {
		c.t.Fatalf("%v: %+v", err, a)
	}
	return doc.Packages
}

// withoutAnnotations replaces the index of a version with an index without annotations. The new index has
// the same packages and evidence.
func (b *bench) withoutAnnotations(version string) *artifact.Version {
	b.t.Helper()
	v, err := artifact.Read(b.t.Context(), b.repo, widget, provider.MustParseVersion(version))
	if err != nil {
		b.t.Fatal(err)
	}
	data, err := artifact.FetchManifest(b.t.Context(), b.repo, v.Index)
	var index ocispec.Index
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range index.Manifests {
		index.Manifests[i].Annotations = nil
	}
	b.tagIndex(index, version)
	return v
}
