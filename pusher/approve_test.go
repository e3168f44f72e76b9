package pusher_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// writer returns a writer to the bench's repository. Its client maintains no lists of referrers by itself, as in commands.
func (b *bench) writer(pause time.Duration) repo.Writer {
	b.T.Helper()
	client := b.Registry.Repository("acme/widget")
	if err := client.SetReferrersCapability(true); err != nil {
		b.T.Fatal(err)
	}
	return repo.NewSession(pause, 4).Writer(pushbench.Destination(registry.Repository{Repository: client}))
}

// approve approves what the tag 1.0.0 names.
func (b *bench) approve(key *signing.Key) {
	b.T.Helper()
	if _, signed, err := b.writer(time.Millisecond).Sign(b.T.Context(), b.Tagged().Index, key); err != nil || !signed {
		b.T.Fatalf("signed: %v, %v", signed, err)
	}
}

// approvedBy reports whether what the tag 1.0.0 names has a signature by the key, as a gateway finds it.
func (b *bench) approvedBy(key *signing.Key) bool {
	b.T.Helper()
	v, err := artifact.CheckApprovals(b.T.Context(), b.Repo, key.Policy(), b.Tagged(), pushbench.Widget, pushbench.One)
	if err != nil {
		b.T.Fatal(err)
	}
	return v.Err() == nil
}

// TestPushApproves shows that a push with a key approves the version before the tag names it, and only once, and that the summary
// then names the signer. It does so with the referrers API, and with fallback tags.
func TestPushApproves(t *testing.T) {
	for name, api := range map[string]bool{"API": true, "fallback tags": false} {
		t.Run(name, func(t *testing.T) {
			b, key := newBench(t), approvals.NewSigningKey(t)
			b.Options.Sign = key
			early := errors.New("the tag was written without an approval")
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !api && strings.Contains(r.URL.Path, "/referrers/") {
					http.NotFound(w, r)
					return true
				}
				if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/manifests/1.0.0") {
					return false
				}
				data, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				r.Body = io.NopCloser(bytes.NewReader(data))
				sigs, err := artifact.Signatures(t.Context(), b.Repo, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromBytes(data), Size: int64(len(data))}, nil)
				if err == nil && len(sigs) == 1 {
					early = nil
				}
				return false
			})
			p := pusher.New(b.Options)
			release, err := b.Get()
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Push(t.Context(), release)
			if err != nil || early != nil || r.ApprovedBy != key.Public().Fingerprint() || !b.approvedBy(key) {
				t.Fatalf("%v, %v, %+v", err, early, r)
			}
			if err := p.Summarize(t.Context()); err != nil {
				t.Fatal(err)
			}
			by := b.State().Summary[pushbench.One].Signers
			if len(by) != 1 || by[0].Key != key.Public().Fingerprint() {
				t.Errorf("the summary names %+v", by)
			}
			b.Registry.Reset()
			again := b.MustPush()
			if again.Status != pusher.Unchanged || again.ApprovedBy != r.ApprovedBy || b.Registry.Count(recorder.Writes()) != 0 {
				t.Errorf("%+v, %d writes", again, b.Registry.Count(recorder.Writes()))
			}
			// A push without the key keeps the signers in the summary.
			b.Options.Sign = nil
			p = pusher.New(b.Options)
			if _, err := p.Push(t.Context(), release); err != nil {
				t.Fatal(err)
			}
			if err := p.Summarize(t.Context()); err != nil || len(b.State().Summary[pushbench.One].Signers) != 1 {
				t.Errorf("%v, %+v", err, b.State().Summary)
			}
		})
	}
}

// TestPushApprovesWhatIsInPlace shows that a push with a key approves a version that an earlier push has stored.
func TestPushApprovesWhatIsInPlace(t *testing.T) {
	b, key := newBench(t), approvals.NewSigningKey(t)
	b.MustPush()
	index := b.Tagged().Index.Digest
	b.Options.Sign = key
	if r := b.MustPush(); r.Status != pusher.Unchanged || r.ApprovedBy == "" || !b.approvedBy(key) || b.Tagged().Index.Digest != index {
		t.Errorf("%+v", r)
	}
}

