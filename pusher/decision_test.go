package pusher

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

var (
	decisionProvider = provider.MustParseAddress("registry.acme.example/acme/widget")
	decisionVersion  = provider.MustParseVersion("1.0.0")
)

// pack returns the packages that a short notation describes: "L1 D2" is a package for Linux with the bytes 1 and a
// package for Darwin with the bytes 2. "L?" is a package for Linux whose bytes were not read yet.
func pack(notation string) (out []artifact.Package) {
	for _, word := range strings.Fields(notation) {
		p := artifact.Package{Platform: map[byte]provider.Platform{
			'L': provider.MustParsePlatform("linux_amd64"), 'D': provider.MustParsePlatform("darwin_arm64"), 'F': provider.MustParsePlatform("freebsd_amd64"),
		}[word[0]]}
		p.Filename = provider.PackageFilename(decisionProvider, decisionVersion, p.Platform)
		if word[1] != '?' {
			p.Digest = digest.FromString(word[1:])
		}
		out = append(out, p)
	}
	return out
}

// notation is the inverse of pack. It sorts the packages.
func notation(v *artifact.Version) string {
	if v == nil {
		return "nothing"
	}
	var out []string
	for _, all := range []string{"L1", "L2", "L?", "D1", "D2", "F1", "F2", "F?"} {
		if repo.HasPackage(v.Packages, pack(all)[0]) {
			out = append(out, all)
		}
	}
	return strings.Join(out, " ")
}

