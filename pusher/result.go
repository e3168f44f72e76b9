package pusher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// Stage is a stage of storing one package.
type Stage string

// The stages of a package. StageFetch and StageSend overlap if the package is sent while it is read.
// An event with a negative number of bytes subtracts the bytes of an upload that failed. The last
// event of a package has one of the other stages.
const (
	StageFetch   Stage = "fetch"   // the package is downloaded from its origin and hashed
	StageFetched Stage = "fetched" // the files of a public module were downloaded; nothing is sent yet
	StageSend    Stage = "send"    // the package is sent to the registry
	StageDone    Stage = "done"    // the package was sent and stored; no tag names it yet
	StageMounted Stage = "mounted" // the registry mounted the package from another repository; no tag names it yet
	StageFound   Stage = "found"   // the repository had the package's bytes; no tag names it yet, or the push is forced
	StagePresent Stage = "present" // the tagged version or the mirror folder has the package
	StageOmitted Stage = "omitted" // the package was left out, according to Options.Omits
)

// Event reports the progress of one package. Each stage begins with an event of 0 bytes.
type Event struct {
	Subject  subject.Address
	Version  provider.Version
	Platform provider.Platform // zero for a module
	Stage    Stage
	Bytes    int   // since the last event of this stage
	Total    int64 // all bytes of this stage; -1: unknown
}

// Status says what a push did.
type Status string

const (
	// Pushed means that the version did not exist.
	Pushed Status = "pushed"
	// Completed means that the push added platforms, missing evidence or missing documentation, or that a copy added referrers.
	Completed Status = "completed"
	// Replaced means that a forced push replaced stored packages.
	Replaced Status = "replaced"
	// Refreshed means that the push replaced the evidence or the documentation. All packages were in place.
	Refreshed Status = "refreshed"
	// Rehashed means that a forced push corrected h1: hashes in the index, or added missing
	// ones. All packages were in place.
	Rehashed Status = "rehashed"
	// Repaired means that a forced push corrected anything else in index entries. All packages and the evidence
	// were in place.
	Repaired Status = "repaired"
	// Unchanged means that everything was in place. A forced push might have sent deleted parts.
	Unchanged Status = "unchanged"
)

// Result says what a push did, and what the repository holds afterwards.
type Result struct {
	Subject    subject.Address    `json:"-"` // in JSON, the key is the word for its kind
	Version    provider.Version   `json:"version"`
	Repository ociaddr.Repository `json:"repository"`
	Tag        ociaddr.Tag        `json:"tag"`
	Digest     string             `json:"digest,omitempty"` // of the index, or of a module's manifest
	Status     Status             `json:"status"`
	Standing
	// ApprovedBy is the fingerprint of the key in [Options.Sign], if the version has an approval by it.
	ApprovedBy string `json:"approved_by,omitempty"`
	// Docs is the digest of the manifest of the stored documentation, or "" if there is none.
	Docs     string          `json:"docs,omitempty"`
	Packages []PackageResult `json:"packages,omitzero"` // exactly one for a module
	// Referrers is the number of the source's referrers, at any depth, that the destination of a copy
	// has. ReferrersSent is the number of referrers that the copy sent.
	Referrers     int `json:"referrers,omitempty"`
	ReferrersSent int `json:"referrers_sent,omitempty"`
	// Lost lists the platforms that a copy left out, see [origin.Release.Lost].
	Lost     []provider.Platform `json:"lost,omitempty"`
	Revision string              `json:"revision,omitempty"` // of a module
	Source   artifact.Provenance `json:"source,omitzero"`    // of a module
	Warnings []string            `json:"warnings,omitempty"`
}

// MarshalJSON implements [json.Marshaler]. The only package of a module has no object of its own.
func (r Result) MarshalJSON() ([]byte, error) {
	type others Result
	if subject.TraitsOf(r.Subject).Packages {
		return document.Join(subject.Member(r.Subject), others(r))
	}
	zip := r.Packages[0]
	r.Packages = nil
	return document.Join(subject.Member(r.Subject), others(r), struct {
		Zip  string        `json:"zip"` // the digest of the zip
		Size int64         `json:"size"`
		H1   provider.Hash `json:"h1,omitzero"`
		Sent bool          `json:"sent"`
	}{zip.Digest, zip.Size, zip.H1, zip.Sent})
}

