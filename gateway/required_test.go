package gateway_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

func TestRequiredServesWhatIsSigned(t *testing.T) {
	r := newRequired(t)
	s := r.honest()
	r.put(s, "1.0.0")
	c := r.serve()
	a := c.get(prefix + "1.0.0.json")
	for p, content := range s.packages {
		// The index claims an h1: hash that nobody has signed. The gateway must not serve that hash.
		if got := r.hashesOf(a)[p.String()]; !slices.Equal(got, []string{zipHash(content)}) {
			t.Errorf("%s: %v", p, got)
		}
		if a := c.get(archivePath("1.0.0", p)); a.status != http.StatusOK || a.body != string(content) {
			t.Errorf("%s: %d, %d bytes", p, a.status, len(a.body))
		}
	}
	var download struct {
		Packages map[string]struct{ Hashes []string }
	}
	if err := json.Unmarshal([]byte(c.get(hostsPrefix+"1.0.0/download/linux/amd64").body), &download); err != nil {
		t.Fatal(err)
	}
	if got := download.Packages[darwin.String()].Hashes; len(download.Packages) != 2 || !slices.Equal(got, []string{zipHash(s.packages[darwin])}) {
		t.Errorf("by the registry protocol: %+v", download)
	}
	if got := r.counts(); got != (counts{verified: 1}) {
		t.Errorf("%+v", got)
	}
}

// TestRequiredH1 shows that the gateway serves an h1: hash that it has computed itself, and never the h1: hash
// in the index.
func TestRequiredH1(t *testing.T) {
	r := newRequired(t)
	s := r.honest()
	s.index = func(v *artifact.Version) {
		for i := range v.Packages {
			v.Packages[i].H1 = h1(t, evil(t))
		}
	}
	v := r.put(s, "1.0.0")
	known := map[digest.Digest]provider.Hash{}
	r.options.H1 = func(d digest.Digest) (provider.Hash, bool) {
		h, ok := known[d]
		return h, ok
	}
	c := r.serve()
	if got := r.hashesOf(c.get(prefix + "1.0.0.json")); len(got[linux.String()]) != 1 || len(got[darwin.String()]) != 1 {
		t.Errorf("without a computed h1: %v", got)
	}
	for _, p := range v.Packages {
		if p.Platform == linux {
			known[p.Digest] = h1(t, s.packages[linux])
		}
	}
	got := r.hashesOf(c.get(prefix + "1.0.0.json"))
	if !slices.Equal(got[linux.String()], []string{zipHash(s.packages[linux]), h1(t, s.packages[linux]).String()}) || len(got[darwin.String()]) != 1 {
		t.Errorf("with a computed h1 for linux: %v", got)
	}
}

// TestRequiredRequests shows that the first request for VERSION.json causes at most six requests to the
// registry. Later requests do not make the gateway read the evidence again.
func TestRequiredRequests(t *testing.T) {
	r := newRequired(t)
	r.put(r.honest(), "1.0.0")
	c := r.serve()
	c.get(prefix + "1.0.0.json")
	if n := r.registry.Count(); n > 6 {
		t.Errorf("%d requests for a cold VERSION.json: %+v", n, r.registry.Requests())
	}
	r.registry.Reset()
	for _, path := range []string{prefix + "1.0.0.json", archivePath("1.0.0", linux), prefix + "1.0.0.json"} {
		c.get(path)
	}
	// The gateway does not read the same evidence again.
	if n := r.registry.Count(recorder.PathContains("/manifests/sha256:")); n != 0 {
		t.Errorf("%d more manifests", n)
	}
	if n := r.registry.Count(recorder.PathContains("/blobs/")); n != 1 {
		t.Errorf("%d more blobs, want the package", n)
	}
}