// TestPushOfApprovedVersion shows that a push of a second platform, and one that renews the evidence, change nothing if the version is
// approved, unless they can approve the version again with all platforms.
func TestPushOfApprovedVersion(t *testing.T) {
	key, other := approvals.NewSigningKey(t), approvals.NewSigningKey(t)
	requirement := func(k *signing.Key) func(subject.Address) *approval.Policy {
		return func(subject.Address) *approval.Policy { return k.Policy() }
	}
	for name, tc := range map[string]struct {
		signers  []*signing.Key
		sign     *signing.Key
		requires func(subject.Address) *approval.Policy
		refused  string // in the error; "": the push succeeds
	}{
		"no key":                         {signers: []*signing.Key{key}, refused: "it is approved"},
		"the key":                        {signers: []*signing.Key{key}, sign: key},
		"another key":                    {signers: []*signing.Key{other}, sign: key, refused: "the key of the sign block has not made all of its signatures"},
		"the key and another":            {signers: []*signing.Key{key, other}, sign: key, refused: "the key of the sign block has not made all of its signatures"},
		"a signature that nobody wants":  {signers: []*signing.Key{other}, requires: requirement(key)},
		"the key, other is not required": {signers: []*signing.Key{key, other}, sign: key, requires: requirement(key)},
		"no key, and it is required":     {signers: []*signing.Key{key}, requires: requirement(key), refused: "it is approved"},
		"no signature":                   {},
	} {
		for change, refresh := range map[string]bool{"second platform": false, "renewed evidence": true} {
			t.Run(name+", "+change, func(t *testing.T) {
				b := newBench(t)
				b.MustPush("linux_amd64")
				for _, s := range tc.signers {
					b.approve(s)
				}
				before := b.Tagged().Index.Digest
				b.Options.Sign, b.Options.Approvals, b.Options.RefreshEvidence = tc.sign, tc.requires, refresh
				platform, platforms := "darwin_arm64", "darwin_arm64 linux_amd64"
				if refresh {
					platform, platforms = "linux_amd64", "linux_amd64"
					if err := b.Release.Sign(pgp.For(t, "Acme, next year")); err != nil {
						t.Fatal(err)
					}
				}
				b.Registry.Reset()
				r, err := b.Push(platform)
				if tc.refused != "" {
					if !errors.Is(err, pusher.ErrApproved) || !strings.Contains(err.Error(), tc.refused) || !strings.Contains(hint.Of(err), "ocibridge approve --revoke") {
						t.Errorf("%v (%s)", err, hint.Of(err))
					}
					if b.Tagged().Index.Digest != before || b.LeftTags() != 0 || !refresh && b.Registry.Count(recorder.Writes()) != 0 { // new evidence is sent before the index, without a tag
						t.Errorf("the tag names %s, %d writes", b.Tagged().Index.Digest, b.Registry.Count(recorder.Writes()))
					}
					return
				}
				if err != nil || b.Tagged().Index.Digest == before || b.TaggedPlatforms() != platforms || tc.sign != nil && (!b.approvedBy(key) || r.ApprovedBy == "") {
					t.Errorf("%v, %+v, %s", err, r, b.TaggedPlatforms())
				}
			})
		}
	}
}

