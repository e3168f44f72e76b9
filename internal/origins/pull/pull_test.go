package pull_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// TestColdVersion shows that a version that the registry lacks is listed, served and stored. Its document has the
// signed checksums.
func TestColdVersion(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]siteOptions{"streamed": {}, "cached": {cache: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.publish("1.0.0")
			about := provider.About{Source: "https://git.example/acme/widget", PublishedAt: "2026-01-02T03:04:05Z"}
			b.origin.About(about.Source, about.PublishedAt)
			s := b.serve(o)
			if got := s.versions(); got != "1.0.0" {
				t.Errorf("index.json has %s", got)
			}
			if got := s.hashes("1.0.0"); got != zh(r) {
				t.Errorf("1.0.0.json has\n%s, want\n%s", got, zh(r))
			}
			// The gateway requests the list, the metadata of one package, SHA256SUMS and its signature from the
			// origin.
			if n := b.origin.Count(recorder.Method(http.MethodGet)); n != 4 {
				t.Errorf("%d requests to the origin: %+v", n, b.origin.Requests())
			}
			const said = `{"source":"https://git.example/acme/widget","published_at":"2026-01-02T03:04:05Z"}`
			if got := s.get("/hosts/" + widget.Hostname() + "/v1/providers/" + widget.Namespace() + "/" + widget.Type() + "/1.0.0"); got.body != said {
				t.Errorf("of the version: %d %s", got.status, got.body)
			}
			if n := b.registry.Count(recorder.Writes()); n != 0 {
				t.Errorf("%d writes before a package is requested", n)
			}
			linux := r.Package("linux", "amd64")
			if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(linux.Data) || got.header.Get("Content-Length") != fmt.Sprint(linux.Size) {
				t.Errorf("archive: %d, %d bytes, %v", got.status, len(got.body), got.err)
			}
			if e := s.await(pull.Stored, 1); e.Err != nil || e.Fingerprint != b.signer.Fingerprint() || e.Verdict != trust.Signed || e.From != host {
				t.Errorf("stored: %+v", e)
			}
			found := b.tagged("1.0.0")
			if got := platformsOf(found); got != strings.Join(platforms, " ") {
				t.Errorf("stored are %s", got)
			}
			if record, err := artifact.ReadRecord(t.Context(), b.repository(), *found.Evidence); err != nil || record.About != about {
				t.Errorf("record %+v, %v", record, err)
			}
			verified, err := artifact.Verify(t.Context(), b.repository(), widget, provider.MustParseVersion("1.0.0"), found, trust.Policy{Keys: []string{b.signer.Fingerprint()}})
			if err != nil || len(verified.Packages) != 3 || !verified.Pinned || verified.Packages[0].H1.IsZero() {
				t.Errorf("verify: %+v, %v", verified, err)
			}
			if n := b.origin.Count(zips(), recorder.Method(http.MethodGet)); n != 3 {
				t.Errorf("%d downloads", n)
			}
			if got := s.hashes("1.0.0"); strings.Count(got, "h1:") != 3 || strings.Count(got, "zh:") != 3 {
				t.Errorf("once stored, 1.0.0.json has\n%s", got)
			}
			s.await(pull.Fetched, 3)
			// Once the version is stored, requests of clients cause no more requests to the origin.
			before := b.origin.Count(recorder.Method(http.MethodGet))
			for _, p := range platforms {
				if got := s.get(archivePath("1.0.0", p)); got.status != http.StatusOK || got.err != nil {
					t.Errorf("warm %s: %+v", p, got)
				}
			}
			if n := b.origin.Count(recorder.Method(http.MethodGet)) - before; n != 0 {
				t.Errorf("%d requests to the origin for a stored version", n)
			}
		})
	}
}

