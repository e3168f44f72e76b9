package catalog_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// signing is a registry's signatures in memory. Its tests are about what the catalog does with verdicts. Package approval tests
// the verification of signatures.
type signing struct {
	policy *approval.Policy
	mu     sync.Mutex
	signed map[digest.Digest]bool
	fail   error
	asked  map[digest.Digest]int // the number of look-ups
	signs  bool                  // pull-through signs what it stores
}

var _ catalog.Approvals = (*signing)(nil)

func newSigning(t testing.TB, reportOnly bool) *signing {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := approval.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	policy, err := approval.NewPolicy(approval.Requirement{Name: "platform team", Key: public, ReportOnly: reportOnly})
	if err != nil {
		t.Fatal(err)
	}
	return &signing{policy: policy, signed: map[digest.Digest]bool{}, asked: map[digest.Digest]int{}}
}

func (s *signing) Policy(a subject.Address) *approval.Policy {
	if a == gadget {
		return nil
	}
	return s.policy
}

func (s *signing) Vouches(subject.Address) bool { return s.signs }

func (s *signing) verdict(signed bool) approval.Verdict {
	if signed {
		return approval.Verdict{Approvals: []approval.Approval{{Requirement: "platform team"}}}
	}
	return s.policy.Unnamed(errors.New(approval.NoSignature))
}

func (s *signing) Check(ctx context.Context, _ subject.Address, _ provider.Version, m ocispec.Descriptor) (approval.Verdict, []approval.Signature, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[m.Digest]++
	if s.fail != nil {
		return approval.Verdict{}, nil, s.fail
	}
	var found []approval.Signature
	if s.signed[m.Digest] {
		found = []approval.Signature{{Manifest: m.Digest}}
	}
	return s.verdict(s.signed[m.Digest]), found, ctx.Err()
}

func (s *signing) Recheck(_ context.Context, _ subject.Address, _ provider.Version, m digest.Digest, found []approval.Signature) (approval.Verdict, error) {
	return s.verdict(len(found) == 1 && found[0].Manifest == m), nil
}

func (s *signing) Unnamed(_ context.Context, _ subject.Address, _ provider.Version, _ digest.Digest, err error) approval.Verdict {
	return s.policy.Unnamed(err)
}

// sign makes the registry have a signature of the manifest under a tag, or none.
func (b *bench) sign(s *signing, v provider.Version, signed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed[b.tags[widget][v.String()].Descriptor.Digest] = signed
}

// sign is [bench.sign] for a version given as text.
func (s *signing) sign(b *bench, v string) { b.sign(s, provider.MustParseVersion(v), true) }

func (s *signing) down(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// lookUps returns the number of look-ups since lookUps was last called.
func (s *signing) lookUps() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range s.asked {
		n += each
	}
	clear(s.asked)
	return n
}

// served says what clients get for a version.
func (b *bench) served(v provider.Version) string {
	b.t.Helper()
	item, err := b.Version(b.t.Context(), widget, v)
	switch denied, ok := errors.AsType[*catalog.DeniedError](err); {
	case err == nil && item.Found != nil:
		return "served"
	case ok && errors.Is(err, catalog.ErrDenied):
		return denied.Said()
	case errors.Is(err, catalog.ErrAbsent):
		return "absent"
	case errors.Is(err, catalog.ErrDenied) || errors.Is(err, approval.ErrNotApproved):
		b.t.Errorf("another kind of denial: %v", err)
	}
	return "unavailable"
}

const notApprovedText = `this version is denied here: not approved: "platform team"`

func approving(t *testing.T, s *signing, change func(*catalog.Options), f func(b *bench)) {
	t.Helper()
	inTime(t, func(o *catalog.Options) {
		o.Approvals = s
		if change != nil {
			change(o)
		}
	}, f)
}

