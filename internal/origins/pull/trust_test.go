package pull_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// TestRefused shows that a release is neither served nor stored if the trust policy refuses the release.
func TestRefused(t *testing.T) {
	t.Parallel()
	stranger := func(b *bench) { // signed by a key that differs from the offered key
		r := b.build("1.0.0", 100)
		if err := r.Sign(pgpFor(b, "Mallory")); err != nil {
			b.tb.Fatal(err)
		}
		r.Keys = b.build("1.0.0", 1).Keys
		b.origin.Add(r)
	}
	for name, tc := range map[string]struct {
		spoil  func(*bench)
		policy trust.Policy
		log    string
	}{
		"wrong signature": {spoil: stranger, log: "signature refused"},
		"unsigned": {spoil: func(b *bench) {
			b.signer = nil
			b.publish("1.0.0")
		}, log: "not signed"},
		"other key than pinned": {spoil: func(b *bench) { b.publish("1.0.0") }, policy: trust.Policy{Keys: []string{strings.Repeat("A", 40)}}, log: "pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tc.spoil(b)
			s := b.serve(siteOptions{policy: tc.policy})
			for _, path := range []string{mirror + "1.0.0.json", archivePath("1.0.0", "linux_amd64"), hosts + "1.0.0/download/linux/amd64"} {
				if got := s.get(path); got.status != http.StatusBadGateway || strings.Contains(got.body, "signature") || !strings.Contains(got.body, "may serve") {
					t.Errorf("%s: %+v", path, got)
				}
			}
			if !strings.Contains(s.log.String(), tc.log) {
				t.Errorf("the log lacks %q", tc.log)
			}
			if n, m := b.registry.Count(recorder.Writes()), b.origin.Count(zips(), recorder.Method(http.MethodGet)); n != 0 || m != 0 {
				t.Errorf("%d writes, %d downloads", n, m)
			}
		})
	}
}

// TestPackageOfAnotherPlatform shows that, if an origin offers the signed package of one platform for another platform,
// the package is neither served nor stored for the wrong platform.
func TestPackageOfAnotherPlatform(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	b.origin.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/1.0.0/download/linux/amd64") {
			return false
		}
		req.URL.Path = strings.Replace(req.URL.Path, "linux/amd64", "darwin/arm64", 1)
		answer := httptest.NewRecorder()
		b.origin.ServeHTTP(answer, req)
		w.Write(bytes.Replace(bytes.Replace(answer.Body.Bytes(), []byte(`"os":"darwin"`), []byte(`"os":"linux"`), 1), []byte(`"arch":"arm64"`), []byte(`"arch":"amd64"`), 1))
		return true
	})
	s := b.serve(siteOptions{})
	if got := s.hashes("1.0.0"); got != zh(r) {
		t.Errorf("1.0.0.json: %s", got)
	}
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.status != http.StatusBadGateway {
		t.Errorf("linux_amd64: %d, %d bytes", got.status, len(got.body))
	}
	if got := s.get(archivePath("1.0.0", "darwin_arm64")); got.body != string(r.Package("darwin", "arm64").Data) {
		t.Errorf("darwin_arm64: %d, %d bytes", got.status, len(got.body))
	}
	if e := s.await(pull.Stored, 1); !errors.Is(e.Err, trust.ErrChecksum) {
		t.Errorf("stored: %v", e.Err)
	}
	if n := b.registry.Count(recorder.Writes()); n != 0 {
		t.Errorf("%d writes", n)
	}
}

