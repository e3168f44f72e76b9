package inventory

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Approval says whether a version has the approvals that the configuration requires.
type Approval struct {
	// Approved is set if every enforced requirement is met.
	Approved bool `json:"approved"`
	approval.Verdict
	Problem *Problem `json:"error,omitempty"` // why nothing could be decided
}

// Waits reports whether the version lacks an approval, also one that is not enforced.
func (a *Approval) Waits() bool { return a != nil && a.Problem == nil && len(a.Missing) > 0 }

// Text describes the approval in words.
func (a *Approval) Text() string {
	if a.Problem != nil {
		return "unknown: " + a.Problem.Message
	}
	if !a.Waits() {
		return "approved"
	}
	var names []string
	for _, m := range a.Missing {
		names = append(names, fmt.Sprintf("%q", m.Requirement))
	}
	return "waits for " + strings.Join(names, ", ")
}

// approve adds to a report whether the version is approved. It does nothing if the configuration requires no approval of the
// version, or if the version could not be read.
func (s *Stored[A]) approve(ctx context.Context, r *VersionReport) {
	policy := s.inventory.policy(s.Address)
	if policy.IsZero() || r.found == nil || r.Problem != nil {
		return
	}
	verdict, err := artifact.CheckApprovals(ctx, s.store, policy, r.found, s.Address, r.Version)
	r.Approval = &Approval{Approved: err == nil && verdict.Err() == nil, Verdict: verdict, Problem: problem(s.explain(err))}
}

func (i *Inventory[A]) policy(a A) *approval.Policy {
	if i.Approvals == nil {
		return nil
	}
	return i.Approvals(a)
}

// reportApproval adds a finding about each missing approval. Such a finding is a warning, because a version waits for its approval
// before somebody has reviewed it.
func (s *Stored[A]) reportApproval(r *VersionReport) {
	if r.Approval == nil {
		return
	}
	if p := r.Approval.Problem; p != nil {
		r.report(artifact.SeverityError, "approval", "whether it is approved could not be found out: "+p.Message, p.Hint)
		return
	}
	help := fmt.Sprintf("review it, and approve it with ocibridge approve %s@%s", s.Address, r.Version)
	for _, m := range r.Approval.Missing {
		effect := "the gateway does not serve it"
		if m.ReportOnly {
			effect = "the requirement is not enforced yet"
		}
		r.report(artifact.SeverityWarning, "approval", fmt.Sprintf("it waits for %q, and %s: %s", m.Requirement, effect, m.Reason), cmp.Or(m.Hint, help))
	}
}

// Waiting checks only whether versions are approved. It implements [Checks].
type Waiting[A Address] struct{}

func (Waiting[A]) lint([]ociaddr.Tag) []artifact.Finding { return nil }

func (Waiting[A]) verify(ctx context.Context, s *Stored[A], v provider.Version) *VersionReport {
	return s.inventory.Kind.list(ctx, s, v)
}

// KeepWaiting removes the versions that do not wait for an approval, and returns the number of those that do. It keeps versions
// that could not be read.
func (r *Report[A]) KeepWaiting() (waiting int) {
	for _, s := range r.Stored {
		kept := []*VersionReport{}
		for _, v := range s.Versions {
			if v.Approval.Waits() {
				waiting++
			}
			if v.Approval.Waits() || v.Problem != nil || v.Approval != nil && v.Approval.Problem != nil {
				kept = append(kept, v)
			}
		}
		s.Versions = kept
	}
	return waiting
}

// InspectedSignature is a signature of a version, as inspect finds it.
type InspectedSignature struct {
	// Manifest is the digest of the manifest that holds the signature.
	Manifest digest.Digest `json:"manifest"`
	// Signer is who the signature says has signed. It is proven only if the signature meets a requirement. It is nil if the
	// signature does not say whom it is by, or is not over the version's index or manifest.
	Signer *approval.Signer `json:"signer,omitempty"`
	// Requirements are the requirements of the configuration that the signature meets.
	Requirements []string `json:"requirements,omitempty"`
}

// Text describes the signature in words.
func (s InspectedSignature) Text() string {
	by := "of something else, or in an unknown format"
	if s.Signer != nil {
		by = "by " + s.Signer.String()
		if s.Signer.Predicate != "" {
			by += ", " + s.Signer.Predicate
		}
	}
	if len(s.Requirements) == 0 {
		return by + ", not verified"
	}
	var names []string
	for _, name := range s.Requirements {
		names = append(names, fmt.Sprintf("%q", name))
	}
	return by + ", which meets " + strings.Join(names, ", ")
}

// inspectSignatures lists the signatures of a version.
func (s *Stored[A]) inspectSignatures(ctx context.Context, v *artifact.Version, ver provider.Version) (out []InspectedSignature, err error) {
	sigs, err := artifact.Signatures(ctx, s.store, v.Index, nil)
	if err != nil {
		return nil, err
	}
	policy := s.inventory.policy(s.Address)
	names := artifact.NamesItself(v, s.Address, ver) == nil
	for _, sig := range sigs[:min(len(sigs), approval.MaxSignatures)] {
		one := []approval.Signature{sig}
		inspected := InspectedSignature{Manifest: sig.Manifest}
		if by := approval.Signers(v.Index.Digest, one); len(by) > 0 {
			by[0].Identity, by[0].Issuer, by[0].Predicate = hint.OneLine(by[0].Identity), hint.OneLine(by[0].Issuer), hint.OneLine(by[0].Predicate)
			inspected.Signer = &by[0]
		}
		if names && !policy.IsZero() {
			verdict, err := policy.Check(ctx, v.Index.Digest, one)
			if err != nil {
				return nil, err
			}
			for _, a := range verdict.Approvals {
				inspected.Requirements = append(inspected.Requirements, a.Requirement)
			}
		}
		out = append(out, inspected)
	}
	return out, nil
}
