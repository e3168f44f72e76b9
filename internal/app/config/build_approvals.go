package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// openPGP are the arguments of a trust block that concern the OpenPGP signatures of publishers.
var openPGP = []string{"keys", "key_files", "allow_unsigned", "strict_expiry"}

// moduleTrust checks a trust block for modules. The publishers of modules sign nothing with OpenPGP.
func (d *decoder) moduleTrust(b *block) {
	for _, name := range openPGP {
		if b.body.Attributes[name] != nil {
			d.errorf(b.at(name), name, hint.New("the block is for modules, and the publishers of modules sign nothing with OpenPGP keys",
				"leave the argument out, and require your own signature with a require block"))
		}
	}
}

// approvals returns the rules for approvals. Every trust block makes a rule, because only the most specific block applies.
func (d *decoder) approvals(blocks []trustBlock) approval.Rules {
	var out approval.Rules
	names := map[subject.Kind]map[string]string{}
	for i := range blocks {
		t, b := &blocks[i], d.of(&blocks[i])
		if t.Pattern == nil {
			continue // another diagnostic reports the invalid pattern
		}
		kind, spelling := t.Pattern.Kind(), strings.ToLower(t.Pattern.String())
		if names[kind] == nil {
			names[kind] = map[string]string{}
		}
		if before, ok := names[kind][spelling]; ok && before != b.label {
			d.fail(b.header, "Duplicate trust block", fmt.Sprintf("There is a trust block for %s further up, and the case of letters makes no difference: remove one of them.", before))
		}
		names[kind][spelling] = b.label
		d.warnOfDroppedKeys(blocks, t, b)
		d.warnOfDroppedRequirements(blocks, t, b)
		var all []approval.Requirement
		for j := range t.Requires {
			r, ok := d.requirement(&t.Requires[j])
			isDuplicate := slices.ContainsFunc(all, func(other approval.Requirement) bool { return other.Name == r.Name }) // reported already
			if ok && !isDuplicate {
				all = append(all, r)
			}
		}
		policy, err := approval.NewPolicy(all...)
		if err != nil && !d.incomplete {
			d.errorf(b.header, "require", err)
		}
		out = append(out, approval.Rule{Pattern: t.Pattern, Policy: policy})
	}
	if !approvesAny(out) {
		return nil
	}
	return out
}

// approvesAny reports whether any rule has requirements.
func approvesAny(rules approval.Rules) bool {
	for _, r := range rules {
		if !r.Policy.IsZero() {
			return true
		}
	}
	return false
}

// warnOfDroppedKeys warns about a block that has only require blocks, if a less specific block names keys: the keys do
// not apply to the block's providers.
func (d *decoder) warnOfDroppedKeys(blocks []trustBlock, t *trustBlock, b *block) {
	own, ok := t.Pattern.(provider.Pattern)
	if !ok || len(t.Requires) == 0 || t.pins() || b.has("allow_unsigned") {
		return
	}
	for i := range blocks {
		other, ok := blocks[i].Pattern.(provider.Pattern)
		if ok && blocks[i].pins() && other != own && includes(other, own) {
			d.warn(b.header, "Keys that do not apply", fmt.Sprintf("Only the block with the most specific pattern applies, so the keys of the trust block for %s do not count for %s: repeat them here if they should.", other, own))
			return
		}
	}
}

// warnOfDroppedRequirements warns about a block without enforced require blocks, if a less specific block has some: the block's
// providers or modules then need no approval.
func (d *decoder) warnOfDroppedRequirements(blocks []trustBlock, own *trustBlock, b *block) {
	if own.enforces() {
		return
	}
	for i := range blocks {
		other := blocks[i].Pattern
		if other != nil && blocks[i].enforces() && other.Kind() == own.Pattern.Kind() && other.Parts() < own.Pattern.Parts() && includes(other, own.Pattern) {
			d.warn(b.header, "No approval is required", fmt.Sprintf("Only the block with the most specific pattern applies, so the require blocks of the trust block for %s do not count for %s: repeat them here if they should.", other, own.Pattern))
			return
		}
	}
}