// sumsOf returns checksums that list the packages in listed. If listed is "none", the release has no SHA256SUMS, and
// the checksums list nothing.
func sumsOf(t testing.TB, listed string) *trust.Checksums {
	t.Helper()
	claims := trust.Claims{Provider: decisionProvider, Version: decisionVersion, Hashes: map[string][]provider.Hash{}}
	if listed != "none" {
		var text strings.Builder
		for _, p := range pack(listed) {
			fmt.Fprintf(&text, "%s  %s\n", p.Digest.Encoded(), p.Filename)
		}
		claims.SHA256SUMS = []byte(text.String())
	}
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(t.Context(), claims)
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// proofOf returns the evidence that words describes. words is a grade, followed by the packages that the evidence
// lists. Examples are "signed L1 D1", "checksums L1", "record" and "unreadable". "" means no evidence. The digest of
// the evidence is the digest of words.
func proofOf(t testing.TB, words string) proof {
	t.Helper()
	kind, listed, _ := strings.Cut(words, " ")
	if kind == "" {
		return proof{}
	}
	p := proof{
		descriptor: &ocispec.Descriptor{Digest: digest.FromString(words)},
		grade:      map[string]grade{"unreadable": gradeUnreadable, "record": gradeRecord, "checksums": gradeChecksums, "signed": gradeSigned}[kind],
	}
	if p.grade == gradeUnreadable {
		p.problem = errors.New("damaged")
	}
	if listed != "" {
		p.sums = sumsOf(t, listed)
	}
	return p
}

// stored returns a version with packages and evidence, or nil if packages is "".
func stored(packages string, evidence proof) *artifact.Version {
	if packages == "" {
		return nil
	}
	return &artifact.Version{Owner: decisionProvider, Version: decisionVersion, Packages: pack(packages), Evidence: evidence.descriptor}
}

// TestDecision is the decision table of a push. The input is the stored content, the release, the announcements of
// other pushes, and the options. The table shows what the push stores, what it reports, and which conflict it finds.
func TestDecision(t *testing.T) {
	const both = "signed L1 D1"
	for _, tc := range []struct {
		name             string
		stored, proof    string // the stored packages and evidence
		brings, evidence string // the release's packages and evidence
		listed           string // packages in the release's checksums; "": the packages in its evidence
		others, left     string // the packages and the evidence that other pushes announced
		options          string // force, refresh, overwrote, or changed (another push has stored evidence since this push began)
		want             string // the packages to store
		action           evidenceAction
		status           Status
		conflict         conflictKind
		at               string // the platform of the conflict
	}{
		{name: "a new version", brings: "L1 D1", evidence: both, want: "L1 D1", action: addEvidence, status: Pushed},
		{name: "a new version, and the registry refuses evidence", brings: "L1", listed: "L1", want: "L1", action: keepEvidence, status: Pushed},
		{name: "the same version", stored: "L1 D1", proof: both, brings: "L1 D1", evidence: both, want: "L1 D1", action: keepEvidence, status: Unchanged},
		{name: "a part of the version", stored: "L1 D1", proof: both, brings: "L1", evidence: both, want: "L1 D1", action: keepEvidence, status: Unchanged},
		{name: "another platform", stored: "L1", proof: both, brings: "D1", evidence: both, want: "L1 D1", action: keepEvidence, status: Completed},
		{name: "evidence for a version without", stored: "L1", brings: "L1", evidence: "signed L1", want: "L1", action: addEvidence, status: Completed},
		{name: "unreadable evidence, and the release is signed", stored: "L1", proof: "unreadable", brings: "L1", evidence: "signed L1", want: "L1", action: replaceEvidence, status: Refreshed},
		{name: "evidence by another key", stored: "L1", proof: "signed L1", brings: "L1", evidence: "signed L1 D1", want: "L1", action: keepEvidence, status: Unchanged},
		{name: "evidence by another key, refreshed", stored: "L1", proof: "signed L1", brings: "L1", evidence: "signed L1 D1", options: "refresh", want: "L1", action: replaceEvidence, status: Refreshed},
		{name: "evidence that another push has just stored, refreshed", stored: "L1", proof: "signed L1", brings: "L1", evidence: "signed L1 D1", options: "refresh changed", want: "L1", action: keepEvidence, status: Unchanged},

		{name: "other bytes", stored: "L1", proof: "signed L1", brings: "L2", evidence: "signed L2", conflict: conflictPackage, at: "linux_amd64"},
		{name: "other bytes, by force", stored: "L1", proof: "signed L1", brings: "L2", evidence: "signed L2", options: "force", want: "L2", action: replaceEvidence, status: Replaced},
		{name: "the release lists other bytes for a stored package", stored: "L1", proof: "signed L1", brings: "D1", evidence: "signed L2 D1", conflict: conflictPackage, at: "linux_amd64"},
		{name: "the release lists other bytes for a stored package, by force", stored: "L1", proof: "signed L1", brings: "D1", evidence: "signed L2 D1", options: "force", want: "D1", action: replaceEvidence, status: Replaced},
		{name: "unknown bytes beside a stored package", stored: "L1", proof: "signed L1", brings: "L?", evidence: "record", listed: "none", want: "L?", action: keepEvidence, status: Replaced},

		{name: "an unsigned package that the signed evidence contradicts", stored: "L1", proof: both, brings: "D2", evidence: "record", listed: "none", conflict: conflictChecksum, at: "darwin_arm64"},
		{name: "an unsigned package that the signed evidence does not list", stored: "L1", proof: both, brings: "F1", evidence: "record", listed: "none", conflict: conflictUnlisted, at: "freebsd_amd64"},
		{name: "an unread package that the signed evidence does not list", stored: "L1", proof: both, brings: "F?", evidence: "record", listed: "none", conflict: conflictUnlisted, at: "freebsd_amd64"},
		{name: "an unsigned package, by force", stored: "L1", proof: both, brings: "F1", evidence: "record", listed: "none", options: "force", want: "L1 F1", action: replaceEvidence, status: Completed},
		{name: "an unsigned package as the publisher signed it", stored: "L1", proof: both, brings: "D1", evidence: "record", listed: "none", want: "L1 D1", action: keepEvidence, status: Completed},
		{name: "a signed release beside a package that it does not list", stored: "F1", proof: "record", brings: "L1", evidence: "signed L1", conflict: conflictUnlisted, at: "freebsd_amd64"},
		{name: "a signed release beside a package that it does not list, by force", stored: "F1", proof: "record", brings: "L1", evidence: "signed L1", options: "force", want: "L1", action: replaceEvidence, status: Replaced},
		{name: "unreadable evidence, and the release is unsigned", stored: "L1", proof: "unreadable", brings: "D1", evidence: "record", listed: "none", conflict: conflictUnreadable, at: "darwin_arm64"},
		{name: "the publisher has signed another platform since", stored: "L1", proof: "signed L1", brings: "D1", evidence: both, want: "L1 D1", action: replaceEvidence, status: Completed},

		{name: "another push announced a platform", brings: "L1", evidence: both, others: "D1", left: both, want: "L1 D1", action: completeEvidence, status: Pushed},
		{name: "another push announced other bytes", brings: "L1", evidence: both, others: "L2 D2", want: "L1", action: addEvidence, status: Pushed},
		{name: "another push announced a package that nobody lists", brings: "L1", evidence: both, others: "F1", want: "L1", action: addEvidence, status: Pushed},
		{name: "another push announced packages that the release does not list, and the registry refuses evidence", brings: "L1", listed: "L1 D1", others: "D2 L2", want: "L1", action: keepEvidence, status: Pushed},
		{name: "unsigned pushes announce to each other", brings: "L1", evidence: "record", listed: "none", others: "F1", want: "L1 F1", action: addEvidence, status: Pushed},
		{name: "a signed push announced its evidence", stored: "L1", proof: "record", brings: "L1", evidence: "record", listed: "none", others: "D1", left: both, want: "L1 D1", action: completeEvidence, status: Completed},
		{name: "a forced push has replaced the packages of an announcement", stored: "L2", proof: "record", brings: "L2", evidence: "record", listed: "none", others: "D1", left: both, want: "L2 D1", action: keepEvidence, status: Completed},

		{name: "a conflict with a signed push", brings: "F1", evidence: "record", listed: "none", others: "L1", left: both, conflict: conflictUnlisted, at: "freebsd_amd64"},
		{name: "a conflict with a signed push that was overwritten", brings: "F1", evidence: "record", listed: "none", others: "L1 F2 D2", left: both, options: "overwrote", conflict: conflictUnlisted, at: "freebsd_amd64", want: "L1"},
		{name: "a conflict with an unsigned push that was overwritten", stored: "L2", proof: "record", brings: "L1", evidence: "record", listed: "none", others: "L2", options: "overwrote", conflict: conflictPackage, at: "linux_amd64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.listed == "" {
				if _, tc.listed, _ = strings.Cut(tc.evidence, " "); tc.listed == "" {
					tc.listed = "none"
				}
			}
			storedProof := proofOf(t, tc.proof)
			s := situation{
				stored: stored(tc.stored, storedProof), storedEvidence: storedProof,
				sums: sumsOf(t, tc.listed), packages: pack(tc.brings), releaseEvidence: proofOf(t, tc.evidence),
				ofOthers: ofOthers{announced: pack(tc.others), announcedEvidence: proofOf(t, tc.left)},
				force:    strings.Contains(tc.options, "force"), refresh: strings.Contains(tc.options, "refresh"), overwrote: strings.Contains(tc.options, "overwrote"),
			}
			if s.before = s.stored; strings.Contains(tc.options, "changed") {
				s.before = stored(tc.stored, proofOf(t, "signed F1"))
			}
			d := s.decide()
			if tc.conflict != "" {
				if d.conflict == nil || d.conflict.kind != tc.conflict || d.conflict.platform.String() != tc.at {
					t.Fatalf("conflict %+v, want %s for %s", d.conflict, tc.conflict, tc.at)
				}
				if tc.want == "" {
					tc.want = "nothing"
				}
				if got := notation(d.version); got != tc.want || d.version != nil && !sameDigest(d.version.Evidence, s.announcedEvidence.descriptor) {
					t.Errorf("it restores %s, want %s", got, tc.want)
				}
				return
			}
			if d.conflict != nil {
				t.Fatalf("conflict %+v", d.conflict)
			}
			if got := notation(d.version); got != tc.want || d.action != tc.action || d.status != tc.status {
				t.Errorf("it stores %s, %s evidence, %s; want %s, %s, %s", got, d.action, d.status, tc.want, tc.action, tc.status)
			}
			if !sameDigest(d.version.Evidence, d.evidence.descriptor) {
				t.Errorf("the version has the evidence %v, and the decision %v", d.version.Evidence, d.evidence.descriptor)
			}
		})
	}
}

