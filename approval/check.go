package approval

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// checkBudget is the maximum time for all signatures of one digest. A check of 64 signatures takes about 20 ms.
const checkBudget = 5 * time.Second

// ErrTooSlow means that the signatures of one digest could not be checked in time. Nothing was decided.
var ErrTooSlow = errors.New("the signatures could not be checked in time")

// Check returns the verdict for a manifest with the given digest, which must be a SHA-256. The signatures are in no particular
// order. Invalid signatures beside a valid one do no harm.
//
// Check waits for one of the process's slots for verifying signatures. If ctx ends first, or the check takes too long, nothing
// is decided, and the error wraps the error of ctx or [ErrTooSlow]. There are no other errors.
func (p *Policy) Check(ctx context.Context, signed digest.Digest, sigs []Signature) (Verdict, error) {
	return p.checkWithin(ctx, signed, sigs, checkBudget)
}

// checkWithin is [Policy.Check] with a budget.
func (p *Policy) checkWithin(ctx context.Context, signed digest.Digest, sigs []Signature, budget time.Duration) (Verdict, error) {
	var out Verdict
	if p.IsZero() {
		return out, nil
	}
	release, err := acquireSlot(ctx)
	if err != nil {
		return out, err
	}
	defer release()
	c := &checker{signed: signed, deadline: time.Now().Add(budget)}
	out.Ignored = max(0, len(sigs)-MaxSignatures)
	if err := c.parse(ctx, sigs[:len(sigs)-out.Ignored]); err != nil {
		return Verdict{}, err
	}
	for _, r := range p.Requirements() {
		approval, missing, err := c.check(ctx, r)
		switch {
		case err != nil:
			return Verdict{}, err
		case missing != nil:
			out.Missing = append(out.Missing, *missing)
		default:
			out.Approvals = append(out.Approvals, *approval)
		}
	}
	return out, nil
}