// enforces reports whether the block has a require block that is enforced.
func (t *trustBlock) enforces() bool {
	return slices.ContainsFunc(t.Requires, func(r requireBlock) bool { return r.Enforce })
}

// includes reports whether every address that the pattern p matches is also matched by the pattern general.
func includes(general, p subject.Pattern) bool {
	own := p.Values()
	for i, v := range general.Values() {
		if v != subject.Wildcard && !strings.EqualFold(v, own[i]) {
			return false
		}
	}
	return true
}

// requirement returns the requirement of a require block. The bool is false if a diagnostic reports why it is invalid.
func (d *decoder) requirement(r *requireBlock) (approval.Requirement, bool) {
	b := d.of(r)
	out := approval.Requirement{Name: r.Name, Issuer: r.Issuer, Identity: r.Identity, Predicate: r.Predicate, ReportOnly: !r.Enforce}
	keyless := b.has("issuer") || b.has("identity") || b.has("trusted_root")
	before := len(d.diags)
	switch {
	case b.has("public_key") && keyless:
		d.conflict(b.at("public_key"), "public_key is for signatures by a key, and issuer, identity and trusted_root are for signatures by certificates: write two require blocks if both are required.")
	case !b.has("public_key") && !keyless:
		d.conflict(b.header, "The block does not say who must sign: give public_key, or issuer, identity and trusted_root.")
	case keyless && !(b.has("issuer") && b.has("identity") && b.has("trusted_root")):
		d.conflict(b.header, "issuer, identity and trusted_root go together: give all three.")
	}
	if r.PublicKey != "" {
		key, err := approval.ParsePublicKey([]byte(r.PublicKey))
		if err != nil && !strings.Contains(r.PublicKey, "\n") {
			err = hint.New("it is not a public key in PEM", "write file(%q) if that is the name of a file with the key", r.PublicKey)
		}
		if err != nil {
			d.errorf(b.at("public_key"), "public_key", err)
		}
		out.Key = key
	}
	if r.TrustedRoot != "" {
		root, err := d.trustedRoot(r.TrustedRoot)
		if err != nil {
			d.errorf(b.at("trusted_root"), "trusted_root", err)
		}
		out.Root = root
	}
	return out, len(d.diags) == before && !d.incomplete
}

// trustedRoot reads a trusted_root.json file.
func (d *decoder) trustedRoot(path string) (*approval.TrustedRoot, error) {
	const help = "name a trusted_root.json file, such as cosign trusted-root create or the TUF repository of your Sigstore deployment writes"
	text, err := d.env.ReadFile(path)
	switch {
	case err != nil && strings.ContainsAny(path, "{\n"):
		return nil, hint.New("it is the content of a file, and no name", `write trusted_root = "trusted_root.json", without file(...)`)
	case err != nil:
		return nil, hint.New(fmt.Sprintf("the file %s: %v", path, files.Cause(err)), help)
	case len(text) > maxTrustedRoot:
		return nil, hint.New(fmt.Sprintf("the file %s has more than %d MiB", path, maxTrustedRoot>>20), help)
	}
	root, err := approval.ParseTrustedRoot(text)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("the file %s: %w", path, err), help)
	}
	return root, nil
}

// checkSigningKey returns an error if no command could sign with the key of the sign block. It asks nobody for a password: an encrypted
// key is decrypted only if the environment has its password, because whoever checks a file often has none.
func (env Environment) checkSigningKey(text []byte) error {
	locked := false
	_, err := signing.ParseKey(text, signing.PasswordFrom(env.LookupEnv, func() ([]byte, error) {
		locked = true
		return nil, errors.New("no password is given")
	}))
	if locked {
		return nil
	}
	return err
}

// maxTrustedRoot is the maximum size in bytes of a trusted_root.json file. The file of the public Sigstore instance has less
// than 10 KiB.
const maxTrustedRoot = 1 << 20