// TestDecisionIsSafe shows rules that hold for all combinations of a few packages and kinds of evidence. Without
// force, a stored package stays, new evidence covers all packages, stored evidence covers all new packages, and
// weaker evidence never replaces evidence that covers the version. With or without force, the version has all
// packages of the release.
func TestDecisionIsSafe(t *testing.T) {
	testkit.LeaveToAll(t) // it tries very many cases in one goroutine
	var packages []string
	for _, l := range []string{"", "L1", "L2"} {
		for _, d := range []string{"", "D1", "D2"} {
			packages = append(packages, strings.TrimSpace(l+" "+d))
		}
	}
	proofs := func(words ...string) (out []proof) {
		for _, w := range words {
			out = append(out, proofOf(t, w))
		}
		return out
	}
	storedProofs := proofs("", "unreadable", "record", "checksums L1", "signed L1", "signed L1 D1", "signed L2 D1")
	announcedProofs := proofs("", "signed L1 D1", "signed D2")
	releases := []situation{}
	for listed, all := range map[string][]string{"none": {"L1", "L2 D1"}, "L1 D1": {"L1", "D1", "L1 D1"}, "L1": {"L1"}} {
		for _, brings := range all {
			for _, evidence := range []string{"", "record", "signed " + listed} {
				if evidence != "signed none" {
					releases = append(releases, situation{sums: sumsOf(t, listed), packages: pack(brings), releaseEvidence: proofOf(t, evidence)})
				}
			}
		}
	}
	for _, s := range releases {
		for _, there := range packages {
			for _, s.storedEvidence = range storedProofs {
				s.stored = stored(there, s.storedEvidence)
				if s.stored == nil {
					s.storedEvidence = proof{}
				}
				for _, others := range []string{"", "L1", "D1", "L2 D2"} {
					for _, s.announcedEvidence = range announcedProofs {
						for bits := range 1 << 4 {
							s.before, s.announced = nil, pack(others)
							s.force, s.refresh, s.overwrote = bits&1 != 0, bits&2 != 0, bits&4 != 0
							if bits&8 != 0 {
								s.before = s.stored
							}
							checkDecision(t, s)
						}
					}
				}
			}
		}
	}
}