// TestApproved shows that a version is served only while its manifest has the required signatures. New signatures count after 30
// seconds, and removed signatures until five minutes have passed.
func TestApproved(t *testing.T) {
	s := newSigning(t, false)
	approving(t, s, nil, func(b *bench) {
		b.publish(t, widget, v110, "two")
		b.sign(s, v100, true)
		b.expect("approved", b.served(v100), "served")
		b.expect("not approved", b.served(v110), notApprovedText)
		b.expect("list", b.listed(), "[1.0.0]")
		b.expect("examined", fmt.Sprint(examined(b, v110)), "<nil>")
		item, err := b.Versions(b.t.Context(), widget)
		if err != nil {
			b.t.Fatal(err)
		}
		b.expect("denials", fmt.Sprint(b.Denials(item)), `[{[1.1.0] not approved: "platform team"}]`)
		b.expect("look-ups", fmt.Sprint(s.lookUps()), "2")
		b.served(v100)
		b.expect("look-ups of a known version", fmt.Sprint(s.lookUps()), "0")

		b.sign(s, v110, true)
		pass(31 * time.Second)
		b.expect("approved since", b.served(v110), "served")
		b.expect("the list after it", b.listed(), "[1.0.0 1.1.0]")
		b.sign(s, v100, false)
		pass(5 * time.Minute)
		b.expect("revoked", b.served(v100), notApprovedText)
		b.expect("the list after the revocation", b.listed(), "[1.1.0]")
	})
}

func examined(b *bench, v provider.Version) error {
	_, err := b.Examine(b.t.Context(), widget, v)
	return err
}

// TestForbiddenByTheRegistry shows that a version that a policy of the registry forbids everybody to read is not approved, unless an
// earlier verdict is known. A policy that forbids only the evidence decides nothing about approvals.
func TestForbiddenByTheRegistry(t *testing.T) {
	s := newSigning(t, false)
	forbidding := func(b *bench, kinds ...string) {
		b.failing(func(_ context.Context, _ provider.Address, what string) error {
			switch {
			case !slices.Contains(kinds, what):
				return nil
			case what == "head":
				return &errcode.ErrorResponse{Method: http.MethodHead, URL: &url.URL{Path: "/v2/x/manifests/1.0.0"}, StatusCode: http.StatusPreconditionFailed}
			case what == "blob":
				return &errcode.ErrorResponse{Method: http.MethodGet, URL: &url.URL{Path: "/v2/x/manifests/sha256:ab"}, StatusCode: http.StatusPreconditionFailed, Errors: errcode.Errors{{Code: "PROJECTPOLICYVIOLATION"}}}
			}
			return &errcode.ErrorResponse{Method: http.MethodGet, URL: &url.URL{Path: "/v2/x/manifests/1.0.0"}, StatusCode: http.StatusPreconditionFailed, Errors: errcode.Errors{{Code: "PROJECTPOLICYVIOLATION"}}}
		})
	}
	approving(t, s, nil, func(b *bench) {
		for i := range 20 {
			v := provider.MustParseVersion(fmt.Sprintf("1.%d.0", i))
			b.publish(t, widget, v, v.String())
			b.sign(s, v, true)
		}
		forbidding(b, "head", "get")
		b.requests()
		b.expect("list", b.listed(), "[]")
		b.expect("requests of the list", b.requests(), "[21 get 1 list]")
		b.expect("a version", b.served(v100), notApprovedText)
		_, err := b.Version(b.t.Context(), widget, v100)
		denied, _ := errors.AsType[*catalog.DeniedError](err)
		if m := denied.Approval.Missing[0]; !strings.Contains(m.Reason, "forbids everybody to read it") || !strings.Contains(m.Hint, "cosign sign --recursive") {
			t.Errorf("%+v", m)
		}
		pass(time.Minute)
		b.requests()
		b.expect("the list a minute later", b.listed(), "[]")
		b.expect("its requests", b.requests(), "[5 get 1 list]")
		b.failing(nil)
		pass(6 * time.Minute)
		if got := b.listed(); strings.Count(got, ".0.0") != 1 || strings.Count(got, " ") != 19 {
			t.Errorf("the list without the policy: %s", got)
		}
		b.expect("a version without the policy", b.served(v100), "served")

		forbidding(b, "head", "get")
		pass(6 * time.Minute)
		if got := b.listed(); strings.Count(got, " ") != 19 {
			t.Errorf("the list of versions that were approved: %s", got)
		}
		b.expect("a version that was approved", b.served(v100), "served")
	})
	approving(t, s, func(o *catalog.Options) {
		o.Check = func(ctx context.Context, f artifact.Fetcher, _ provider.Address, _ provider.Version, v *artifact.Version) (*artifact.Version, error) {
			_, err := artifact.ReadEvidence(ctx, f, *v.Evidence)
			return v, err
		}
	}, func(b *bench) {
		b.sign(s, v100, true)
		forbidding(b, "blob")
		b.expect("without its evidence", b.served(v100), "unavailable")
	})
}

