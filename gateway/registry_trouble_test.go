package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	storedkit "github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// reindex changes the index of a version in the registry.
func (p *publisher) reindex(version string, change func(*ocispec.Index)) {
	p.t.Helper()
	_, body, err := p.repo.FetchReference(p.t.Context(), version)
	if err != nil {
		p.t.Fatal(err)
	}
	defer body.Close()
	var index ocispec.Index
	if err := json.NewDecoder(body).Decode(&index); err != nil {
		p.t.Fatal(err)
	}
	change(&index)
	p.tagIndex(index, version)
}

func evidenceEntry(index *ocispec.Index) *ocispec.Descriptor {
	return &index.Manifests[slices.IndexFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.ArtifactType == artifact.TypeEvidence })]
}

// TestAnnotationsDecideNothing shows that an unsigned version is absent even if the annotations of its index
// say that the version is signed. A signed version is listed even if its index has no such annotation.
func TestAnnotationsDecideNothing(t *testing.T) {
	const verdict = "io.github.ocibridge.verdict"
	p := newPublisher(newBench(t))
	p.pushUnsigned("1.0.0")
	p.push(widget, "2.0.0")
	c := p.serve()
	p.reindex("1.0.0", func(i *ocispec.Index) { evidenceEntry(i).Annotations[verdict] = "signed" })
	for _, path := range []string{"1.0.0/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS"} {
		if a := c.get(hostsPrefix + path); a.status != http.StatusNotFound {
			t.Errorf("an index that lies: %s: %+v", path, a)
		}
	}
	for _, v := range []string{"1.0.0", "2.0.0"} {
		p.reindex(v, func(i *ocispec.Index) { evidenceEntry(i).Annotations = nil })
	}
	c = p.serve() // a new gateway with empty caches
	p.registry.Reset()
	if a := c.get(hostsPrefix + "versions"); !strings.Contains(a.body, `"2.0.0"`) || strings.Contains(a.body, `"1.0.0"`) {
		t.Errorf("indexes that do not say: %+v", a)
	}
	if n := p.registry.Count(); n != 1+1+2+2 {
		t.Errorf("%d requests, want the tags, the state, two indexes and two manifests: %v", n, p.registry.Requests())
	}
}

// TestDamagedVersionStaysListed shows that a damaged version does not hide other versions. It stays listed
// itself, so that clients do not silently install an older version.
func TestDamagedVersionStaysListed(t *testing.T) {
	for name, damage := range map[string]func(*publisher){
		"no provider": func(p *publisher) {
			p.tagIndex(ocispec.Index{Versioned: specs2, MediaType: ocispec.MediaTypeImageIndex}, "2.0.0")
		},
		"another provider's": func(p *publisher) {
			p.reindex("2.0.0", func(i *ocispec.Index) { i.Annotations["io.github.ocibridge.provider"] = host + "/acme/gadget" })
		},
		"evidence twice": func(p *publisher) {
			p.reindex("2.0.0", func(i *ocispec.Index) { i.Manifests = append(i.Manifests, *evidenceEntry(i)) })
		},
		"its index is lost": func(p *publisher) {
			p.lie("/manifests/2.0.0", respond(404, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.push(widget, "2.0.0")
			damage(p)
			c := p.serve()
			a := c.get(hostsPrefix + "versions")
			var doc struct{ Versions []map[string]any }
			if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != http.StatusOK || len(doc.Versions) != 2 {
				t.Fatalf("%+v", a)
			}
			if doc.Versions[0]["platforms"] == nil || !reflect.DeepEqual(doc.Versions[1], map[string]any{"version": "2.0.0"}) {
				t.Errorf("%s", a.body)
			}
			p.checkTrouble(c.get(hostsPrefix+"2.0.0/download/linux/amd64"), "download of the damaged version", http.StatusBadGateway)
			if a := c.get(hostsPrefix + "1.0.0/download/linux/amd64"); a.status != http.StatusOK {
				t.Errorf("the other version: %+v", a)
			}
			if !strings.Contains(p.log.String(), "2.0.0") {
				t.Errorf("the log does not say why:\n%s", p.log)
			}
		})
	}
}

// TestDamagedEvidence shows that requests for a version get 502 if the version's evidence cannot be read. The
// version is neither absent nor served.
func TestDamagedEvidence(t *testing.T) {
	for name, lie := range map[string]http.HandlerFunc{
		"lost":   respond(404, "application/json", `{"errors":[{"code":"BLOB_UNKNOWN"}]}`),
		"a page": respond(200, "text/html", "<html>"),
		"500":    respond(500, "text/plain", ""),
		"cut":    cut,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.lie("/blobs/", lie)
			c := p.serve()
			for _, path := range []string{"1.0.0/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS.sig"} {
				p.checkTrouble(c.get(hostsPrefix+path), path, http.StatusBadGateway)
			}
		})
	}
}

