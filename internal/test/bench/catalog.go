package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	catalogProviders = 1000
	catalogVersions  = 100
	bigPackages      = 4
)

// fakeRegistry serves a catalog that is too large to push for a benchmark. It creates each index when the index
// is requested. The content is the same as if the index had been pushed. Only packages of the first provider's
// last version can be downloaded.
type fakeRegistry struct {
	big []artifact.Package
	dir string // the folder of the packages; their file names are their digests in hexadecimal
}

func catalogProvider(i int) provider.Address {
	return provider.MustParseAddress(fmt.Sprintf("%s/acme/p%d", world.Host, i))
}

func catalogVersion(i int) provider.Version {
	return provider.MustParseVersion(fmt.Sprintf("1.%d.0", i))
}

func (b *bench) newFakeRegistry() (*fakeRegistry, error) {
	dir, err := b.subdir("fake")
	if err != nil {
		return nil, err
	}
	f := &fakeRegistry{dir: dir}
	for i := range bigPackages {
		p := packageOf(catalogProvider(0), catalogVersion(catalogVersions-1), i)
		name := filepath.Join(dir, "big")
		sum, err := release.WriteBigZip(name, "terraform-provider-p0_v1.0.0", archiveMiB, uint64(i))
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		p.Digest, p.Size = digest.NewDigestFromEncoded(digest.SHA256, sum), info.Size()
		if err := os.Rename(name, filepath.Join(dir, sum)); err != nil {
			return nil, err
		}
		f.big = append(f.big, p)
	}
	return f, nil
}

// bigPath returns the path below the gateway's mirror of the i-th package that can be downloaded.
func (f *fakeRegistry) bigPath(i int) string {
	p := f.big[i]
	return catalogProvider(0).Path() + "/" + catalogVersion(catalogVersions-1).String() + "/" + p.Platform.String() + "/" + p.Filename
}

// packageOf returns the description that a push would store for the i-th package of a version.
func packageOf(a provider.Address, v provider.Version, i int) artifact.Package {
	platform := provider.MustParsePlatform(fmt.Sprintf("linux_arch%d", i))
	name := provider.PackageFilename(a, v, platform)
	sum := digest.FromString(name)
	h1, err := provider.ParseHash("h1:" + strings.Repeat("A", 43) + "=")
	if err != nil {
		panic(err)
	}
	return artifact.Package{
		Platform: platform, Filename: name, Digest: sum, Size: 20 << 20, H1: h1,
		Manifest: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("manifest of " + name), Size: 700},
	}
}

// index returns the index of a version.
func (f *fakeRegistry) index(a provider.Address, v provider.Version) (artifact.Blob, error) {
	out := artifact.Version{Owner: a, Version: v, Protocols: []string{"5.0"}}
	for i := range platforms {
		out.Packages = append(out.Packages, packageOf(a, v, i))
	}
	if a == catalogProvider(0) && v == catalogVersion(catalogVersions-1) {
		copy(out.Packages, f.big)
	}
	return artifact.EncodeIndex(out)
}

// ServeHTTP implements [http.Handler].
func (f *fakeRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Paths have the form /v2/HOST/NAMESPACE/TYPE/manifests/1.2.0.
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 7 {
		http.NotFound(w, r)
		return
	}
	a, err := provider.ParseAddress(strings.Join(parts[2:5], "/"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	switch parts[5] {
	case "tags":
		var tags struct {
			Tags []string `json:"tags"`
		}
		for i := range catalogVersions {
			tags.Tags = append(tags.Tags, catalogVersion(i).String())
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(tags)
	case "manifests":
		f.serveManifest(w, r, a, parts[6])
	case "blobs":
		content, err := os.Open(filepath.Join(f.dir, strings.TrimPrefix(filepath.Base(parts[6]), "sha256:")))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer content.Close()
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, content)
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeRegistry) serveManifest(w http.ResponseWriter, r *http.Request, a provider.Address, tag string) {
	v, err := provider.ParseVersion(tag)
	var index artifact.Blob
	if err == nil {
		index, err = f.index(a, v)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", index.Descriptor.MediaType)
	h.Set("Docker-Content-Digest", index.Descriptor.Digest.String())
	h.Set("Content-Length", strconv.Itoa(len(index.Data)))
	if r.Method != http.MethodHead {
		w.Write(index.Data)
	}
}