// TestTagsThatMove shows that a signature counts only for the manifest that the tag names now.
func TestTagsThatMove(t *testing.T) {
	s := newSigning(t, false)
	approving(t, s, nil, func(b *bench) {
		b.sign(s, v100, true)
		before := b.tags[widget]["1.0.0"]
		b.expect("approved", b.served(v100), "served")
		b.publish(t, widget, v100, "changed")
		pass(31 * time.Second)
		b.expect("replaced", b.served(v100), notApprovedText)
		b.expect("list", b.listed(), "[]")
		b.tag(widget, v100, before)
		pass(31 * time.Second)
		b.expect("put back", b.served(v100), "served")
		b.tag(widget, v110, before)
		b.expect("the approved manifest under another version's tag", b.served(v110), notApprovedText)
		pass(31 * time.Second)
		b.expect("list with the other tag", b.listed(), "[1.0.0]")
	})
}

// TestNewerVersions shows that the manifest that a tag names now is not served in place of an approved one.
func TestNewerVersions(t *testing.T) {
	s := newSigning(t, false)
	approving(t, s, nil, func(b *bench) {
		b.sign(s, v100, true)
		item, err := b.Version(b.t.Context(), widget, v100)
		if err != nil {
			b.t.Fatal(err)
		}
		b.publish(t, widget, v100, "changed")
		if newer, err := b.Newer(b.t.Context(), item); !errors.Is(err, catalog.ErrDenied) {
			b.t.Errorf("%+v, %v", newer, err)
		}
		b.sign(s, v100, true)
		pass(31 * time.Second)
		if newer, err := b.Newer(b.t.Context(), item); err != nil || newer == nil {
			b.t.Errorf("approved: %+v, %v", newer, err)
		}
	})
}

// TestManifestsWithoutAName shows that a manifest that does not name itself is not approved, although it is signed.
func TestManifestsWithoutAName(t *testing.T) {
	s := newSigning(t, false)
	approving(t, s, nil, func(b *bench) {
		pkg := b.publish(t, widget, v110, "two").Packages[0]
		index, err := artifact.EncodeIndex(artifact.Version{Packages: []artifact.Package{pkg}})
		if err != nil {
			b.t.Fatal(err)
		}
		b.tag(widget, v110, index)
		b.sign(s, v110, true)
		b.expect("nameless", b.served(v110), notApprovedText)
		pass(31 * time.Second)
		b.expect("list", b.listed(), "[]")
	})
}

