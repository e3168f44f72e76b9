// Package approval decides whether a stored version has the approvals that an organisation requires.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// A [Requirement] names a signer: a public key, or an identity of an issuer of certificates. A [Policy] is the list of
// requirements for one provider or module. A version is approved if every enforced requirement has at least one valid
// signature over the digest that the version's tag names. Signatures that meet no requirement are ignored.
//
// These signatures count:
//
//   - cosign's signatures in Sigstore bundles: a DSSE envelope whose statement has the predicate type
//     https://sigstore.dev/cosign/sign/v1, or a message signature over the manifest
//   - cosign's older signatures, which are called simple signing
//   - attestations, such as SLSA provenance, if the requirement names their predicate type. Such a requirement accepts no
//     other signatures
//
// The digest in the signature must be the digest of the manifest. A signature over the manifest of one platform, or over
// another version, therefore approves nothing. A signature says nothing about the name and the version of the manifest.
// The caller must check that the manifest itself names both: see artifact.NamesItself.
//
// sigstore-go verifies all signatures. This package contains no cryptography of its own. It does no I/O, and it fetches
// nothing: neither keys nor trusted roots nor entries of transparency logs. A registry can withhold a signature, or bring back a
// removed signature. It cannot make one.
package approval

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// PredicateCosign is the predicate type of cosign's signatures.
const PredicateCosign = "https://sigstore.dev/cosign/sign/v1"

// The limits of signatures.
const (
	// MaxSignatures is the maximum number of signatures of one digest that are checked. Further signatures are ignored,
	// and the verdict says so.
	MaxSignatures = 64
	// MaxBundleBytes is the maximum size of a Sigstore bundle in bytes. A provenance bundle of GitHub has about 12 KiB.
	MaxBundleBytes = 1 << 20
	// MaxPayloadBytes is the maximum size of the payload of simple signing in bytes. cosign's payloads have about 250 bytes.
	MaxPayloadBytes = 64 << 10
)

// Signature is a stored signature of a manifest. It is not verified. It has either a bundle or a payload.
type Signature struct {
	// Manifest is the digest of the manifest that holds the signature.
	Manifest digest.Digest
	// Bundle is a Sigstore bundle in JSON.
	Bundle []byte
	// Payload is the JSON document that simple signing signs. Annotations are the annotations of its layer: the signature,
	// and its certificates.
	Payload     []byte
	Annotations map[string]string
}

// Approval is a valid signature that meets a requirement.
type Approval struct {
	// Requirement is the name of the requirement.
	Requirement string `json:"requirement"`
	Signer      Signer `json:"signer"`
	// Manifest is the digest of the manifest that holds the signature.
	Manifest digest.Digest `json:"manifest"`
	// Time is the time of the signature. It is zero if nobody but the signer states the time.
	Time time.Time `json:"time,omitzero"`
}

// Missing is a requirement without a valid signature.
type Missing struct {
	// Requirement is the name of the requirement.
	Requirement string `json:"requirement"`
	// Reason says why the most similar signature does not meet the requirement. If there are no signatures at all, it is
	// [NoSignature]. It is text for people: it contains no newline, and parts of it come from other parties.
	Reason string `json:"reason"`
	// Hint says what to do, or is "".
	Hint string `json:"hint,omitempty"`
	// ReportOnly means that the requirement does not decide whether the version is approved.
	ReportOnly bool `json:"report_only,omitempty"`
}

// NoSignature is the reason of a requirement if the digest has no signature.
const NoSignature = "it has no signature"

// Verdict is the result of a check of one digest.
type Verdict struct {
	// Approvals has one approval for each requirement that is met, in the order of the requirements.
	Approvals []Approval `json:"approvals,omitempty"`
	// Missing has the other requirements, in the same order.
	Missing []Missing `json:"missing,omitempty"`
	// Ignored is the number of signatures above [MaxSignatures].
	Ignored int `json:"ignored,omitempty"`
}

// Err returns nil if all enforced requirements are met. Otherwise the error wraps a [*NotApproved], and has the hint of the first
// requirement that has one.
func (v Verdict) Err() error {
	var missing []Missing
	for _, m := range v.Missing {
		if !m.ReportOnly {
			missing = append(missing, m)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := &NotApproved{Missing: missing, ignored: v.Ignored > 0}
	if help := err.Hint(); help != "" {
		return hint.Wrap(err, "%s", help)
	}
	return err
}

// Reported returns the requirements that are not met and that are not enforced.
func (v Verdict) Reported() (out []Missing) {
	for _, m := range v.Missing {
		if m.ReportOnly {
			out = append(out, m)
		}
	}
	return out
}

// Unnamed returns the verdict on a manifest that does not name the address and version that are asked for: all requirements are
// missing, for the reason err, because no signature over the manifest approves the version.
func (p *Policy) Unnamed(err error) (out Verdict) {
	for _, r := range p.Requirements() {
		out.Missing = append(out.Missing, Missing{r.Name, hint.OneLine(err.Error()), hint.OneLine(hint.Of(err)), r.ReportOnly})
	}
	return out
}

// ErrNotApproved means that a version does not have the required approvals. [*NotApproved] wraps it.
var ErrNotApproved = errors.New("not approved")

// NotApproved is the error of a version that lacks required approvals.
type NotApproved struct {
	// Missing has the enforced requirements that are not met. It is not empty.
	Missing []Missing
	ignored bool // whether there are signatures that were not checked
}

// Reason is the text for clients, such as: not approved: "platform team", "our release job".
func (e *NotApproved) Reason() string {
	names := make([]string, len(e.Missing))
	for i, m := range e.Missing {
		names[i] = fmt.Sprintf("%q", m.Requirement)
	}
	return ErrNotApproved.Error() + ": " + strings.Join(names, ", ")
}

// Hint returns the hint of the first requirement that has one, or "".
func (e *NotApproved) Hint() (out string) {
	for _, m := range e.Missing {
		out = cmp.Or(out, m.Hint)
	}
	return out
}

// Error returns the reason for clients, and the reason of each requirement.
func (e *NotApproved) Error() string {
	texts := make([]string, len(e.Missing))
	for i, m := range e.Missing {
		texts[i] = fmt.Sprintf("%q: %s", m.Requirement, m.Reason)
	}
	out := ErrNotApproved.Error() + ": " + strings.Join(texts, "; ")
	if e.ignored {
		out += fmt.Sprintf(" (only %d signatures were checked)", MaxSignatures)
	}
	return out
}

// Unwrap returns [ErrNotApproved].
func (e *NotApproved) Unwrap() error { return ErrNotApproved }
