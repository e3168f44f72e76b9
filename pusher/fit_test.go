package pusher_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// mirrorRelease returns the release of a mirror folder for one platform: a zip with the
// given content, and its zh: hash.
func (b *bench) mirrorRelease(platform, content string) *realorigin.Release {
	p := provider.MustParsePlatform(platform)
	made := release.For(b.T, release.Spec{Host: pushbench.Host, Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: b.Signer, Contents: []release.Content{
		{OS: p.OS, Arch: p.Arch, Files: map[string][]byte{"terraform-provider-widget_v1.0.0": []byte(content)}}}})
	pkg := made.Package(p.OS, p.Arch)
	zh, err := provider.ParseHash("zh:" + pkg.SHA256)
	if err != nil {
		b.T.Fatal(err)
	}
	return &realorigin.Release{
		Origin: "mirror folder", Partial: true,
		Claims: trust.Claims{Provider: pushbench.Widget, Version: pushbench.One, Hashes: map[string][]provider.Hash{pkg.Filename: {zh}}},
		Packages: []realorigin.Package{{Platform: p, Filename: pkg.Filename,
			Open: func(context.Context) (io.ReadCloser, int64, error) {
				body, err := pkg.Content()
				return body, pkg.Size, err
			},
			Size: func(context.Context) int64 { return pkg.Size },
		}},
	}
}

func (b *bench) pushRelease(r *realorigin.Release) (*pusher.Result, error) {
	o := b.Options
	o.Policy = pushbench.AllowUnsigned
	return pusher.New(o).Push(b.T.Context(), r)
}

// wantVouched fails the test unless the tagged version has the verdict, and its evidence lists every package.
// An unsigned version may also have evidence that lists no package.
func (b *bench) wantVouched(verdict trust.Verdict) {
	b.T.Helper()
	v := b.Tagged()
	if got, err := artifact.ReadVerdict(b.T.Context(), b.Repo, v); err != nil || got != verdict {
		b.T.Errorf("%s is listed as %q, want %q (%v)", b.TaggedPlatforms(), got, verdict, err)
	}
	verified, err := artifact.Verify(b.T.Context(), b.Repo, pushbench.Widget, pushbench.One, v, trust.Policy{AllowUnsigned: true})
	if errors.Is(err, artifact.ErrNothingToCheck) && verdict == trust.ChecksumOnly {
		return
	}
	if err != nil || verified.Verdict != verdict || len(verified.Refused) != 0 {
		b.T.Errorf("verified %+v, %v", verified, err)
	}
}

// TestUnsignedBesideSigned pushes an unsigned package into a signed version. It shows that the push is a
// conflict if the publisher's SHA256SUMS contradicts the package or does not list it. The push succeeds if the
// SHA256SUMS lists the package.
func TestUnsignedBesideSigned(t *testing.T) {
	for name, tc := range map[string]struct {
		signed   []string
		unsigned string
		content  string
		ok       bool
	}{
		"contradicts":              {[]string{"linux_amd64"}, "darwin_arm64", "something else", false},
		"not listed":               {[]string{"linux_amd64"}, "freebsd_amd64", "something else", false},
		"not listed, beside all":   {nil, "freebsd_amd64", "something else", false},
		"as the publisher has it":  {[]string{"linux_amd64"}, "darwin_arm64", "content for darwin_arm64", true},
		"the publisher's, in part": {[]string{"linux_amd64", "windows_amd64"}, "darwin_arm64", "content for darwin_arm64", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			before := b.MustPush(tc.signed...)
			b.Registry.Reset()
			r := b.mirrorRelease(tc.unsigned, tc.content)
			_, err := b.pushRelease(r)
			if tc.ok {
				if err != nil || !strings.Contains(b.TaggedPlatforms(), tc.unsigned) {
					t.Errorf("%v; tagged %s", err, b.TaggedPlatforms())
				}
				b.wantVouched(trust.Signed)
				return
			}
			if !errors.Is(err, pusher.ErrConflict) || hint.Of(err) == "" {
				t.Errorf("error %v (hint %q)", err, hint.Of(err))
			}
			if n := b.Registry.Count(recorder.Writes()); n != 0 {
				t.Errorf("%d requests that write: %v", n, b.Registry.Requests(recorder.Writes()))
			}
			if got := b.Tagged().Index.Digest.String(); got != before.Digest {
				t.Errorf("the tag names %s", got)
			}
			b.wantVouched(trust.Signed)

			b.Options.Force = true
			if _, err := b.pushRelease(r); err != nil || !strings.Contains(b.TaggedPlatforms(), tc.unsigned) {
				t.Fatalf("forced: %v; tagged %s", err, b.TaggedPlatforms())
			}
			b.wantVouched(trust.ChecksumOnly)
			b.Options.Force = false
			if r, err := b.pushRelease(r); err != nil || r.Status != pusher.Unchanged {
				t.Errorf("again: %+v, %v", r, err)
			}
			if _, err := b.Push("linux_amd64", "windows_amd64"); err == nil {
				b.wantVouched(trust.ChecksumOnly)
			}
			// A forced push of the signed release keeps only the packages that the publisher signed.
			b.Options.Force = true
			b.MustPush()
			if got := b.TaggedPlatforms(); got != pushbench.AllPlatforms {
				t.Errorf("the tag names %s", got)
			}
			b.wantVouched(trust.Signed)
		})
	}
}