// TestSignaturesUnreachable shows that a failed look-up of signatures is never "not approved". The last verdict counts until
// StaleIfError has passed, and lists keep their versions.
func TestSignaturesUnreachable(t *testing.T) {
	for name, failure := range map[string]error{
		"down": unreachable, "429": answered(http.StatusTooManyRequests, "TOOMANYREQUESTS"), "401": answered(http.StatusUnauthorized, "UNAUTHORIZED"), "503": answered(http.StatusServiceUnavailable, ""),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSigning(t, false)
			approving(t, s, nil, func(b *bench) {
				b.publish(t, widget, v110, "two")
				b.sign(s, v100, true)
				b.expect("approved", b.served(v100), "served")
				s.down(failure)
				b.expect("never looked up", b.served(v110), "unavailable")
				b.expect("list", b.listed(), "[1.0.0 1.1.0]")
				for range 23 {
					pass(time.Hour)
					b.expect("approved before", b.served(v100), "served")
					b.expect("list of the outage", b.listed(), "[1.0.0 1.1.0]")
				}
				pass(2 * time.Hour)
				b.expect("approved too long ago", b.served(v100), "unavailable")
				s.down(nil)
				pass(time.Minute)
				b.expect("after the outage", b.served(v100), "served")
				b.expect("not approved", b.served(v110), notApprovedText)
				b.expect("list after the outage", b.listed(), "[1.0.0]")
			})
		})
	}
}

// judgedThenDown publishes 1.1.0 and signs 1.0.0. Clients request both, and then the registry stops.
func (k *kept) judgedThenDown(s *signing) {
	k.t.Helper()
	k.publish(k.t, widget, v110, "two")
	k.sign(s, v100, true)
	k.expect("approved", k.served(v100), "served")
	k.expect("not approved", k.served(v110), notApprovedText)
	k.expect("list", k.listed(), "[1.0.0]")
	k.down(unreachable)
}

// TestApprovalsSurviveARestart shows that verdicts are known after a restart while the registry is down. They come from the
// signatures on disk, which are verified again: a record whose signature was removed approves nothing.
func TestApprovalsSurviveARestart(t *testing.T) {
	s := newSigning(t, false)
	onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Approvals = s }, func(k *kept) {
		k.judgedThenDown(s)
		s.down(unreachable)
		k.restart()
		k.expect("approved, after a restart", k.served(v100), "served")
		k.expect("not approved, after a restart", k.served(v110), notApprovedText)
		k.expect("list, after a restart", k.listed(), "[1.0.0]")

		file := catalog.RecordFile(k.Catalog, widget, "1.0.0!approvals")
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(strings.Replace(string(data), "signatures", "signaturez", 1)), 0o600)
		}
		if err != nil {
			k.t.Fatal(err)
		}
		k.restart()
		k.expect("damaged record", k.served(v100), "unavailable")
	})
}

// TestListsAfterARestart shows that lists after a restart omit what the verdicts on disk say is not approved, before anybody requests the
// versions: while the registry is down, while it only lists its tags, and while there are too many versions to look up at once. A
// version without a verdict is listed.
func TestListsAfterARestart(t *testing.T) {
	nameless, judged, unknown := provider.MustParseVersion("1.2.0"), provider.MustParseVersion("1.3.0"), provider.MustParseVersion("1.4.0")
	for name, stop := range map[string]func(k *kept, s *signing){
		"down": func(k *kept, _ *signing) { k.down(unreachable) },
		"only tags": func(k *kept, s *signing) {
			s.down(unreachable)
			k.failing(func(_ context.Context, _ provider.Address, what string) error {
				if what == "list" {
					return nil
				}
				return unreachable
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSigning(t, false)
			onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Approvals = s }, func(k *kept) {
				pkg := k.publish(t, widget, nameless, "nameless").Packages[0]
				index, err := artifact.EncodeIndex(artifact.Version{Packages: []artifact.Package{pkg}})
				if err != nil {
					t.Fatal(err)
				}
				k.tag(widget, nameless, index)
				k.publish(t, widget, v110, "two")
				k.sign(s, v100, true)
				k.expect("approved", k.served(v100), "served")
				k.expect("not approved", k.served(v110), notApprovedText)
				k.expect("nameless", k.served(nameless), notApprovedText)
				k.publish(t, widget, judged, "judged by the list alone")
				k.expect("list", k.listed(), "[1.0.0]")
				k.publish(t, widget, unknown, "never looked up")
				s.down(unreachable)
				pass(31 * time.Second)
				k.expect("list with an unknown version", k.listed(), "[1.0.0 1.4.0]")

				stop(k, s)
				for range 3 {
					k.restart()
					k.expect("list after a restart", k.listed(), "[1.0.0 1.4.0]")
					pass(7 * time.Hour)
				}
				k.expect("nameless after a restart", k.served(nameless), notApprovedText)
			})
		})
	}
	t.Run("many", func(t *testing.T) {
		s := newSigning(t, false)
		onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Approvals = s }, func(k *kept) {
			for i := range 40 {
				k.publish(t, widget, provider.MustParseVersion(fmt.Sprintf("2.%d.0", i)), fmt.Sprint(i))
			}
			k.listed()
			pass(time.Minute)
			k.expect("list", k.listed(), "[]")
			k.restart()
			k.expect("list after a restart", k.listed(), "[]")
		})
	})
}