// TestPushWithoutRequirements shows that a push needs no approval if nothing is configured about approvals: it asks for signatures
// once, only warns if it gets no answer, and takes no provenance for an approval.
func TestPushWithoutRequirements(t *testing.T) {
	asks := func(r recorder.Request) bool { return strings.HasSuffix(r.Path, ".sig") }
	for name, tc := range map[string]struct {
		status   int // of older signatures; 0: there are none
		requires bool
		refused  bool
	}{
		"nothing fails":           {},
		"the registry fails":      {status: http.StatusInternalServerError},
		"too many requests":       {status: http.StatusTooManyRequests},
		"with a requirement":      {requires: true},
		"it fails, and is needed": {status: http.StatusInternalServerError, requires: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.MustPush("linux_amd64")
			index := b.Tagged().Index
			approvals.Attach(t, b.Repo, index, approvals.NewKey(t, approvals.P256).Attest(approvals.Statement(t, index.Digest, approvals.Provenance)))
			if tc.requires {
				policy := approvals.NewSigningKey(t).Policy()
				b.Options.Approvals = func(subject.Address) *approval.Policy { return policy }
			}
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if tc.status == 0 || !strings.HasSuffix(r.URL.Path, ".sig") {
					return false
				}
				w.WriteHeader(tc.status)
				return true
			})
			b.Registry.Reset()
			r, err := b.Push("darwin_arm64")
			if tc.refused {
				if err == nil || errors.Is(err, pusher.ErrApproved) || b.Tagged().Index.Digest != index.Digest {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || b.TaggedPlatforms() != "darwin_arm64 linux_amd64" {
				t.Fatalf("%v, %s", err, b.TaggedPlatforms())
			}
			if warned := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "has signatures could not be found out") }); warned != (tc.status != 0) {
				t.Errorf("%q", r.Warnings)
			}
			if n := b.Registry.Count(asks); tc.status == 0 && !tc.requires && n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// TestRefreshOfApprovedVersion shows that a push with --refresh-evidence does not lose an approval.
func TestRefreshOfApprovedVersion(t *testing.T) {
	b, key := newBench(t), approvals.NewSigningKey(t)
	b.MustPush()
	b.approve(key)
	before := b.Tagged().Index.Digest
	b.Options.RefreshEvidence = true
	if r := b.MustPush(); r.Status != pusher.Unchanged || b.Tagged().Index.Digest != before {
		t.Fatalf("%+v", r)
	}
	if err := b.Release.Sign(pgp.For(t, "Acme, next year")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Push(); !errors.Is(err, pusher.ErrApproved) || b.Tagged().Index.Digest != before {
		t.Errorf("%v", err)
	}
	b.Options.Sign = key
	if r := b.MustPush(); r.Status != pusher.Refreshed || b.Tagged().Index.Digest == before || !b.approvedBy(key) {
		t.Errorf("%+v", r)
	}
}

// TestPushApprovesOnlyWhatIsVerified shows that a push does not approve a package that another push has stored, and that nobody has
// verified.
func TestPushApprovesOnlyWhatIsVerified(t *testing.T) {
	b, key := newBench(t), approvals.NewSigningKey(t)
	b.Options.Policy = pushbench.AllowUnsigned
	// The evidence of these pushes lists no packages: their claims are hashes.
	hashed := func(platform string) *origin.Release {
		r, err := b.Get(platform)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := digest.FromReader(b.open(r.Packages[0]))
		if err != nil {
			t.Fatal(err)
		}
		h, err := provider.ParseHash("zh:" + sum.Encoded())
		if err != nil {
			t.Fatal(err)
		}
		r.Claims = trust.Claims{Provider: r.Provider(), Version: r.Version(), Hashes: map[string][]provider.Hash{r.Packages[0].Filename: {h}}}
		return r
	}
	if _, err := pusher.New(b.Options).Push(t.Context(), hashed("windows_amd64")); err != nil {
		t.Fatal(err)
	}
	b.Options.Sign = key
	r, err := pusher.New(b.Options).Push(t.Context(), hashed("linux_amd64"))
	if err != nil || r.ApprovedBy != "" || b.approvedBy(key) || b.TaggedPlatforms() != "linux_amd64 windows_amd64" {
		t.Fatalf("%v, %+v, %s", err, r, b.TaggedPlatforms())
	}
	if !slices.ContainsFunc(r.Warnings, func(w string) bool {
		return strings.Contains(w, "it is not approved: an earlier push has stored the package for windows_amd64")
	}) {
		t.Errorf("%q", r.Warnings)
	}
	// The publisher's signature covers both packages.
	if r := b.MustPush("linux_amd64"); r.ApprovedBy == "" || !b.approvedBy(key) {
		t.Errorf("%+v", r)
	}
}

// TestPushApprovesNoForeignEvidence shows that a push does not approve a package of which only evidence is stored that another
// key than the publisher's has signed, whether it completes the version or finds it unchanged.
func TestPushApprovesNoForeignEvidence(t *testing.T) {
	for _, platforms := range [][]string{{"linux_amd64"}, {"linux_amd64", "darwin_arm64"}} {
		t.Run(strings.Join(platforms, " "), func(t *testing.T) {
			b, key, mallory := newBench(t), approvals.NewSigningKey(t), pgp.For(t, "Mallory")
			// Somebody stores the publisher's packages, and one for a platform that the publisher does not release.
			published := slices.Clone(b.Release.Packages[:2])
			if err := b.Release.Seal(mallory); err != nil {
				t.Fatal(err)
			}
			b.MustPush("linux_amd64", "windows_amd64")
			b.Release.Packages = published
			if err := b.Release.Seal(b.Signer); err != nil {
				t.Fatal(err)
			}
			b.Options.Sign = key
			r := b.MustPush(platforms...)
			if r.ApprovedBy != "" || b.approvedBy(key) {
				t.Fatalf("%+v", r)
			}
			if !slices.ContainsFunc(r.Warnings, func(w string) bool {
				return strings.Contains(w, "it is not approved: an earlier push has stored the package for windows_amd64") && strings.Contains(w, mallory.Fingerprint())
			}) {
				t.Errorf("%q", r.Warnings)
			}
		})
	}
}

// open returns the bytes of a package.
func (b *bench) open(p origin.Package) io.Reader {
	b.T.Helper()
	body, _, err := p.Open(b.T.Context())
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { body.Close() })
	return body
}