// TestSignedBesideUnsigned pushes a signed release into a version with an unsigned package. It shows that the
// push is a conflict, and writes nothing, if the publisher's SHA256SUMS contradicts the unsigned package or
// does not list it.
func TestSignedBesideUnsigned(t *testing.T) {
	for _, platform := range []string{"darwin_arm64", "freebsd_amd64"} {
		for _, signed := range [][]string{{"linux_amd64"}, nil} {
			t.Run(fmt.Sprint(platform, signed), func(t *testing.T) {
				b := newBench(t)
				before, err := b.pushRelease(b.mirrorRelease(platform, "something else"))
				if err != nil {
					t.Fatal(err)
				}
				b.Registry.Reset()
				if _, err := b.Push(signed...); !errors.Is(err, pusher.ErrConflict) || hint.Of(err) == "" {
					t.Errorf("error %v (hint %q)", err, hint.Of(err))
				}
				if n := b.Registry.Count(recorder.Writes()); n != 0 {
					t.Errorf("%d requests that write: %v", n, b.Registry.Requests(recorder.Writes()))
				}
				if got := b.Tagged().Index.Digest.String(); got != before.Digest {
					t.Errorf("the tag names %s", got)
				}
				b.Options.Force = true
				b.MustPush(signed...)
				want := pushbench.AllPlatforms
				if signed != nil {
					want = "linux_amd64"
				}
				if got := b.TaggedPlatforms(); got != want {
					t.Errorf("forced: the tag names %s", got)
				}
				b.wantVouched(trust.Signed)
			})
		}
	}
}

// misname adds the Linux package to the index a second time, as a FreeBSD package. If evidence is
// false, misname also removes the evidence from the index.
func (b *bench) misname(evidence bool) {
	b.T.Helper()
	b.Reindex(func(i *ocispec.Index) {
		e := i.Manifests[1]
		e.Platform = &ocispec.Platform{OS: "freebsd", Architecture: "amd64"}
		if !evidence {
			i.Manifests = i.Manifests[:3]
		}
		i.Manifests = append(i.Manifests, e)
	})
}

// TestMisnamedBesideSigned shows that an index that names the Linux package for another platform is a conflict,
// although the publisher's SHA256SUMS lists the package's name and digest. A forced push repairs the index.
func TestMisnamedBesideSigned(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	b.misname(false)
	if _, err := b.Push(); !errors.Is(err, pusher.ErrConflict) || hint.Of(err) == "" {
		t.Errorf("error %v (hint %q)", err, hint.Of(err))
	}
	b.Options.Force = true
	if b.MustPush(); b.TaggedPlatforms() != pushbench.AllPlatforms {
		t.Errorf("forced: the tag names %s", b.TaggedPlatforms())
	}
	b.wantVouched(trust.Signed)
}