// TestDeniedManifestsAfterARestart shows that a list from disk omits a version whose manifest a rule denies by its digest.
func TestDeniedManifestsAfterARestart(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		k.publish(t, widget, v110, "two")
		k.expect("list", k.listed(), "[1.0.0 1.1.0]")
		k.expect("served", k.served(v110), "served")
		k.options.Deny = []catalog.Deny{{Pattern: widget.Pattern(), Digest: k.tags[widget]["1.1.0"].Descriptor.Digest, Reason: "it leaks"}}
		k.down(unreachable)
		k.restart()
		k.expect("list after a restart", k.listed(), "[1.0.0]")
	})
}

// TestTagsThatMoveAcrossARestart shows that the signatures on disk count only for the manifest that they were read for.
func TestTagsThatMoveAcrossARestart(t *testing.T) {
	s := newSigning(t, false)
	onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Approvals = s }, func(k *kept) {
		k.sign(s, v100, true)
		k.expect("approved", k.served(v100), "served")
		k.publish(t, widget, v100, "changed")
		pass(time.Minute)
		s.down(unreachable)
		k.restart()
		k.expect("another manifest", k.served(v100), "unavailable")
	})
}

// TestListsWhileATagMoves shows that a verdict on the manifest that a tag named before does not hide the version, while the signatures
// of the manifest that it names now cannot be read.
func TestListsWhileATagMoves(t *testing.T) {
	s := newSigning(t, false)
	onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Approvals = s }, func(k *kept) {
		k.expect("not approved", k.listed(), "[]")
		k.expect("not approved", k.served(v100), notApprovedText)
		k.publish(t, widget, v100, "changed")
		k.sign(s, v100, true)
		s.down(unreachable)
		pass(7 * time.Hour)
		k.expect("moved", k.listed(), "[1.0.0]")
		k.restart()
		k.expect("moved, after a restart", k.listed(), "[1.0.0]")
		pass(time.Minute)
		k.expect("moved, later", k.listed(), "[1.0.0]")
		k.options.Deny = []catalog.Deny{{Pattern: widget.Pattern(), Digest: k.tags[widget]["1.0.0"].Descriptor.Digest}}
		k.restart()
		pass(time.Minute)
		k.expect("moved to a denied manifest", k.listed(), "[]")
		k.options.Deny = nil
		k.restart()
		s.down(nil)
		pass(time.Minute)
		k.expect("approved", k.served(v100), "served")
		k.expect("approved", k.listed(), "[1.0.0]")
	})
}

// incomplete returns verdicts that say nothing about the requirements.
type incomplete struct{ *signing }

func (incomplete) Check(context.Context, subject.Address, provider.Version, ocispec.Descriptor) (approval.Verdict, []approval.Signature, error) {
	return approval.Verdict{}, nil, nil
}

// TestIncompleteVerdicts shows that a verdict without any missing approval serves nothing unless it is about all requirements.
func TestIncompleteVerdicts(t *testing.T) {
	inTime(t, func(o *catalog.Options) { o.Approvals = incomplete{newSigning(t, false)} }, func(b *bench) {
		b.expect("incomplete", b.served(v100), "unavailable")
	})
}

