package approval

import (
	"cmp"
	"slices"

	"github.com/opencontainers/go-digest"
)

// Signer says who made a signature. In an [Approval], it is proven. From [Signers], it is only a hint.
type Signer struct {
	// Key is the fingerprint of the signer's public key: see [PublicKey.Fingerprint]. It is "" if the signer has a certificate,
	// and in a hint also if the signature does not name the key.
	Key string `json:"key,omitempty"`
	// Issuer and Identity are from the signer's certificate.
	Issuer   string `json:"issuer,omitempty"`
	Identity string `json:"identity,omitempty"`
	// Predicate is the predicate type of an attestation. It is "" for a signature by cosign.
	Predicate string `json:"predicate,omitempty"`
}

// String returns the identity or the fingerprint, for people.
func (s Signer) String() string { return cmp.Or(s.Identity, s.Key, "a key without a name") }

// Signers returns what the signatures say about their signers, without duplicates and in the order of the signatures. Nothing
// of it is verified. It leaves out signatures that are not over the given digest, and signatures that no requirement can accept.
func Signers(signed digest.Digest, sigs []Signature) (out []Signer) {
	for _, s := range sigs[:min(len(sigs), MaxSignatures)] {
		c, err := parse(s)
		if err != nil || !c.isOver(signed) {
			continue
		}
		if signer := c.signer(); !slices.Contains(out, signer) {
			out = append(out, signer)
		}
	}
	return out
}

// IsCosign reports whether the signature is over the given digest, and is cosign's signature rather than an attestation, such as
// provenance. It is not verified.
func (s Signature) IsCosign(signed digest.Digest) bool {
	by := Signers(signed, []Signature{s})
	return len(by) == 1 && by[0].Predicate == ""
}

// Expect guesses the verdict from the hints of [Signers]. The guess is good enough for the order in which versions are checked, and
// for lists. It must not decide whether a version is served.
func (p *Policy) Expect(signers []Signer) (out Verdict) {
	for _, r := range p.Requirements() {
		if i := slices.IndexFunc(signers, r.expects); i >= 0 {
			out.Approvals = append(out.Approvals, Approval{Requirement: r.Name, Signer: signers[i]})
		} else {
			out.Missing = append(out.Missing, Missing{Requirement: r.Name, Reason: NoSignature, ReportOnly: r.ReportOnly})
		}
	}
	return out
}

// expects reports whether a signature with the given hint probably meets the requirement.
func (r Requirement) expects(s Signer) bool {
	switch {
	case s.Predicate != r.predicate():
		return false
	case r.Key != nil:
		return s.Identity == "" && (s.Key == "" || s.Key == r.Key.Fingerprint())
	}
	return s.Identity != "" && s.Issuer == r.Issuer && matches(r.Identity, s.Identity)
}