// TestCopyOfApprovedVersion shows that a whole copy brings the approvals along, and that a merging copy says that it does not.
func TestCopyOfApprovedVersion(t *testing.T) {
	b, key := newBench(t), approvals.NewSigningKey(t)
	b.MustPush()
	b.approve(key)
	from, _ := b.Source()
	p := pusher.New(b.Options)
	if _, err := p.Copy(t.Context(), from, pushbench.One, nil); err != nil || !b.approvedBy(key) {
		t.Fatalf("%v", err)
	}
	if err := p.Summarize(t.Context()); err != nil || len(b.State().Summary[pushbench.One].Signers) != 1 {
		t.Errorf("%v, %+v", err, b.State().Summary)
	}
	// The destination has a version with another index.
	b.NewRegistry()
	b.MustPush("linux_amd64")
	r, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, []provider.Platform{provider.MustParsePlatform("darwin_arm64")})
	if err != nil || !slices.ContainsFunc(r.Warnings, func(w string) bool {
		return strings.Contains(w, "the approvals in source.test/acme/widget are not copied")
	}) {
		t.Errorf("%v, %+v", err, r)
	}
	// The destination's version is approved: it stays.
	b.approve(key)
	before := b.Tagged().Index.Digest
	if _, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, nil); !errors.Is(err, pusher.ErrApproved) || b.Tagged().Index.Digest != before {
		t.Errorf("%v", err)
	}
	b.Options.Sign = key
	if _, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, nil); err != nil || b.Tagged().Index.Digest == before || !b.approvedBy(key) {
		t.Errorf("with the key: %v", err)
	}
}

