package inventory

import (
	"fmt"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Report shows the versions of a selection. In JSON, the member with the stored providers or
// modules has the name of the kind.
type Report[A Address] struct {
	Stored   []*StoredReport[A] `json:"-"`
	Noun     subject.Kind       `json:"-"` // the word for the kind
	Unlisted []Unlisted         `json:"unlisted,omitempty"`

	failed, help string // the text after the number of failures in the error of [Report.Failed], and its hint
}

// MarshalJSON implements [json.Marshaler].
func (r Report[A]) MarshalJSON() ([]byte, error) {
	type others Report[A]
	return document.Join(map[string]any{r.Noun.Traits().Plural: r.Stored}, others(r))
}

// StoredReport is the part of a [Report] that is about one provider or module.
type StoredReport[A Address] struct {
	Address    A                  `json:"-"`                   // in JSON, under the name of its kind
	Repository ociaddr.Repository `json:"repository,omitzero"` // zero if no template selects the address
	Problem    *Problem           `json:"error,omitempty"`     // why its tags could not be listed
	// Findings are about tags that are not version tags. Only Verify sets them, for providers.
	Findings []artifact.Finding `json:"findings,omitzero"`
	Versions []*VersionReport   `json:"versions"` // newest first
}

// MarshalJSON implements [json.Marshaler].
func (r StoredReport[A]) MarshalJSON() ([]byte, error) {
	type others StoredReport[A]
	return document.Join(subject.Member(r.Address), others(r))
}

// String names the provider or module, and its repository.
func (r *StoredReport[A]) String() string {
	if r.Repository == (ociaddr.Repository{}) {
		return r.Address.String()
	}
	return fmt.Sprintf("%s in %s", r.Address, r.Repository)
}

// VersionReport is the part of a [Report] that is about one version.
type VersionReport struct {
	Version   provider.Version    `json:"version"`
	Tag       ociaddr.Tag         `json:"tag,omitempty"`       // Verify does not set it for a provider
	Digest    string              `json:"digest,omitempty"`    // the digest of the index, or of a module's manifest
	Platforms []provider.Platform `json:"platforms,omitempty"` // of a provider
	Zip       string              `json:"zip,omitempty"`       // the digest of a module's zip
	Size      int64               `json:"size,omitempty"`      // the total size of the packages in bytes, which only List sets, or the size of the zip
	H1        provider.Hash       `json:"h1,omitzero"`         // of a module, as the manifest gives it
	Revision  string              `json:"revision,omitempty"`  // of a module
	Source    artifact.Provenance `json:"source,omitzero"`     // of a module that was fetched from its origin
	// Signature is the recorded one in a report of List, and the verified one in a report of Verify.
	Signature *Signature `json:"signature,omitempty"`
	// Pinned points to true if a trust block pins the signing key. List leaves it nil.
	Pinned *bool `json:"pinned,omitempty"`
	// Declared points to true if a module's manifest names the module and the version. It is nil for a provider.
	Declared *bool              `json:"declared,omitempty"`
	Files    int                `json:"files,omitempty"`   // the number of files in a module; only set by Verify
	Findings []artifact.Finding `json:"findings,omitzero"` // List leaves it nil
	Problem  *Problem           `json:"error,omitempty"`   // why the version could not be read
	Denied   *Denial            `json:"denied,omitempty"`  // nil if the gateway's configuration does not deny the version
	// Deprecated is nil if the gateway's configuration does not deprecate the version.
	Deprecated *Denial `json:"deprecated,omitempty"`
	// Approval is nil if the configuration requires no approval of the version, or if the version could not be read.
	Approval *Approval `json:"approval,omitempty"`
	// Refused is set if the signature is invalid, or if the policy does not accept it.
	Refused bool `json:"-"`

	found *artifact.Version // what the tag names; nil if it could not be read
}

// Err returns the first error of the report, or nil if there is none.
func (v *VersionReport) Err() error {
	if v.Problem != nil {
		return hint.New(v.Problem.Message, "%s", v.Problem.Hint)
	}
	for _, f := range v.Findings {
		if f.Severity == artifact.SeverityError {
			return hint.New(f.Where+": "+f.What, "%s", f.Hint)
		}
	}
	return nil
}

func (v *VersionReport) report(s artifact.Severity, where, what, help string) {
	v.Findings = append(v.Findings, artifact.Finding{Severity: s, Where: where, What: what, Hint: help})
}

// Denial says why the gateway's configuration denies or deprecates a version.
type Denial struct {
	Reason string `json:"reason,omitempty"`
}

// Failed returns an error if a provider, a module or a version could not be read, or if a
// finding is an error.
func (r *Report[A]) Failed() error {
	bad, all := 0, 0
	fails := func(findings []artifact.Finding, problem *Problem) bool {
		n, _ := Count(findings)
		return n > 0 || problem != nil
	}
	for _, s := range r.Stored {
		if fails(s.Findings, s.Problem) {
			bad, all = bad+1, all+1
		}
		for _, v := range s.Versions {
			p := v.Problem
			if p == nil && v.Approval != nil {
				p = v.Approval.Problem
			}
			if all++; fails(v.Findings, p) {
				bad++
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return hint.New(fmt.Sprintf("%d of %d %s", bad, all, r.failed), "%s", r.help)
}

// Count returns the number of errors and warnings among findings.
func Count(findings []artifact.Finding) (errs, warnings int) {
	for _, f := range findings {
		if f.Severity == artifact.SeverityError {
			errs++
		} else {
			warnings++
		}
	}
	return errs, warnings
}

// Problem is an error in JSON output.
type Problem struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// problem converts err to a Problem. It returns nil if err is nil.
func problem(err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{hint.OneLine(err.Error()), hint.OneLine(hint.Of(err))}
}

// String returns the message and the hint on one line.
func (p *Problem) String() string {
	if p.Hint == "" {
		return p.Message
	}
	return p.Message + " (" + p.Hint + ")"
}

// Signature says who signed a version.
type Signature struct {
	Verdict     trust.Verdict `json:"verdict"` // also artifact.NoEvidence or artifact.SignedOtherName
	Fingerprint string        `json:"fingerprint,omitempty"`
}

// Text describes the signature in words. If short is set, the text has only the last 16 digits of the fingerprint.
func (s Signature) Text(short bool) string {
	by := s.Fingerprint
	if short && len(by) > 16 {
		by = by[len(by)-16:]
	}
	if by == "" {
		return string(s.Verdict)
	}
	return fmt.Sprintf("%s by %s", s.Verdict, by)
}