// TestUnsigned shows that an unsigned release is served, and stored as unsigned, if the trust policy allows it.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.signer = nil
	r := b.publish("1.0.0")
	s := b.serve(siteOptions{policy: trust.Policy{AllowUnsigned: true}})
	for _, when := range []string{"cold", "stored"} {
		if got := s.versions(); got != "1.0.0" {
			t.Errorf("%s: index.json: %s", when, got)
		}
		if got := s.get(hosts + "versions"); got.status != http.StatusNotFound {
			t.Errorf("%s: versions: %+v", when, got)
		}
		if got := s.get(hosts + "1.0.0/download/linux/amd64"); got.status != http.StatusNotFound {
			t.Errorf("%s: download: %+v", when, got)
		}
		if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(r.Package("linux", "amd64").Data) {
			t.Errorf("%s: %d, %d bytes", when, got.status, len(got.body))
		}
		if e := s.await(pull.Stored, 1); e.Err != nil || e.Verdict == trust.Signed {
			t.Errorf("%s: %+v", when, e)
		}
	}
	verdict, err := artifact.ReadVerdict(t.Context(), b.repository(), b.tagged("1.0.0"))
	if err != nil || verdict == trust.Signed {
		t.Errorf("stored as %s, %v", verdict, err)
	}
}

// TestUnsignedAsClients shows that a release without a key at registry.opentofu.org is served and stored by its
// checksums. It is neither served nor stored if a signed version of the provider is stored.
func TestUnsignedAsClients(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tofu := provider.MustParseAddress("registry.opentofu.org/acme/widget")
	b.services.ForceHostServices(svchost.Hostname(tofu.Hostname()), map[string]any{"providers.v1": b.originURL + origin.ServicePath})
	signer := b.signer
	b.signer = nil
	b.publish("1.0.0")
	path := func(version string) string {
		return strings.Replace(archivePath(version, "linux_amd64"), host, tofu.Hostname(), 1)
	}
	o := siteOptions{policy: trust.Policy{UnsignedAsClients: true}}
	s := b.serve(o)
	if got := s.get(path("1.0.0")); got.status != http.StatusOK {
		t.Errorf("without a key: %+v", got)
	}
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.status != http.StatusBadGateway {
		t.Errorf("without a key at another host: %+v", got)
	}
	if e := s.await(pull.Stored, 1); e.Err != nil || e.Verdict != trust.ChecksumOnly {
		t.Errorf("%+v", e)
	}
	b.signer = signer
	b.publish("1.1.0")
	b.signer = nil
	b.publish("1.2.0")
	s = b.serve(o)
	if got := s.get(path("1.1.0")); got.status != http.StatusOK {
		t.Errorf("signed: %+v", got)
	}
	s.await(pull.Stored, 1)
	if got := s.get(path("1.2.0")); got.status != http.StatusBadGateway || !strings.Contains(s.log.String(), "the stored version 1.1.0 is signed") {
		t.Errorf("without a key, after a signed version: %+v", got)
	}
	if b.taggedOf(tofu, "1.2.0") != nil {
		t.Error("the downgrade is stored")
	}
}

// TestRequiredWithoutKeys shows that, if signatures by configured keys are required, a release that is signed only by a
// key of the origin is neither served nor stored.
func TestRequiredWithoutKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	s := b.serve(siteOptions{required: true})
	for _, path := range []string{mirror + "1.0.0.json", archivePath("1.0.0", "linux_amd64"), hosts + "1.0.0/download/linux/amd64"} {
		if got := s.get(path); got.status != http.StatusBadGateway {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if n, m := b.registry.Count(recorder.Writes()), b.origin.Count(zips(), recorder.Method(http.MethodGet)); n != 0 || m != 0 {
		t.Errorf("%d writes, %d downloads", n, m)
	}
}

// TestDamagedPackage shows that a package that differs from its SHA256SUMS is refused.
func TestDamagedPackage(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]siteOptions{"streamed": {}, "cached": {cache: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.build("1.0.0", 300<<10)
			b.origin.Add(r)
			linux := r.Package("linux", "amd64")
			b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, linux.Filename) {
					return false
				}
				w.Write(append(bytes.Clone(linux.Data[:len(linux.Data)-1]), 'x'))
				return true
			})
			s := b.serve(o)
			if got := s.get(archivePath("1.0.0", "linux_amd64")); got.err == nil && got.status == http.StatusOK {
				t.Errorf("a package of %d bytes was served completely", len(got.body))
			}
			if e := s.await(pull.Stored, 1); e.Err == nil {
				t.Error("the damaged package was stored")
			}
			if got := b.tagged("1.0.0"); got != nil {
				t.Errorf("tagged: %+v", got)
			}
			if n := b.origin.Count(zips(), recorder.Method(http.MethodGet), recorder.PathSuffix(linux.Filename)); n != 1 {
				t.Errorf("%d downloads of the refused package", n)
			}
		})
	}
}