// slots limits the number of digests that the process checks concurrently, so that half of the processors remain for other work.
var slots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// acquireSlot waits for a slot. It fails if ctx ends first. The caller must call release.
func acquireSlot(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checker checks the signatures of one digest, in one call of Check.
type checker struct {
	signed     digest.Digest
	deadline   time.Time
	candidates []*candidate
	unreadable error // of the first signature that cannot be decoded
}

// spent returns an error if ctx has ended or the budget is used up.
func (c *checker) spent(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if time.Now().After(c.deadline) {
		return ErrTooSlow
	}
	return nil
}

// parse decodes the signatures.
func (c *checker) parse(ctx context.Context, sigs []Signature) error {
	for _, s := range sigs {
		if err := c.spent(ctx); err != nil {
			return err
		}
		switch parsed, err := parse(s); {
		case err == nil:
			c.candidates = append(c.candidates, parsed)
		case c.unreadable == nil:
			c.unreadable = err
		}
	}
	return nil
}

// check looks for a signature that meets a requirement. It returns an approval or the missing requirement.
func (c *checker) check(ctx context.Context, r Requirement) (*Approval, *Missing, error) {
	nearest := &refusal{reason: NoSignature}
	if c.unreadable != nil {
		nearest = &refusal{reason: c.unreadable.Error()}
	}
	for _, s := range c.candidates {
		if err := c.spent(ctx); err != nil {
			return nil, nil, err
		}
		approval, refused := r.verify(s, c.signed)
		if refused == nil {
			return approval, nil, nil
		}
		if refused.step > nearest.step {
			nearest = refused
		}
	}
	return nil, &Missing{Requirement: r.Name, Reason: hint.OneLine(nearest.reason), ReportOnly: r.ReportOnly}, nil
}

// step is the step of a verification that a signature fails. Of two signatures, the one that fails later is nearer to
// meeting the requirement.
type step int

const (
	_ step = iota
	wrongPredicate
	wrongDigest
	wrongKind
	wrongSigner
	wrongAuthority
	wrongProof
	invalid
)

// refusal says why a signature does not meet a requirement.
type refusal struct {
	step   step
	reason string
}

func refuse(at step, format string, args ...any) *refusal {
	return &refusal{at, fmt.Sprintf(format, args...)}
}

// predicate returns the predicate type of a requirement, or "" if it requires a signature by cosign.
func (r Requirement) predicate() string { return normal(r.Predicate) }

// verify decides whether a signature meets the requirement. The first steps compare what the signature claims, which is cheap, and
// explain most refusals. Only the last step proves the claims.
func (r Requirement) verify(c *candidate, signed digest.Digest) (*Approval, *refusal) {
	if c.predicate != r.predicate() {
		return nil, refuse(wrongPredicate, "its signature is %s, not %s", describe(c.predicate), describe(r.predicate()))
	}
	if !c.isOver(signed) {
		return nil, refuse(wrongDigest, "its signature is over another digest, %.80q", first(c.digests))
	}
	if r.Key != nil {
		return r.verifyKey(c, signed)
	}
	return r.verifyIdentity(c, signed)
}

// verifyKey decides whether the requirement's key made the signature. The time of the signature does not matter, so its proofs
// are not even decoded.
func (r Requirement) verifyKey(c *candidate, signed digest.Digest) (*Approval, *refusal) {
	if c.leaf != nil {
		return nil, refuse(wrongKind, "it is signed with a certificate of %.200q, not with the key", c.summary.SubjectAlternativeName)
	}
	material := &protobundle.VerificationMaterial{Content: c.bundle.GetVerificationMaterial().GetContent()}
	for _, trusted := range r.Key.materials {
		_, err := c.prove(material, trusted, signed, verify.WithKey(), verify.WithNoObserverTimestamps())
		if err == nil {
			return r.approval(c, Signer{Key: r.Key.Fingerprint(), Predicate: c.predicate}, time.Time{}), nil
		}
	}
	if key := fingerprintOf(c.keyHint); key != "" && key != r.Key.Fingerprint() {
		return nil, refuse(wrongSigner, "it is signed with another key, %s", key)
	}
	return nil, refuse(wrongSigner, "it is not signed with the key %s", r.Key.Fingerprint())
}

// verifyIdentity decides whether the requirement's identity made the signature.
func (r Requirement) verifyIdentity(c *candidate, signed digest.Digest) (*Approval, *refusal) {
	if c.leaf == nil {
		return nil, refuse(wrongKind, "it is signed with a key, not with a certificate")
	}
	if c.summary.Issuer != r.Issuer {
		return nil, refuse(wrongSigner, "its signer is %.200q of the issuer %.200q, not of %.200q", c.summary.SubjectAlternativeName, c.summary.Issuer, r.Issuer)
	}
	if !matches(r.Identity, c.summary.SubjectAlternativeName) {
		return nil, refuse(wrongSigner, "its signer is %.200q", c.summary.SubjectAlternativeName)
	}
	trusted := r.Root.root
	// This step keeps whoever has no certificate of the authority away from the decoders of log entries and timestamps.
	if _, err := verify.VerifyLeafCertificate(c.leaf.NotBefore, c.leaf, trusted); err != nil {
		return nil, refuse(wrongAuthority, "no authority of the trusted root issued its certificate")
	}
	material := c.provable(trusted)
	if refused := r.Root.lacks(c, material); refused != nil {
		return nil, refused
	}
	identity, err := verify.NewShortCertificateIdentity(r.Issuer, "", "", identityPattern(r.Identity))
	if err != nil {
		return nil, refuse(invalid, "%v", err)
	}
	result, err := c.prove(material, trusted, signed, verify.WithCertificateIdentity(identity), r.Root.options...)
	if err != nil {
		return nil, refuse(invalid, "its signature is not valid: %s", hint.Brief(err))
	}
	signer := Signer{Issuer: c.summary.Issuer, Identity: c.summary.SubjectAlternativeName, Predicate: c.predicate}
	return r.approval(c, signer, earliest(result.VerifiedTimestamps)), nil
}

// provable returns the certificate, and the log entries and timestamps that authorities of the root could have made. It leaves out
// intermediate certificates, because the root has them.
func (c *candidate) provable(trusted *root.TrustedRoot) *protobundle.VerificationMaterial {
	out := &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: c.leaf.Raw}}}
	logs := trusted.RekorLogs()
	for _, e := range c.bundle.GetVerificationMaterial().GetTlogEntries() {
		if logs[hex.EncodeToString(e.GetLogId().GetKeyId())] != nil {
			out.TlogEntries = append(out.TlogEntries, e)
		}
	}
	if len(trusted.TimestampingAuthorities()) > 0 {
		out.TimestampVerificationData = c.bundle.GetVerificationMaterial().GetTimestampVerificationData()
	}
	return out
}