// TestManyClientsOneDownload shows that, if clients request a package while it is being downloaded, all of them read
// the same download.
func TestManyClientsOneDownload(t *testing.T) {
	t.Parallel()
	const clients = 20
	for name, o := range map[string]siteOptions{"streamed": {}, "cached": {cache: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.build("1.0.0", 3<<20)
			b.origin.Add(r)
			linux := r.Package("linux", "amd64")
			may := make(chan struct{})
			b.halfThenWait(linux.Filename, linux.Data, may)
			o.pull.Scope.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
			s := b.serve(o)
			var begun, ended sync.WaitGroup
			begun.Add(clients)
			for range clients {
				ended.Go(func() {
					resp, err := s.server.Client().Get(s.server.URL + archivePath("1.0.0", "linux_amd64"))
					if err != nil {
						t.Error(err)
						begun.Done()
						return
					}
					defer resp.Body.Close()
					// Each reader between the origin and the client holds back fewer bytes than the size of its
					// buffer.
					half := make([]byte, linux.Size/2-4*archives.CopyBuffer)
					_, err = io.ReadFull(resp.Body, half) // the origin has sent only half of the package by now
					begun.Done()
					rest, rerr := io.ReadAll(resp.Body)
					if err != nil || rerr != nil || !bytes.Equal(append(half, rest...), linux.Data) {
						t.Errorf("%d bytes, %v, %v", len(half)+len(rest), err, rerr)
					}
				})
			}
			begun.Wait()
			close(may)
			ended.Wait()
			s.await(pull.Stored, 1)
			if n := b.origin.Count(zips(), recorder.Method(http.MethodGet)); n != 1 {
				t.Errorf("%d downloads", n)
			}
		})
	}
}

// halfThenWait makes the origin send the first half of a package immediately, and the second half once the channel may
// is closed.
func (b *bench) halfThenWait(filename string, data []byte, may <-chan struct{}) {
	b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, filename) || r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:len(data)/2+1000])
		http.NewResponseController(w).Flush()
		select {
		case <-may:
			w.Write(data[len(data)/2+1000:])
		case <-r.Context().Done():
		}
		return true
	})
}

// TestClientGoesAway shows that, if one client leaves in the middle of a download, the other clients and the registry
// still get the whole package.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.build("1.0.0", 1<<20)
	b.origin.Add(r)
	linux := r.Package("linux", "amd64")
	may := make(chan struct{})
	b.halfThenWait(linux.Filename, linux.Data, may)
	s := b.serve(siteOptions{})
	resp, err := s.server.Client().Get(s.server.URL + archivePath("1.0.0", "linux_amd64"))
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(resp.Body, make([]byte, 1000))
	resp.Body.Close()
	close(may)
	if e := s.await(pull.Stored, 1); e.Err != nil {
		t.Fatal(e.Err)
	}
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(linux.Data) {
		t.Errorf("%d, %d bytes", got.status, len(got.body))
	}
	if n := b.origin.Count(zips(), recorder.Method(http.MethodGet), recorder.PathSuffix(linux.Filename)); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// TestAbsent shows that, if the origin does not offer a provider, the provider, its versions and its packages are
// reported as absent.
func TestAbsent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.serve(siteOptions{})
	if got := s.versions(); got != "404" {
		t.Errorf("index.json: %s", got)
	}
	if got := s.get(mirror + "1.0.0.json"); got.status != http.StatusOK || got.body != `{"archives":{}}` {
		t.Errorf("1.0.0.json: %+v", got)
	}
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.status != http.StatusNotFound {
		t.Errorf("archive: %+v", got)
	}
}