// Standing is what the evidence of a provider's version proves. It is zero for a module.
type Standing struct {
	// Verdict is what the stored evidence proves: trust.Signed, trust.ChecksumOnly,
	// artifact.SignedOtherName or artifact.NoEvidence. For a mirror folder, it is the verdict on the
	// release. Fingerprint identifies the key that signed the evidence.
	Verdict     trust.Verdict `json:"verdict,omitempty"`
	Fingerprint string        `json:"fingerprint,omitempty"`
	// Pinned: the policy pins the key. Expired: the key or its signature is not valid at the moment.
	Pinned  bool `json:"key_pinned,omitempty"`
	Expired bool `json:"key_expired,omitempty"`
	// EvidenceKept is set if an earlier push stored the evidence.
	EvidenceKept bool `json:"evidence_kept,omitempty"`
}

// PackageResult is one package of a pushed release.
type PackageResult struct {
	Platform provider.Platform `json:"platform"`
	Filename string            `json:"filename"`
	Digest   string            `json:"digest"`
	Size     int64             `json:"size"`
	H1       provider.Hash     `json:"h1"`
	Sent     bool              `json:"sent"` // its bytes were sent (StageDone)
	// Omitted is set if the package was left out, according to [Options.Omits].
	Omitted bool `json:"omitted,omitempty"`
	// H1Recorded is set if a forced push wrote a new H1 to the index.
	H1Recorded bool `json:"h1_recorded,omitempty"`
	// H1Removed is set if a forced push removed an H1, because clients compute different h1: hashes.
	H1Removed bool `json:"h1_removed,omitempty"`
	// Repaired is set if a forced push corrected anything else in the package's index entry.
	Repaired bool `json:"repaired,omitempty"`
}

func (r *Result) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// warnPlatforms warns of each package whose platform no client requests. It also warns of such packages
// that SHA256SUMS lists and the release lacks.
func (r *Result) warnPlatforms(release *origin.Release, sums *trust.Checksums) {
	pushed := map[string]bool{}
	for _, pkg := range release.Packages {
		if pushed[pkg.Filename] = true; !pkg.Platform.IsOfClients() {
			r.warn("no client requests %s, the platform of %s: %s", pkg.Platform, pkg.Filename, platformNames)
		}
	}
	for _, name := range sums.Files() {
		if !pushed[name] && isOfNoClient(name, release.Provider(), r.Version) {
			r.warn("SHA256SUMS lists %.255s, which is not pushed: no client requests it. %s", name, platformNames)
		}
	}
}

// isOfNoClient reports whether a file is named like a package of the version for a platform that no client can
// request. The name can have any spelling.
func isOfNoClient(name string, a provider.Address, v provider.Version) bool {
	if p, ok := provider.NamedPlatform(name, a, v); ok {
		return !p.IsOfClients()
	}
	// The text in place of a platform can have other parts, as in linux_amd64_v2.
	for i, c := range name {
		if c == '_' && strings.HasSuffix(name, ".zip") && provider.SpellsFile(name[:i+1], a, v, "") {
			p, err := provider.ParsePlatform(strings.TrimSuffix(name[i+1:], ".zip"))
			return err != nil || !p.IsOfClients()
		}
	}
	return false
}

const platformNames = "clients use Go's names for platforms, such as linux_amd64, linux_arm, darwin_amd64 and darwin_arm64"

// warnSigner warns if the key or the signature of a release is not valid at the moment. If byPublisher is
// set, it also warns if older clients cannot read the key or the signature.
func (r *Result) warnSigner(signer trust.Signer, byPublisher bool) {
	if why := signer.WhyExpired(); why != "" {
		r.warn("%s", why)
	}
	if byPublisher && signer.Unread != "" {
		r.warn("%s; if your consumers have such clients, sign with an RSA key and SHA-256", signer.Unread)
	}
}

// noProgram maps platforms to the reasons why no client can run their packages. Packages are read concurrently.
type noProgram struct {
	mu  sync.Mutex
	why map[provider.Platform]error
}

// note adds a package that was read.
func (n *noProgram) note(p trust.Package) {
	if p.Program() == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.why == nil {
		n.why = map[provider.Platform]error{}
	}
	n.why[p.Platform()] = p.Program()
}

// warnPrograms warns of each package that no client can run.
func (r *Result) warnPrograms(n *noProgram) {
	n.mu.Lock()
	defer n.mu.Unlock()
	platforms := slices.Collect(maps.Keys(n.why))
	provider.SortPlatforms(platforms)
	for _, p := range platforms {
		r.warn("the package for %s unpacks, but %v; ask its publisher for a new release", p, n.why[p])
	}
}