// TestCopyBringsApprovalsFirst shows that a copy stores the approvals before the tag names the version, so that no client finds the copy
// without them.
func TestCopyBringsApprovalsFirst(t *testing.T) {
	for _, name := range []string{"provider", "module"} {
		t.Run(name, func(t *testing.T) {
			b, key := newBench(t), approvals.NewSigningKey(t)
			var from pusher.Stored
			if name == "provider" {
				b.MustPush()
				b.approve(key)
				from, _ = b.Source()
			} else {
				b.Options.Sign = key
				b.MustPushModule(pushbench.ModulePackage(t, "1.0.0", "one"), pusher.Pushed)
				b.Options.Sign = nil
				from = b.moduleSource()
			}
			checked := false
			b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/1.0.0") {
					index, err := artifact.Resolve(r.Context(), from.Store, "1.0.0")
					if err != nil {
						t.Error(err)
					}
					sigs, err := artifact.Signatures(r.Context(), b.Repo, index, nil)
					if err != nil || len(sigs) != 1 {
						t.Errorf("the tag is written while there are %d signatures, %v", len(sigs), err)
					}
					checked = true
				}
				return false
			})
			r, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, nil)
			if err != nil || !checked || r.Referrers != 1 || r.ReferrersSent != 1 || r.Status != pusher.Pushed {
				t.Errorf("%v, checked %v, %+v", err, checked, r)
			}
		})
	}
}

// TestCopyWithoutSignatures shows that a copy succeeds, with a warning, if the source does not say what signatures it has.
func TestCopyWithoutSignatures(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	from, source := b.Source()
	b.NewRegistry()
	b.MustPush("linux_amd64")
	source.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".sig") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	b.Options.WithoutReferrers = true
	r, err := pusher.New(b.Options).Copy(t.Context(), from, pushbench.One, []provider.Platform{provider.MustParsePlatform("darwin_arm64")})
	if err != nil || b.TaggedPlatforms() != "darwin_arm64 linux_amd64" || !slices.ContainsFunc(r.Warnings, func(w string) bool {
		return strings.Contains(w, "its signatures could not be read")
	}) {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestTwoSigners shows that two signers at the same time lose no signature in a registry without a referrers API, although one of them
// overwrites the other's list.
func TestTwoSigners(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	keys := []*signing.Key{approvals.NewSigningKey(t), approvals.NewSigningKey(t)}
	index := b.Tagged().Index
	both := make(chan struct{}) // is closed when both have read the empty list
	var mu sync.Mutex
	writes := 0
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/referrers/") {
			http.NotFound(w, r)
			return true
		}
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/"+string(ociaddr.ReferrersTag(index.Digest))) {
			mu.Lock()
			if writes++; writes == 2 {
				close(both)
			}
			mu.Unlock()
			select {
			case <-both:
			case <-r.Context().Done():
			}
		}
		return false
	})
	var done sync.WaitGroup
	for _, key := range keys {
		done.Go(func() {
			if _, signed, err := b.writer(20*time.Millisecond).Sign(t.Context(), index, key); err != nil || !signed {
				t.Errorf("signed: %v, %v", signed, err)
			}
		})
	}
	done.Wait()
	if !b.approvedBy(keys[0]) || !b.approvedBy(keys[1]) || writes < 3 {
		t.Errorf("%v, %v, %d writes", b.approvedBy(keys[0]), b.approvedBy(keys[1]), writes)
	}
}

// TestRevoke shows that a revocation removes the chosen signatures and leaves nothing behind, with the API and with fallback tags.
func TestRevoke(t *testing.T) {
	for name, api := range map[string]bool{"API": true, "fallback tags": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if !api {
				pushbench.WithoutAPI(b.Registry.Recorder)
			}
			b.MustPush()
			key, other := approvals.NewSigningKey(t), approvals.NewSigningKey(t)
			b.approve(key)
			b.approve(other)
			w, of := b.writer(time.Millisecond), b.Tagged().Index
			warn := func(format string, args ...any) { t.Errorf(format, args...) }
			for _, k := range []*signing.Key{key, other} {
				sigs, err := w.Signatures(t.Context(), of)
				if err != nil {
					t.Fatal(err)
				}
				chosen, err := repo.Approvals(t.Context(), k.Policy(), of.Digest, sigs)
				if err != nil || len(chosen) != 1 {
					t.Fatalf("%v, %d chosen", err, len(chosen))
				}
				left, removed, err := w.Revoke(t.Context(), of, chosen, warn)
				if err != nil || removed != 1 || len(left) != len(sigs)-1 || b.approvedBy(k) || b.approvedBy(other) == (k == other) {
					t.Fatalf("%v, %d removed, %d left", err, removed, len(left))
				}
			}
			tags, err := artifact.ListAnyTags(t.Context(), b.Repo)
			if err != nil || slices.ContainsFunc(tags, func(tag ociaddr.Tag) bool { return strings.HasPrefix(string(tag), "sha256-") }) {
				t.Errorf("%v, %v", tags, err)
			}
			b.approve(key) // after a revocation, the version can be approved again
			if !b.approvedBy(key) {
				t.Error("not approved again")
			}
		})
	}
}

