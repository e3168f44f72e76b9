package doctor

import (
	"errors"
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/approval"
)

// Approvals diagnoses the require blocks and the sign block.
type Approvals struct {
	Rules approval.Rules
	// SignKey reads the key of the sign block. It is nil without a sign block.
	SignKey func() (*approval.PublicKey, error)
	// Now returns the time. nil means [time.Now].
	Now func() time.Time
}

// Examine diagnoses the keys and the trusted roots of the requirements, and whether the key of the sign block meets any of
// them. It returns nil if there is nothing to examine.
func (x Approvals) Examine() *Report {
	if len(x.Rules) == 0 && x.SignKey == nil {
		return nil
	}
	if x.Now == nil {
		x.Now = time.Now
	}
	r := &Report{Subject: "approvals"}
	for _, rule := range x.Rules {
		for _, q := range rule.Policy.Requirements() {
			x.requirement(r, fmt.Sprintf("%s: %q", rule.Pattern, q.Name), q)
		}
	}
	if x.SignKey != nil {
		x.signKey(r)
	}
	return r
}

func (x Approvals) requirement(r *Report, of string, q approval.Requirement) {
	mode := ""
	if q.ReportOnly {
		mode = ", only reported"
	}
	const name = "require"
	switch now := x.Now(); {
	case q.Key != nil:
		r.ok(name, "%s is a signature by the key %s%s", of, q.Key.Fingerprint(), mode)
	case !q.Root.CanIssue(now):
		r.fail(name, fmt.Errorf("%s: no authority of the trusted root may issue certificates at this machine's time, %s", of, now.UTC().Format(time.RFC3339)),
			"set the clock if it is wrong; otherwise, the trusted root is outdated: write a new trusted_root.json, as cosign trusted-root create does")
	default:
		r.ok(name, "%s is a signature by %s of %s%s", of, q.Identity, q.Issuer, mode)
	}
}

func (x Approvals) signKey(r *Report) {
	const name = "sign"
	key, err := x.SignKey()
	if err != nil {
		r.fail(name, err, "name a private key that the user who runs this may read, as key in the sign block")
		return
	}
	signer := []approval.Signer{{Key: key.Fingerprint()}}
	for _, rule := range x.Rules {
		if len(rule.Policy.Expect(signer).Approvals) > 0 {
			r.ok(name, "the key %s meets a require block", key.Fingerprint())
			return
		}
	}
	if len(x.Rules) == 0 {
		r.ok(name, "the key %s can be read", key.Fingerprint())
		return
	}
	r.fail(name, errors.New("the key "+key.Fingerprint()+" meets no require block: gateways with this configuration do not accept its signatures"),
		"put its public key into a require block, or name the right key in the sign block")
}