// TestRefreshForgetsVerdicts shows that an operator who drops the answers about a provider also drops its verdicts.
func TestRefreshForgetsVerdicts(t *testing.T) {
	s := newSigning(t, false)
	onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Approvals = s }, func(k *kept) {
		k.expect("not approved", k.served(v100), notApprovedText)
		k.sign(s, v100, true)
		k.expect("not approved yet", k.served(v100), notApprovedText)
		k.Refresh(widget)
		k.expect("refreshed", k.served(v100), "served")
	})
}

// TestManyUnapprovedVersions shows that a list looks up the newest versions first and a bounded number of them, and that the rest
// are looked up in the background.
func TestManyUnapprovedVersions(t *testing.T) {
	s := newSigning(t, false)
	approving(t, s, nil, func(b *bench) {
		const n = 100
		for i := range n {
			b.publish(t, widget, provider.MustParseVersion(fmt.Sprintf("2.%d.0", i)), fmt.Sprint(i))
		}
		s.lookUps()
		list, err := b.Versions(b.t.Context(), widget)
		if err != nil {
			b.t.Fatal(err)
		}
		if got := len(list.Versions); got != n+1-32 {
			b.t.Errorf("%d versions are listed, want those that were not looked up", got)
		}
		if newest := list.Versions[len(list.Versions)-1]; newest.String() != "2.67.0" {
			b.t.Errorf("the newest listed version is %s", newest)
		}
		pass(time.Minute)
		b.expect("the second list", b.listed(), "[]")
		if got := s.lookUps(); got != n+1+4 { // four of the newest twice
			b.t.Errorf("%d look-ups", got)
		}
		s.sign(b, "2.50.0")
		pass(time.Minute)
		b.expect("an old version's new signature, at first", b.listed(), "[]")
		for range 11 { // the list is in use
			pass(25 * time.Second)
			b.listed()
		}
		pass(time.Minute)
		b.expect("an old version's new signature, after five minutes", b.listed(), "[2.50.0]")
	})
}

// TestReportedApprovals shows that a version without an approval that is not enforced is served, whether or not its signatures
// can be read, and that it is looked up in the background.
func TestReportedApprovals(t *testing.T) {
	s := newSigning(t, true)
	approving(t, s, nil, func(b *bench) {
		b.expect("not approved", b.served(v100), "served")
		b.expect("list", b.listed(), "[1.0.0]")
		pass(time.Second)
		b.expect("look-ups", fmt.Sprint(s.lookUps()), "1")
		s.down(unreachable)
		pass(time.Hour)
		b.expect("unreachable", b.served(v100), "served")
		item, err := b.Version(b.t.Context(), widget, v100)
		if err != nil {
			b.t.Fatal(err)
		}
		verdict, err := b.Approval(b.t.Context(), item)
		if err != nil || verdict.Err() != nil || len(verdict.Reported()) != 1 {
			b.t.Errorf("%+v, %v", verdict, err)
		}
	})
}

// requested is an origin that records which packages it is asked to store.
type requested struct {
	*offering
	packages []string
}

func (r *requested) Package(_ provider.Address, v provider.Version, p artifact.Package, s catalog.Stored) catalog.Blob {
	return requestedBlob{s, func() { r.packages = append(r.packages, v.String()+" "+p.Platform.String()) }}
}

type requestedBlob struct {
	catalog.Stored
	requested func()
}

func (b requestedBlob) Requested() { b.requested() }