// TestPlatformsBeyondConfiguration shows that, if a client requests a platform that is not configured, the platform is
// served and added to the stored version.
func TestPlatformsBeyondConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	o := siteOptions{}
	o.pull.Scope.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	s := b.serve(o)
	s.get(archivePath("1.0.0", "linux_amd64"))
	s.await(pull.Stored, 1)
	if got := platformsOf(b.tagged("1.0.0")); got != "linux_amd64" {
		t.Errorf("stored are %s", got)
	}
	stored := b.tagged("1.0.0")
	if all, err := s.puller.Complete(t.Context(), widget, provider.MustParseVersion("1.0.0"), stored); err != nil || len(all.Packages) != 3 || all.Index.Digest != "" || stored.Index.Digest == "" {
		t.Errorf("completed: %+v, %v; stored: %+v", all, err, stored)
	}
	got := s.hashes("1.0.0")
	if strings.Count(got, "zh:") != 3 || strings.Count(got, "h1:") != 1 {
		t.Errorf("1.0.0.json: %s", got)
	}
	windows := r.Package("windows", "amd64")
	if got := s.get(archivePath("1.0.0", "windows_amd64")); got.body != string(windows.Data) {
		t.Errorf("%+v", got)
	}
	s.await(pull.Stored, 2)
	if got := platformsOf(b.tagged("1.0.0")); got != "linux_amd64 windows_amd64" {
		t.Errorf("stored are %s", got)
	}
	if n := b.origin.Count(zips(), recorder.Method(http.MethodGet)); n != 2 {
		t.Errorf("%d downloads", n)
	}
}

// TestTwoGateways shows that, if two gateways push a version to one registry, the result is one complete index. Each
// gateway downloads each package at most once.
func TestTwoGateways(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.build("1.0.0", 1<<20)
	b.origin.Add(r)
	var o siteOptions
	o.pull.Scope.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	sites := []*site{b.serve(o), b.serve(o)}
	var wg sync.WaitGroup
	for i, s := range sites {
		for _, p := range []string{"linux_amd64", []string{"darwin_arm64", "windows_amd64"}[i]} {
			wg.Go(func() {
				os, arch, _ := strings.Cut(p, "_")
				if got := s.get(archivePath("1.0.0", p)); got.body != string(r.Package(os, arch).Data) {
					t.Errorf("%s: %d, %d bytes, %v", p, got.status, len(got.body), got.err)
				}
			})
		}
	}
	wg.Wait()
	for _, s := range sites {
		s.puller.Drain(t.Context())
	}
	if got := platformsOf(b.tagged("1.0.0")); got != strings.Join(platforms, " ") {
		t.Errorf("stored are %s", got)
	}
	for _, p := range r.Packages {
		if n := b.origin.Count(recorder.Method(http.MethodGet), recorder.PathSuffix(p.Filename)); n > 2 || n > 1 && p.OS != "linux" {
			t.Errorf("%s was downloaded %d times", p.Filename, n)
		}
	}
}

// TestRegistryProtocol shows that the gateway serves the publisher's signed files unchanged before and after the
// version is stored, even if evidence is required.
func TestRegistryProtocol(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{false, true} {
		t.Run(fmt.Sprintf("required %t", required), func(t *testing.T) {
			b := newBench(t)
			r := b.publish("1.0.0")
			s := b.serve(siteOptions{cache: t.TempDir(), required: required, policy: trust.Policy{Keys: []string{b.signer.Fingerprint()}}})
			base := hosts + "1.0.0/"
			for range 2 {
				if got := s.get(hosts + "versions"); !strings.Contains(got.body, `"1.0.0"`) || !strings.Contains(got.body, "windows") {
					t.Errorf("versions: %+v", got)
				}
				got := s.get(base + "download/linux/amd64")
				if !strings.Contains(got.body, r.Package("linux", "amd64").SHA256) || !strings.Contains(got.body, "BEGIN PGP") ||
					!strings.Contains(got.body, fmt.Sprintf(`"package_size":%d`, r.Package("linux", "amd64").Size)) {
					t.Errorf("download: %+v", got)
				}
				if got := s.get(base + "checksums/" + r.SHA256SUMSName()); got.body != string(r.SHA256SUMS) {
					t.Errorf("SHA256SUMS: %+v", got)
				}
				if got := s.get(base + "checksums/" + r.SignatureName()); got.body != string(r.Signature) {
					t.Errorf("signature: %+v", got)
				}
				if n := strings.Count(s.hashes("1.0.0"), "zh:"); n != 3 {
					t.Errorf("%d platforms", n)
				}
				s.get(archivePath("1.0.0", "linux_amd64"))
				s.await(pull.Stored, 1)
			}
			if got := s.hashes("1.0.0"); !strings.Contains(got, "h1:") {
				t.Errorf("no h1: %s", got)
			}
		})
	}
}