// TestPackageThatIsNoZip shows that a package that is not a zip file is refused, even if SHA256SUMS lists the package
// and the signature is good. The package is not downloaded again soon.
func TestPackageThatIsNoZip(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]siteOptions{"streamed": {}, "cached": {cache: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.build("1.0.0", 300<<10)
			linux := r.Package("linux", "amd64")
			if err := r.Repack("linux", "amd64", linux.Data[:len(linux.Data)-1], b.signer); err != nil {
				t.Fatal(err)
			}
			b.origin.Add(r)
			s := b.serve(o)
			if got := s.get(archivePath("1.0.0", "linux_amd64")); got.err == nil && got.status == http.StatusOK {
				t.Errorf("a package of %d bytes was served completely", len(got.body))
			}
			if e := s.await(pull.Stored, 1); !errors.Is(e.Err, provider.ErrNotZip) {
				t.Errorf("stored: %v", e.Err)
			}
			if got := s.get(archivePath("1.0.0", "linux_amd64")); got.status != http.StatusBadGateway {
				t.Errorf("requested again: %d, %d bytes", got.status, len(got.body))
			}
			if got := b.tagged("1.0.0"); got != nil {
				t.Errorf("tagged: %+v", got)
			}
			if n := b.registry.Count(recorder.Method(http.MethodPut)); n != 0 {
				t.Errorf("%d blobs or manifests are stored", n)
			}
			if n := b.origin.Count(zips(), recorder.Method(http.MethodGet), recorder.PathSuffix(linux.Filename)); n != 1 {
				t.Errorf("%d downloads of the refused package", n)
			}
		})
	}
}

// TestPublishedAgain shows that, if a version is published again with other packages before it is stored, the next
// request for a package is refused. After that, the metadata of the version lists the new packages.
func TestPublishedAgain(t *testing.T) {
	t.Parallel()
	for _, platform := range []string{"linux_amd64", "windows_amd64"} { // the location is known for the first platform
		b := newBench(t)
		first := b.publish("1.0.0")
		s := b.serve(siteOptions{})
		if got := s.hashes("1.0.0"); got != zh(first) {
			t.Fatalf("1.0.0.json: %s", got)
		}
		second := b.publish("1.0.0")
		may := make(chan struct{})
		b.registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost || r.Method == http.MethodPut {
				select {
				case <-may: // the version must not be stored before the test has made its requests
				case <-r.Context().Done():
				}
			}
			return false
		})
		goos, arch, _ := strings.Cut(platform, "_")
		want := string(second.Package(goos, arch).Data)
		// The client may have retried a request that was broken off immediately, and the retry may have succeeded.
		if got := s.get(archivePath("1.0.0", platform)); got.err == nil && got.status == http.StatusOK && got.body != want {
			t.Errorf("%s: %d, %d bytes", platform, got.status, len(got.body))
		}
		s.await(pull.Fetched, 1)
		if got := s.hashes("1.0.0"); got != zh(second) {
			t.Errorf("%s: 1.0.0.json: %s", platform, got)
		}
		close(may)
		if got := s.get(archivePath("1.0.0", platform)); got.err != nil || got.body != want {
			t.Errorf("%s: %d, %v", platform, got.status, got.err)
		}
		s.await(pull.Stored, 1)
	}
}