// TestRequiredWarmRequests shows that cached documents of both protocols cause no requests to the registry.
func TestRequiredWarmRequests(t *testing.T) {
	r := newRequired(t)
	r.put(r.honest(), "1.0.0")
	r.catalog(catalog.Options{Check: r.options.Check})
	c := r.serve()
	paths := []string{prefix + "1.0.0.json", prefix + "index.json", hostsPrefix + "versions", hostsPrefix + "1.0.0/download/linux/amd64"}
	for _, path := range paths {
		c.get(path)
	}
	r.registry.Reset()
	for _, path := range paths {
		if a := c.get(path); a.status != http.StatusOK {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if n := r.registry.Count(); n != 0 {
		t.Errorf("%d requests: %s", n, r.requests())
	}
}

// TestCompromisedRegistry shows that the gateway serves no file of a version, on any path, if an attacker has
// forged the version in the registry. The gateway still lists the version.
func TestCompromisedRegistry(t *testing.T) {
	testkit.LeaveToMake(t)
	mallory := pgp.For(t, "Mallory")
	gadget := provider.MustParseAddress(host + "/acme/gadget")
	withEvil := func(s *stored) { s.packages[linux] = evil(t) }
	for name, tc := range map[string]struct {
		forge func(*required, *stored)
		log   string
	}{
		"altered zip, its h1": {func(_ *required, s *stored) { withEvil(s) }, "checksum mismatch"},
		"altered zip, the right h1": {func(_ *required, s *stored) {
			right := h1(t, s.packages[linux])
			withEvil(s)
			s.index = func(v *artifact.Version) {
				for i := range v.Packages {
					v.Packages[i].H1 = right
				}
			}
		}, "checksum mismatch"},
		"altered manifest": {func(r *required, s *stored) {
			r.send(r.repo, blobOf("archive/zip", evil(t)))
			// Without annotations in the index, the gateway takes the description of packages from their
			// manifests.
			s.raw = func(index *ocispec.Index) {
				for i := range index.Manifests {
					index.Manifests[i].Annotations = nil
				}
			}
			s.manifest = func(p provider.Platform, m map[string]any) {
				layer := m["layers"].([]any)[0].(map[string]any)
				layer["digest"], layer["size"] = digest.FromBytes(evil(t)), len(evil(t))
			}
		}, "checksum mismatch"},
		"index of another version": {func(r *required, s *stored) {
			s.signed.version = "0.9.0"
			s.index = func(v *artifact.Version) { v.Version = provider.MustParseVersion("0.9.0") }
		}, "says that it is version 0.9.0"},
		"index of another version that does not say so": {func(_ *required, s *stored) { s.signed.version = "0.9.0" }, "not listed"},
		"evidence of another version": {func(_ *required, s *stored) {
			withEvil(s)
			s.signed.version = "0.9.0"
		}, "not listed"},
		"evidence of another provider": {func(_ *required, s *stored) {
			withEvil(s)
			s.signed.provider, s.signed.packages = gadget, s.packages
		}, "not listed"},
		"another platform's zip": {func(_ *required, s *stored) { s.packages[linux] = s.packages[darwin] }, "checksum mismatch"},
		"evidence by another key": {func(_ *required, s *stored) {
			withEvil(s)
			s.signed.packages, s.signed.by = s.packages, mallory
		}, "none of the pinned keys"},
		"evidence by another key, with the pinned one beside": {func(r *required, s *stored) {
			withEvil(s)
			s.signed.packages, s.signed.by = s.packages, mallory
			s.evidence = func(e *artifact.Evidence) {
				e.SigningKeys = r.marshal(map[string]any{"gpg_public_keys": []any{
					map[string]any{"ascii_armor": r.acme.ArmoredPublicKey()}, map[string]any{"ascii_armor": mallory.ArmoredPublicKey()}}})
			}
		}, "none of the pinned keys"},
		"another's subkey on the pinned key": {func(r *required, s *stored) {
			attacker := pgp.For(t, "Attacker", pgp.Subkey())
			withEvil(s)
			s.signed.packages, s.signed.by = s.packages, attacker
			s.evidence = func(e *artifact.Evidence) {
				e.SigningKeys = r.marshal(map[string]any{"gpg_public_keys": []any{map[string]any{"ascii_armor": r.acme.WithSubkeyOf(t, attacker)}}})
			}
		}, "signature refused"},
		"evidence that says it is signed, and is not": {func(_ *required, s *stored) {
			withEvil(s)
			s.signed.packages = s.packages
			s.evidence = func(e *artifact.Evidence) { e.Signature = nil }
		}, "not signed"},
		"evidence without keys": {func(_ *required, s *stored) {
			withEvil(s)
			s.signed.packages = s.packages
			s.evidence = func(e *artifact.Evidence) { e.SigningKeys = nil }
		}, "not signed"},
		"document extended": {func(_ *required, s *stored) {
			s.packages[linux] = evil(t)
			s.evidence = func(e *artifact.Evidence) {
				e.SHA256SUMS = bytes.ReplaceAll(e.SHA256SUMS, []byte(zipHash(zip(t, linux))[3:]), []byte(zipHash(evil(t))[3:]))
			}
		}, "signature refused"},
		"no evidence": {func(_ *required, s *stored) {
			withEvil(s)
			s.index = func(v *artifact.Version) { v.Evidence = nil }
		}, "stored without evidence"},
		"the true packages, and no evidence": {func(_ *required, s *stored) {
			s.index = func(v *artifact.Version) { v.Evidence = nil }
		}, "stored without evidence"},
		"only a platform that was never released": {func(_ *required, s *stored) {
			s.packages = map[provider.Platform][]byte{provider.MustParsePlatform("plan9_386"): evil(t)}
		}, "not listed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequired(t)
			s := r.honest()
			tc.forge(r, s)
			r.put(s, "1.0.0")
			c := r.serve()
			paths := []string{prefix + "1.0.0.json", archivePath("1.0.0", linux), archivePath("1.0.0", darwin),
				hostsPrefix + "1.0.0/download/linux/amd64", hostsPrefix + "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS"}
			for range 2 { // the second answer comes from the checker's cache
				for _, path := range paths {
					for _, method := range []string{http.MethodGet, http.MethodHead} {
						r.checkTrouble(c.do(method, path), method+" "+path, http.StatusBadGateway)
					}
				}
			}
			if !strings.Contains(r.log.String(), tc.log) {
				t.Errorf("the log does not say %q:\n%s", tc.log, r.log)
			}
			// The version stays listed, so that clients do not silently install another version.
			for _, path := range []string{prefix + "index.json", hostsPrefix + "versions"} {
				if a := c.get(path); a.status != http.StatusOK || !strings.Contains(a.body, `"1.0.0"`) {
					t.Errorf("%s: %+v", path, a)
				}
			}
			if strings.Contains(tc.log, "says that it is") {
				return // the catalog refuses the index before the checker sees it
			}
			if r.counts() != (counts{refused: 1}) {
				t.Errorf("%+v", r.counts())
			}
			// The refusal is logged once, however many requests there are.
			if log := r.log.String(); strings.Count(log, "level=ERROR") != 1 || strings.Contains(log, "level=WARN") || !strings.Contains(log, "refused_so_far=1") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// TestLyingAnnotations forges the manifests of a version, and the file names in its index. The annotations in
// the index still have the signed digests. The test shows that clients get the signed packages under their
// standard names.
func TestLyingAnnotations(t *testing.T) {
	r := newRequired(t)
	s := r.honest()
	s.manifest = func(_ provider.Platform, m map[string]any) {
		layer := m["layers"].([]any)[0].(map[string]any)
		layer["digest"], layer["size"] = digest.FromBytes(evil(t)), len(evil(t))
	}
	r.send(r.repo, blobOf("archive/zip", evil(t)))
	s.index = func(v *artifact.Version) {
		for i := range v.Packages {
			v.Packages[i].Filename = "terraform-provider-gadget.zip"
		}
	}
	r.put(s, "1.0.0")
	c := r.serve()
	if got := r.hashesOf(c.get(prefix + "1.0.0.json")); !slices.Equal(got[linux.String()], []string{zipHash(s.packages[linux])}) {
		t.Errorf("%v", got)
	}
	if a := c.get(archivePath("1.0.0", linux)); a.status != http.StatusOK || a.body != string(s.packages[linux]) {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
}

// TestRequiredWithholds shows that the gateway withholds an unsigned platform of a signed version, and serves
// the other platforms.
func TestRequiredWithholds(t *testing.T) {
	r := newRequired(t)
	s := r.honest()
	plan9 := provider.MustParsePlatform("plan9_386")
	s.packages[plan9] = evil(t)
	r.put(s, "1.0.0")
	c := r.serve()
	if got := r.hashesOf(c.get(prefix + "1.0.0.json")); len(got) != 2 || got[plan9.String()] != nil {
		t.Errorf("%v", got)
	}
	if a := c.get(archivePath("1.0.0", plan9)); a.status == http.StatusOK {
		t.Errorf("%+v", a)
	}
	if got := r.counts(); got != (counts{verified: 1, withheld: 1}) {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(r.log.String(), "package withheld") {
		t.Errorf("log\n%s", r.log)
	}
}

// TestReplacedAfterwards shows that a version is refused after an attacker has replaced its index with a forged
// index. It is served again after the signed index is restored.
func TestReplacedAfterwards(t *testing.T) {
	r := newRequired(t)
	s := r.honest()
	r.put(s, "1.0.0")
	c := r.serve()
	r.hashesOf(c.get(prefix + "1.0.0.json"))
	s.packages[linux] = evil(t)
	r.put(s, "1.0.0")
	r.checkTrouble(r.serve().get(prefix+"1.0.0.json"), "replaced", http.StatusBadGateway)
	r.put(r.honest(), "1.0.0")
	r.hashesOf(r.serve().get(prefix + "1.0.0.json"))
}

// TestRequiredWithoutKeys shows that all versions of a provider without pinned keys are refused, even if they
// are signed.
func TestRequiredWithoutKeys(t *testing.T) {
	r := newRequired(t)
	r.checker = verify.New(verify.Options{Counters: &r.counted, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	r.put(r.honest(), "1.0.0")
	r.checkTrouble(r.serve().get(prefix+"1.0.0.json"), "unpinned", http.StatusBadGateway)
	if n := r.registry.Count(recorder.PathContains("/blobs/")); n != 0 || !strings.Contains(r.log.String(), "none is pinned") {
		t.Errorf("%d requests for blobs, log\n%s", n, r.log)
	}
}

// TestFailedCheckIsNotCached shows that the gateway does not cache a refusal of a version if the registry fails
// while the gateway reads the evidence.
func TestFailedCheckIsNotCached(t *testing.T) {
	r := newRequired(t)
	r.put(r.honest(), "1.0.0")
	c := r.serve()
	for _, lie := range []http.HandlerFunc{respond(503, "text/plain", ""), respond(404, "text/plain", ""), respond(200, "text/plain", "other bytes")} {
		r.lie("/blobs/", lie)
		if a := c.get(prefix + "1.0.0.json"); a.status < 500 {
			t.Errorf("%+v", a)
		}
	}
	r.registry.Intercept(nil)
	if a := c.get(prefix + "1.0.0.json"); a.status != http.StatusOK {
		t.Errorf("afterwards: %+v", a)
	}
	if got := r.counts(); got != (counts{verified: 1}) {
		t.Errorf("%+v", got)
	}
}