// TestScope shows that the gateway omits the providers and versions that the scope excludes.
func TestScope(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, v := range []string{"1.0.0", "1.5.0", "2.0.0"} {
		b.publish(v)
	}
	var o siteOptions
	var err error
	if o.pull.Scope.Versions, err = provider.ParseConstraint("~> 1.0"); err != nil {
		t.Fatal(err)
	}
	s := b.serve(o)
	if got := s.versions(); got != "1.0.0 1.5.0" {
		t.Errorf("index.json: %s", got)
	}
	if got := s.get(mirror + "2.0.0.json"); got.body != `{"archives":{}}` {
		t.Errorf("2.0.0.json: %+v", got)
	}
	o.pull.Scope.Selector.Exclude = []subject.Pattern{provider.MustParsePattern(host + "/*/*")}
	before := b.origin.Count()
	if got := b.serve(o).versions(); got != "404" || b.origin.Count() != before {
		t.Errorf("index.json of an excluded provider: %s", got)
	}
}

// TestHeadDownloadsNoPackage shows that a HEAD request gets the same status as a GET request, but downloads no
// package.
func TestHeadDownloadsNoPackage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	s := b.serve(siteOptions{})
	resp, err := s.server.Client().Head(s.server.URL + archivePath("1.0.0", "linux_amd64"))
	if err != nil || resp.StatusCode != http.StatusOK || resp.ContentLength != r.Package("linux", "amd64").Size {
		t.Errorf("%+v, %v", resp, err)
	}
	if n := b.origin.Count(zips(), recorder.Method(http.MethodGet)); n != 0 {
		t.Errorf("%d downloads", n)
	}
}

// TestRefresh shows that, after an operator has refreshed a provider, new versions are listed immediately.
func TestRefresh(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	s := b.serve(siteOptions{})
	if got := s.versions(); got != "1.0.0" {
		t.Errorf("index.json: %s", got)
	}
	b.publish("2.0.0")
	if got := s.versions(); got != "1.0.0" {
		t.Errorf("index.json, as long as the list is current: %s", got)
	}
	s.catalog.Refresh(widget)
	if got := s.versions(); got != "1.0.0 2.0.0" {
		t.Errorf("index.json after a refresh: %s", got)
	}
}

// TestProtocolsAreWarnedAboutOnce shows that each warning about protocols is logged once, even if the version is
// pushed again because a client requests another platform.
func TestProtocolsAreWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		linux, others string // the protocols of linux and of the other platforms; the list names no protocols
		says          string
	}{
		"different": {`["6.0"]`, `["5.0"]`, "gives platforms different protocols"},
		"none":      {`[]`, `[]`, "gives no protocols"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.publish("1.0.0")
			honest := origin.New(origin.Options{}, r)
			b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				protocols := tc.others
				switch {
				case strings.HasSuffix(r.URL.Path, "/versions"):
					protocols = "[]"
				case strings.HasSuffix(r.URL.Path, "/download/linux/amd64"):
					protocols = tc.linux
				case !strings.Contains(r.URL.Path, "/download/"):
					return false
				}
				rec := httptest.NewRecorder()
				honest.ServeHTTP(rec, r)
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, strings.ReplaceAll(rec.Body.String(), `"protocols":["5.0"]`, `"protocols":`+protocols))
				return true
			})
			var scope pull.Scope
			for _, p := range platforms[:2] {
				scope.Platforms = append(scope.Platforms, provider.MustParsePlatform(p))
			}
			s := b.serve(siteOptions{pull: pull.Options{Scope: scope}})
			for i, p := range []string{platforms[0], platforms[2]} {
				if got := s.get(archivePath("1.0.0", p)); got.status != http.StatusOK || got.err != nil {
					t.Fatalf("%s: %+v", p, got)
				}
				s.await(pull.Stored, i+1)
			}
			if n := strings.Count(s.log.String(), tc.says); n != 1 {
				t.Errorf("%d lines in the log", n)
			}
		})
	}
}