// TestOtherNames shows that a gateway pulls through what a push accepts: packages whose names spell the version
// otherwise, and packages that are signed under names without a version and a platform. A package with the name of another
// version is left out. With required evidence, only names with a version and a platform are served.
func TestOtherNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		linux, all string // the name of the package for linux, and the start of all names; "" means the usual names
		required   bool
		served     string // the platforms
		status     int    // of the package for linux, if it is not 200
	}{
		"v before the version":         {all: "terraform-provider-widget_v1.0.0", served: "darwin_arm64 linux_amd64 windows_amd64"},
		"v, and required":              {all: "terraform-provider-widget_v1.0.0", required: true, served: "darwin_arm64 linux_amd64 windows_amd64"},
		"v for one platform":           {linux: "terraform-provider-widget_v1.0.0_linux_amd64.zip", served: "darwin_arm64 linux_amd64 windows_amd64"},
		"signed under another name":    {all: "Widget", served: "darwin_arm64 linux_amd64 windows_amd64"},
		"one under another name":       {linux: "linux.zip", served: "darwin_arm64 linux_amd64 windows_amd64"},
		"another name, and required":   {all: "Widget", required: true, status: http.StatusBadGateway},
		"one other name, and required": {linux: "linux.zip", required: true, served: "darwin_arm64 windows_amd64", status: http.StatusNotFound},
		"one with another version's":   {linux: "terraform-provider-widget_v0.9.0_linux_amd64.zip", served: "darwin_arm64 windows_amd64", status: http.StatusNotFound},
		"all with another version's":   {all: "terraform-provider-widget_v0.9.0", status: http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := b.build("1.0.0", 100)
			for i := range r.Packages {
				p := &r.Packages[i]
				if tc.all != "" {
					p.Filename = tc.all + "_" + p.OS + "_" + p.Arch + ".zip"
				} else if p.OS == "linux" {
					p.Filename = tc.linux
				}
			}
			if err := r.Seal(b.signer); err != nil {
				t.Fatal(err)
			}
			b.origin.Add(r)
			s := b.serve(siteOptions{required: tc.required, policy: trust.Policy{Keys: []string{b.signer.Fingerprint()}}})
			linux := r.Package("linux", "amd64")
			if got := s.get(mirror + "1.0.0/linux_amd64/" + linux.Filename); tc.status != 0 && got.status != tc.status || tc.status == 0 && got.body != string(linux.Data) {
				t.Errorf("the package: %d, %.200s", got.status, got.body)
			}
			document := s.get(mirror + "1.0.0.json")
			for _, p := range platforms {
				if listed, want := strings.Contains(document.body, p), strings.Contains(tc.served, p); listed != want {
					t.Errorf("1.0.0.json: %d, %s", document.status, document.body)
				}
			}
			// With required evidence, the origin gets no request for a package that cannot be served.
			if n := b.origin.Count(recorder.PathContains("/1.0.0/download/")); tc.required && tc.status != 0 && n != 1 {
				t.Errorf("%d requests for the metadata of packages", n)
			}
			if left := strings.Contains(s.log.String(), "serves no others: linux_amd64"); left != (tc.required && tc.linux != "") {
				t.Errorf("log: %s", s.log)
			}
			if tc.served == "" {
				return
			}
			if tc.status == 0 {
				s.await(pull.Stored, 1)
				if got := platformsOf(b.tagged("1.0.0")); !strings.Contains(got, "linux_amd64") {
					t.Errorf("stored are %s", got)
				}
			}
		})
	}
}

// TestOtherNameUnknown shows that a version is served although its origin fails to describe one platform, whose package
// is not listed under its usual name. That platform is left out with a warning.
func TestOtherNameUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.build("1.0.0", 100)
	for i := range r.Packages {
		if p := &r.Packages[i]; p.OS == "darwin" {
			p.Filename = "Widget_mac.zip"
		}
	}
	if err := r.Seal(b.signer); err != nil {
		t.Fatal(err)
	}
	b.origin.Add(r)
	b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		broken := strings.HasSuffix(r.URL.Path, "/download/darwin/arm64")
		if broken {
			http.Error(w, "broken", http.StatusForbidden)
		}
		return broken
	})
	s := b.serve(siteOptions{})
	for _, p := range platforms {
		want := http.StatusOK
		if p == "darwin_arm64" {
			want = http.StatusNotFound
		}
		if got := s.get(archivePath("1.0.0", p)); got.status != want {
			t.Errorf("%s: %d, %.200s", p, got.status, got.body)
		}
	}
	if n := strings.Count(s.log.String(), "darwin_arm64 is left out"); n != 1 {
		t.Errorf("%d warnings in %s", n, s.log.String())
	}
}