// TestRefusedPackageIsReported shows that a push reports a package that the stored evidence does not list.
func TestRefusedPackageIsReported(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	b.misname(true)
	for _, kept := range []bool{false, true} {
		if kept { // sign the same packages with another key, so that the push keeps the stored evidence
			if err := b.Release.Sign(pgp.For(t, "Acme, next year")); err != nil {
				t.Fatal(err)
			}
		}
		r := b.MustPush()
		if r.Status != pusher.Unchanged || r.EvidenceKept != kept || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "freebsd_amd64") {
			t.Errorf("evidence of an earlier push is %v: %+v", kept, r)
		}
	}
}

// TestUnsignedAndSignedAtOnce runs a signed push before each request of an unsigned push, and an unsigned push
// before each request of a signed push. It shows that no unsigned package then counts as signed. One of the two
// pushes may be refused.
func TestUnsignedAndSignedAtOnce(t *testing.T) {
	testkit.LeaveToAll(t)
	for _, tc := range []struct {
		platform    string
		signedFirst bool
	}{{"darwin_arm64", false}, {"darwin_arm64", true}, {"freebsd_amd64", false}, {"freebsd_amd64", true}} {
		for pause, reached := 1, true; reached; pause++ {
			b := newBench(t)
			b.Options.Jobs = 1
			r := b.mirrorRelease(tc.platform, "something else")
			signed := func() error { _, err := b.Push("linux_amd64"); return err }
			unsigned := func() error { _, err := b.pushRelease(r); return err }
			paused, other := unsigned, signed
			if tc.signedFirst {
				paused, other = signed, unsigned
			}
			reached = false
			requests := 0
			var otherErr error
			b.Registry.Intercept(func(http.ResponseWriter, *http.Request) bool {
				if requests++; requests == pause {
					reached = true
					otherErr = other()
				}
				return false
			})
			pausedErr := paused()
			b.Registry.Intercept(nil)
			v := b.Tagged()
			if v == nil || reached && pausedErr == nil && otherErr == nil {
				t.Fatalf("paused before request %d: tagged %s, %v, %v", pause, b.TaggedPlatforms(), pausedErr, otherErr)
			}
			verdict, err := artifact.ReadVerdict(t.Context(), b.Repo, v)
			if err != nil {
				t.Fatal(err)
			}
			b.wantVouched(verdict)
			signedErr := otherErr
			if tc.signedFirst {
				signedErr = pausedErr
			}
			if signedErr == nil && (reached || tc.signedFirst) && (verdict != trust.Signed || b.TaggedPlatforms() != "linux_amd64") {
				t.Errorf("the signed push succeeded, but %s is tagged as %q", b.TaggedPlatforms(), verdict)
			}
			if t.Failed() {
				t.Fatalf("%s: signed push paused: %v, before request %d", tc.platform, tc.signedFirst, pause)
			}
		}
	}
}

// TestPublisherAddsAPlatform shows that a push replaces the stored SHA256SUMS if the publisher has signed a new
// SHA256SUMS with one more platform.
func TestPublisherAddsAPlatform(t *testing.T) {
	b := newBench(t)
	all := b.Release
	first := *all
	first.SHA256SUMS = []byte(strings.Join(pushbench.WithoutLine(string(all.SHA256SUMS), "windows"), "\n"))
	if err := first.Sign(b.Signer); err != nil {
		t.Fatal(err)
	}
	b.Origin.Add(&first)
	b.MustPush("linux_amd64", "darwin_arm64")
	b.Origin.Add(all)
	if r := b.MustPush(); r.Status != pusher.Completed || b.TaggedPlatforms() != pushbench.AllPlatforms {
		t.Errorf("%s: %s", r.Status, b.TaggedPlatforms())
	}
	b.wantVouched(trust.Signed)
}

// TestCopyBesideSigned shows that a copy of an unsigned version is a conflict if the version is signed in the
// destination.
func TestCopyBesideSigned(t *testing.T) {
	b := newBench(t)
	if _, err := b.pushRelease(b.mirrorRelease("darwin_arm64", "something else")); err != nil {
		t.Fatal(err)
	}
	from, _ := b.Source()
	b.MustPush("linux_amd64")
	b.Options.Policy = pushbench.AllowUnsigned
	if _, err := b.Copy(from); !errors.Is(err, pusher.ErrConflict) || b.TaggedPlatforms() != "linux_amd64" {
		t.Errorf("error %v, tagged %s", err, b.TaggedPlatforms())
	}
	b.wantVouched(trust.Signed)
}