// TestPackageThatNobodySigned shows that a package is not served if the signed document does not list the
// package, or lists it with another digest. The package's hashes are omitted, too, because OpenTofu might
// record them in a lock file.
func TestPackageThatNobodySigned(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.reindex("1.0.0", func(i *ocispec.Index) {
		for j := range i.Manifests {
			if e := &i.Manifests[j]; e.Platform != nil && e.Platform.OS == "darwin" {
				forged := *e
				forged.Platform = &ocispec.Platform{OS: "plan9", Architecture: "amd64"}
				i.Manifests = append(i.Manifests, forged)
				i.Manifests[len(i.Manifests)-1].Annotations = map[string]string{
					"io.github.ocibridge.layer.digest": e.Annotations["io.github.ocibridge.layer.digest"],
					"io.github.ocibridge.layer.size":   "1", "io.github.ocibridge.filename": "terraform-provider-widget_1.0.0_plan9_amd64.zip",
				}
				e.Annotations["io.github.ocibridge.layer.digest"] = "sha256:" + strings.Repeat("0", 64)
				break
			}
		}
	})
	c := p.serve()
	for _, path := range []string{"1.0.0/download/darwin/arm64", "1.0.0/download/plan9/amd64"} {
		p.checkTrouble(c.get(hostsPrefix+path), path, http.StatusBadGateway)
	}
	a := c.get(hostsPrefix + "1.0.0/download/linux/amd64")
	var doc struct{ Packages map[string]any }
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || len(doc.Packages) != 1 || doc.Packages["linux_amd64"] == nil || !strings.Contains(a.body, r.Package("linux", "amd64").SHA256) {
		t.Errorf("%+v", a)
	}
}

// TestSignedPackageInAnothersPlace shows that a signed package is not served for another platform or version,
// even if an index lists the package there. Without this protection, clients would accept the package.
func TestSignedPackageInAnothersPlace(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.push(widget, "2.0.0")
	var older ocispec.Index
	p.reindex("1.0.0", func(i *ocispec.Index) { older = *i })
	p.reindex("2.0.0", func(i *ocispec.Index) { i.Manifests = older.Manifests })
	p.reindex("1.0.0", func(i *ocispec.Index) {
		var entries []*ocispec.Descriptor
		for j := range i.Manifests {
			if i.Manifests[j].Platform != nil {
				entries = append(entries, &i.Manifests[j])
			}
		}
		entries[0].Platform, entries[1].Platform = entries[1].Platform, entries[0].Platform
	})
	c := p.serve()
	for _, path := range []string{"1.0.0/download/linux/amd64", "1.0.0/download/darwin/arm64", "2.0.0/download/linux/amd64"} {
		p.checkTrouble(c.get(hostsPrefix+path), path, http.StatusBadGateway)
	}
}

// TestRegistryTroubleIsNotAbsence shows that no failure of the registry leads to a 404 in the registry
// protocol.
func TestRegistryTroubleIsNotAbsence(t *testing.T) {
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		status int
	}{
		"500":                          {respond(500, "text/plain", "oops"), 502},
		"503":                          {respond(503, "application/json", `{"errors":[{"code":"UNAVAILABLE"}]}`), 503},
		"429":                          {respond(429, "application/json", `{"errors":[{"code":"TOOMANYREQUESTS"}]}`), 503},
		"504":                          {respond(504, "text/html", "<html>"), 504},
		"credentials rejected":         {respond(401, "application/json", `{"errors":[{"code":"UNAUTHORIZED"}]}`), 502},
		"denied, said with 404":        {respond(404, "application/json", `{"errors":[{"code":"DENIED"}]}`), 502},
		"page with 404, as of a proxy": {respond(404, "text/html", "<html>Not Found"), 502},
		"connection cut in the answer": {cutAfter(`{"tags":`), 502},
		"connection cut before":        {cut, 502},
		"no errors with 404":           {respond(404, "application/json", `{"errors":[]}`), 502},
		"page with 200":                {respond(200, "text/html", "<html>Welcome"), 502},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.options.PublicURL = parseURL(t, "https://"+host+"/")
			p.lie("/v2/", tc.lie)
			c := p.serve()
			for _, base := range []string{hostsPrefix, "/v1/providers/acme/widget/"} {
				for _, path := range []string{"versions", "1.0.0/download/linux/amd64", "9.9.9/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS", "1.0.0/linux_amd64/" + provider.PackageFilename(widget, provider.MustParseVersion("1.0.0"), linux)} {
					for _, method := range []string{http.MethodGet, http.MethodHead} {
						p.checkTrouble(c.do(method, base+path), method+" "+base+path, tc.status)
					}
				}
			}
		})
	}
}

// TestListFailsIfOneVersionFails shows that the list of versions fails if one version cannot be read. The
// reason is that this version may or may not be signed.
func TestListFailsIfOneVersionFails(t *testing.T) {
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		status int
	}{"503": {respond(503, "text/plain", ""), 503}, "429": {respond(429, "text/plain", ""), 503}, "500": {respond(500, "text/plain", ""), 502}, "cut": {cut, 502}} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.push(widget, "2.0.0")
			p.lie("/manifests/2.0.0", tc.lie)
			p.checkTrouble(p.serve().get(hostsPrefix+"versions"), "versions", tc.status)
		})
	}
}