// TestOriginsApproveNothing shows that what only the origin has is not served if versions need approvals: neither a version that
// the registry lacks, nor a platform of an approved version. A requested version is stored, so that it can be approved.
func TestOriginsApproveNothing(t *testing.T) {
	s := newSigning(t, false)
	o := &requested{offering: &offering{offers: []catalog.Offer{{Version: v100}, {Version: v110}}}}
	approving(t, s, func(options *catalog.Options) { options.Origin = o }, func(b *bench) {
		b.sign(s, v100, true)
		b.expect("list", b.listed(), "[1.0.0]")
		b.expect("the origin's version", b.served(v110), notApprovedText)
		b.expect("stored without a client's request", fmt.Sprint(o.packages), "[]")
		b.Store(b.t.Context(), widget, v110)
		b.expect("stored for an approval", fmt.Sprint(o.packages), "[1.1.0 darwin_arm64]")
		b.expect("platforms of the approved version", b.found(v100), "[linux_amd64]")
		b.expect("neither has it", b.served(provider.MustParseVersion("9.0.0")), "absent")
		item, err := b.Versions(b.t.Context(), widget)
		if err != nil {
			b.t.Fatal(err)
		}
		b.expect("denials", fmt.Sprint(b.Denials(item)), `[{[1.1.0] not approved: "platform team"}]`)
		o.err = errNoWay
		pass(31 * time.Second)
		b.expect("the origin is down", b.served(provider.MustParseVersion("9.0.0")), "unavailable")
		b.expect("approved", b.served(v100), "served")
	})
}

// TestOriginsThatTheGatewayVouchesFor shows that, if pull-through signs what it stores, versions and platforms of the origin are
// served, and that a stored version without a signature is not.
func TestOriginsThatTheGatewayVouchesFor(t *testing.T) {
	s := newSigning(t, false)
	s.signs = true
	o := &requested{offering: &offering{offers: []catalog.Offer{{Version: v100}, {Version: v110}}}}
	approving(t, s, func(options *catalog.Options) { options.Origin = o }, func(b *bench) {
		b.expect("list", b.listed(), "[1.1.0]")
		b.expect("stored without a signature", b.served(v100), notApprovedText)
		b.expect("the origin's version", b.found(v110), "[darwin_arm64]")
		b.sign(s, v100, true)
		pass(31 * time.Second)
		b.expect("list of the signed version", b.listed(), "[1.0.0 1.1.0]")
		b.expect("platforms of the signed version", b.found(v100), "[darwin_arm64 linux_amd64]")
	})
}

// TestDeniedManifests shows that a rule with a digest denies the manifest under every tag, also if it is approved, and nothing else.
func TestDeniedManifests(t *testing.T) {
	for name, tc := range map[string]struct{ approvals bool }{"alone": {false}, "with approvals": {true}} {
		t.Run(name, func(t *testing.T) {
			s := newSigning(t, false)
			var rules []catalog.Deny
			inTime(t, func(o *catalog.Options) {
				f := newFake()
				f.publish(t, widget, v100, "one")
				rules = []catalog.Deny{{Pattern: widget.Pattern(), Digest: f.tags[widget]["1.0.0"].Descriptor.Digest, Reason: "it leaks"}}
				if o.Deny = rules; tc.approvals {
					o.Approvals = s
				}
			}, func(b *bench) {
				b.publish(t, widget, v110, "two")
				b.sign(s, v100, true)
				b.sign(s, v110, true)
				b.expect("list", b.listed(), "[1.1.0]")
				b.expect("denied", b.served(v100), "this version is denied here: it leaks")
				b.expect("other", b.served(v110), "served")
				item, _ := b.Versions(b.t.Context(), widget)
				b.expect("denials", fmt.Sprint(b.Denials(item)), "[{[1.0.0] it leaks}]")
				b.publish(t, widget, v100, "mended")
				b.sign(s, v100, true)
				pass(31 * time.Second)
				b.expect("mended", b.served(v100), "served")
				b.expect("list of the mended version", b.listed(), "[1.0.0 1.1.0]")
				if _, denied := catalog.FindDeny(rules, widget, v100, ""); denied {
					b.t.Error("a rule with a digest denies a version whose digest is unknown")
				}
			})
		})
	}
}