// lacks returns the refusal of a signature without the proofs that the root demands.
func (t *TrustedRoot) lacks(c *candidate, material *protobundle.VerificationMaterial) *refusal {
	now := time.Now()
	switch {
	case len(t.root.RekorLogs()) > 0 && len(material.GetTlogEntries()) == 0,
		len(t.root.RekorLogs()) == 0 && t.proof != "" && len(material.GetTimestampVerificationData().GetRfc3161Timestamps()) == 0:
		return refuse(wrongProof, "it lacks %s", t.proof)
	case t.proof == "" && (now.After(c.leaf.NotAfter) || now.Before(c.leaf.NotBefore)):
		return refuse(wrongProof, "its certificate is valid only from %s to %s, and the trusted root has no authority that proves an earlier time",
			c.leaf.NotBefore.UTC().Format(time.RFC3339), c.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// entity is a bundle for sigstore-go. It hides the bundle's version: for older versions, sigstore-go tries other hashes for some
// certificates, and writes to standard error.
type entity struct{ *bundle.Bundle }

// Version implements verify.VersionProvider.
func (entity) Version() (string, error) { return "", nil }

// prove verifies a signature with sigstore-go. Only signatures that prove returns no error for are valid.
func (c *candidate) prove(material *protobundle.VerificationMaterial, trusted root.TrustedMaterial, signed digest.Digest, who verify.PolicyOption,
	proofs ...verify.VerifierOption) (result *verify.VerificationResult, err error) {
	defer recovered(&err)
	parsed, err := bundle.NewBundle(&protobundle.Bundle{MediaType: c.bundle.GetMediaType(), VerificationMaterial: material, Content: c.bundle.GetContent()})
	if err != nil {
		return nil, err
	}
	verifier, err := verify.NewVerifier(trusted, proofs...)
	if err != nil {
		return nil, err
	}
	what, err := c.artifact(signed)
	if err != nil {
		return nil, err
	}
	if result, err = verifier.Verify(entity{parsed}, verify.NewPolicy(what, who)); err != nil {
		return nil, err
	}
	// sigstore-go does not check the predicate type.
	if statement := result.Statement; statement != nil && normal(statement.GetPredicateType()) != c.predicate {
		return nil, errors.New("another predicate type")
	}
	return result, nil
}

// artifact returns what the signature must be over: the digest, or the payload of simple signing, which names the digest.
func (c *candidate) artifact(signed digest.Digest) (verify.ArtifactPolicyOption, error) {
	if c.payload != nil {
		return verify.WithArtifact(bytes.NewReader(c.payload)), nil
	}
	sum, err := hex.DecodeString(signed.Encoded())
	if err != nil || signed.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("the digest %.80q is no SHA-256", signed)
	}
	return verify.WithArtifactDigest(string(digest.SHA256), sum), nil
}

// approval returns the approval by a valid signature.
func (r Requirement) approval(c *candidate, s Signer, at time.Time) *Approval {
	return &Approval{Requirement: r.Name, Signer: s, Manifest: c.manifest, Time: at}
}

// earliest returns the earliest time that an authority states, or the zero time.
func earliest(all []verify.TimestampVerificationResult) (out time.Time) {
	for _, t := range all {
		if t.Type != "CurrentTime" && (out.IsZero() || t.Timestamp.Before(out)) {
			out = t.Timestamp.UTC()
		}
	}
	return out
}

// describe returns a predicate type in words.
func describe(predicate string) string { return cmp.Or(predicate, "a signature by cosign") }

// first returns the first digest, or "".
func first(all []digest.Digest) digest.Digest {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}