// TestRevokeWithoutDeletes shows that a revocation in a registry that deletes nothing succeeds if the registry lists referrers under
// fallback tags, and otherwise fails with a hint.
func TestRevokeWithoutDeletes(t *testing.T) {
	for name, api := range map[string]bool{"API": true, "fallback tags": false} {
		t.Run(name, func(t *testing.T) {
			b, key := newBench(t), approvals.NewSigningKey(t)
			if !api {
				pushbench.WithoutAPI(b.Registry.Recorder)
			}
			b.MustPush()
			b.approve(key)
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.Method == http.MethodDelete:
					w.WriteHeader(http.StatusMethodNotAllowed)
				case !api && strings.Contains(r.URL.Path, "/referrers/"):
					http.NotFound(w, r)
				default:
					return false
				}
				return true
			})
			w, of := b.writer(time.Millisecond), b.Tagged().Index
			sigs, err := w.Signatures(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			warned := 0
			_, _, err = w.Revoke(t.Context(), of, sigs, func(string, ...any) { warned++ })
			if (err == nil) == api || b.approvedBy(key) != api || (warned == 1) == api {
				t.Errorf("%v, approved %v, %d warnings", err, b.approvedBy(key), warned)
			}
		})
	}
}

// TestPushZipApproves shows that the push of a module approves what it stores, and does not replace an approved version.
func TestPushZipApproves(t *testing.T) {
	b, key := newBench(t), approvals.NewSigningKey(t)
	approved := func() bool {
		t.Helper()
		v, err := artifact.CheckApprovals(t.Context(), b.Repo, key.Policy(), b.StoredModule("1.0.0"), pushbench.VPC, pushbench.One)
		if err != nil {
			t.Fatal(err)
		}
		return v.Err() == nil
	}
	one, two := pushbench.ModulePackage(t, "1.0.0", "one"), pushbench.ModulePackage(t, "1.0.0", "two")
	b.Options.Sign = key
	if r, err := b.PushModule(one); err != nil || r.ApprovedBy != key.Public().Fingerprint() || !approved() {
		t.Fatalf("%v, %+v", err, r)
	}
	if r, err := b.PushModule(one); err != nil || r.Status != pusher.Unchanged || r.ApprovedBy == "" {
		t.Errorf("%v, %+v", err, r)
	}
	b.Options.Sign, b.Options.Force = nil, true
	if _, err := b.PushModule(two); !errors.Is(err, pusher.ErrApproved) || !strings.Contains(hint.Of(err), "--revoke") || !approved() {
		t.Errorf("%v (%s)", err, hint.Of(err))
	}
	b.Options.Sign = key
	if r, err := b.PushModule(two); err != nil || r.Status != pusher.Replaced || !approved() {
		t.Errorf("%v, %+v", err, r)
	}
	// A stored manifest that says something else about the module is not approved.
	b.NewRegistry()
	other := one
	other.Revision = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
	b.Options.Sign, b.Options.Force = nil, false
	if _, err := b.PushModule(other); err != nil {
		t.Fatal(err)
	}
	b.Options.Sign = key
	if r, err := b.PushModule(one); err != nil || r.Status != pusher.Unchanged || r.ApprovedBy != "" || approved() || len(r.Warnings) != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}