// result describes a successful push.
func (w *push) result(ctx context.Context, after *artifact.Version, status Status) *Result {
	a := w.release.Provider()
	r := &Result{
		Subject: a, Version: w.release.Version(),
		Repository: w.Dest.Repository, Tag: w.tag, Digest: after.Index.Digest.String(), Status: status, Lost: w.release.Lost, ApprovedBy: w.approvedBy,
		Warnings: append(slices.Clone(w.release.Warnings), w.warnings...),
	}
	w.reportDocs(r, after)
	r.warnPlatforms(w.release, w.sums)
	w.reportEvidence(ctx, r, after)
	r.warnSigner(w.sums.Signer(), w.release.ByPublisher)
	r.warnPrograms(&w.noProgram)
	for _, pkg := range w.release.Packages {
		p := repo.Find(after.Packages, pkg.Platform)
		if !provider.SpellsPackage(p.Filename, a, r.Version, p.Platform) && r.Verdict != artifact.SignedOtherName {
			r.warn("the package for %s is published as %s, not as %s: nothing says that it is for this version and platform", p.Platform, p.Filename, provider.PackageFilename(a, r.Version, p.Platform))
		}
		r.Packages = append(r.Packages, w.packageResult(p))
	}
	return r
}

func (w *push) packageResult(p *artifact.Package) PackageResult {
	r := PackageResult{
		Platform: p.Platform, Filename: p.Filename, Digest: p.Digest.String(), Size: p.Size, H1: p.H1, Sent: w.uploaded[p.Platform],
		Omitted: w.original != nil && slices.Contains(w.original.omitted, p.Platform),
	}
	if was := w.present(p.Platform); was != nil && w.o.Force {
		rehashed := changesH1(*was, *p)
		r.H1Recorded, r.H1Removed = rehashed && !p.H1.IsZero(), rehashed && p.H1.IsZero()
		r.Repaired = repairsEntry(*was, *p)
	}
	return r
}

// statusOf returns the status of a push that changed the version from before to after. before is nil if the
// version did not exist. If only index entries changed, the status is Unchanged unless the push is forced.
func statusOf(before, after *artifact.Version, force bool) Status {
	switch {
	case before == nil:
		return Pushed
	case slices.ContainsFunc(before.Packages, func(p artifact.Package) bool { return !repo.HasPackage(after.Packages, p) }):
		return Replaced
	case len(after.Packages) > len(before.Packages), before.Evidence == nil && after.Evidence != nil, before.Docs == nil && after.Docs != nil:
		return Completed
	case !sameDigest(before.Evidence, after.Evidence), !sameDigest(before.Docs, after.Docs):
		return Refreshed
	case force && (correctsEvidenceEntry(before.Evidence, after.Evidence) || anyChanged(before, after, repairsEntry)):
		return Repaired
	case force && anyChanged(before, after, changesH1):
		return Rehashed
	}
	return Unchanged // a forced push might have stored deleted parts again
}

// samePackages reports whether two lists have the same packages. Neither list has two
// packages for one platform.
func samePackages(a, b []artifact.Package) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p artifact.Package) bool { return !repo.HasPackage(b, p) })
}

// sameDigest reports whether two descriptors have the same digest, or both are nil.
func sameDigest(a, b *ocispec.Descriptor) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Digest == b.Digest
}

// sameContent reports whether two versions have the same packages, evidence and documentation.
func sameContent(a, b *artifact.Version) bool {
	return sameDigest(a.Evidence, b.Evidence) && sameDigest(a.Docs, b.Docs) && samePackages(a.Packages, b.Packages)
}

// anyChanged reports whether changed returns true for a platform that both versions have.
func anyChanged(before, after *artifact.Version, changed func(before, after artifact.Package) bool) bool {
	return slices.ContainsFunc(after.Packages, func(p artifact.Package) bool {
		q := repo.Find(before.Packages, p.Platform)
		return q != nil && changed(*q, p)
	})
}

// changesH1 reports whether two index entries of the same package have different h1: hashes.
func changesH1(before, after artifact.Package) bool {
	return before.Digest == after.Digest && before.H1 != after.H1
}

// repairsEntry reports whether two index entries of the same package differ in more than the h1: hash. If the
// hashes differ, different manifest digests do not count, because the manifest contains the hash.
func repairsEntry(before, after artifact.Package) bool {
	sameManifest := before.Manifest.Digest == after.Manifest.Digest
	return before.Digest == after.Digest && (before.Size != after.Size || before.Filename != after.Filename || before.UnusedAnnotations != after.UnusedAnnotations ||
		sameManifest && before.Manifest.Size != after.Manifest.Size || !sameManifest && before.H1 == after.H1)
}

// correctsEvidenceEntry reports whether two index entries of the same evidence differ.
func correctsEvidenceEntry(before, after *ocispec.Descriptor) bool {
	return before != nil && after != nil && before.Digest == after.Digest &&
		(before.Size != after.Size || !maps.Equal(before.Annotations, after.Annotations))
}
