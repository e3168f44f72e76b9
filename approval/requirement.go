package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Requirement is one require block. It has either a key, or an issuer, an identity and a trusted root.
type Requirement struct {
	// Name is the name of the block. People and clients see it.
	Name string
	// Key is the public key of the signer.
	Key *PublicKey
	// Issuer is the issuer of the signer's OpenID Connect token, as the signer's certificate names it. Identity is the signer's
	// name in the certificate: an email address or a URI. A * in Identity matches any number of characters other than /.
	Issuer, Identity string
	// Root has the authorities that may issue the certificate and prove the time of the signature.
	Root *TrustedRoot
	// Predicate is the predicate type of the attestation that is required. If it is "", a signature by cosign is required.
	Predicate string
	// ReportOnly means that a version without such a signature is approved all the same, and only reported.
	ReportOnly bool
}

// Validate returns an error if the requirement is incomplete or contradictory.
func (r Requirement) Validate() error {
	switch {
	case r.Name == "":
		return errors.New("a requirement has no name")
	case r.Key != nil && (r.Issuer != "" || r.Identity != "" || r.Root != nil):
		return errors.New("a requirement has a public key, or an issuer, an identity and a trusted root, but not both")
	case r.Key != nil:
		return nil
	case r.Issuer == "" && r.Identity == "" && r.Root == nil:
		return errors.New("a requirement has neither a public key nor an issuer, an identity and a trusted root")
	case r.Issuer == "":
		return errors.New("a requirement with an identity has no issuer")
	case r.Identity == "":
		return errors.New("a requirement with an issuer has no identity")
	case !utf8.ValidString(r.Identity):
		return errors.New("the identity of a requirement is not valid UTF-8")
	case r.Root == nil:
		return errors.New("a requirement with an identity has no trusted root")
	}
	return nil
}

// Policy is a list of requirements, which all must be met. A nil *Policy has no requirements.
type Policy struct {
	requirements []Requirement
	id           string
}

// NewPolicy returns the policy with the given requirements, or nil if there are none. It returns the error of
// [Requirement.Validate], and an error if two requirements have the same name.
func NewPolicy(requirements ...Requirement) (*Policy, error) {
	if len(requirements) == 0 {
		return nil, nil
	}
	names := map[string]bool{}
	for _, r := range requirements {
		if err := r.Validate(); err != nil {
			return nil, err
		}
		if names[r.Name] {
			return nil, fmt.Errorf("two requirements have the name %q", r.Name)
		}
		names[r.Name] = true
	}
	return &Policy{requirements, policyID(requirements)}, nil
}

// IsZero reports whether the policy has no requirements.
func (p *Policy) IsZero() bool { return p == nil }

// Requirements returns the requirements. The caller must not change them.
func (p *Policy) Requirements() []Requirement {
	if p == nil {
		return nil
	}
	return p.requirements
}

// Enforces reports whether at least one requirement decides whether a version is approved.
func (p *Policy) Enforces() bool {
	for _, r := range p.Requirements() {
		if !r.ReportOnly {
			return true
		}
	}
	return false
}

// ID returns a text that is equal for policies with equal requirements, also in different processes. It is "" for a policy
// without requirements. Otherwise it has 64 characters, which are valid in names of files.
func (p *Policy) ID() string {
	if p == nil {
		return ""
	}
	return p.id
}

// policyID is the SHA-256 of the requirements. The version changes if the meaning of a requirement or of a verdict changes, so
// that verdicts on disk are not used any more.
func policyID(requirements []Requirement) string {
	type identity struct {
		Name, Key, Issuer, Identity, Root, Predicate string
		ReportOnly                                   bool
	}
	all := struct {
		Version      int
		Requirements []identity
	}{Version: 1}
	for _, r := range requirements {
		i := identity{Name: r.Name, Issuer: r.Issuer, Identity: r.Identity, Predicate: r.Predicate, ReportOnly: r.ReportOnly}
		if r.Key != nil {
			i.Key = r.Key.Fingerprint()
		}
		if r.Root != nil {
			i.Root = r.Root.digest.String()
		}
		all.Requirements = append(all.Requirements, i)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic("approval: " + err.Error()) // strings and booleans can always be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