func checkDecision(t *testing.T, s situation) {
	t.Helper()
	d := s.decide()
	describe := func() string {
		return fmt.Sprintf("stored %s %+v, release %+v %+v, announced %+v %+v, force %t, refresh %t: %s %s, %+v",
			notation(s.stored), s.storedEvidence, s.packages, s.releaseEvidence, s.announced, s.announcedEvidence, s.force, s.refresh, d.action, notation(d.version), d.conflict)
	}
	if d.conflict != nil {
		if s.force || d.version != nil && (!s.overwrote || d.version.Evidence != s.announcedEvidence.descriptor || s.announcedEvidence.contradicts(d.version.Packages...) != nil) {
			t.Fatalf("a wrong conflict or a wrong version to restore: %s", describe())
		}
		return
	}
	for _, p := range s.packages {
		if !repo.HasPackage(d.version.Packages, p) {
			t.Fatalf("the release's package for %s is lost: %s", p.Platform, describe())
		}
	}
	if s.force {
		return
	}
	if s.stored != nil {
		for _, p := range s.stored.Packages {
			if !repo.HasPackage(d.version.Packages, p) {
				t.Fatalf("the stored package for %s is lost: %s", p.Platform, describe())
			}
		}
	}
	for _, p := range d.version.Packages {
		kept := d.action == keepEvidence && s.stored != nil && repo.HasPackage(s.stored.Packages, p)
		if !kept && d.evidence.contradicts(p) != nil {
			t.Fatalf("the evidence does not cover the package for %s: %s", p.Platform, describe())
		}
	}
	if s.storedEvidence.contradicts(d.version.Packages...) == nil && d.evidence.grade < s.storedEvidence.grade {
		t.Fatalf("weaker evidence replaces the stored evidence: %s", describe())
	}
}