// TestWarmOnlyWhileApproved shows that a cached document is served without a look at the registry only while the version's verdict
// is current.
func TestWarmOnlyWhileApproved(t *testing.T) {
	s := newSigning(t, false)
	approving(t, s, nil, func(b *bench) {
		b.sign(s, v100, true)
		path := widget.Path() + "/1.0.0.json"
		warm := func() bool {
			_, ok := b.Warm(path, time.Now())
			return ok
		}
		item, err := b.Version(b.t.Context(), widget, v100)
		if err != nil {
			b.t.Fatal(err)
		}
		b.CacheDocument(item, catalog.MirrorDocument, "document", 8)
		b.expect("approved", fmt.Sprint(warm()), "true")
		if n := testing.AllocsPerRun(100, func() { warm() }); n > 0 {
			b.t.Errorf("%v allocations", n)
		}
		b.sign(s, v100, false)
		for range 11 { // the item stays current
			pass(25 * time.Second)
			warm()
		}
		pass(26 * time.Second)
		if item, err = b.Examine(b.t.Context(), widget, v100); err != nil || item.Document(catalog.MirrorDocument) == nil {
			b.t.Fatalf("the item is not current, or has no document: %v", err)
		}
		b.expect("revoked", fmt.Sprint(warm()), "false")
	})
}

// TestWarmAnswersOfTheUnion shows that a document of the registry alone is served in place of the union's only if it is about a version
// whose signatures decide: not a list, not a version without requirements, and not one that the gateway vouches for.
func TestWarmAnswersOfTheUnion(t *testing.T) {
	for name, tc := range map[string]struct {
		reportOnly, vouches bool
		of                  string
		warm                bool
	}{
		"a version":                        {of: "1.0.0", warm: true},
		"a version that only needs a look": {of: "1.0.0", reportOnly: true},
		"a version with a vouched origin":  {of: "1.0.0", vouches: true},
		"a list":                           {of: "index"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSigning(t, tc.reportOnly)
			s.signs = tc.vouches
			approving(t, s, func(o *catalog.Options) { o.Origin = &offering{offers: []catalog.Offer{{Version: v110}}} }, func(b *bench) {
				b.sign(s, v100, true)
				item, err := b.Registry().Versions(b.t.Context(), widget)
				if tc.of != "index" {
					item, err = b.Registry().Version(b.t.Context(), widget, v100)
				}
				if err != nil {
					b.t.Fatal(err)
				}
				b.CacheDocument(item, catalog.MirrorDocument, "the registry's", 14)
				path := widget.Path() + "/" + tc.of + ".json"
				if _, ok := b.Catalog.Registry().Warm(path, time.Now()); !ok {
					b.t.Error("the registry's document is not warm")
				}
				got, ok := b.Catalog.Union().Warm(path, time.Now())
				if warm := ok && got.Document(catalog.MirrorDocument) != nil; warm != tc.warm {
					b.t.Errorf("%t, want %t", warm, tc.warm)
				}
			})
		})
	}
}

// TestSummariesOutOfDate shows that signatures are looked up for the manifest that a tag names, and not for the one in the summary.
func TestSummariesOutOfDate(t *testing.T) {
	s := newSigning(t, false)
	approving(t, s, nil, func(b *bench) {
		b.summarize() // it names other manifests
		b.sign(s, v110, true)
		for range 3 {
			b.expect("list", b.listed(), "[1.1.0]")
			pass(10 * time.Minute)
		}
	})
}

// TestOtherRequirementsAfterARestart shows that the signatures on disk, which are those that the requirements before the restart
// needed, do not make a version "not approved" for other requirements. They can make it approved.
func TestOtherRequirementsAfterARestart(t *testing.T) {
	s := newSigning(t, false)
	onDisk(t, t.TempDir(), func(o *catalog.Options) { o.Approvals = s }, func(k *kept) {
		k.judgedThenDown(s)
		other := newSigning(t, false)
		other.down(unreachable)
		k.options.Approvals = other
		k.restart()
		k.expect("approved by the known signatures", k.served(v100), "served")
		k.expect("unknown", k.served(v110), "unavailable")
		k.expect("list of other requirements", k.listed(), "[1.0.0 1.1.0]")
		other.down(nil)
		k.down(nil)
		pass(time.Minute)
		k.expect("after the outage", k.served(v110), notApprovedText)
	})
}