// TestStaleListWithAnUnreadVersion shows that the gateway serves a cached list while the registry is down, even
// if it has never read one of the versions. Clients can install the other version.
func TestStaleListWithAnUnreadVersion(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"asked each time": -1, "current": time.Hour} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.push(widget, "1.1.0")
			p.catalog(catalog.Options{TagTTL: ttl})
			c := p.serve()
			for _, path := range []string{prefix + "index.json", hostsPrefix + "1.0.0/download/linux/amd64"} {
				if a := c.get(path); a.status != http.StatusOK {
					t.Fatalf("%s: %+v", path, a)
				}
			}
			p.lie("/", cut)
			const described = `{"version":"1.0.0","protocols":["5.0","6.1"],"platforms":[{"os":"darwin","arch":"arm64"},{"os":"linux","arch":"amd64"}]}`
			if a := c.get(hostsPrefix + "versions"); a.body != `{"versions":[`+described+`,{"version":"1.1.0"}]}` {
				t.Errorf("versions: %+v", a)
			}
			if a := c.get(hostsPrefix + "1.0.0/download/linux/amd64"); a.status != http.StatusOK {
				t.Errorf("download: %+v", a)
			}
			if a := c.get(hostsPrefix + "1.1.0/download/linux/amd64"); a.status != http.StatusBadGateway {
				t.Errorf("download of a version that is not cached: %+v", a)
			}
		})
	}
}

// TestStaleListWithoutReadableVersions shows that requests for a cached list fail if the registry is down and
// the gateway has read none of the list's signed versions.
func TestStaleListWithoutReadableVersions(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.pushUnsigned("0.9.0")
	p.catalog(catalog.Options{TagTTL: -1})
	c := p.serve()
	for _, path := range []string{prefix + "index.json", prefix + "0.9.0.json"} {
		c.get(path)
	}
	p.lie("/", cut)
	p.checkTrouble(c.get(hostsPrefix+"versions"), "versions", http.StatusBadGateway)
}

// TestListingIsBounded shows that a listing reads at most VersionReads versions concurrently.
func TestListingIsBounded(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	var tags []string
	for i := range 4 * gateway.VersionReads {
		tags = append(tags, fmt.Sprintf(`"1.0.%d"`, i))
	}
	var now, most atomic.Int32
	full := make(chan struct{})
	p.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			respond(200, "application/json", `{"tags":[`+strings.Join(tags, ",")+`]}`)(w, r)
			return true
		}
		if strings.HasSuffix(r.URL.Path, "/"+string(ociaddr.StateTag)) {
			return false // this repository has no summary
		}
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == gateway.VersionReads {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		<-full // until the maximum number of requests is in progress
		respond(404, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`)(w, r)
		return true
	})
	if a := p.serve().get(hostsPrefix + "versions"); a.status != http.StatusOK || strings.Count(a.body, `"version"`) != len(tags) {
		t.Errorf("%+v", a)
	}
	if most.Load() != gateway.VersionReads {
		t.Errorf("%d concurrent requests", most.Load())
	}
}

// TestStalledEvidence shows that requests for documents of the registry protocol get 504 if the registry does
// not answer in time.
func TestStalledEvidence(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.limits = gateway.Limits{Metadata: 1} // expires immediately
	p.lie("/", hang)
	c := p.serve()
	for _, path := range []string{"versions", "1.0.0/download/linux/amd64"} {
		p.checkTrouble(c.get(hostsPrefix+path), path, http.StatusGatewayTimeout)
	}
}

// TestMalformedChecksums shows that the registry protocol replays no checksum document that the program would refuse in a
// push, and nothing else of its version. The network mirror needs no such document, and serves the version.
func TestMalformedChecksums(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	storedkit.ReplaceEvidence(t, p.repo, widget.String(), "1.0.0", storedkit.Commented(t, p.signer))
	c := p.serve()
	for _, path := range []string{"1.0.0/download/linux/amd64", "1.0.0", "1.0.0/checksums/" + sumsOf("1.0.0"), "1.0.0/checksums/" + sumsOf("1.0.0") + ".sig"} {
		if a := c.get(hostsPrefix + path); a.status != http.StatusBadGateway || !strings.Contains(a.body, "may serve") || strings.Contains(a.body, "Acme") {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if log := p.log.String(); !strings.Contains(log, "malformed SHA256SUMS: line 4 is not a SHA-256 and a file name") {
		t.Errorf("log:\n%s", log)
	}
	for _, path := range []string{prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
		if a := c.get(path); a.status != http.StatusOK {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

func sumsOf(version string) string { return "terraform-provider-widget_" + version + "_SHA256SUMS" }
